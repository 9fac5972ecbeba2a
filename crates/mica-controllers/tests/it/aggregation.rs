//! Cluster roles that collect the rules of others.

use serde_json::{Value, json};

use super::world::World;

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";

#[tokio::test]
async fn roles_that_a_plane_is_born_with_collect_what_is_labelled_for_them() {
    let world = World::start().await;
    for place in world.places().await {
        let rule = json!({"apiGroups": ["example.com"], "resources": ["widgets"], "verbs": ["get"]});
        let part = json!({
            "metadata": {"name": "widgets-view", "labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
            "rules": [rule],
        });
        place.create(ROLES, part).await;
        // What view holds, edit and admin hold.
        for name in ["view", "edit", "admin"] {
            let path = format!("{ROLES}/{name}");
            let has = |found: Option<&Value>| found.unwrap()["rules"].as_array().unwrap().contains(&rule);
            place.until(&path, "holding the rule", has).await;
        }
        place.delete(&format!("{ROLES}/widgets-view")).await;
        for name in ["view", "edit", "admin"] {
            let path = format!("{ROLES}/{name}");
            let has_not = |found: Option<&Value>| !found.unwrap()["rules"].as_array().unwrap().contains(&rule);
            place.until(&path, "without the rule", has_not).await;
        }
    }
}
