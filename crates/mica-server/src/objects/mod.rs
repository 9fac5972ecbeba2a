//! The resource `objects`: the metadata of every object of every kind, of one plane or of all planes but root.
//!
//! What garbage collection, quota and search follow: one list and one watch instead of one for each kind and plane. Shows
//! what planes hold themselves, neither the base layer nor internal records. `docs/design/all-planes.md` is its contract.
//!
//! No object is decoded for it: metadata is cut out of stored bytes.

mod cut;
mod filter;
mod list;
mod table;
mod walk;
mod watch;

use std::sync::Arc;

use http::Response;
use http::header::ACCEPT;
use mica_api::PlaneId;
use mica_machinery::kind::{Column, NameUse, Profile, Resource, Scope as KindScope, Strategy};
use mica_store::{Key, KeyRange, Record};

use crate::error::ApiError;
use crate::http::Body;
use crate::negotiate::{self, Conversion, Encodings, Refusal, Route, Target};
use crate::options::ListOptions;
use crate::plane::Plane;
use crate::plane::directory::Directory;
use crate::plane::kind::{GROUP, VERSION};
use crate::request::Verb;
use crate::scheme::Served;
use crate::serve::{Call, resource};
use crate::stored::Stored;
use cut::Form;
use filter::Filter;
use table::Table;

pub use cut::{API_VERSION_ANNOTATION, KIND_ANNOTATION, RESOURCE_ANNOTATION};

pub const PLURAL: &str = "objects";

pub static OBJECTS: Resource = Resource {
    group: GROUP,
    version: VERSION,
    kind: "PartialObjectMetadata",
    plural: PLURAL,
    singular: "object",
    short_names: &[],
    categories: &[],
    scope: KindScope::Cluster,
    profile: Profile::Generic,
    verbs: &["list", "watch"],
    subresources: &[],
    stored_as: None,
    strategy: &Objects,
};

/// Objects are other kinds' objects: they have no rules of their own.
#[derive(Debug)]
pub struct Objects;

impl Strategy for Objects {
    fn name_errors(&self, _name: &str, _use: NameUse) -> Vec<String> {
        Vec::new()
    }

    fn columns(&self) -> &'static [Column] {
        &[]
    }
}

pub(crate) fn is_objects(served: &Served) -> bool {
    served.group() == GROUP && served.plural() == PLURAL
}

/// Answers a list or watch of one plane's objects, or of all planes'. Who may is decided before.
pub(crate) async fn answer(call: &mut Call<'_>, plane: Option<&Plane>, verb: Verb) -> Result<Response<Body>, ApiError> {
    match verb {
        Verb::List => list::list(call, plane).await,
        Verb::Watch => watch::watch(call, plane).await,
        _ => Err(ApiError::method_not_allowed()),
    }
}

/// The shape that a client wants objects in. Formats other than JSON are passed over: clients must do without.
fn shape(call: &Call<'_>, scope: Scope) -> Result<(Form, Option<Table>), ApiError> {
    let accept = call.header(&ACCEPT);
    let is_json = |clause: &&str| {
        let media_type = clause.split(';').next().unwrap_or_default().trim();
        ["application/json", "application/*", "*/*"].contains(&media_type)
    };
    let json: Vec<&str> = accept.split(',').filter(is_json).collect();
    if json.is_empty() && !accept.is_empty() {
        return Err(Refusal::NotAcceptable("application/json".to_owned()).into());
    }
    let asked = negotiate::Asked {
        accept: &json.join(","),
        ..call.asked()
    };
    let output = negotiate::output(asked, Route::None, Encodings::NoProtobuf)?;
    Ok(match output.conversion {
        None => (Form::Served, None),
        Some(Conversion {
            target: Target::Table,
            version,
        }) => {
            let include = resource::include(call, output)?;
            (Form::Meta(version), Some(Table::new(version, include, scope)))
        }
        Some(Conversion { version, .. }) => (Form::Meta(version), None),
    })
}

/// Whose objects an answer is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Scope {
    /// Every plane's but root's.
    AllPlanes,
    Plane(PlaneId),
}

impl Scope {
    fn range(self) -> KeyRange {
        match self {
            Self::AllPlanes => KeyRange::All,
            Self::Plane(plane) => KeyRange::Plane(plane),
        }
    }
}

/// What a request asks for.
struct Asked {
    scope: Scope,
    filter: Filter,
}

