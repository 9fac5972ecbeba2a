//! The facts about built-in kinds: every type of the Kubernetes API, field by field, as data.
//!
//! Owns the table that `make facts` prints (a Go program reflecting over the upstream API modules) and its lookup.
//! Everything that treats built-in kinds generically reads this: the JSON and protobuf codecs, strategic merge,
//! managed fields and OpenAPI. No kind is named in code here.
//!
//! Invariant: the table is immutable and loaded once; all its strings are slices of the embedded file, so loading
//! copies no text and a `&'static str` from here may be kept anywhere.

mod load;
mod shape;
#[cfg(test)]
mod tests;

use std::sync::LazyLock;

pub use shape::{ListKind, MapKind, PatchStrategy, Shape, Special, TypeId};

static TABLE: LazyLock<Facts> =
    LazyLock::new(|| load::parse(concat!(include_str!("kubernetes.tsv"), include_str!("mica.tsv"))));

/// The one table of built-in kinds, loaded on first use.
pub fn facts() -> &'static Facts {
    &TABLE
}

/// All known types and the kinds that name them.
#[derive(Debug)]
pub struct Facts {
    pub(crate) types: Vec<Type>,
    /// Sorted by (group, version, kind) for lookup.
    pub(crate) kinds: Vec<Kind>,
    /// Type ids sorted by OpenAPI name, for lookup.
    pub(crate) by_openapi: Vec<TypeId>,
    pub(crate) well_known: WellKnown,
    pub(crate) unions: Vec<Union>,
    /// What types and fields of our own kinds mean; upstream's descriptions are in its published schemas.
    pub(crate) descriptions: Vec<Description>,
}

/// A type of which one member at most is meant to be set, as OpenAPI says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Union {
    pub(crate) ty: TypeId,
    /// JSON name of the field that says which member is set; empty if none does.
    pub discriminator: &'static str,
    /// JSON and Go names of the members.
    pub members: Vec<(&'static str, &'static str)>,
}

/// A text about a type, or about one of its fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Description {
    pub(crate) ty: TypeId,
    pub(crate) field: Option<usize>,
    pub(crate) text: &'static str,
}

/// Types that generic code asks for by meaning rather than by kind.
#[derive(Debug, Clone, Copy)]
pub struct WellKnown {
    pub object_meta: TypeId,
    pub list_meta: TypeId,
    pub type_meta: TypeId,
    pub owner_reference: TypeId,
    pub managed_fields_entry: TypeId,
    pub label_selector: TypeId,
    pub status: TypeId,
    pub watch_event: TypeId,
    pub delete_options: TypeId,
    pub table: TypeId,
    pub partial_object_metadata: TypeId,
    pub partial_object_metadata_list: TypeId,
}

/// A group, version and kind, and the type of its objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub ty: TypeId,
}

/// One Go struct of the API.
#[derive(Debug)]
pub struct Type {
    pub id: TypeId,
    /// Name without package, as Go's JSON errors print the struct: `ConfigMap`.
    pub name: &'static str,
    /// Name with package, as Go's JSON errors print a value's type: `v1.ConfigMap`.
    pub go: &'static str,
    /// `io.k8s.api.core.v1.ConfigMap`.
    pub openapi: &'static str,
    /// Whether apply treats values of this type as one unit (`+structType=atomic`), wherever they stand.
    pub map: MapKind,
    /// Whether protobuf has this type at all: `Table`, for one, it has not.
    pub protobuf: bool,
    /// Whether OpenAPI says that it is atomic: only if the marker stands where upstream's generator reads it.
    pub printed_atomic: bool,
    /// Fields as JSON sees them, embedded structs flattened, in the order in which Go prints them.
    pub fields: Vec<Field>,
    /// Fields as protobuf sees them, by ascending number.
    pub wire: Vec<Wire>,
    /// Indices into `fields` of those that Go prints even when unset.
    pub(crate) always: Vec<u16>,
    /// Indices into `fields`, sorted by JSON name.
    pub(crate) by_name: Vec<u16>,
}

/// One JSON field of a type.
#[derive(Debug)]
pub struct Field {
    /// JSON name.
    pub json: &'static str,
    /// Go field name.
    pub go: &'static str,
    /// The embedded Go fields it was flattened out of, outermost first, dotted; empty for an own field.
    ///
    /// Go's JSON errors print these in the path: `Volume.spec.volumes.VolumeSource.hostPath`.
    pub embedded: &'static str,
    /// Protobuf field number within the Go struct that declares the field; 0 if protobuf has none.
    pub number: u32,
    pub shape: Shape,
    /// Go type names from the outside in, as JSON errors print them: `["[]v1.Container", "v1.Container"]` is
    /// written `[]v1.Container|v1.Container`. Read it with [`Field::go_type`].
    pub(crate) go_types: &'static str,
    /// Whether Go holds a pointer, so that absent differs from zero.
    pub pointer: bool,
    pub omit_empty: bool,
    pub omit_zero: bool,
    /// Marked `+optional` upstream (OpenAPI's `required` is: neither optional nor omitempty).
    pub optional: bool,
    pub list: ListKind,
    pub map: MapKind,
    pub patch_strategy: PatchStrategy,
    /// Merge key of strategic merge; empty if none.
    pub patch_key: &'static str,
    /// The `+default=` marker as JSON text.
    pub default: Option<&'static str>,
    pub printed: Printed,
}

