//! Scale: the replicas of an object, seen through its subresource `scale`.
//!
//! A Scale is never stored. It is made of its object, and what a client changes in it is put back there: the replicas, and
//! nothing else. Built-in kinds keep them in one place; custom kinds where their definition says.

use serde_json::{Map, Value, json};

use crate::field::{Error, ErrorList, Path};
use crate::kind::column::{self, AGE, NAME, integer};
use crate::kind::{Column, NameUse, Profile, Resource, Scope, Strategy};
use crate::schema::scale::{Scale, WrongType, integer_at, text_at};
use crate::select::{LabelSelector, LabelSelectorError};
use crate::{meta, names, object};

/// The replicas that the Scale of an object without any has while it is changed: a client that does not set them leaves
/// this, and is told. Upstream's number, the smallest of its type.
pub const UNSET: i64 = i32::MIN as i64;

/// The names that lead to the replicas of built-in kinds.
pub const REPLICAS: [&str; 2] = ["spec", "replicas"];

/// Where an object keeps what its Scale shows.
#[derive(Clone, Copy, Debug)]
pub enum Scaled<'a> {
    /// A built-in kind, with a label selector.
    Workload,
    /// A built-in kind with a map of labels for a selector: ReplicationController.
    Controller,
    Custom(&'a Scale),
}

/// Why an object has no Scale.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ScaleError {
    #[error(transparent)]
    WrongType(#[from] WrongType),
    #[error(transparent)]
    Selector(#[from] LabelSelectorError),
}

/// A Scale, and whether the object says how many replicas it wants.
#[derive(Clone, PartialEq, Debug)]
pub struct Shown {
    pub scale: Value,
    pub replicas: Replicas,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Replicas {
    Given,
    Missing,
}

impl<'a> Scaled<'a> {
    /// The names that lead to the object's replicas.
    pub fn path(&self) -> Vec<&'a str> {
        match self {
            Self::Workload | Self::Controller => REPLICAS.to_vec(),
            Self::Custom(scale) => scale.spec_replicas.trim_start_matches('.').split('.').collect(),
        }
    }

    /// The Scale of an object, without managed fields.
    pub fn shown(&self, object: &Value) -> Result<Shown, ScaleError> {
        let (wanted, actual, selector) = match self {
            Self::Workload | Self::Controller => {
                let count = |at| object::int(object, &[at, "replicas"]);
                // Defaults have been filled in: what is missing is a zero that was left out.
                (
                    Some(count("spec").unwrap_or(0)),
                    count("status"),
                    self.selector(object)?,
                )
            }
            Self::Custom(scale) => {
                let selector = match &scale.label_selector {
                    Some(path) => text_at(object, path)?.unwrap_or_default().to_owned(),
                    None => String::new(),
                };
                let wanted = integer_at(object, &scale.spec_replicas)?;
                (wanted, integer_at(object, &scale.status_replicas)?, selector)
            }
        };
        let mut spec = Map::new();
        let count = narrow(wanted.unwrap_or(0));
        if count != 0 {
            spec.insert("replicas".to_owned(), count.into());
        }
        let mut status = json!({"replicas": narrow(actual.unwrap_or(0))});
        if !selector.is_empty() {
            status["selector"] = selector.into();
        }
        let scale = json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata(object),
            "spec": spec, "status": status});
        let replicas = if wanted.is_some() {
            Replicas::Given
        } else {
            Replicas::Missing
        };
        Ok(Shown { scale, replicas })
    }

    fn selector(&self, object: &Value) -> Result<String, LabelSelectorError> {
        let selector = object::get(object, &["spec", "selector"]);
        Ok(match self {
            Self::Controller => {
                let labels = selector.cloned().unwrap_or_else(|| json!({}));
                LabelSelector::from_value(Some(&json!({"matchLabels": labels})))?.to_string()
            }
            _ => LabelSelector::from_value(selector)?.to_string(),
        })
    }

    /// Puts replicas into an object. The error says what is in the way.
    pub fn set_replicas(&self, object: &mut Value, count: i64) -> Result<(), String> {
        let names = self.path();
        let mut at = &mut *object;
        for (depth, name) in names.iter().enumerate() {
            let Value::Object(members) = at else {
                let way = names[..depth].join(".");
                return Err(format!(
                    "value cannot be set because .{way} is not a map[string]interface{{}}"
                ));
            };
            at = members.entry(*name).or_insert_with(|| json!({}));
        }
        *at = count.into();
        Ok(())
    }
}

