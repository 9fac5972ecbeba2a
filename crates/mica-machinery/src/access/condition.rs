//! Match conditions: which questions a webhook is asked at all.

use super::Spec;
use crate::cel::admission::Refusal;
use crate::cel::cost::PER_CALL_LIMIT;
use crate::cel::{Bindings, Program, Val, access};

/// All must hold.
#[derive(Debug, Default)]
pub struct Conditions(Vec<(String, Program)>);

/// Whether conditions hold.
#[derive(Debug, PartialEq, Eq)]
pub enum Matched {
    Yes,
    No,
    /// None is refuted, and some failed.
    Failed(String),
}

impl Conditions {
    pub(super) fn add(&mut self, source: &str) -> Result<(), Refusal> {
        self.0.push((source.to_owned(), access::compile(source)?));
        Ok(())
    }

    /// Whether there are none: then everything matches.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One that does not hold wins over those that fail.
    pub fn hold(&self, spec: &Spec) -> Matched {
        if self.0.is_empty() {
            return Matched::Yes;
        }
        let request = spec.for_conditions();
        let bindings = Bindings::new().with("request", Val::dynamic(&request));
        let mut failures = Vec::new();
        for (source, program) in &self.0 {
            match program.eval(&bindings, PER_CALL_LIMIT).result {
                Ok(Val::Bool(true)) => {}
                Ok(Val::Bool(false)) => return Matched::No,
                Ok(_) => failures.push(format!(
                    "cel evaluation error: expression '{source}' eval result value should be bool"
                )),
                Err(error) => failures.push(format!(
                    "cel evaluation error: expression '{source}' resulted in error: {error}"
                )),
            }
        }
        match &failures[..] {
            [] => Matched::Yes,
            [one] => Matched::Failed(one.clone()),
            all => Matched::Failed(format!("[{}]", all.join(", "))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::User;
    use crate::rbac::{Action, Asked};

    fn held(sources: &[&str]) -> Matched {
        let mut conditions = Conditions::default();
        for source in sources {
            conditions.add(source).unwrap();
        }
        let user = User {
            name: "ann",
            uid: "",
            groups: &[],
            extra: &[],
        };
        let asked = Asked::Resource(Action {
            verb: "get",
            resource: "pods",
            ..Action::default()
        });
        conditions.hold(&Spec::new(&user, &asked))
    }

    #[test]
    fn a_refuted_condition_wins_over_a_failing_one() {
        let fails = "request.extra['x'][0] == 'y'";
        assert_eq!(
            held(&["request.user == 'ann'", "has(request.resourceAttributes)"]),
            Matched::Yes
        );
        assert_eq!(held(&[fails, "'admins' in request.groups"]), Matched::No);
        assert_eq!(held(&["request.resourceAttributes.namespace == ''"]), Matched::Yes);
        assert_eq!(held(&["has(request.resourceAttributes.labelSelector)"]), Matched::No);
        assert_eq!(
            held(&[fails]),
            Matched::Failed(format!(
                "cel evaluation error: expression '{fails}' resulted in error: no such key: x"
            ))
        );
    }
}
