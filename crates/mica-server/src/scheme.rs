//! What a plane serves: every resource, found by group, version and plural.
//!
//! Two schemes of built-in kinds exist in a process: root's, which has the kinds of the platform too, and the one that all
//! planes share. What a plane's own definitions add is [`crate::custom`]'s.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use mica_api::GroupResource;
use mica_machinery::codec;
use mica_machinery::facts::{TypeId, facts};
use mica_machinery::kind::autoscaling::scale;
use mica_machinery::kind::custom::{CustomKind, Standing, StatusSubresource};
use mica_machinery::kind::{self, Profile, Resource, Scope, Strategy};
use mica_machinery::managed::schema::TypeRef;
use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64;

use crate::tenancy::Viewer;

/// One resource of one group and version, ready to be served.
#[derive(Debug)]
pub struct Served {
    form: Form,
    /// As in the request's path, for messages.
    pub name: GroupResource,
    /// Where its objects are stored.
    pub storage: GroupResource,
    pub api_version: String,
    /// What precedes a stored object's JSON: `{"kind":"…","apiVersion":"…",`, or `{` where the JSON holds these itself.
    pub head: Box<[u8]>,
    /// Hash of everything that decides how this resource's objects are normalised.
    pub normaliser: u64,
}

/// Whether a type is that of one object or of a list of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Listed {
    No,
    Yes,
}

/// Where a resource's rules come from.
#[derive(Debug)]
pub enum Form {
    /// The table of built-in kinds.
    BuiltIn {
        row: &'static Resource,
        /// The type clients read and write.
        ty: TypeId,
        /// The type that is stored: the same, but for kinds with two faces.
        stored_ty: TypeId,
    },
    /// A definition of the plane's.
    Custom(Box<CustomKind>),
}

const SCALE: (&str, &str, &str) = ("autoscaling", "v1", "Scale");
const PART_VERBS: &[&str] = &["get", "patch", "update"];
static STATUS_AND_SCALE: [kind::Subresource; 2] = [
    kind::Subresource {
        name: "status",
        verbs: PART_VERBS,
        kind: None,
    },
    kind::Subresource {
        name: "scale",
        verbs: PART_VERBS,
        kind: Some(SCALE),
    },
];

/// In upstream's order.
const CUSTOM_VERBS: &[&str] = &[
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "create",
    "update",
    "watch",
];
/// What discovery says that can be done while a definition is being deleted.
const LEAVING_VERBS: &[&str] = &["delete", "deletecollection", "get", "list", "watch"];

impl Served {
    pub(crate) fn new(resource: &'static Resource) -> Self {
        let (group, version, kind) = (resource.group, resource.version, resource.kind);
        let known = |group, version, kind| match kind {
            // Metadata of other kinds' objects, whatever group it is served in.
            "PartialObjectMetadata" => facts().well_known().partial_object_metadata,
            _ => facts()
                .kind(group, version, kind)
                .unwrap_or_else(|| panic!("{group}/{version} {kind} is in the fact table")),
        };
        let ty = known(group, version, kind);
        let (stored_group, stored_ty) = match &resource.stored_as {
            Some(stored) => (stored.group, known(stored.group, stored.version, stored.kind)),
            None => (group, ty),
        };
        let api_version = join_version(group, version);
        let head = format!(r#"{{"kind":"{kind}","apiVersion":"{api_version}","#);
        Self {
            name: GroupResource::new(group, resource.plural),
            storage: GroupResource::new(stored_group, resource.plural),
            form: Form::BuiltIn {
                row: resource,
                ty,
                stored_ty,
            },
            normaliser: xxh3_64(format!("{NORMALISER}/{group}/{version}/{kind}").as_bytes()),
            head: head.into_bytes().into_boxed_slice(),
            api_version,
        }
    }

    /// A version of a custom kind. Its stored JSON holds kind and apiVersion, which objects in lists have too.
    pub fn custom(kind: CustomKind) -> Self {
        let name = GroupResource::new(&kind.group, &kind.plural);
        let mut identity = format!("{NORMALISER}/{}/{}/{}/", kind.group, kind.version, kind.kind).into_bytes();
        identity.extend_from_slice(&kind.schema_hash);
        Self {
            storage: name.clone(),
            name,
            api_version: kind.api_version(),
            head: Box::from(&b"{"[..]),
            normaliser: xxh3_64(&identity),
            form: Form::Custom(Box::new(kind)),
        }
    }

    pub fn form(&self) -> &Form {
        &self.form
    }

    /// The row of the table, if the kind is built in.
    pub fn row(&self) -> Option<&'static Resource> {
        match &self.form {
            Form::BuiltIn { row, .. } => Some(row),
            Form::Custom(_) => None,
        }
    }