/// What a Scale tells of its object's metadata.
fn metadata(object: &Value) -> Value {
    let fields = ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"];
    let known = fields.into_iter().filter_map(|field| {
        let value = object::get(object, &["metadata", field])?;
        Some((field.to_owned(), value.clone()))
    });
    Value::Object(known.collect())
}

/// Go's conversion to the type of a Scale's counts. What does not fit was stored before its definition had a scale.
#[expect(clippy::cast_possible_truncation, reason = "upstream truncates")]
fn narrow(count: i64) -> i32 {
    count as i32
}

/// What is wrong with a Scale, beyond what its object's rules say.
pub fn errors(scale: &Value) -> ErrorList {
    let path = Path::new("metadata");
    let metadata = &scale["metadata"];
    let mut errors = meta::create_errors(metadata, Scope::Namespaced, names::name_is_dns_subdomain, &path);
    errors.extend(meta::kube_finalizer_errors(metadata, &path));
    if let Some(count) = object::int(scale, &REPLICAS).filter(|count| *count < 0) {
        let path = Path::new("spec").child("replicas");
        errors.push(Error::invalid(&path, count, "must be greater than or equal to 0"));
    }
    errors
}

/// The Scale of built-in kinds, as a resource that is served only below others.
pub static SCALE: Resource = row(&BuiltIn);
/// The Scale of custom kinds. Its tables differ, and it is not to be had in protobuf.
pub static CUSTOM_SCALE: Resource = row(&Custom);

/// Whether a row is that of custom kinds' Scales.
pub fn is_of_custom(row: &Resource) -> bool {
    std::ptr::eq(row, &raw const CUSTOM_SCALE)
}

const fn row(strategy: &'static dyn Strategy) -> Resource {
    Resource {
        group: "autoscaling",
        version: "v1",
        kind: "Scale",
        plural: "scales",
        singular: "scale",
        short_names: &[],
        categories: &[],
        scope: Scope::Namespaced,
        profile: Profile::Generic,
        verbs: &["get", "patch", "update"],
        subresources: &[],
        stored_as: None,
        strategy,
    }
}

#[derive(Debug)]
struct BuiltIn;

#[derive(Debug)]
struct Custom;

impl Strategy for BuiltIn {
    fn name_errors(&self, name: &str, name_use: NameUse) -> Vec<String> {
        names::name_is_dns_subdomain(name, name_use)
    }

    fn columns(&self) -> &'static [Column] {
        const COLUMNS: &[Column] = &[
            Column { format: "", ..NAME },
            integer(
                "Desired",
                "replicas is the desired number of instances for the scaled object.",
            ),
            integer(
                "Available",
                "replicas is the actual number of observed instances of the scaled object.",
            ),
            AGE,
        ];
        COLUMNS
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        let count = |at| object::int(object, &[at, "replicas"]).unwrap_or(0).into();
        vec![
            object::name(object).into(),
            count("spec"),
            count("status"),
            column::age(object, now),
        ]
    }
}

impl Strategy for Custom {
    fn name_errors(&self, name: &str, name_use: NameUse) -> Vec<String> {
        names::name_is_dns_subdomain(name, name_use)
    }

    fn columns(&self) -> &'static [Column] {
        const COLUMNS: &[Column] = &[
            NAME,
            integer("Desired", "Number of desired replicas"),
            integer("Available", "Number of actual replicas"),
            Column { r#type: "date", ..AGE },
        ];
        COLUMNS
    }

