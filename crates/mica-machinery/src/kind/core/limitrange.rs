//! LimitRanges: bounds and defaults of what containers, pods and claims may ask for.

use std::collections::BTreeSet;

use serde_json::Value;

use super::resource::{fill, may_overcommit, quantity, round_up, validate_container_name, validate_name};
use crate::field::{Error, ErrorList, Path};
use crate::kind::check::{entries, invalid_each, list_mut};
use crate::kind::{MetadataCheck, NameUse, Strategy, WriteContext};
use crate::quantity::{Format, Quantity};
use crate::{names, object};

const LISTS: [&str; 5] = ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"];
/// The largest value whose thousandths still fit.
const MAX_MILLI_VALUE: i64 = i64::MAX / 1000;

#[derive(Debug)]
pub struct LimitRange;

impl Strategy for LimitRange {
    fn default(&self, object: &mut Value) {
        for limit in list_mut(object, &["spec", "limits"]) {
            if object::string(limit, &["type"]) == "Container" {
                fill(limit, "max", "default");
                fill(limit, "default", "defaultRequest");
                fill(limit, "min", "defaultRequest");
            }
            LISTS.iter().for_each(|list| round_up(limit, &[list]));
        }
    }

    fn validate(&self, _ctx: &WriteContext<'_>, object: &Value) -> ErrorList {
        validate(object)
    }

    fn validate_update(&self, _ctx: &WriteContext<'_>, new: &Value, _old: &Value) -> ErrorList {
        validate(new)
    }

    fn metadata_check(&self, _ctx: &WriteContext<'_>) -> MetadataCheck {
        MetadataCheck::Whole
    }

    fn names_itself(&self) -> bool {
        true
    }

    fn name_errors(&self, name: &str, name_use: NameUse) -> Vec<String> {
        names::name_is_dns_subdomain(name, name_use)
    }

    fn creates_on_update(&self) -> bool {
        true
    }
}

fn validate(object: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let mut seen = BTreeSet::new();
    for (i, limit) in object::list(object, &["spec", "limits"]).iter().enumerate() {
        let path = Path::new("spec").child("limits").index(i);
        let r#type = object::string(limit, &["type"]);
        errors.extend(validate_type(r#type, &path.child("type")));
        if !seen.insert(r#type) {
            errors.push(Error::duplicate(&path.child("type"), r#type));
        }
        validate_names(limit, r#type, &path, &mut errors);
        let names: BTreeSet<&str> = LISTS
            .iter()
            .flat_map(|list| entries(limit, &[list]))
            .map(|(name, _)| name)
            .collect();
        for name in names {
            Amounts::of(limit, name, r#type).validate(&path, &mut errors);
        }
    }
    errors
}

fn validate_type(r#type: &str, path: &Path) -> ErrorList {
    let mut errors: ErrorList = invalid_each(path, r#type, names::qualified_name(r#type)).collect();
    if errors.is_empty() && !r#type.contains('/') && !["Pod", "Container", "PersistentVolumeClaim"].contains(&r#type) {
        errors.push(Error::invalid(
            path,
            r#type,
            "must be a standard limit type or fully qualified",
        ));
    }
    errors
}

fn validate_names(limit: &Value, r#type: &str, path: &Path, errors: &mut ErrorList) {
    let check = if ["Pod", "Container"].contains(&r#type) {
        validate_container_name
    } else {
        validate_name
    };
    for list in LISTS {
        if r#type == "Pod" && list.starts_with("default") {
            if entries(limit, &[list]).next().is_some() {
                errors.push(Error::forbidden(
                    &path.child(list),
                    "may not be specified when `type` is 'Pod'",
                ));
            }
            continue;
        }
        if list == "maxLimitRequestRatio" && r#type == "PersistentVolumeClaim" {
            let has = |list| object::get(limit, &[list, "storage"]).is_some();
            if !has("min") && !has("max") {
                let detail = "either minimum or maximum storage value is required, but neither was provided";
                errors.push(Error::required(&path.child("limits"), detail));
            }
        }
        for (name, _) in entries(limit, &[list]) {
            errors.extend(check(name, &path.child(list).key(name)));
        }
    }
}

/// What one limit says of one resource.
struct Amounts<'a> {
    name: &'a str,
    min: Option<Quantity>,
    max: Option<Quantity>,
    default: Option<Quantity>,
    request: Option<Quantity>,
    ratio: Option<Quantity>,
}

impl<'a> Amounts<'a> {
    fn of(limit: &Value, name: &'a str, r#type: &str) -> Self {
        let amount = |list| object::get(limit, &[list, name]).map(quantity);
        // Pods have no defaults; what is there was refused already.
        let default = |list| if r#type == "Pod" { None } else { amount(list) };
        Self {
            name,
            min: amount("min"),
            max: amount("max"),
            default: default("default"),
            request: default("defaultRequest"),
            ratio: amount("maxLimitRequestRatio"),
        }
    }

    fn validate(&self, path: &Path, errors: &mut ErrorList) {
        let at = |list: &str| path.child(list).key(self.name);
        let mut higher = |one: &Option<Quantity>,
                          other: &Option<Quantity>,
                          list: &str,
                          shown: &Option<Quantity>,
                          names: [&str; 2]| {
            if let (Some(one), Some(other), Some(shown)) = (one, other, shown)
                && one > other
            {
                let detail = format!("{} value {one} is greater than {} value {other}", names[0], names[1]);
                errors.push(Error::invalid(&at(list), shown.to_string(), detail));
            }
        };
        let Self {
            min,
            max,
            default,
            request,
            ..
        } = self;
        higher(min, max, "min", min, ["min", "max"]);
        higher(min, request, "defaultRequest", request, ["min", "default request"]);
        higher(request, max, "defaultRequest", request, ["default request", "max"]);
        higher(
            request,
            default,
            "defaultRequest",
            request,
            ["default request", "default limit"],
        );
        higher(min, default, "default", min, ["min", "default"]);
        higher(default, max, "default", max, ["default", "max"]);
        if let Some(ratio) = &self.ratio {
            self.validate_ratio(ratio, &at("maxLimitRequestRatio"), errors);
        }
        if let (Some(default), Some(request)) = (default, request)
            && !may_overcommit(self.name)
            && default != request
        {
            let detail = format!(
                "default value {default} must equal to defaultRequest value {request} in {}",
                self.name
            );
            errors.push(Error::invalid(&at("defaultRequest"), request.to_string(), detail));
        }
    }

    fn validate_ratio(&self, ratio: &Quantity, path: &Path, errors: &mut ErrorList) {
        if *ratio < Quantity::new(1, Format::DecimalSi) {
            errors.push(Error::invalid(
                path,
                ratio.to_string(),
                format!("ratio {ratio} is less than 1"),
            ));
        }
        let (Some(min), Some(max)) = (&self.min, &self.max) else {
            return;
        };
        let fine = [ratio, min, max].iter().all(|amount| amount.value() < MAX_MILLI_VALUE);
        let (ratio_value, bound) = if fine {
            (
                ratio.milli_value() as f64 / 1000.0,
                max.milli_value() as f64 / min.milli_value() as f64,
            )
        } else {
            (ratio.value() as f64, max.value() as f64 / min.value() as f64)
        };
        if ratio_value > bound {
            let detail = format!("ratio {ratio} is greater than max/min = {bound:.6}");
            errors.push(Error::invalid(path, ratio.to_string(), detail));
        }
    }
}
