//! Kubelets' requests for certificates of their own, approved where roles allow it: what upstream's approver does
//! (`pkg/controller/certificates/approver`), in its words.

use std::sync::Arc;

use mica_machinery::kind::certificates::request;
use mica_machinery::object;
use serde_json::{Value, json};

use super::{Answered, GROUP, KUBELET_CLIENT, PLURAL, Signer, check, condition, usages};
use crate::authz::{Action, Asked, Realm, User, parent};
use crate::error::ApiError;
use crate::pki::SigningRequest;
use crate::plane::Plane;

/// As what a request may be approved: who may do this gets a certificate without anybody's asking.
struct Permission {
    subresource: &'static str,
    message: &'static str,
}

const SELF: Permission = Permission {
    subresource: "selfnodeclient",
    message: "Auto approving self kubelet client certificate after SubjectAccessReview.",
};
const NODE: Permission = Permission {
    subresource: "nodeclient",
    message: "Auto approving kubelet client certificate after SubjectAccessReview.",
};

/// Whether nobody has said anything yet to a request that could be approved.
pub(super) fn is_pending(asked: &Value) -> bool {
    object::string(asked, &["spec", "signerName"]) == KUBELET_CLIENT
        && object::string(asked, &["status", "certificate"]).is_empty()
        && !["Approved", "Denied", "Failed"]
            .iter()
            .any(|said| condition(asked, said))
}

/// What would do for a request: the narrower first. Nothing, if it is not a kubelet's.
fn recognized(asked: &Value) -> Vec<&'static Permission> {
    let parsed = request::parse(asked)
        .ok()
        .and_then(|der| SigningRequest::from_der(&der).ok());
    let Some(parsed) = parsed.filter(|parsed| check(KUBELET_CLIENT, parsed, &usages(asked)).is_ok()) else {
        return Vec::new();
    };
    match object::string(asked, &["spec", "username"]) == parsed.common_name {
        true => vec![&SELF, &NODE],
        false => vec![&NODE],
    }
}

impl Signer {
    /// Approves a request if who made it may.
    pub(super) async fn approve(&self, plane: &Arc<Plane>, name: &str, asked: &Value) -> Result<Answered, ApiError> {
        let (permissions, user) = (recognized(asked), maker(plane, asked));
        for permission in &permissions {
            let action = Action {
                verb: "create",
                group: GROUP,
                version: "*",
                resource: PLURAL,
                subresource: permission.subresource,
                ..Action::default()
            };
            let decision = self.authorizer.decide(&user, plane, &Asked::Resource(action)).await?;
            if decision.is_allowed() {
                let now = mica_machinery::time::now_text(jiff::Timestamp::now());
                let approved = json!([{"type": "Approved", "status": "True", "reason": "AutoApproved",
                    "message": permission.message, "lastUpdateTime": now}]);
                let path = ["status", "conditions"];
                self.tell(plane, name, asked, ("approval", is_pending), (&path, &approved))
                    .await?;
                return Ok(Answered::Whole);
            }
        }
        Ok(match permissions.is_empty() {
            true => Answered::Whole,
            // They may come to be allowed, as roles are made in any order.
            false => Answered::NotYet,
        })
    }
}

/// Who made a request, as somebody of its plane.
fn maker(plane: &Plane, asked: &Value) -> Arc<User> {
    let texts = |list: &[Value]| list.iter().filter_map(Value::as_str).map(ToOwned::to_owned).collect();
    let extra = object::map(asked, &["spec", "extra"]).into_iter().flatten();
    let user = User {
        realm: match plane.is_root() {
            true => Realm::Platform,
            false => Realm::Plane(plane.id),
        },
        name: object::string(asked, &["spec", "username"]).to_owned(),
        uid: object::string(asked, &["spec", "uid"]).to_owned(),
        groups: texts(object::list(asked, &["spec", "groups"])),
        extra: extra
            .map(|(key, values)| (key.clone(), texts(values.as_array().map_or(&[], Vec::as_slice))))
            .collect(),
        ..User::default()
    };
    parent::carried(Arc::new(user), plane.parent())
}
