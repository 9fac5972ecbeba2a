//! Tests over the whole table of kinds: its shape, and what each kind defaults, refuses and prints.
//!
//! Bodies run through the same steps as a create: decode, default, prepare, validate.

mod admission;
mod core;
mod default;
mod extension;
mod pod;
mod print;
mod security;
mod table;
mod update;
mod workload;

use serde_json::{Value, json};

use super::{Profile, Resource, User, WriteContext, resources};
use crate::facts::facts;
use crate::field::{ErrorList, Path};
use crate::{codec, meta, object};

const NOW: &str = "2026-01-02T03:04:05Z";

/// A resource by plural, and by group where two share it.
fn resource(plural: &str) -> &'static Resource {
    let (plural, group) = plural
        .split_once('.')
        .map_or((plural, None), |(plural, group)| (plural, Some(group)));
    let is_it = |one: &&Resource| one.plural == plural && group.is_none_or(|group| one.group == group);
    resources().iter().find(is_it).expect("a served resource")
}

fn context<'a>(resource: &'a Resource, subresource: &'a str, groups: &'a [String]) -> WriteContext<'a> {
    WriteContext {
        now: NOW.parse().expect("a time"),
        subresource,
        group: resource.group,
        version: resource.version,
        user: User {
            name: "jane",
            uid: "",
            groups,
            extra: &[],
        },
    }
}

/// Adds type and, where it is missing, a name and a namespace.
fn complete(resource: &Resource, mut body: Value) -> Value {
    let version = match resource.group {
        "" => resource.version.to_owned(),
        group => format!("{group}/{}", resource.version),
    };
    object::set(&mut body, &["apiVersion"], version);
    object::set(&mut body, &["kind"], resource.kind);
    let is_review = resource.verbs == ["create"];
    if object::get(&body, &["metadata"]).is_none() {
        object::set(
            &mut body,
            &["metadata"],
            if is_review { json!({}) } else { json!({"name": "a"}) },
        );
    }
    if resource.scope == super::Scope::Namespaced && object::namespace(&body).is_empty() {
        object::set(&mut body, &["metadata", "namespace"], "ns");
    }
    body
}

/// A body as it is stored by a create, valid or not.
fn prepared(plural: &str, body: Value) -> (&'static Resource, Value) {
    let resource = resource(plural);
    let ty = facts()
        .kind(resource.group, resource.version, resource.kind)
        .expect("a known kind");
    let decoded = codec::decode_value(ty, &complete(resource, body)).expect("decodes");
    assert_eq!(decoded.strict, Vec::<String>::new());
    let mut object = decoded.value;
    resource.strategy.default(&mut object);
    if let Some(stored) = resource.stored_as {
        object = (stored.to_stored)(object);
    }
    resource
        .strategy
        .prepare_create(&context(resource, "", &[]), &mut object);
    (resource, object)
}

fn lines(errors: &ErrorList) -> String {
    errors.iter().map(|error| format!("{error}\n")).collect()
}

/// What a create of this body is refused for.
fn refusals(plural: &str, body: Value) -> String {
    let (resource, object) = prepared(plural, body);
    let mut errors = ErrorList::new();
    if resource.verbs != ["create"] {
        let names = |name: &str, name_use| resource.strategy.name_errors(name, name_use);
        errors.extend(meta::create_errors(
            &object["metadata"],
            resource.scope,
            names,
            &Path::new("metadata"),
        ));
    }
    errors.extend(resource.strategy.validate(&context(resource, "", &[]), &object));
    lines(&errors)
}

/// What an update of the first body to the second is refused for.
fn update_refusals(plural: &str, subresource: &str, old: Value, new: Value) -> String {
    let (resource, old) = prepared(plural, old);
    let (_, mut new) = prepared(plural, new);
    let context = context(resource, subresource, &[]);
    resource.strategy.prepare_update(&context, &mut new, &old);
    lines(&resource.strategy.validate_update(&context, &new, &old))
}

#[test]
fn every_profile_serves_a_part_of_the_table() {
    let generic = resources().iter().filter(|one| one.profile == Profile::Generic).count();
    assert!(generic > 30 && generic < resources().len());
}
