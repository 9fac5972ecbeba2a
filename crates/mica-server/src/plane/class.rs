//! The kind `PlaneClass`, and what a class says to the planes that are of it.
//!
//! A plane is of a class by naming it: that the class exists as an object matters to its limits, its egress and the profile of
//! new planes alone.

use mica_api::{GroupResource, PlaneId};
use mica_machinery::field::{Error, ErrorList, Path};
use mica_machinery::kind::column::{AGE, NAME};
use mica_machinery::kind::{CRUD, Column, NameUse, Profile, Resource, Scope, Strategy, WriteContext, column};
use mica_machinery::{names, object};
use mica_store::{Key, KeyRange, PlaneKeys};
use serde_json::Value;

use super::kind::{GROUP, VERSION, profile_errors};
use super::limits::{self, Limits};
use crate::egress::{Network, Networks};
use crate::error::ApiError;

const PLURAL: &str = "planeclasses";

/// The class of planes that name none.
pub const DEFAULT: &str = "default";

pub static PLANE_CLASSES: Resource = Resource {
    group: GROUP,
    version: VERSION,
    kind: "PlaneClass",
    plural: PLURAL,
    singular: "planeclass",
    short_names: &[],
    categories: &[],
    scope: Scope::Cluster,
    profile: Profile::Generic,
    verbs: CRUD,
    subresources: &[],
    stored_as: None,
    strategy: &PlaneClasses,
};

/// What planes of a class have in common.
#[derive(Clone, Debug, Default)]
pub struct Class {
    /// Empty for root, which is of no class.
    pub name: String,
    pub limits: Limits,
    /// What new planes serve and are born with, if they do not say.
    pub profile: Option<Profile>,
    /// Where calls may go beside what all planes may reach.
    pub reach: Networks,
}

impl Class {
    /// A class that says nothing.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ..Self::default()
        }
    }

    /// What a stored PlaneClass says.
    pub fn read(name: &str, json: &[u8]) -> Result<Self, ApiError> {
        let class: Value = serde_json::from_slice(json)
            .map_err(|error| ApiError::internal("a stored PlaneClass is damaged").because(error))?;
        Ok(Self {
            name: name.to_owned(),
            limits: Limits::of(&class["spec"]["limits"]),
            profile: Profile::parse(object::string(&class, &["spec", "profile"])),
            reach: allowed(&class)
                .filter_map(|network| network.parse::<Network>().ok())
                .collect(),
        })
    }
}

fn allowed(class: &Value) -> impl Iterator<Item = &str> {
    object::list(class, &["spec", "egress", "allow"])
        .iter()
        .filter_map(Value::as_str)
}

fn resource() -> GroupResource {
    GroupResource::new(GROUP, PLURAL)
}

pub(super) fn key(name: &str) -> Key {
    PlaneKeys::new(PlaneId::ROOT).object(&resource(), None, name)
}

pub(super) fn range() -> KeyRange {
    KeyRange::Resource(PlaneId::ROOT, resource())
}

pub(super) fn is_key(key: &Key) -> bool {
    key.plane() == PlaneId::ROOT && key.group_resource() == resource()
}

/// The rules of PlaneClasses.
#[derive(Debug)]
struct PlaneClasses;

impl Strategy for PlaneClasses {
    fn validate(&self, _ctx: &WriteContext<'_>, class: &Value) -> ErrorList {
        let spec = Path::new("spec");
        let mut errors = limits::validate(&class["spec"]["limits"], &spec.child("limits"));
        errors.extend(profile_errors(class, &spec));
        let allow = spec.child("egress").child("allow");
        for (i, network) in allowed(class).enumerate() {
            if let Err(error) = network.parse::<Network>() {
                errors.push(Error::invalid(&allow.index(i), network, error.to_string()));
            }
        }
        errors
    }

    fn validate_update(&self, ctx: &WriteContext<'_>, new: &Value, _old: &Value) -> ErrorList {
        self.validate(ctx, new)
    }

    fn name_errors(&self, name: &str, name_use: NameUse) -> Vec<String> {
        names::name_is_dns_subdomain(name, name_use)
    }

    fn columns(&self) -> &'static [Column] {
        const COLUMNS: &[Column] = &[
            NAME,
            column::text("Objects", "How many objects a plane of the class may hold."),
            column::text("Bytes", "How much they may take in the store."),
            AGE,
        ];
        COLUMNS
    }

    fn cells(&self, class: &Value, now: jiff::Timestamp) -> Vec<Value> {
        let limits = &class["spec"]["limits"];
        let shown = |field: &str| match &limits[field] {
            Value::Null => "<none>".to_owned(),
            Value::String(text) => text.clone(),
            number => number.to_string(),
        };
        vec![
            object::name(class).into(),
            shown("objects").into(),
            shown("storedBytes").into(),
            column::age(class, now),
        ]
    }

    fn generation_fields(&self) -> &'static [&'static str] {
        &["spec"]
    }
}
