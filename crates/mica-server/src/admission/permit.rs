//! Permissions as expressions ask for them.
//!
//! Expressions ask while they are evaluated, and whoever decides may have to read for it. So an evaluation notes what it
//! asked and was not told; that is then decided, and the evaluation starts over. Each question is decided once a request.
//!
//! Evaluations are mostly over before anybody could notice, and run where the request does. One that costs more is broken
//! off and run again where it holds up nobody else's, a few of those at once.

use mica_machinery::access::Selectors;
use mica_machinery::admission::Effort;
use mica_machinery::cel::library::authz::{Authorizer as Answers, Check, Decision, Subject, Target};
use parking_lot::Mutex;
use tokio::runtime::RuntimeFlavor;
use tokio::sync::Semaphore;

use crate::authz::{Action, Asked, Authorizer, Realm, User};
use crate::error::ApiError;
use crate::plane::Plane;

/// Questions that one evaluation may come to ask one after the other.
const ROUNDS: usize = 64;

/// What an evaluation may cost where requests run: about a millisecond's worth.
const QUICK: u64 = 10_000;

/// The outcome of something that may take a processor for long. Other requests of this thread move elsewhere meanwhile.
fn in_place<T>(heavy: impl FnOnce() -> T) -> T {
    match tokio::runtime::Handle::current().runtime_flavor() {
        RuntimeFlavor::MultiThread => tokio::task::block_in_place(heavy),
        // There is only this thread.
        _ => heavy(),
    }
}

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
        turns: &Semaphore,
        evaluate: impl Fn(&Self, Option<&Effort>) -> T,
    ) -> Result<T, ApiError> {
        for _ in 0..ROUNDS {
            let quick = {
                let effort = Effort::new(QUICK);
                let outcome = evaluate(self, Some(&effort));
                (!effort.is_cut()).then_some(outcome)
            };
            let outcome = match quick {
                Some(outcome) => outcome,
                None => {
                    // Whatever it asked, it will ask again.
                    self.wanted.lock().clear();
                    let _turn = turns.acquire().await.expect("the semaphore is never closed");
                    in_place(|| evaluate(self, None))
                }
            };
            let wanted = std::mem::take(&mut *self.wanted.lock());
            if wanted.is_empty() {
                return Ok(outcome);
            }
            for check in wanted {
                let subject = subject(plane, &check.subject);
                let selectors = selectors(&check.target);
                let asked = asked(&check, selectors.as_ref());
                let decided = authorizer.decide(subject.as_ref().unwrap_or(user), plane, &asked).await;
                let decision = match decided {
                    Ok(decided) => Decision {
                        allowed: decided.is_allowed(),
                        reason: decided.reason,
                        error: decided.error,
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

/// The selectors that an expression names.
fn selectors(target: &Target) -> Option<Selectors> {
    match target {
        Target::Path(_) => None,
        Target::Resource(resource) => {
            let selectors = Selectors::of_query(&resource.field_selector, &resource.label_selector);
            Some(selectors).filter(|selectors| !selectors.is_empty())
        }
    }
}

/// What an expression asks, as authorizers are asked: about every version.
fn asked<'a>(check: &'a Check, selectors: Option<&'a Selectors>) -> Asked<'a> {
    let verb = check.verb.as_str();
    match &check.target {
        Target::Path(path) => Asked::Path { verb, path },
        Target::Resource(resource) => Asked::Resource(Action {
            verb,
            group: &resource.group,
            version: "*",
            resource: &resource.resource,
            subresource: &resource.subresource,
            namespace: &resource.namespace,
            name: &resource.name,
            selectors,
        }),
    }
}