/// What OpenAPI prints about a field, beyond what follows from the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Printed {
    pub required: bool,
    /// Whether the list type is printed: unmarked lists are atomic, but OpenAPI does not say so.
    pub list: bool,
    /// The map type, where a marker on the field says it.
    pub map: Option<MapKind>,
    /// The values that the field, or each of its elements, may have: sorted, with `|` between them; empty for any.
    pub(crate) enumeration: &'static str,
    /// What these values mean, in the same order and written alike; empty if nothing is said of any.
    pub(crate) meanings: &'static str,
    /// How many blank lines upstream's text leaves before it goes on about the values.
    pub blank_lines: usize,
}

impl Printed {
    /// The values that the field, or each of its elements, may have; none if it may have any. The empty text may be one.
    pub fn enumeration(&self) -> impl Iterator<Item = &'static str> {
        self.enumeration.split('|').filter(|_| !self.enumeration.is_empty())
    }

    /// The values, and what upstream says of each, which may be nothing.
    pub fn described_enumeration(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let mut meanings = self.meanings.split('|');
        self.enumeration()
            .map(move |value| (value, meanings.next().unwrap_or_default()))
    }
}

/// One protobuf field of a type: either one JSON field, or an embedded struct that is a message of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wire {
    pub number: u32,
    pub target: WireTarget,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireTarget {
    /// Index into [`Type::fields`].
    Field(u16),
    /// An embedded struct: its fields stand in the same JSON object, but in a nested message.
    Embedded(TypeId),
}

impl Facts {
    /// The type behind a group, version and kind.
    ///
    /// Kinds that every group version serves (`DeleteOptions`, `WatchEvent`, …) and the unversioned ones (`Status`,
    /// `APIResourceList`, …) are found under any group and version.
    pub fn kind(&self, group: &str, version: &str, kind: &str) -> Option<TypeId> {
        let find = |g: &str, v: &str| {
            self.kinds
                .binary_search_by(|k| (k.group, k.version, k.kind).cmp(&(g, v, kind)))
                .ok()
        };
        find(group, version)
            .or_else(|| find("*", "v1"))
            .map(|at| self.kinds[at].ty)
    }

    pub fn ty(&self, id: TypeId) -> &Type {
        &self.types[id.index()]
    }

    /// The type with this OpenAPI name, e.g. `io.k8s.api.core.v1.ConfigMap`.
    pub fn openapi(&self, name: &str) -> Option<TypeId> {
        let at = self
            .by_openapi
            .binary_search_by(|id| self.ty(*id).openapi.cmp(name))
            .ok()?;
        Some(self.by_openapi[at])
    }

    pub fn types(&self) -> impl Iterator<Item = &Type> {
        self.types.iter()
    }

    /// Every kind, sorted by group, version and kind; group `*` holds those that all group versions share.
    pub fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    pub fn well_known(&self) -> &WellKnown {
        &self.well_known
    }

    /// The unions that a type holds.
    pub fn unions(&self, ty: TypeId) -> impl Iterator<Item = &Union> {
        self.unions.iter().filter(move |union| union.ty == ty)
    }

    /// What a type of our own, or one of its fields by index, means.
    pub fn description(&self, ty: TypeId, field: Option<usize>) -> Option<&'static str> {
        let found = self.descriptions.iter().find(|d| d.ty == ty && d.field == field)?;
        Some(found.text)
    }
}

impl Type {
    /// The field with this JSON name, case-sensitively.
    pub fn field(&self, json: &str) -> Option<&Field> {
        self.field_index(json).map(|at| &self.fields[at])
    }

    /// Index into [`Type::fields`] of the field with this JSON name.
    pub fn field_index(&self, json: &str) -> Option<usize> {
        let at = self
            .by_name
            .binary_search_by(|i| self.fields[usize::from(*i)].json.cmp(json))
            .ok()?;
        Some(usize::from(self.by_name[at]))
    }

    /// For a list kind, the type of its items.
    pub fn item(&self) -> Option<TypeId> {
        match &self.field("items")?.shape {
            Shape::List(item) => match **item {
                Shape::Struct(id) => Some(id),
                _ => None,
            },
            _ => None,
        }
    }
}

impl Field {
    /// The Go type's name as JSON errors print it: level 0 is the field itself, each level in is an element.
    pub fn go_type(&self, level: usize) -> &'static str {
        self.go_types.split('|').nth(level).unwrap_or("interface {}")
    }

    /// The `+default=` marker as a value.
    pub fn default_value(&self) -> Option<serde_json::Value> {
        self.default
            .map(|text| serde_json::from_str(text).expect("generated defaults are JSON"))
    }
}