    pub fn custom_kind(&self) -> Option<&CustomKind> {
        match &self.form {
            Form::BuiltIn { .. } => None,
            Form::Custom(kind) => Some(kind),
        }
    }

    pub fn group(&self) -> &str {
        match &self.form {
            Form::BuiltIn { row, .. } => row.group,
            Form::Custom(kind) => &kind.group,
        }
    }

    pub fn version(&self) -> &str {
        match &self.form {
            Form::BuiltIn { row, .. } => row.version,
            Form::Custom(kind) => &kind.version,
        }
    }

    pub fn kind(&self) -> &str {
        match &self.form {
            Form::BuiltIn { row, .. } => row.kind,
            Form::Custom(kind) => &kind.kind,
        }
    }

    pub fn list_kind(&self) -> String {
        match &self.form {
            Form::BuiltIn { row, .. } => format!("{}List", row.kind),
            Form::Custom(kind) => kind.list_kind.clone(),
        }
    }

    pub fn plural(&self) -> &str {
        match &self.form {
            Form::BuiltIn { row, .. } => row.plural,
            Form::Custom(kind) => &kind.plural,
        }
    }

    pub fn singular(&self) -> &str {
        match &self.form {
            Form::BuiltIn { row, .. } => row.singular,
            Form::Custom(kind) => &kind.singular,
        }
    }

    pub fn short_names(&self) -> Vec<&str> {
        match &self.form {
            Form::BuiltIn { row, .. } => row.short_names.to_vec(),
            Form::Custom(kind) => kind.short_names.iter().map(String::as_str).collect(),
        }
    }

    pub fn categories(&self) -> Vec<&str> {
        match &self.form {
            Form::BuiltIn { row, .. } => row.categories.to_vec(),
            Form::Custom(kind) => kind.categories.iter().map(String::as_str).collect(),
        }
    }

    pub fn scope(&self) -> Scope {
        match &self.form {
            Form::BuiltIn { row, .. } => row.scope,
            Form::Custom(kind) => kind.scope,
        }
    }

    pub fn namespaced(&self) -> bool {
        self.scope() == Scope::Namespaced
    }

    /// Whether this is the core kind Namespace, which the deletion of others depends on.
    pub fn is_namespaces(&self) -> bool {
        self.group().is_empty() && self.kind() == "Namespace"
    }

    /// Whether this is the kind CustomResourceDefinition.
    pub fn is_definitions(&self) -> bool {
        self.group() == "apiextensions.k8s.io" && self.kind() == "CustomResourceDefinition"
    }

    pub fn strategy(&self) -> &dyn Strategy {
        match &self.form {
            Form::BuiltIn { row, .. } => row.strategy,
            Form::Custom(kind) => &**kind,
        }
    }