impl Asked {
    fn read(plane: Option<&Plane>, options: &ListOptions) -> Result<Self, ApiError> {
        let filter = Filter::parse(&options.label_selector, &options.field_selector)?;
        let scope = match (plane, filter.plane()) {
            (Some(plane), _) => Scope::Plane(plane.id),
            (None, None) => Scope::AllPlanes,
            (None, Some(id)) => match PlaneId::parse(id) {
                Ok(id) if id != PlaneId::ROOT => Scope::Plane(id),
                _ => return Err(ApiError::bad_request(format!("{id:?} is not the id of a plane"))),
            },
        };
        Ok(Self { scope, filter })
    }
}

/// Finds out what the object at a key is, and writes its metadata.
struct Describer {
    form: Form,
    table: Option<Table>,
    directory: Arc<Directory>,
    /// What was found last: keys come in the order of their resources.
    last: Option<What>,
}

/// What an object is.
#[derive(Clone, Debug)]
pub(crate) enum What {
    BuiltIn(Arc<Served>),
    /// Custom objects say it themselves: their definition need not be read.
    Custom {
        api_version: String,
        kind: String,
        plural: String,
    },
}

impl What {
    fn api_version(&self) -> &str {
        match self {
            Self::BuiltIn(served) => &served.api_version,
            Self::Custom { api_version, .. } => api_version,
        }
    }

    fn kind(&self) -> &str {
        match self {
            Self::BuiltIn(served) => served.kind(),
            Self::Custom { kind, .. } => kind,
        }
    }

    fn plural(&self) -> &str {
        match self {
            Self::BuiltIn(served) => served.plural(),
            Self::Custom { plural, .. } => plural,
        }
    }

    /// What a custom object says that it is.
    fn custom(key: &Key, stored: &Stored) -> Option<Self> {
        let text = |field| mica_machinery::select::text_at(stored.json(), &[field]).map(|text| text.to_string());
        Some(Self::Custom {
            api_version: text("apiVersion")?,
            kind: text("kind")?,
            plural: key.resource().split_once('/')?.1.to_owned(),
        })
    }
}

impl Describer {
    fn new(call: &Call<'_>, scope: Scope) -> Result<Self, ApiError> {
        let (form, table) = shape(call, scope)?;
        Ok(Self {
            form,
            table,
            directory: call.server.directory.clone(),
            last: None,
        })
    }

    /// What the object at a key is; `None` if nobody can tell.
    fn kind(&mut self, key: &Key, stored: &Stored) -> Option<What> {
        if let Some(What::BuiltIn(last)) = &self.last
            && last.storage.as_key() == key.resource()
        {
            return self.last.clone();
        }
        let root = self.directory.root();
        let scheme = if key.plane() == PlaneId::ROOT {
            &root.scheme
        } else {
            self.directory.plane_scheme()
        };
        match scheme.by_storage(key.resource()) {
            Some(served) => {
                self.last = Some(What::BuiltIn(served.clone()));
                self.last.clone()
            }
            None => What::custom(key, stored),
        }
    }

    /// What a plane had of its base layer at a key, before it hid that.
    async fn of_base(&self, key: &Key, previous: Option<&Record>) -> Result<Option<Stored>, ApiError> {
        let plane = match key.plane() {
            PlaneId::ROOT => Some(self.directory.root()),
            id => self.directory.by_id(id).await?,
        };
        let Some(plane) = plane else { return Ok(None) };
        match previous {
            None => Ok(plane.base.get(&key.group_resource(), key.rest(), &plane.birth)),
            Some(record) => Ok(plane.read(key, record)?.object()),
        }
    }

    /// Appends the object's metadata, or its row. The plane's name is left out if the plane is gone.
    async fn write(&self, key: &Key, kind: &What, stored: &Stored, out: &mut Vec<u8>) -> Result<(), ApiError> {
        let name = self.directory.name_of(key.plane()).await?;
        let origin = cut::Origin {
            plane: name.as_deref().unwrap_or_default(),
            id: key.plane(),
            kind,
        };
        self.item(key, &origin, stored, out)
    }

    fn item(&self, key: &Key, origin: &cut::Origin<'_>, stored: &Stored, out: &mut Vec<u8>) -> Result<(), ApiError> {
        match &self.table {
            None => cut::partial(self.form, stored, origin, out),
            Some(table) => table.row(key, origin, stored, out),
        }
    }
}
