//! The roles and bindings that root is born with, set right when a server starts: as upstream does with those of its one
//! control plane.
//!
//! What was deleted is back, and what lost rules or subjects has them again, beside whatever it was given. One that says
//! that it is not to be updated stays as it is, unless it was deleted. Planes keep what their users made of theirs.

use futures::{StreamExt as _, TryStreamExt as _, stream};
use mica_machinery::kind::rbac::GROUP;
use mica_machinery::object;
use mica_machinery::rbac::{self, Rule};
use serde_json::Value;

use super::controllers::AUTO_UPDATE;
use crate::error::ApiError;
use crate::serve::Server;
use crate::stored::Content;

/// Reads at once: a store may be far away.
const READS: usize = 16;

impl Server {
    /// Sets the default roles of root right. `born` is what root is born with.
    pub(crate) async fn restore_roles(&self, born: Vec<Value>) -> Result<(), ApiError> {
        let is_role = |object: &Value| {
            let group = object::string(object, &["apiVersion"]).split_once('/');
            group.is_some_and(|(group, _)| group == GROUP)
        };
        let roles = born.into_iter().filter(is_role);
        let touched: Vec<Option<Value>> = stream::iter(roles)
            .map(|role| async move { Ok::<_, ApiError>(self.is_touched(&role).await?.then_some(role)) })
            .buffered(READS)
            .try_collect()
            .await?;
        for role in touched.into_iter().flatten() {
            tracing::debug!(role = object::name(&role), "a default role of root is looked at");
            self.keep(role.clone(), &|present| restored(present, &role)).await?;
        }
        Ok(())
    }

    /// Whether root has something else there than it was born with.
    async fn is_touched(&self, role: &Value) -> Result<bool, ApiError> {
        let target = self.default_target(role)?;
        let namespace = target.namespace.as_deref();
        let key = target
            .plane
            .keys()
            .object(&target.served.storage, namespace, object::name(role));
        Ok(match self.store.get(&key).await? {
            None => false,
            Some(record) => !matches!(Content::read(&record)?, Content::Based(_)),
        })
    }
}

/// What is there, with what it should have at least.
fn restored(mut present: Value, wanted: &Value) -> Value {
    if object::string(&present, &["metadata", "annotations", AUTO_UPDATE]) == "false" {
        return present;
    }
    // What collects other roles' rules has no rules of its own.
    if wanted.get("rules").is_some() && wanted.get("aggregationRule").is_none() {
        let held = Rule::read_all(&present);
        let lacks = |rule: &&Value| !rbac::missing(&held, &[Rule::read(rule)]).is_empty();
        let missing = object::list(wanted, &["rules"]).iter().filter(lacks).cloned().collect();
        add(&mut present, "rules", missing);
    }
    if let Some(subjects) = wanted["subjects"].as_array() {
        let has = |subject: &&Value| object::list(&present, &["subjects"]).contains(subject);
        let missing: Vec<Value> = subjects.iter().filter(|subject| !has(subject)).cloned().collect();
        add(&mut present, "subjects", missing);
    }
    present
}

fn add(object: &mut Value, field: &str, more: Vec<Value>) {
    if !more.is_empty() {
        let mut all = object::list(object, &[field]).to_vec();
        all.extend(more);
        object::set(object, &[field], all);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_missing_is_added_and_nothing_is_taken_away() {
        let rule =
            |resources: &[&str], verbs: &[&str]| json!({"apiGroups": [""], "resources": resources, "verbs": verbs});
        let wanted = json!({"rules": [rule(&["pods", "secrets"], &["get"]), rule(&["nodes"], &["list"])]});
        let present =
            json!({"rules": [rule(&["pods"], &["*"]), rule(&["events"], &["get"]), rule(&["nodes"], &["list"])]});
        let after = restored(present.clone(), &wanted);
        let all = object::list(&after, &["rules"]);
        assert_eq!(all[..3], object::list(&present, &["rules"])[..]);
        assert_eq!(all[3..], [rule(&["pods", "secrets"], &["get"])]);
        assert_eq!(restored(after.clone(), &wanted), after, "once is enough");
        let mut kept = present;
        kept["metadata"]["annotations"][AUTO_UPDATE] = "false".into();
        assert_eq!(restored(kept.clone(), &wanted), kept);
        let subject = |name: &str| json!({"apiGroup": GROUP, "kind": "Group", "name": name});
        let bound = restored(
            json!({"subjects": [subject("a")]}),
            &json!({"subjects": [subject("b"), subject("a")]}),
        );
        assert_eq!(bound["subjects"], json!([subject("a"), subject("b")]));
    }
}
