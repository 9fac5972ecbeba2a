//! Objects of all kinds as rows of a table, for people.

use mica_machinery::kind::column::{self, text, wide};
use mica_machinery::kind::{Column, column::NAME};
use mica_machinery::select::text_at;
use mica_store::{Key, Revision};
use serde_json::{Value, json};

use super::Scope;
use super::cut::{self, Form, Origin};
use crate::encode::Include;
use crate::error::ApiError;
use crate::negotiate::MetaVersion;
use crate::stored::Stored;

const COLUMNS: [Column; 7] = [
    text("Plane", "The control plane that holds the object."),
    text("Resource", "What the object is: plural and group of its resource."),
    text("Namespace", "The namespace of the object, if it is in one."),
    NAME,
    column::AGE,
    wide(text("Kind", "The kind of the object.")),
    wide(text("API Version", "The version that the object is served in.")),
];

/// How rows are made.
pub struct Table {
    pub version: MetaVersion,
    pub include: Include,
    /// Columns that are left out: where all objects are of one plane, the first.
    skipped: usize,
    now: jiff::Timestamp,
}

impl Table {
    pub fn new(version: MetaVersion, include: Include, scope: Scope) -> Self {
        Self {
            version,
            include,
            skipped: usize::from(scope != Scope::AllPlanes),
            now: jiff::Timestamp::now(),
        }
    }

    /// Everything up to the first row. Only the first table of a watch has columns.
    pub fn head(&self, metadata: &Value, columns: Columns) -> Vec<u8> {
        let columns = match columns {
            Columns::Omitted => Value::Null,
            Columns::Defined => COLUMNS[self.skipped..]
                .iter()
                .map(|column| {
                    json!({"name": column.name, "type": column.r#type, "format": column.format,
                        "description": column.description, "priority": column.priority})
                })
                .collect(),
        };
        let version = self.version.api_version();
        format!(
            r#"{{"kind":"Table","apiVersion":"{version}","metadata":{metadata},"columnDefinitions":{columns},"rows":["#
        )
        .into_bytes()
    }

    /// Appends an object's row.
    pub fn row(&self, key: &Key, origin: &Origin<'_>, stored: &Stored, out: &mut Vec<u8>) -> Result<(), ApiError> {
        let created = text_at(stored.json(), &["metadata", "creationTimestamp"]).unwrap_or_default();
        let group = origin.kind.api_version().split_once('/').map_or("", |(group, _)| group);
        let resource = mica_api::GroupResource::new(group, origin.kind.plural()).to_string();
        let cells = [
            origin.plane,
            &resource,
            key.namespace().unwrap_or_default(),
            key.name(),
            &column::since(&created, self.now),
            origin.kind.kind(),
            origin.kind.api_version(),
        ];
        self.write(&cells.map(Value::from), out);
        match self.include {
            Include::None => out.extend_from_slice(b"null"),
            Include::Metadata | Include::Object => cut::partial(Form::Meta(self.version), stored, origin, out)?,
        }
        out.push(b'}');
        Ok(())
    }

    /// Appends the row of a bookmark, which is about no object.
    pub fn bookmark(&self, object: &Value, out: &mut Vec<u8>) {
        self.write(&COLUMNS.map(|_| Value::from("")), out);
        let object = match self.include {
            Include::None => &Value::Null,
            Include::Metadata | Include::Object => object,
        };
        out.extend_from_slice(format!("{object}}}").as_bytes());
    }

    fn write(&self, cells: &[Value], out: &mut Vec<u8>) {
        let cells = Value::from(&cells[self.skipped..]);
        out.extend_from_slice(format!(r#"{{"cells":{cells},"object":"#).as_bytes());
    }
}

/// Whether a table says which columns it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Columns {
    Defined,
    Omitted,
}

/// What a table, or a list, of a revision says of itself. An empty token is none.
pub fn list_metadata(revision: Revision, token: &str) -> Value {
    let mut metadata = json!({"resourceVersion": revision.to_string()});
    if !token.is_empty() {
        metadata["continue"] = token.into();
    }
    metadata
}
