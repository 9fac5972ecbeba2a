//! The registration that a control plane gets by itself, for the services of its class.

use mica_api::control_plane::{API_VERSION, REGISTER_ANNOTATION, RegistrationMode, reason};
use serde_json::{Value, json};

use super::{Observed, Problem, has};

/// What is to be done about it.
#[derive(Clone, PartialEq, Debug)]
pub enum Step {
    Apply(Value),
    Delete,
    Nothing,
}

/// The step, and what is to be said of it; nothing if no service is asked for.
pub fn plan(at: &Observed) -> Result<(Step, Option<String>), Problem> {
    let services = at.class_spec().services;
    let ours = at.registration.as_ref().is_some_and(|present| at.owns(present));
    let refused = at.annotation(REGISTER_ANNOTATION) == Some("false");
    if services.is_empty() || refused {
        let said = refused.then(|| "registration is switched off by annotation".to_owned());
        return Ok((if ours { Step::Delete } else { Step::Nothing }, said));
    }
    if at.registration.is_some() && !ours {
        let message = format!(
            "ControlPlaneRegistration {:?} is there and was made by somebody: delete it, or set {REGISTER_ANNOTATION}=false",
            at.name()
        );
        return Err(Problem::new(reason::REGISTRATION_TAKEN, message));
    }
    let wanted = json!({
        "apiVersion": API_VERSION,
        "kind": "ControlPlaneRegistration",
        "metadata": {"name": at.name(), "labels": at.labels(), "ownerReferences": [at.owner()]},
        "spec": {"controlPlaneRef": {"name": at.name()}, "services": services, "mode": RegistrationMode::Shared},
    });
    let said = Some(format!("registered for {}", services.join(", ")));
    match &at.registration {
        Some(present) if has(present, &wanted) => Ok((Step::Nothing, said)),
        _ => Ok((Step::Apply(wanted), said)),
    }
}
