//! What counts in a view of root beside what is decided about root itself.
//!
//! A view is confined to one organization or user, so what would be too much in all of root can be allowed there. Who
//! decides in the chain goes first, and a no of theirs stands.

use super::decision::allowed;
use super::{Action, Asked, Authorizer, Decision, Realm, User, Verdict};
use crate::error::ApiError;
use crate::plane::Plane;

/// What may let a user do something in a view of root, beside what is decided about root itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Beside {
    Nothing,
    /// Roles that are bound in this namespace of root: what is asked is confined to the namespace's organization.
    Namespace(String),
    /// What is asked is confined to what is about the user itself.
    Own,
}

/// What everybody may do with what is about themselves: look at it, and leave.
const OWN_VERBS: [&str; 4] = ["get", "list", "watch", "delete"];

impl Authorizer {
    /// The chain's decision, or where that has no opinion what else counts in a view.
    pub(super) async fn decide_beside(
        &self,
        user: &User,
        plane: &Plane,
        action: Action<'_>,
        beside: &Beside,
    ) -> Result<Decision, ApiError> {
        let decided = self.decide(user, plane, &Asked::Resource(action)).await?;
        if decided.verdict != Verdict::NoOpinion || decided.error.is_some() || user.realm != Realm::Platform {
            return Ok(decided);
        }
        match beside {
            Beside::Nothing => Ok(decided),
            Beside::Own if OWN_VERBS.contains(&action.verb) => Ok(Decision {
                reason: "it is the user's own".to_owned(),
                ..allowed()
            }),
            Beside::Own => Ok(decided),
            Beside::Namespace(namespace) => {
                let asked = Asked::Resource(Action { namespace, ..action });
                let inside = self.policies.of(plane).await?.decide(&user.as_kind(), &asked);
                Ok(if inside.allowed { inside.into() } else { decided })
            }
        }
    }
}
