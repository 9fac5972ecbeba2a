//! PriorityLevelConfigurations: how many requests of a level run at once, and how the rest wait.

use serde_json::{Value, json};

use super::validate_status;
use crate::field::{Error, ErrorList, Path};
use crate::kind::bootstrap::flow;
use crate::kind::check::{invalid_as, is_set, keep_metadata, one_of, present, same, set_default, set_default_pointer};
use crate::kind::column::{AGE, NAME, age, text};
use crate::kind::{Column, MetadataCheck, NameUse, Strategy, WriteContext, internal};
use crate::{names, object};

const MAX_QUEUES: i64 = 10_000_000;
/// Bits of a flow's hash that may choose queues.
const MAX_HASH_BITS: f64 = 60.0;
const PRESERVE_ZERO: &str = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares";
const QUEUING: [&str; 4] = ["spec", "limited", "limitResponse", "queuing"];

#[derive(Debug)]
pub struct PriorityLevel;

impl Strategy for PriorityLevel {
    fn default(&self, object: &mut Value) {
        if is_set(object, &["spec", "exempt"]) {
            set_default_pointer(object, &["spec", "exempt", "nominalConcurrencyShares"], 0);
            set_default_pointer(object, &["spec", "exempt", "lendablePercent"], 0);
        }
        if is_set(object, &["spec", "limited"]) {
            set_default_pointer(object, &["spec", "limited", "nominalConcurrencyShares"], 30);
            set_default_pointer(object, &["spec", "limited", "lendablePercent"], 0);
        }
        if is_set(object, &QUEUING) {
            for (field, default) in [("handSize", 8), ("queues", 64), ("queueLengthLimit", 50)] {
                let [a, b, c, d] = QUEUING;
                set_default(object, &[a, b, c, d, field], default);
            }
        }
    }

    fn prepare_create(&self, _ctx: &WriteContext<'_>, object: &mut Value) {
        object::set(object, &["status"], json!({}));
    }

    fn prepare_update(&self, ctx: &WriteContext<'_>, new: &mut Value, old: &Value) {
        if ctx.subresource == "status" {
            keep_metadata(new, old);
            object::copy(old, new, &["spec"]);
        } else {
            object::copy(old, new, &["status"]);
        }
    }

    fn validate(&self, _ctx: &WriteContext<'_>, object: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        if object::get(object, &["metadata", "annotations", PRESERVE_ZERO]).is_some() {
            let detail = format!("annotation '{PRESERVE_ZERO}' is forbidden");
            errors.push(Error::forbidden(&Path::new("metadata").child("annotations"), detail));
        }
        validate_spec(object, &mut errors);
        errors.extend(validate_fixed(object));
        errors.extend(validate_status(object));
        errors
    }

    fn validate_update(&self, ctx: &WriteContext<'_>, new: &Value, _old: &Value) -> ErrorList {
        if ctx.subresource == "status" {
            validate_status(new)
        } else {
            self.validate(ctx, new)
        }
    }

    fn metadata_check(&self, ctx: &WriteContext<'_>) -> MetadataCheck {
        MetadataCheck::whole_object(ctx)
    }

    fn name_errors(&self, name: &str, name_use: NameUse) -> Vec<String> {
        names::name_is_dns_subdomain(name, name_use)
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        let none = || Value::from("<none>");
        let number = |at: &[&str]| object::int(object, at).map_or_else(none, Value::from);
        let [a, b, c, d] = QUEUING;
        vec![
            object::name(object).into(),
            object::string(object, &["spec", "type"]).into(),
            number(&["spec", "limited", "nominalConcurrencyShares"]),
            number(&[a, b, c, d, "queues"]),
            number(&[a, b, c, d, "handSize"]),
            number(&[a, b, c, d, "queueLengthLimit"]),
            age(object, now),
        ]
    }

    fn generation_fields(&self) -> &'static [&'static str] {
        &["spec"]
    }

    fn reset_fields(&self, subresource: &str) -> &'static [&'static [&'static str]] {
        if subresource == "status" {
            &[&["metadata"], &["spec"]]
        } else {
            &[&["status"]]
        }
    }
}

