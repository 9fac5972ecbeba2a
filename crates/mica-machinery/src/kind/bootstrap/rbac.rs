//! The roles and bindings of a new plane, read from the table beside.
//!
//! Aggregated roles (`admin`, `edit`, `view`) come with the rules that they collect: upstream's controller would add them a moment later.

use serde_json::{Value, json};

use crate::kind::rbac::{GROUP, aggregated_rules};
use crate::object;

const TABLE: &str = include_str!("rbac.txt");
/// The depth of roles that collect roles that collect roles: admin, edit, view.
const AGGREGATION_DEPTH: usize = 3;

/// All roles and bindings.
pub fn objects() -> Vec<Value> {
    let mut objects: Vec<Value> = Vec::new();
    for line in TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(rule) = line.strip_prefix("  ") {
            let role = objects.last_mut().expect("rules follow a role");
            let rules = role["rules"].as_array_mut().expect("a role has rules");
            rules.push(parse_rule(rule));
        } else {
            objects.push(parse_object(line));
        }
    }
    aggregate(&mut objects);
    objects
}

/// The group of those who hold a plane's own kubeconfig.
pub const PLANE_ADMINS: &str = "mica:plane-admins";

/// What lets them do everything. Unlike `system:masters` it is a binding, which whoever administers the plane can take away.
pub fn plane_admins() -> Value {
    let subject = format!("Group:{PLANE_ADMINS}");
    binding(
        object("ClusterRoleBinding", PLANE_ADMINS),
        "ClusterRole",
        "cluster-admin",
        &[&subject],
    )
}

fn parse_object(line: &str) -> Value {
    let words: Vec<&str> = line.split(' ').collect();
    match &words[..] {
        ["clusterrole", name, labels @ ..] => cluster_role(name, labels),
        ["role", namespace, name] => {
            let mut role = object("Role", name);
            role["metadata"]["namespace"] = (*namespace).into();
            role["rules"] = json!([]);
            role
        }
        ["clusterrolebinding", name, role, subjects @ ..] => {
            binding(object("ClusterRoleBinding", name), "ClusterRole", role, subjects)
        }
        ["rolebinding", namespace, name, role, subjects @ ..] => {
            let mut bound = binding(object("RoleBinding", name), "Role", role, subjects);
            bound["metadata"]["namespace"] = (*namespace).into();
            bound
        }
        _ => unreachable!("the table is checked by tests: {line}"),
    }
}

fn object(kind: &str, name: &str) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/v1"),
        "kind": kind,
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
            "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
        },
    })
}

fn cluster_role(name: &str, labels: &[&str]) -> Value {
    let mut role = object("ClusterRole", name);
    role["rules"] = json!([]);
    for label in labels {
        match label.strip_prefix('=') {
            Some(collected) => {
                let selector = json!({"matchLabels": {format!("rbac.authorization.k8s.io/{collected}"): "true"}});
                role["aggregationRule"] = json!({"clusterRoleSelectors": [selector]});
            }
            None => role["metadata"]["labels"][format!("rbac.authorization.k8s.io/{label}")] = "true".into(),
        }
    }
    role
}

fn binding(mut binding: Value, kind: &str, role: &str, subjects: &[&str]) -> Value {
    binding["roleRef"] = json!({"apiGroup": GROUP, "kind": kind, "name": role});
    let subjects: Vec<Value> = subjects.iter().map(|subject| parse_subject(subject)).collect();
    if !subjects.is_empty() {
        binding["subjects"] = subjects.into();
    }
    binding
}

fn parse_subject(text: &str) -> Value {
    let (kind, name) = text.split_once(':').expect("a subject has a kind");
    match name.split_once('/') {
        Some((namespace, name)) if kind == "ServiceAccount" => {
            json!({"kind": kind, "name": name, "namespace": namespace})
        }
        _ => json!({"kind": kind, "apiGroup": GROUP, "name": name}),
    }
}

fn parse_rule(line: &str) -> Value {
    let list = |text: &str| -> Vec<String> { text.split(',').map(str::to_owned).collect() };
    let words: Vec<&str> = line.split(' ').collect();
    match &words[..] {
        [verbs, "url", urls] => json!({"verbs": list(verbs), "nonResourceURLs": list(urls)}),
        [verbs, groups, resources, names @ ..] => {
            let groups: Vec<String> = list(groups)
                .into_iter()
                .map(|group| if group == "core" { String::new() } else { group })
                .collect();
            let mut rule = json!({"verbs": list(verbs), "apiGroups": groups, "resources": list(resources)});
            if let Some(names) = names.first() {
                rule["resourceNames"] = list(names).into();
            }
            rule
        }
        _ => unreachable!("the table is checked by tests: {line}"),
    }
}

fn aggregate(objects: &mut [Value]) {
    for _ in 0..AGGREGATION_DEPTH {
        let roles: Vec<Value> = objects
            .iter()
            .filter(|one| object::string(one, &["kind"]) == "ClusterRole")
            .cloned()
            .collect();
        for role in objects.iter_mut().filter(|one| one.get("aggregationRule").is_some()) {
            role["rules"] = aggregated_rules(role, &roles).into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(kind: &str) -> usize {
        objects()
            .iter()
            .filter(|one| object::string(one, &["kind"]) == kind)
            .count()
    }

    fn find(name: &str) -> Value {
        objects()
            .into_iter()
            .find(|one| object::name(one) == name)
            .expect("it is in the table")
    }

    #[test]
    fn there_are_as_many_as_upstream_makes() {
        let counts = ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"].map(count);
        assert_eq!(counts, [72, 53, 7, 7]);
    }

    #[test]
    fn aggregated_roles_hold_the_rules_of_those_below() {
        let rules = |name: &str| find(name)["rules"].as_array().expect("a list").clone();
        let (admin, edit, view) = (rules("admin"), rules("edit"), rules("view"));
        assert!(view.iter().all(|rule| edit.contains(rule)) && edit.iter().all(|rule| admin.contains(rule)));
        assert!(!view.is_empty() && view.len() < edit.len() && edit.len() < admin.len());
    }

    #[test]
    fn rules_and_subjects_are_read() {
        let role = find("system:certificates.k8s.io:kube-apiserver-client-approver");
        assert_eq!(
            role["rules"],
            json!([{
                "verbs": ["approve"], "apiGroups": ["certificates.k8s.io"], "resources": ["signers"],
                "resourceNames": ["kubernetes.io/kube-apiserver-client"],
            }])
        );
        let bound = find("system::leader-locking-kube-scheduler");
        assert_eq!(object::namespace(&bound), "kube-system");
    }
}
