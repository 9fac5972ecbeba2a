//! Which roles collect other rules than they hold. A function of all roles.

use mica_machinery::kind::rbac::aggregated_rules;
use mica_machinery::object;
use serde_json::Value;

/// The roles that are to change, each with its new rules. A role that collects from one of these is changed when that one is.
pub fn plan(roles: &[Value]) -> impl Iterator<Item = (&Value, Vec<Value>)> {
    let collects = |role: &&Value| object::get(role, &["aggregationRule"]).is_some_and(Value::is_object);
    roles.iter().filter(collects).filter_map(|role| {
        let rules = aggregated_rules(role, roles);
        (object::list(role, &["rules"]) != rules).then_some((role, rules))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rule(verb: &str) -> Value {
        json!({"apiGroups": [""], "resources": ["pods"], "verbs": [verb]})
    }

    #[test]
    fn roles_that_collect_hold_the_rules_of_those_that_they_select() {
        let collecting = |rules: Value| {
            let selectors = json!([{"matchLabels": {"collect": "yes"}}]);
            json!({"metadata": {"name": "all"}, "aggregationRule": {"clusterRoleSelectors": selectors}, "rules": rules})
        };
        let part = |name: &str, verb: &str| json!({"metadata": {"name": name, "labels": {"collect": "yes"}}, "rules": [rule(verb)]});
        let mut roles = vec![
            collecting(json!([])),
            part("a", "get"),
            part("b", "list"),
            part("c", "get"),
        ];
        let planned: Vec<(String, Vec<Value>)> = plan(&roles)
            .map(|(role, rules)| (object::name(role).to_owned(), rules))
            .collect();
        assert_eq!(planned, [("all".to_owned(), vec![rule("get"), rule("list")])]);
        roles[0] = collecting(json!([rule("get"), rule("list")]));
        assert_eq!(plan(&roles).count(), 0, "what is right stays");
    }
}