    /// What is done to stored objects before clients see them, for a kind with two faces.
    pub fn face(&self) -> Option<&'static kind::Stored> {
        self.row()?.stored_as.as_ref()
    }

    /// The Go type that upstream holds an object in, or a list of them, as its errors name it.
    pub fn go_type(&self, list: Listed) -> String {
        let kind = match list {
            Listed::No => self.kind().to_owned(),
            Listed::Yes => self.list_kind(),
        };
        match &self.form {
            Form::BuiltIn { row, .. } if scale::is_of_custom(row) => format!("v1.{kind}"),
            Form::BuiltIn { row, .. } => format!("{}.{kind}", crate::serve::body::internal_group(row.group)),
            Form::Custom(_) if list == Listed::Yes => "unstructured.UnstructuredList".to_owned(),
            Form::Custom(_) => "unstructured.Unstructured".to_owned(),
        }
    }

    /// As in discovery.
    pub fn verbs(&self) -> &'static [&'static str] {
        match &self.form {
            Form::BuiltIn { row, .. } => row.verbs,
            Form::Custom(kind) if kind.standing == Standing::Terminating => LEAVING_VERBS,
            Form::Custom(_) => CUSTOM_VERBS,
        }
    }

    /// Whether requests with this verb are answered.
    pub fn has_verb(&self, verb: &str) -> bool {
        match &self.form {
            Form::BuiltIn { row, .. } => row.verbs.contains(&verb),
            Form::Custom(_) => CUSTOM_VERBS.contains(&verb),
        }
    }

    pub fn subresources(&self) -> &'static [kind::Subresource] {
        match &self.form {
            Form::BuiltIn { row, .. } => row.subresources,
            Form::Custom(kind) => match (kind.status, &kind.scale) {
                (StatusSubresource::Apart, Some(_)) => &STATUS_AND_SCALE,
                (StatusSubresource::Apart, None) => &STATUS_AND_SCALE[..1],
                (StatusSubresource::None, Some(_)) => &STATUS_AND_SCALE[1..],
                (StatusSubresource::None, None) => &[],
            },
        }
    }

    pub fn subresource(&self, name: &str) -> Option<&'static kind::Subresource> {
        self.subresources().iter().find(|subresource| subresource.name == name)
    }

    /// Whether empty lists and maps are lost when objects are stored, as in upstream's protobuf. Extensions are stored as
    /// JSON there.
    pub fn forgets_empty(&self) -> bool {
        match &self.form {
            Form::BuiltIn { row, stored_ty, .. } => {
                facts().ty(*stored_ty).protobuf
                    && !matches!(row.group, "apiextensions.k8s.io" | "apiregistration.k8s.io")
            }
            Form::Custom(_) => false,
        }
    }

    /// Whether what is stored is, but for kind and apiVersion, what clients get.
    pub fn stores_as_served(&self) -> bool {
        match &self.form {
            Form::BuiltIn { ty, stored_ty, .. } => ty == stored_ty,
            Form::Custom(_) => true,
        }
    }

    /// Whether clients can have it in protobuf.
    pub fn has_protobuf(&self) -> bool {
        match &self.form {
            Form::BuiltIn { ty, row, .. } => facts().ty(*ty).protobuf && !scale::is_of_custom(row),
            Form::Custom(_) => false,
        }
    }

    /// How its objects merge.
    pub fn merge_type(&self) -> TypeRef<'_> {
        match &self.form {
            Form::BuiltIn { ty, .. } => TypeRef::kind(*ty),
            Form::Custom(kind) => kind.schema.merge_type(),
        }
    }

    /// An object in the form that clients get, as JSON.
    pub fn encode(&self, value: &Value, out: &mut Vec<u8>) {
        match &self.form {
            Form::BuiltIn { ty, .. } => codec::encode(*ty, value, out),
            Form::Custom(_) => codec::encode_untyped(value, out),
        }
    }

    /// The columns of a table of this resource. None at all: there are no tables of it.
    pub fn columns(&self) -> Vec<Column<'_>> {
        match &self.form {
            Form::BuiltIn { row, .. } => row.strategy.columns().iter().map(Column::of).collect(),
            Form::Custom(kind) => std::iter::once(Column::of(&kind::column::NAME))
                .chain(kind.columns.iter().map(Column::of_custom))
                .collect(),
        }
    }

    /// One object's cells of a table.
    pub fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        match &self.form {
            Form::BuiltIn { row, .. } => row.strategy.cells(object, now),
            Form::Custom(kind) => kind.cells(object, now),
        }
    }

    /// What an object's row of a table says of itself beside its cells.
    pub fn row_conditions(&self, object: &Value) -> Option<Value> {
        match &self.form {
            Form::BuiltIn { row, .. } => row.strategy.row_conditions(object),
            Form::Custom(_) => None,
        }
    }

    /// Field selectors beside metadata's: label and value of each.
    pub fn selectable(&self, object: &Value) -> Vec<(&str, String)> {
        match &self.form {
            Form::BuiltIn { row, .. } => row.strategy.selectable(object),
            Form::Custom(kind) => kind.selectable_fields(object),
        }
    }
}

/// A column of a table, as it is sent.
#[derive(Clone, Copy, Debug)]
pub struct Column<'a> {
    pub name: &'a str,
    pub r#type: &'a str,
    pub format: &'a str,
    pub description: &'a str,
    pub priority: i64,
}

impl<'a> Column<'a> {
    fn of(column: &'a kind::Column) -> Self {
        Self {
            name: column.name,
            r#type: column.r#type,
            format: column.format,
            description: column.description,
            priority: column.priority.into(),
        }
    }

    fn of_custom(column: &'a mica_machinery::schema::column::Column) -> Self {
        Self {
            name: &column.name,
            r#type: &column.r#type,
            format: &column.format,
            description: &column.description,
            priority: column.priority,
        }
    }
}

