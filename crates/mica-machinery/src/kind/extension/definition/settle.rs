//! What a server finds out about a definition: whether its names are free, its schemas structural, its group approved.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::naming::approval_condition;
use super::{CLEANUP_FINALIZER, set_condition};
use crate::field::quote;
use crate::kind::check::strings;
use crate::kind::condition;
use crate::schema::structural;
use crate::{kind, object};

/// The definition with its status as it should be, given the others of its group; `None` if it is so already.
pub fn settled(definition: &Value, others: &[Value], now: jiff::Timestamp) -> Option<Value> {
    let mut new = definition.clone();
    if definition["spec"]["names"] != definition["status"]["acceptedNames"] {
        accept_names(&mut new, others, now);
    }
    establish(&mut new, now);
    if let Some([status, reason, message]) = approval_condition(definition) {
        set_condition(
            &mut new,
            "KubernetesAPIApprovalPolicyConformant",
            &status,
            [&reason, &message],
            now,
        );
    }
    match structural::condition(definition) {
        Some((status, reason, message)) => {
            set_condition(&mut new, "NonStructuralSchema", status, [reason, &message], now);
        }
        None => drop_condition(&mut new, "NonStructuralSchema"),
    }
    (new != *definition).then_some(new)
}

/// The definition with its instances gone, free to go itself.
pub fn removed(definition: &Value, now: jiff::Timestamp) -> Value {
    let mut new = definition.clone();
    let conditions = object::list(definition, &["status", "conditions"]);
    let why = if condition::has(conditions, "Established", "True") {
        ["InstanceDeletionCompleted", "removed all instances"]
    } else {
        ["NeverEstablished", "resource was never established"]
    };
    set_condition(&mut new, "Terminating", "False", why, now);
    let mut finalizers = object::list(&new, &["metadata", "finalizers"]).to_vec();
    finalizers.retain(|finalizer| finalizer != CLEANUP_FINALIZER);
    if finalizers.is_empty() {
        object::remove(&mut new, &["metadata", "finalizers"]);
    } else {
        object::set(&mut new, &["metadata", "finalizers"], finalizers);
    }
    new
}

/// Takes the names that nobody else has, and says which are taken.
fn accept_names(definition: &mut Value, others: &[Value], now: jiff::Timestamp) {
    let used = |fields: &[&str]| -> BTreeSet<String> {
        let names = others.iter().map(|other| &other["status"]["acceptedNames"]);
        names
            .flat_map(|names| {
                fields.iter().flat_map(move |field| match &names[*field] {
                    Value::String(name) => vec![name.clone()],
                    Value::Array(_) => strings(names, &[field]).into_iter().map(str::to_owned).collect(),
                    _ => Vec::new(),
                })
            })
            .collect()
    };
    let resources = used(&["plural", "singular", "shortNames"]);
    let kinds = used(&["kind", "listKind"]);
    let (wanted, had) = (
        definition["spec"]["names"].clone(),
        definition["status"]["acceptedNames"].clone(),
    );
    let mut accepted = had.clone();
    // The last conflict is the one that is told.
    let mut conflict: Option<(&str, String)> = None;
    let taken = |name: &str| format!("{} is already in use", quote(name));
    let mut one = |field: &str, reason: &'static str, used: &BTreeSet<String>| {
        let name = object::string(&wanted, &[field]);
        if name != object::string(&had, &[field]) && used.contains(name) {
            conflict = Some((reason, taken(name)));
        } else {
            object::set(&mut accepted, &[field], name);
        }
    };
    one("plural", "PluralConflict", &resources);
    one("singular", "SingularConflict", &resources);
    let (short, own) = (strings(&wanted, &["shortNames"]), strings(&had, &["shortNames"]));
    let clashes: Vec<String> = short
        .iter()
        .filter(|name| !own.contains(name) && resources.contains(**name))
        .map(|name| taken(name))
        .collect();
    let short_conflict = (short != own && !clashes.is_empty()).then(|| ("ShortNamesConflict", aggregate(&clashes)));
    if short_conflict.is_some() {
        conflict = short_conflict;
    } else {
        copy_list(&wanted, &mut accepted, "shortNames");
    }
    let mut one = |field: &str, reason: &'static str| {
        let name = object::string(&wanted, &[field]);
        if name != object::string(&had, &[field]) && kinds.contains(name) {
            conflict = Some((reason, taken(name)));
        } else {
            object::set(&mut accepted, &[field], name);
        }
    };
    one("kind", "KindConflict");
    one("listKind", "ListKindConflict");
    copy_list(&wanted, &mut accepted, "categories");
    definition["status"]["acceptedNames"] = accepted;
    let established = has(definition, "Established", "True");
    match &conflict {
        Some((reason, message)) => {
            set_condition(definition, "NamesAccepted", "False", [reason, message], now);
            if find(definition, "Established").is_none() {
                let why = ["NotAccepted", "not all names are accepted"];
                set_condition(definition, "Established", "False", why, now);
            }
        }
        None => {
            let why = ["NoConflicts", "no conflicts found"];
            set_condition(definition, "NamesAccepted", "True", why, now);
            if !established {
                let why = ["Installing", "the initial names have been accepted"];
                set_condition(definition, "Established", "False", why, now);
            }
        }
    }
}

