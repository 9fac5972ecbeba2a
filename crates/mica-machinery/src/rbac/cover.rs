//! Escalation: nobody gives away what they do not have.

use std::collections::BTreeSet;

use super::{ALL, Rule, has, has_or_all, url_covers};
use crate::field::quote;
use crate::kind::User;

/// The parts of `given` that no rule of `held` covers, each with one verb and one resource, name or path.
pub fn missing(held: &[Rule], given: &[Rule]) -> Vec<Rule> {
    given
        .iter()
        .flat_map(parts)
        .filter(|part| !held.iter().any(|rule| covers(rule, part)))
        .collect()
}

/// What upstream says to somebody who would give away rules that they do not hold.
pub fn refusal(user: &User<'_>, missing: &[Rule], errors: &[String]) -> String {
    let shown: BTreeSet<String> = joined(missing).iter().map(described).collect();
    let groups: Vec<String> = user.groups.iter().map(|group| quote(group)).collect();
    let mut text = format!(
        "user {} (groups=[{}]) is attempting to grant RBAC permissions not currently held:\n{}",
        quote(user.name),
        groups.join(" "),
        shown.into_iter().collect::<Vec<_>>().join("\n")
    );
    if !errors.is_empty() {
        text.push_str(&format!("; resolution errors: [{}]", errors.join(" ")));
    }
    text
}

fn parts(rule: &Rule) -> Vec<Rule> {
    let one = |value: &str| -> Box<[Box<str>]> { Box::new([value.into()]) };
    let mut parts = Vec::new();
    for (group, resource, verb) in rule.groups.iter().flat_map(|group| {
        rule.resources
            .iter()
            .flat_map(move |resource| rule.verbs.iter().map(move |verb| (group, resource, verb)))
    }) {
        let part = Rule {
            verbs: one(verb),
            groups: one(group),
            resources: one(resource),
            ..Rule::default()
        };
        if rule.names.is_empty() {
            parts.push(part);
        } else {
            parts.extend(rule.names.iter().map(|name| Rule {
                names: one(name),
                ..part.clone()
            }));
        }
    }
    for url in &rule.urls {
        parts.extend(rule.verbs.iter().map(|verb| Rule {
            verbs: one(verb),
            urls: one(url),
            ..Rule::default()
        }));
    }
    parts
}

fn covers(held: &Rule, part: &Rule) -> bool {
    let each = |held: &[Box<str>], wanted: &[Box<str>]| wanted.iter().all(|one| has_or_all(held, one));
    each(&held.verbs, &part.verbs)
        && each(&held.groups, &part.groups)
        && part.resources.iter().all(|resource| covers_resource(held, resource))
        && part
            .urls
            .iter()
            .all(|path| held.urls.iter().any(|url| url_covers(url, path)))
        && (held.names.is_empty() || (!part.names.is_empty() && part.names.iter().all(|name| has(&held.names, name))))
}

fn covers_resource(held: &Rule, resource: &str) -> bool {
    let below = resource.split_once('/').map(|(_, below)| format!("{ALL}/{below}"));
    has_or_all(&held.resources, resource) || below.is_some_and(|below| has(&held.resources, &below))
}

/// Parts that differ only in their verb, as one.
fn joined(parts: &[Rule]) -> Vec<Rule> {
    let mut joined: Vec<Rule> = Vec::new();
    for part in parts {
        let same = |one: &&mut Rule| {
            part.urls.is_empty()
                && (&one.groups, &one.resources, &one.names, &one.urls)
                    == (&part.groups, &part.resources, &part.names, &part.urls)
        };
        match joined.iter_mut().find(same) {
            Some(one) => one.verbs = one.verbs.iter().chain(&part.verbs).cloned().collect(),
            None => joined.push(part.clone()),
        }
    }
    joined
}

fn described(rule: &Rule) -> String {
    let shown: Vec<String> = [
        ("APIGroups", &rule.groups),
        ("Resources", &rule.resources),
        ("NonResourceURLs", &rule.urls),
        ("ResourceNames", &rule.names),
        ("Verbs", &rule.verbs),
    ]
    .into_iter()
    .filter(|(_, values)| !values.is_empty())
    .map(|(label, values)| {
        let values: Vec<String> = values.iter().map(|value| quote(value)).collect();
        format!("{label}:[{}]", values.join(" "))
    })
    .collect();
    format!("{{{}}}", shown.join(", "))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn rules(texts: Value) -> Vec<Rule> {
        Rule::read_all(&json!({"rules": texts}))
    }

    fn left(held: Value, given: Value) -> Vec<String> {
        let missing = missing(&rules(held), &rules(given));
        joined(&missing).iter().map(described).collect()
    }

    #[test]
    fn what_is_covered_is_not_missing() {
        let secrets = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list"]}]);
        let one = json!([{"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["one"], "verbs": ["get"]}]);
        assert_eq!(left(secrets.clone(), one.clone()), Vec::<String>::new());
        assert_eq!(
            left(one, secrets),
            [r#"{APIGroups:[""], Resources:["secrets"], Verbs:["get" "list"]}"#]
        );
        let status = json!([{"apiGroups": ["*"], "resources": ["*/status"], "verbs": ["*"]}]);
        let pods = json!([{"apiGroups": [""], "resources": ["pods/status", "pods"], "verbs": ["patch"]}]);
        assert_eq!(
            left(status, pods),
            [r#"{APIGroups:[""], Resources:["pods"], Verbs:["patch"]}"#]
        );
        let paths = json!([{"nonResourceURLs": ["/api/*"], "verbs": ["get"]}]);
        let more = json!([{"nonResourceURLs": ["/api/v1", "/x"], "verbs": ["get", "post"]}]);
        assert_eq!(
            left(paths, more),
            [
                r#"{NonResourceURLs:["/api/v1"], Verbs:["post"]}"#,
                r#"{NonResourceURLs:["/x"], Verbs:["get"]}"#,
                r#"{NonResourceURLs:["/x"], Verbs:["post"]}"#
            ]
        );
    }

    #[test]
    fn the_refusal_names_the_user_and_what_is_missing() {
        let groups = ["a".to_owned(), "b".to_owned()];
        let user = User {
            name: "u",
            uid: "",
            groups: &groups,
            extra: &[],
        };
        let given = rules(json!([
            {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
            {"nonResourceURLs": ["*"], "verbs": ["*"]},
        ]));
        assert_eq!(
            refusal(&user, &missing(&[], &given), &[]),
            "user \"u\" (groups=[\"a\" \"b\"]) is attempting to grant RBAC permissions not currently held:\n\
             {APIGroups:[\"*\"], Resources:[\"*\"], Verbs:[\"*\"]}\n{NonResourceURLs:[\"*\"], Verbs:[\"*\"]}"
        );
    }
}
