//! Leases.

use serde_json::Value;

use super::check::{invalid_each, present};
use super::column::{AGE, NAME, age, text};
use super::{Column, NameUse, Strategy, WriteContext};
use crate::field::{Error, ErrorList, Path};
use crate::{names, object};

const STRATEGIES: [&str; 1] = ["OldestEmulationVersion"];

#[derive(Debug)]
pub struct Lease;

impl Strategy for Lease {
    // Coordinated leader election is off upstream unless asked for, and its fields are then not taken.
    fn prepare_create(&self, _ctx: &WriteContext<'_>, object: &mut Value) {
        for field in ["strategy", "preferredHolder"] {
            object::remove(object, &["spec", field]);
        }
    }

    fn prepare_update(&self, _ctx: &WriteContext<'_>, new: &mut Value, old: &Value) {
        for field in ["strategy", "preferredHolder"] {
            if present(old, &["spec", field]).is_none() {
                object::remove(new, &["spec", field]);
            }
        }
    }

    fn validate(&self, _ctx: &WriteContext<'_>, object: &Value) -> ErrorList {
        validate_spec(object)
    }

    fn validate_update(&self, _ctx: &WriteContext<'_>, new: &Value, _old: &Value) -> ErrorList {
        validate_spec(new)
    }

    fn name_errors(&self, name: &str, name_use: NameUse) -> Vec<String> {
        names::name_is_dns_subdomain(name, name_use)
    }

    fn columns(&self) -> &'static [Column] {
        const HOLDER: &str = "holderIdentity contains the identity of the holder of a current lease. If Coordinated Leader Election is used, the holder identity must be equal to the elected LeaseCandidate.metadata.name field.";
        const COLUMNS: &[Column] = &[NAME, text("Holder", HOLDER), AGE];
        COLUMNS
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        let holder = object::string(object, &["spec", "holderIdentity"]);
        vec![object::name(object).into(), holder.into(), age(object, now)]
    }

    fn creates_on_update(&self) -> bool {
        true
    }

    fn unconditional_update(&self) -> bool {
        false
    }
}

fn validate_spec(object: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let number = |field| object::int(object, &["spec", field]);
    if let Some(seconds) = number("leaseDurationSeconds").filter(|seconds| *seconds <= 0) {
        errors.push(Error::invalid(
            &path.child("leaseDurationSeconds"),
            seconds,
            "must be greater than 0",
        ));
    }
    if let Some(count) = number("leaseTransitions").filter(|count| *count < 0) {
        errors.push(Error::invalid(
            &path.child("leaseTransitions"),
            count,
            "must be greater than or equal to 0",
        ));
    }
    let strategy = object::string(object, &["spec", "strategy"]);
    if present(object, &["spec", "strategy"]).is_some() {
        validate_strategy(strategy, &path.child("strategy"), &mut errors);
    }
    if !object::string(object, &["spec", "preferredHolder"]).is_empty() && strategy.is_empty() {
        let detail = "may only be specified if `strategy` is defined";
        errors.push(Error::forbidden(&path.child("preferredHolder"), detail));
    }
    errors
}

fn validate_strategy(strategy: &str, path: &Path, errors: &mut ErrorList) {
    // Upstream repeats the field's name in the path.
    let path = path.child("strategy");
    if strategy.contains('/') {
        errors.extend(invalid_each(&path, strategy, names::qualified_name(strategy)));
    } else if !STRATEGIES.contains(&strategy) {
        errors.push(Error::not_supported(&path, strategy, &STRATEGIES));
    }
}