    /// A zero that is left out has an empty cell.
    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        let count = |at| object::int(object, &[at, "replicas"]).map_or(Value::Null, Value::from);
        vec![
            object::name(object).into(),
            count("spec"),
            count("status"),
            column::age(object, now),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(version: Value) -> Scale {
        Scale::of(&json!({"subresources": {"scale": version}})).expect("a scale")
    }

    fn check(scaled: Scaled<'_>, object: Value, spec: Value, status: Value) {
        let shown = scaled.shown(&object).expect("a scale").scale;
        assert_eq!((&shown["spec"], &shown["status"]), (&spec, &status), "{object}");
    }

    #[test]
    fn a_scale_shows_where_an_object_keeps_its_replicas() {
        let scale = paths(
            json!({"specReplicasPath": ".spec.a.n", "statusReplicasPath": ".status.n",
            "labelSelectorPath": ".status.s"}),
        );
        let custom = Scaled::Custom(&scale);
        let object = json!({"spec": {"a": {"n": 3}}, "status": {"n": 1, "s": "a=b"}});
        check(
            custom,
            object,
            json!({"replicas": 3}),
            json!({"replicas": 1, "selector": "a=b"}),
        );
        check(
            custom,
            json!({"spec": {"a": {"n": 0}}}),
            json!({}),
            json!({"replicas": 0}),
        );
        let selector = json!({"matchLabels": {"b": "1"}, "matchExpressions": [
            {"key": "a", "operator": "In", "values": ["y", "x"]}]});
        let workload = json!({"spec": {"replicas": 2, "selector": selector}, "status": {"replicas": 1}});
        let status = json!({"replicas": 1, "selector": "a in (x,y),b=1"});
        check(Scaled::Workload, workload, json!({"replicas": 2}), status);
        let controller = json!({"spec": {"replicas": 2, "selector": {"b": "1", "a": "2"}}});
        let status = json!({"replicas": 0, "selector": "a=2,b=1"});
        check(Scaled::Controller, controller, json!({"replicas": 2}), status);
    }

    #[test]
    fn a_scale_has_little_of_its_objects_metadata() {
        let object = json!({"metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "4",
            "creationTimestamp": "t", "labels": {"a": "b"}, "generation": 3, "managedFields": []}});
        let shown = Scaled::Workload.shown(&object).expect("a scale").scale;
        let expected =
            json!({"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "4", "creationTimestamp": "t"});
        assert_eq!(shown["metadata"], expected);
    }

    #[test]
    fn missing_replicas_are_told_from_none() {
        let scale = paths(json!({"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}));
        let of = |object: Value| Scaled::Custom(&scale).shown(&object);
        assert_eq!(of(json!({})).expect("a scale").replicas, Replicas::Missing);
        assert_eq!(
            of(json!({"spec": {"n": 0}})).expect("a scale").replicas,
            Replicas::Given
        );
        let wrong = of(json!({"spec": {"n": "x"}})).expect_err("no number");
        assert_eq!(
            wrong.to_string(),
            ".spec.n accessor error: x is of the type string, expected int64"
        );
    }

    #[test]
    fn replicas_are_put_where_the_definition_says() {
        let scale = paths(json!({"specReplicasPath": ".spec.a.n", "statusReplicasPath": ".status.n"}));
        let custom = Scaled::Custom(&scale);
        let mut object = json!({"spec": {"b": 1}});
        custom.set_replicas(&mut object, 4).expect("room");
        assert_eq!(object, json!({"spec": {"a": {"n": 4}, "b": 1}}));
        let mut object = json!({"spec": {"a": 3}});
        assert_eq!(
            custom.set_replicas(&mut object, 4).expect_err("a number is in the way"),
            "value cannot be set because .spec.a is not a map[string]interface{}"
        );
    }

    #[test]
    fn a_scale_is_checked_apart_from_its_object() {
        let errors = |scale: Value| crate::field::aggregate(&errors(&scale));
        let metadata = json!({"name": "a", "namespace": "n"});
        assert_eq!(errors(json!({"metadata": metadata, "spec": {"replicas": 0}})), "");
        assert_eq!(
            errors(json!({"metadata": metadata, "spec": {"replicas": -1}})),
            "spec.replicas: Invalid value: -1: must be greater than or equal to 0"
        );
        let labelled = json!({"name": "a", "namespace": "n", "labels": {"-": "b"}});
        assert!(errors(json!({"metadata": labelled})).starts_with("metadata.labels: Invalid value: \"-\""));
    }
}