/// Raised when built-in kinds are normalised or defaulted in another way than before: older objects then take the parse path.
const NORMALISER: u32 = 1;

/// `group/version`, or `version` for the core group.
pub fn join_version(group: &str, version: &str) -> String {
    if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    }
}

#[derive(Debug)]
pub struct Scheme {
    /// What tells it from the process's other scheme.
    id: u64,
    served: Vec<Arc<Served>>,
    /// Group, version and plural to index.
    index: HashMap<(&'static str, &'static str, &'static str), usize>,
}

impl Scheme {
    pub fn new(profile: Profile, own: &[&'static Resource]) -> Self {
        let built_in = kind::resources().iter().filter(|resource| resource.profile <= profile);
        let served = built_in.chain(own.iter().copied());
        Self::of(served.map(|resource| Arc::new(Served::new(resource))).collect())
    }

    /// What of this is shown in a view.
    fn shown_to(&self, viewer: Viewer) -> Self {
        let shown = self.served.iter().filter(|served| viewer.offers(served));
        Self::of(shown.cloned().collect())
    }

    fn of(served: Vec<Arc<Served>>) -> Self {
        let index = served
            .iter()
            .enumerate()
            .map(|(i, served)| {
                let row = served.row().expect("a scheme is made of rows");
                ((row.group, row.version, row.plural), i)
            })
            .collect();
        let names: Vec<&str> = served.iter().map(|served| served.name.as_key()).collect();
        Self {
            id: xxh3_64(names.join("\n").as_bytes()),
            served,
            index,
        }
    }

    pub fn id(&self) -> u64 {
        self.id
    }

    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Served>> {
        self.index.get(&(group, version, plural)).map(|i| &self.served[*i])
    }

    pub fn has_group(&self, group: &str) -> bool {
        self.served.iter().any(|served| served.group() == group)
    }

    pub fn has_version(&self, group: &str, version: &str) -> bool {
        self.served
            .iter()
            .any(|served| served.group() == group && served.version() == version)
    }

    /// Every resource, in discovery order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Served>> {
        self.served.iter()
    }

    /// The resource that objects of a kind belong to.
    pub fn by_kind(&self, group: &str, version: &str, kind: &str) -> Option<&Arc<Served>> {
        self.served
            .iter()
            .find(|served| (served.group(), served.version(), served.kind()) == (group, version, kind))
    }

    /// The resource whose objects are stored under this name, as stored.
    pub fn by_storage(&self, storage: &str) -> Option<&Arc<Served>> {
        self.served
            .iter()
            .find(|served| served.storage.as_key() == storage && served.stores_as_served())
    }
}

/// The schemes of a server: root's, and one for each profile that a plane may have. Made when somebody first asks.
#[derive(Debug)]
pub struct Schemes {
    /// The profile of root, and of planes that say nothing.
    usual: Profile,
    /// What root serves of ours, and what planes do.
    root_own: &'static [&'static Resource],
    plane_own: &'static [&'static Resource],
    root: OnceLock<Arc<Scheme>>,
    planes: [OnceLock<Arc<Scheme>>; Profile::ALL.len()],
    views: [OnceLock<Arc<Scheme>>; Viewer::ALL.len()],
}

impl Schemes {
    pub fn new(
        usual: Profile,
        root_own: &'static [&'static Resource],
        plane_own: &'static [&'static Resource],
    ) -> Arc<Self> {
        Arc::new(Self {
            usual,
            root_own,
            plane_own,
            root: OnceLock::new(),
            planes: Default::default(),
            views: Default::default(),
        })
    }

    pub fn usual(&self) -> Profile {
        self.usual
    }

    pub fn root(&self) -> &Arc<Scheme> {
        self.root
            .get_or_init(|| Arc::new(Scheme::new(self.usual, self.root_own)))
    }

    /// What planes of a profile serve.
    pub fn planes(&self, profile: Profile) -> &Arc<Scheme> {
        self.planes[profile as usize].get_or_init(|| Arc::new(Scheme::new(profile, self.plane_own)))
    }

    /// What of root is served in views.
    pub fn view(&self, viewer: Viewer) -> &Arc<Scheme> {
        self.views[viewer as usize].get_or_init(|| Arc::new(self.root().shown_to(viewer)))
    }

    /// Every kind that some plane may serve.
    pub fn widest(&self) -> &Arc<Scheme> {
        self.planes(Profile::Kubernetes)
    }
}
