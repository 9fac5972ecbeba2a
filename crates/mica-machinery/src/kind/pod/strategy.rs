//! The rules of pods, of which most subresources show a part.

use std::sync::LazyLock;

use serde_json::Value;

use super::default::default_pod;
use super::{apparmor, prepare, print, resize, status, update, validate, warn};
use crate::facts::facts;
use crate::field::ErrorList;
use crate::kind::check::{keep_metadata, present};
use crate::kind::{Column, MetadataCheck, NameUse, Strategy, WriteContext, column};
use crate::meta::next_generation;
use crate::{names, object};

const SELECTABLE: [&str; 9] = [
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.podIPs",
    "status.nominatedNodeName",
];

type Paths = &'static [&'static [&'static str]];

/// What writers of `ephemeralcontainers` and `resize` never own: all but a few fields of the spec.
static RESET: LazyLock<[Paths; 2]> = LazyLock::new(|| {
    [
        all_but(&["ephemeralContainers"]),
        all_but(&["containers", "initContainers", "resources"]),
    ]
});

fn all_but(kept: &[&str]) -> Paths {
    let id = facts()
        .openapi("io.k8s.api.core.v1.PodSpec")
        .expect("pods are in the table");
    let fields = facts().ty(id).fields.iter().map(|field| field.json);
    let path = |path: Vec<&'static str>| -> &'static [&'static str] { path.leak() };
    let mut paths = vec![path(vec!["metadata"]), path(vec!["status"])];
    paths.extend(
        fields
            .filter(|field| !kept.contains(field))
            .map(|field| path(vec!["spec", field])),
    );
    paths.leak()
}

#[derive(Debug)]
pub struct Pod;

impl Strategy for Pod {
    fn default(&self, object: &mut Value) {
        default_pod(object);
    }

    fn prepare_create(&self, ctx: &WriteContext<'_>, object: &mut Value) {
        prepare::prepare(object, ctx.now);
    }

    fn prepare_warnings(&self, object: &Value) -> Vec<String> {
        apparmor::copy_warnings(object)
    }

    fn prepare_update(&self, ctx: &WriteContext<'_>, new: &mut Value, old: &Value) {
        match ctx.subresource {
            "status" => {
                object::copy(old, new, &["spec"]);
                object::remove(new, &["metadata", "deletionTimestamp"]);
                object::copy(old, new, &["metadata", "ownerReferences"]);
                if object::string(new, &["status", "qosClass"]).is_empty() {
                    object::copy(old, new, &["status", "qosClass"]);
                }
                status::keep_observed(new, old);
            }
            "ephemeralcontainers" => {
                let added = object::get(new, &["spec", "ephemeralContainers"]).cloned();
                for field in ["spec", "status"] {
                    object::copy(old, new, &[field]);
                }
                keep_metadata(new, old);
                match added {
                    Some(added) => object::set(new, &["spec", "ephemeralContainers"], added),
                    None => drop(object::remove(new, &["spec", "ephemeralContainers"])),
                }
            }
            "resize" => resize::prepare(new, old),
            // The server's own change, which upstream writes as it is.
            "binding" => {}
            _ => {
                object::copy(old, new, &["status"]);
                // Given on create, and not for clients to leave out.
                for field in ["priority", "preemptionPolicy"] {
                    if present(new, &["spec", field]).is_none() {
                        object::copy(old, new, &["spec", field]);
                    }
                }
                prepare::tolerate_loss(new);
            }
        }
    }

    fn validate(&self, _ctx: &WriteContext<'_>, object: &Value) -> ErrorList {
        validate::validate_new_pod(object)
    }

    fn validate_update(&self, ctx: &WriteContext<'_>, new: &Value, old: &Value) -> ErrorList {
        match ctx.subresource {
            "status" => status::validate(new, old),
            "ephemeralcontainers" => update::validate_ephemeral(new, old),
            "resize" => resize::validate(new, old),
            "binding" => ErrorList::new(),
            _ => update::validate(new, old),
        }
    }

    fn metadata_check(&self, ctx: &WriteContext<'_>) -> MetadataCheck {
        match ctx.subresource {
            "status" => MetadataCheck::Change,
            "binding" => MetadataCheck::Neither,
            _ => MetadataCheck::ChangeThenWhole,
        }
    }

    fn warnings(&self, _ctx: &WriteContext<'_>, new: &Value, old: Option<&Value>) -> Vec<String> {
        match old {
            // People seldom change pods, and programs do not read warnings.
            Some(_) => Vec::new(),
            None => warn::pod_warnings(new),
        }
    }

    fn name_errors(&self, name: &str, name_use: NameUse) -> Vec<String> {
        names::name_is_dns_subdomain(name, name_use)
    }

    fn selectable(&self, object: &Value) -> Vec<(&'static str, String)> {
        let value = |label: &'static str| match label {
            "spec.hostNetwork" => {
                let on = object::get(object, &["spec", "hostNetwork"]) == Some(&Value::Bool(true));
                on.to_string()
            }
            "status.podIPs" => {
                let all: Vec<&str> = object::list(object, &["status", "podIPs"])
                    .iter()
                    .map(|one| object::string(one, &["ip"]))
                    .collect();
                all.join(",")
            }
            label => {
                let path: Vec<&str> = label.split('.').collect();
                object::string(object, &path).to_owned()
            }
        };
        SELECTABLE.iter().map(|label| (*label, value(label))).collect()
    }

    fn selectable_labels(&self) -> &'static [&'static str] {
        &SELECTABLE
    }

    fn columns(&self) -> &'static [Column] {
        column::of("pods")
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        print::cells(object, now)
    }

    fn row_conditions(&self, object: &Value) -> Option<Value> {
        print::row_conditions(object)
    }

    fn returns_deleted(&self) -> bool {
        true
    }

    fn grace(&self, object: &Value, requested: Option<i64>) -> Option<i64> {
        Some(prepare::grace(object, requested))
    }

    /// Coming to a node is no change of what is wanted.
    fn generation(&self, ctx: &WriteContext<'_>, new: &Value, old: Option<&Value>) -> Option<i64> {
        match (ctx.subresource, old) {
            ("binding", Some(old)) => object::int(old, &["metadata", "generation"]),
            _ => Some(next_generation(new, old, self.generation_fields())),
        }
    }

    fn generation_fields(&self) -> &'static [&'static str] {
        &["spec"]
    }

    fn reset_fields(&self, subresource: &str) -> &'static [&'static [&'static str]] {
        match subresource {
            "" => &[&["status"]],
            "status" => &[
                &["spec"],
                &["metadata", "deletionTimestamp"],
                &["metadata", "ownerReferences"],
            ],
            "ephemeralcontainers" => RESET[0],
            "resize" => RESET[1],
            _ => &[],
        }
    }
}