/// Levels that upstream cannot do without keep their spec; of `exempt` the share may change.
fn validate_fixed(object: &Value) -> Option<Error> {
    let name = object::name(object);
    let fixed = flow::mandatory("PriorityLevelConfiguration", name)?;
    let mut spec = object.get("spec").cloned().unwrap_or_default();
    let except = if name == "exempt" {
        object::copy(&fixed["spec"], &mut spec, &["exempt"]);
        " except the 'spec.exempt' field"
    } else {
        ""
    };
    if same(Some(&spec), fixed.get("spec")) {
        return None;
    }
    let shown = internal::shown(
        object.get("spec").unwrap_or(&Value::Null),
        "io.k8s.api.flowcontrol.v1.PriorityLevelConfigurationSpec",
    );
    let detail = format!("spec of '{name}'{except} must equal the fixed value");
    Some(invalid_as(&Path::new("spec"), &shown, &detail))
}

fn validate_spec(object: &Value, errors: &mut ErrorList) {
    let path = Path::new("spec");
    let r#type = object::string(object, &["spec", "type"]);
    if (object::name(object) == "exempt") != (r#type == "Exempt") {
        let detail = "must be 'Exempt' if and only if `name` is 'exempt'";
        errors.push(Error::invalid(&path.child("type"), r#type, detail));
    }
    let (exempt, limited) = (
        present(object, &["spec", "exempt"]),
        present(object, &["spec", "limited"]),
    );
    match r#type {
        "Exempt" => {
            if limited.is_some() {
                errors.push(Error::forbidden(
                    &path.child("limited"),
                    "must be nil if the type is not Limited",
                ));
            }
            if let Some(exempt) = exempt {
                validate_shares(exempt, &path.child("exempt"), errors);
                validate_lendable(exempt, &path.child("exempt"), errors);
            }
        }
        "Limited" => {
            if exempt.is_some() {
                errors.push(Error::forbidden(
                    &path.child("exempt"),
                    "must be nil if the type is Limited",
                ));
            }
            match limited {
                None => errors.push(Error::required(
                    &path.child("limited"),
                    "must not be empty when type is Limited",
                )),
                Some(limited) => validate_limited(limited, &path.child("limited"), errors),
            }
        }
        _ => one_of(&path.child("type"), r#type, &["Exempt", "Limited"], errors),
    }
}

fn validate_shares(level: &Value, path: &Path, errors: &mut ErrorList) {
    if let Some(shares) = object::int(level, &["nominalConcurrencyShares"]).filter(|shares| *shares < 0) {
        errors.push(Error::invalid(
            &path.child("nominalConcurrencyShares"),
            shares,
            "must be a non-negative integer",
        ));
    }
}

fn validate_lendable(level: &Value, path: &Path, errors: &mut ErrorList) {
    if let Some(percent) = object::int(level, &["lendablePercent"]).filter(|percent| !(0..=100).contains(percent)) {
        errors.push(Error::invalid(
            &path.child("lendablePercent"),
            percent,
            "must be between 0 and 100, inclusive",
        ));
    }
}

fn validate_limited(level: &Value, path: &Path, errors: &mut ErrorList) {
    validate_shares(level, path, errors);
    let response_path = path.child("limitResponse");
    let queuing = present(level, &["limitResponse", "queuing"]);
    match (object::string(level, &["limitResponse", "type"]), queuing) {
        ("Reject", Some(_)) => {
            let detail = "must be nil if limited.limitResponse.type is not Limited";
            errors.push(Error::forbidden(&response_path.child("queuing"), detail));
        }
        ("Queue", None) => {
            let detail = "must not be empty if limited.limitResponse.type is Limited";
            errors.push(Error::required(&response_path.child("queuing"), detail));
        }
        ("Queue", Some(queuing)) => validate_queuing(queuing, &response_path.child("queuing"), errors),
        (r#type, _) => one_of(&response_path.child("type"), r#type, &["Queue", "Reject"], errors),
    }
    validate_lendable(level, path, errors);
    if let Some(percent) = object::int(level, &["borrowingLimitPercent"]).filter(|percent| *percent < 0) {
        let detail = "if specified, must be a non-negative integer";
        errors.push(Error::invalid(&path.child("borrowingLimitPercent"), percent, detail));
    }
}

fn validate_queuing(queuing: &Value, path: &Path, errors: &mut ErrorList) {
    let number = |field| object::int(queuing, &[field]).unwrap_or_default();
    let (limit, queues, hand) = (number("queueLengthLimit"), number("queues"), number("handSize"));
    if limit <= 0 {
        errors.push(Error::invalid(
            &path.child("queueLengthLimit"),
            limit,
            "must be positive",
        ));
    }
    if queues <= 0 {
        errors.push(Error::invalid(&path.child("queues"), queues, "must be positive"));
    } else if queues > MAX_QUEUES {
        errors.push(Error::invalid(
            &path.child("queues"),
            queues,
            format!("must not be greater than {MAX_QUEUES}"),
        ));
    }
    let path = path.child("handSize");
    if hand <= 0 {
        errors.push(Error::invalid(&path, hand, "must be positive"));
    } else if hand > queues {
        errors.push(Error::invalid(
            &path,
            hand,
            format!("should not be greater than queues ({queues})"),
        ));
    } else if ((queues as f64).log2() * hand as f64).ceil() > MAX_HASH_BITS {
        let detail = format!(
            "required entropy bits of deckSize {queues} and handSize {hand} should not be greater than {MAX_HASH_BITS}"
        );
        errors.push(Error::invalid(&path, hand, detail));
    }
}

const TYPE: &str = "`type` indicates whether this priority level is subject to limitation on request execution.  A value of `\"Exempt\"` means that requests of this priority level are not subject to a limit (and thus are never queued) and do not detract from the capacity made available to other priority levels.  A value of `\"Limited\"` means that (a) requests of this priority level _are_ subject to limits and (b) some of the server's limited capacity is made available exclusively to this priority level. Required.";
const SHARES: &str = "`nominalConcurrencyShares` (NCS) contributes to the computation of the NominalConcurrencyLimit (NominalCL) of this level. This is the number of execution seats available at this priority level. This is used both for requests dispatched from this priority level as well as requests dispatched from other priority levels borrowing seats from this level. The server's concurrency limit (ServerCL) is divided among the Limited priority levels in proportion to their NCS values:\n\nNominalCL(i)  = ceil( ServerCL * NCS(i) / sum_ncs ) sum_ncs = sum[priority level k] NCS(k)\n\nBigger numbers mean a larger nominal concurrency limit, at the expense of every other priority level.\n\nIf not specified, this field defaults to a value of 30.\n\nSetting this field to zero supports the construction of a \"jail\" for this priority level that is used to hold some request(s)";
const QUEUES: &str = "`queues` is the number of queues for this priority level. The queues exist independently at each apiserver. The value must be positive.  Setting it to 1 effectively precludes shufflesharding and thus makes the distinguisher method of associated flow schemas irrelevant.  This field has a default value of 64.";
const HAND: &str = "`handSize` is a small positive number that configures the shuffle sharding of requests into queues.  When enqueuing a request at this priority level the request's flow identifier (a string pair) is hashed and the hash value is used to shuffle the list of queues and deal a hand of the size specified here.  The request is put into one of the shortest queues in that hand. `handSize` must be no larger than `queues`, and should be significantly smaller (so that a few heavy flows do not saturate most of the queues).  See the user-facing documentation for more extensive guidance on setting this field.  This field has a default value of 8.";
const LENGTH: &str = "`queueLengthLimit` is the maximum number of requests allowed to be waiting in a given queue of this priority level at a time; excess requests are rejected.  This value must be positive.  If not specified, it will be defaulted to 50.";

const COLUMNS: &[Column] = &[
    NAME,
    text("Type", TYPE),
    text("NominalConcurrencyShares", SHARES),
    text("Queues", QUEUES),
    text("HandSize", HAND),
    text("QueueLengthLimit", LENGTH),
    AGE,
];
