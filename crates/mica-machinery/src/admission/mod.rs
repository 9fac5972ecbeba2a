//! Admission as pure functions: which webhooks and policies a request meets, what they are asked, and what their answers mean.
//!
//! Everything that a plane's configuration says is compiled once ([`Webhook`], [`ValidatingPolicy`], [`MutatingPolicy`],
//! [`Binding`]) and holds nothing of the plane, so planes with the same configuration share it. Whoever serves the request
//! does the calling, the looking up and the storing. Rules, texts and costs are those of `apiserver/pkg/admission`.

mod condition;
mod criteria;
mod device;
mod frame;
mod input;
pub mod limit;
mod mutate;
mod param;
pub mod quota;
mod request;
mod review;
pub mod security;
#[cfg(test)]
mod tests;
pub mod typecheck;
mod validate;
mod webhook;

pub use condition::FailurePolicy;
pub use criteria::{Criteria, Problem};
pub use frame::Frame;
pub use input::{Effort, Input, Inputs};
pub use mutate::{MutatingPolicy, Mutation, Patch, Reinvocation, merge_configuration};
pub use param::{Binding, NotFound, ParamKind, ParamRef, Scope as ParamScope, Wanted as WantedParams};
pub use request::{Attributes, Face, Kind, Objects, Operation, Resource, request_value};
pub use review::{Denied, Response, ReviewVersion, check_kind, read_response, review};
pub use validate::{Action, Decision, ValidatingPolicy, Verdict};
pub use webhook::{SideEffects, Webhook};

/// Kinds that admission never sends anywhere: whoever breaks admission must be able to mend it.
pub fn is_exempt(group: &str, kind: &str) -> bool {
    group == "admissionregistration.k8s.io"
        && matches!(
            kind,
            "ValidatingWebhookConfiguration"
                | "MutatingWebhookConfiguration"
                | "ValidatingAdmissionPolicy"
                | "ValidatingAdmissionPolicyBinding"
                | "MutatingAdmissionPolicy"
                | "MutatingAdmissionPolicyBinding"
        )
}

/// Resources that policies do not judge: questions, whose answers others depend on.
pub fn is_unjudged(group: &str, resource: &str) -> bool {
    matches!(
        (group, resource),
        ("authentication.k8s.io", "selfsubjectreviews" | "tokenreviews")
            | (
                "authorization.k8s.io",
                "localsubjectaccessreviews"
                    | "selfsubjectaccessreviews"
                    | "selfsubjectrulesreviews"
                    | "subjectaccessreviews"
            )
    )
}