/// Several messages as one, as upstream joins them.
fn aggregate(messages: &[String]) -> String {
    match messages {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

fn copy_list(from: &Value, to: &mut Value, field: &str) {
    match from.get(field) {
        Some(list) => object::set(to, &[field], list.clone()),
        None => drop(object::remove(to, &[field])),
    }
}

/// A definition whose names are accepted is served from then on.
fn establish(definition: &mut Value, now: jiff::Timestamp) {
    if !has(definition, "NamesAccepted", "True") || has(definition, "Established", "True") {
        return;
    }
    let bundle = object::string(
        definition,
        &["spec", "conversion", "webhook", "clientConfig", "caBundle"],
    );
    if !bundle.is_empty() && kind::webhook::ca_bundle_error(bundle).is_some() {
        let why = ["InvalidCABundle", "The conversion webhook CABundle is invalid"];
        set_condition(definition, "Established", "False", why, now);
    } else {
        let why = ["InitialNamesAccepted", "the initial names have been accepted"];
        set_condition(definition, "Established", "True", why, now);
    }
}

fn find<'d>(definition: &'d Value, r#type: &str) -> Option<&'d Value> {
    let conditions = object::list(definition, &["status", "conditions"]);
    conditions.iter().find(|one| object::string(one, &["type"]) == r#type)
}

fn has(definition: &Value, r#type: &str, status: &str) -> bool {
    find(definition, r#type).is_some_and(|one| object::string(one, &["status"]) == status)
}

fn drop_condition(definition: &mut Value, r#type: &str) {
    if find(definition, r#type).is_some() {
        let mut conditions = object::list(definition, &["status", "conditions"]).to_vec();
        conditions.retain(|one| object::string(one, &["type"]) != r#type);
        definition["status"]["conditions"] = json!(conditions);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(group: &str, names: Value) -> Value {
        json!({"metadata": {"name": "x"}, "spec": {"group": group, "names": names, "versions": []},
            "status": {"acceptedNames": {"plural": "", "kind": ""}, "conditions": null}})
    }

    fn conditions(definition: &Value) -> Vec<String> {
        let text = |one: &Value, field: &str| one[field].as_str().unwrap_or_default().to_owned();
        object::list(definition, &["status", "conditions"])
            .iter()
            .map(|one| {
                let words = ["type", "status", "reason", "message"].map(|field| text(one, field));
                format!("{}={} {}: {}", words[0], words[1], words[2], words[3])
            })
            .collect()
    }

    const NOW: jiff::Timestamp = jiff::Timestamp::UNIX_EPOCH;

    #[test]
    fn free_names_are_accepted_and_the_definition_is_established_at_once() {
        let names = json!({"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList",
            "shortNames": ["wd"], "categories": ["all"]});
        let new = settled(&definition("x.io", names.clone()), &[], NOW).expect("a change");
        assert_eq!(new["status"]["acceptedNames"], names);
        assert_eq!(
            conditions(&new),
            [
                "NamesAccepted=True NoConflicts: no conflicts found",
                "Established=True InitialNamesAccepted: the initial names have been accepted"
            ]
        );
        assert_eq!(settled(&new, &[], NOW), None);
    }

    #[test]
    fn taken_names_are_refused_until_they_are_free() {
        let names = json!({"plural": "gadgets", "singular": "gadget", "kind": "Widget", "listKind": "GadgetList",
            "shortNames": ["wd", "gd"]});
        let rival = json!({"status": {"acceptedNames": {"plural": "widgets", "singular": "widget", "kind": "Widget",
            "listKind": "WidgetList", "shortNames": ["wd"]}}});
        let new = settled(&definition("x.io", names), &[rival], NOW).expect("a change");
        assert_eq!(
            conditions(&new),
            [
                "NamesAccepted=False KindConflict: \"Widget\" is already in use",
                "Established=False NotAccepted: not all names are accepted"
            ]
        );
        let accepted = &new["status"]["acceptedNames"];
        assert_eq!(
            (&accepted["plural"], &accepted["kind"]),
            (&json!("gadgets"), &json!(""))
        );
        assert_eq!(accepted.get("shortNames"), None);
        let free = settled(&new, &[], NOW).expect("a change");
        assert_eq!(
            conditions(&free)[0],
            "NamesAccepted=True NoConflicts: no conflicts found"
        );
        assert!(conditions(&free)[1].starts_with("Established=True"));
    }

    #[test]
    fn protected_groups_say_whether_they_are_approved() {
        let names = json!({"plural": "w", "singular": "w", "kind": "W", "listKind": "WList"});
        let mut definition = definition("x.k8s.io", names);
        definition["metadata"]["annotations"] = json!({"api-approved.kubernetes.io": "unapproved, a test"});
        let new = settled(&definition, &[], NOW).expect("a change");
        assert_eq!(
            conditions(&new)[2],
            "KubernetesAPIApprovalPolicyConformant=False UnapprovedAnnotation: not approved: \"unapproved, a test\""
        );
    }

    #[test]
    fn a_definition_whose_instances_are_gone_may_go() {
        let names = json!({"plural": "w", "singular": "w", "kind": "W", "listKind": "WList"});
        let mut definition = settled(&definition("x.io", names), &[], NOW).expect("a change");
        super::super::begin_delete(&mut definition, NOW);
        let gone = removed(&definition, NOW);
        assert_eq!(gone["metadata"].get("finalizers"), None);
        assert_eq!(
            conditions(&gone)[2],
            "Terminating=False InstanceDeletionCompleted: removed all instances"
        );
    }
}
