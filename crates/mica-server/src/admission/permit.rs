//! Permissions as expressions ask for them.
//!
//! Expressions ask while they are evaluated, and whoever decides may have to read for it. So an evaluation notes what it
//! asked and was not told; that is then decided, and the evaluation starts over. Each question is decided once a request.

use mica_machinery::cel::library::authz::{Authorizer as Answers, Check, Decision, Subject, Target};
use parking_lot::Mutex;

use crate::authz::{Action, Asked, Authorizer, Realm, User};
use crate::error::ApiError;
use crate::plane::Plane;

/// Questions that one evaluation may come to ask one after the other.
const ROUNDS: usize = 64;

/// What was decided during one request.
#[derive(Default)]
pub(super) struct Permits {
    known: Mutex<Vec<(Check, Decision)>>,
    wanted: Mutex<Vec<Check>>,
}

impl Answers for Permits {
    fn authorize(&self, check: &Check) -> Decision {
        let known = self.known.lock();
        if let Some((_, decision)) = known.iter().find(|(asked, _)| asked == check) {
            return decision.clone();
        }
        self.wanted.lock().push(check.clone());
        Decision::default()
    }
}

impl Permits {
    /// The outcome of an evaluation that was told everything it asked.
    pub(super) async fn run<T>(
        &self,
        authorizer: &Authorizer,
        plane: &Plane,
        user: &User,
        evaluate: impl Fn(&Self) -> T,
    ) -> Result<T, ApiError> {
        for _ in 0..ROUNDS {
            let outcome = evaluate(self);
            let wanted = std::mem::take(&mut *self.wanted.lock());
            if wanted.is_empty() {
                return Ok(outcome);
            }
            for check in wanted {
                let subject = subject(plane, &check.subject);
                let decided = authorizer
                    .decide(subject.as_ref().unwrap_or(user), plane, &asked(&check))
                    .await;
                let decision = match decided {
                    Ok(decided) => Decision {
                        allowed: decided.allowed,
                        reason: decided.reason,
                        error: None,
                    },
                    Err(error) => Decision {
                        error: Some(error.message().to_owned()),
                        ..Decision::default()
                    },
                };
                self.known.lock().push((check, decision));
            }
        }
        Err(ApiError::internal("an expression asks too much about permissions"))
    }
}

/// Another user than the one who asks, if the check is about one.
fn subject(plane: &Plane, subject: &Subject) -> Option<User> {
    match subject {
        Subject::Requester => None,
        Subject::ServiceAccount { namespace, name } => Some(User {
            realm: Realm::Plane(plane.id),
            name: format!("system:serviceaccount:{namespace}:{name}"),
            groups: vec![
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
                "system:authenticated".to_owned(),
            ],
            ..User::default()
        }),
    }
}

/// What an expression asks, as roles are asked. They know nothing of selectors.
fn asked(check: &Check) -> Asked<'_> {
    let verb = check.verb.as_str();
    match &check.target {
        Target::Path(path) => Asked::Path { verb, path },
        Target::Resource(resource) => Asked::Resource(Action {
            verb,
            group: &resource.group,
            resource: &resource.resource,
            subresource: &resource.subresource,
            namespace: &resource.namespace,
            name: &resource.name,
        }),
    }
}
