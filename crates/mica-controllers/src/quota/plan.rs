//! The status that each quota should have. A function of what was found.

use std::collections::BTreeMap;

use jiff::Timestamp;
use mica_machinery::admission::quota;
use mica_machinery::object;
use serde_json::{Map, Value, json};

use super::observe::{Counted, Found};

/// For each quota its new status, where it is to change.
pub fn plan(found: &Found, now: Timestamp) -> Vec<Option<Value>> {
    found.quotas.iter().map(|quota| status(quota, found, now)).collect()
}

fn status(quota: &Value, found: &Found, now: Timestamp) -> Option<Value> {
    let empty = Map::new();
    let hard = object::map(quota, &["spec", "hard"]).unwrap_or(&empty);
    let before = object::map(quota, &["status", "used"]).unwrap_or(&empty);
    let mut used: BTreeMap<String, Value> = BTreeMap::new();
    for name in hard.keys() {
        let counted = quota::counted_by(name).and_then(|(group, resource)| {
            let found = found.counted.get(&(group.to_owned(), resource.to_owned()))?;
            Some((group, resource, found))
        });
        let amount = match counted {
            // Nothing counts for it: it stays as somebody said.
            None => before.get(name).cloned(),
            // No plain object is in any scope.
            Some((_, _, Counted::Plain(_))) if quota::is_scoped(quota) => Some("0".into()),
            Some((_, _, Counted::Plain(count))) => Some(count.to_string().into()),
            Some((group, resource, Counted::Whole(objects))) => {
                let used = quota::used_by(quota, group, resource, objects, now);
                used.get(name).map(|amount| amount.to_string().into())
            }
        };
        if let Some(amount) = amount {
            used.insert(name.clone(), amount);
        }
    }
    let wanted = json!({"hard": hard, "used": used});
    let is_so = |field: &str| object::get(quota, &["status", field]).unwrap_or(&Value::Null) == &wanted[field];
    // A quota that limits nothing says nothing.
    let says_nothing = hard.is_empty() && object::map(quota, &["status", "hard"]).is_none_or(Map::is_empty);
    let is_current = is_so("hard") && is_so("used");
    (!says_nothing && !is_current).then_some(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quota(spec: Value, status: Value) -> Value {
        json!({"metadata": {"name": "q", "namespace": "ns"}, "spec": spec, "status": status})
    }

    fn check(quota: Value, counted: Vec<((&str, &str), Counted)>, expected: Option<Value>) {
        let found = Found {
            quotas: vec![quota],
            counted: counted
                .into_iter()
                .map(|((group, resource), counted)| ((group.to_owned(), resource.to_owned()), counted))
                .collect(),
        };
        assert_eq!(plan(&found, Timestamp::UNIX_EPOCH), [expected]);
    }

    const MAPS: (&str, &str) = ("", "configmaps");

    #[test]
    fn what_is_there_is_counted_under_every_name() {
        let hard = json!({"configmaps": "5", "count/configmaps": "6", "count/xs.a.io": "1", "example.com/other": "1"});
        check(
            quota(json!({"hard": hard}), json!({})),
            vec![(MAPS, Counted::Plain(3)), (("a.io", "xs"), Counted::Plain(0))],
            Some(json!({"hard": hard, "used": {"configmaps": "3", "count/configmaps": "3", "count/xs.a.io": "0"}})),
        );
    }

    #[test]
    fn a_status_that_is_true_is_not_written_again() {
        let hard = json!({"configmaps": "5"});
        let status = json!({"hard": hard, "used": {"configmaps": "3"}});
        check(
            quota(json!({"hard": hard}), status.clone()),
            vec![(MAPS, Counted::Plain(3))],
            None,
        );
        check(
            quota(json!({"hard": hard}), status),
            vec![(MAPS, Counted::Plain(2))],
            Some(json!({"hard": hard, "used": {"configmaps": "2"}})),
        );
        check(quota(json!({}), json!({})), vec![], None);
    }

    #[test]
    fn names_that_are_not_limited_any_more_go_from_the_status() {
        let status = json!({"hard": {"configmaps": "5", "secrets": "1"}, "used": {"configmaps": "1", "secrets": "0"}});
        check(
            quota(json!({"hard": {"configmaps": "5"}}), status),
            vec![(MAPS, Counted::Plain(1))],
            Some(json!({"hard": {"configmaps": "5"}, "used": {"configmaps": "1"}})),
        );
    }

    #[test]
    fn only_what_is_in_scope_counts() {
        let pod = |cpu: &str, deadline: Value| json!({"spec": {"activeDeadlineSeconds": deadline, "containers": [{"resources": {"requests": {"cpu": cpu}}}]}});
        let hard = json!({"pods": "5", "requests.cpu": "2"});
        let pods = || Counted::Whole(vec![pod("200m", json!(10)), pod("300m", Value::Null)]);
        check(
            quota(json!({"hard": hard, "scopes": ["Terminating"]}), json!({})),
            vec![(("", "pods"), pods())],
            Some(json!({"hard": hard, "used": {"pods": "1", "requests.cpu": "200m"}})),
        );
        check(
            quota(json!({"hard": hard}), json!({})),
            vec![(("", "pods"), pods())],
            Some(json!({"hard": hard, "used": {"pods": "2", "requests.cpu": "500m"}})),
        );
        let hard = json!({"configmaps": "5"});
        check(
            quota(json!({"hard": hard, "scopes": ["BestEffort"]}), json!({})),
            vec![(MAPS, Counted::Plain(3))],
            Some(json!({"hard": hard, "used": {"configmaps": "0"}})),
        );
    }
}
