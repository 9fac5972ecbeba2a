//! Answers as bytes: one object, a list, a watch frame, in the form and format that the client asked for.
//!
//! The common case, JSON of the whole object in its stored version, is stored bytes with a few put in between. Everything
//! else (YAML, protobuf, tables, metadata only, other versions) takes the tree.

use bytes::{BufMut, Bytes, BytesMut};
use mica_machinery::facts::{TypeId, facts};
use mica_machinery::{codec, object, protobuf, yaml};
use mica_store::Revision;
use serde_json::{Map, Value, json};

use crate::error::ApiError;
use crate::negotiate::{Conversion, Format, MetaVersion, Output, Pretty, Target};
use crate::registry::served_value;
use crate::scheme::{self, Served};
use crate::stored::Stored;

/// How much of each object a table carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Include {
    None,
    Metadata,
    Object,
}

/// What is sent of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    Whole,
    Partial(MetaVersion),
    Table(MetaVersion),
}

/// The form and format of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Media {
    pub output: Output,
    pub include: Include,
}

impl Media {
    fn form(&self) -> Form {
        match self.output.conversion {
            None => Form::Whole,
            Some(Conversion {
                target: Target::Table,
                version,
            }) => Form::Table(version),
            Some(Conversion { version, .. }) => Form::Partial(version),
        }
    }

    pub fn is_table(&self) -> bool {
        matches!(self.form(), Form::Table(_))
    }
}

/// Encodes objects of one resource for one client.
#[derive(Clone, Copy)]
pub struct Encoder<'a> {
    pub served: &'a Served,
    pub media: Media,
    now: jiff::Timestamp,
}

impl<'a> Encoder<'a> {
    pub fn new(served: &'a Served, media: Media) -> Self {
        // Only tables show ages.
        let now = if media.is_table() {
            jiff::Timestamp::now()
        } else {
            jiff::Timestamp::UNIX_EPOCH
        };
        Self { served, media, now }
    }

    /// Whether stored bytes can be sent as they are.
    pub fn is_plain(&self, stored: &Stored) -> bool {
        self.media.output == Output::JSON
            && self.served.stores_as_served()
            && stored.normaliser == self.served.normaliser
    }

    /// One object as a whole answer.
    pub fn object(&self, stored: &Stored) -> Result<Bytes, ApiError> {
        if self.is_plain(stored) {
            let mut out = BytesMut::with_capacity(stored.len_with(&self.served.head) + 1);
            stored.write(&self.served.head, &mut out);
            out.put_u8(b'\n');
            return Ok(out.freeze());
        }
        self.value(served_value(self.served, stored)?)
    }

    /// One object that was changed after it was read, as a whole answer.
    pub fn value(&self, value: Value) -> Result<Bytes, ApiError> {
        Ok(match self.media.form() {
            Form::Whole => self.whole(&value)?,
            Form::Partial(version) => {
                let value = partial(&value, version);
                let ty = facts().well_known().partial_object_metadata;
                document(ty, &value, self.media.output)?
            }
            Form::Table(version) => {
                let metadata = match object::string(&value, &["metadata", "resourceVersion"]) {
                    "" => json!({}),
                    text => json!({"resourceVersion": text}),
                };
                finish(
                    self.table(version, &metadata, &[value], Columns::Defined),
                    self.media.output,
                )
            }
        })
    }

    fn table(&self, version: MetaVersion, metadata: &Value, values: &[Value], columns: Columns) -> Vec<u8> {
        let mut table = self.table_head(version, metadata, columns).into_bytes();
        if values.is_empty() && self.nothing_is_null() {
            table.pop();
            table.extend_from_slice(b"null}");
            return table;
        }
        for (at, value) in values.iter().enumerate() {
            if at > 0 {
                table.push(b',');
            }
            self.write_row(value, &mut table);
        }
        table.extend_from_slice(b"]}");
        table
    }

    /// A table up to its first row.
    fn table_head(&self, version: MetaVersion, metadata: &Value, columns: Columns) -> String {
        let field = format!("columnDefinitions\":{},\"rows", self.columns(columns));
        json_head("Table", version.api_version(), metadata, &field)
    }

    /// Upstream's default table of nothing has null for rows; those of its own printers are empty.
    fn nothing_is_null(&self) -> bool {
        self.served
            .row()
            .is_some_and(|row| row.strategy.columns() == mica_machinery::kind::column::DEFAULT)
    }

    fn columns(&self, columns: Columns) -> String {
        let text = |text: &str| {
            let mut json = Vec::new();
            codec::write_string(text, &mut json);
            String::from_utf8(json).expect("JSON is UTF-8")
        };
        let column = |column: scheme::Column<'_>| {
            format!(
                r#"{{"name":{},"type":{},"format":{},"description":{},"priority":{}}}"#,
                text(column.name),
                text(column.r#type),
                text(column.format),
                text(column.description),
                column.priority
            )
        };
        match columns {
            Columns::Omitted => "null".to_owned(),
            Columns::Defined => {
                let columns: Vec<String> = self.served.columns().into_iter().map(column).collect();
                format!("[{}]", columns.join(","))
            }
        }
    }

    /// An object's row of a table.
    fn write_row(&self, value: &Value, out: &mut Vec<u8>) {
        let stored_form = match self.served.face() {
            Some(stored) => (stored.to_stored)(value.clone()),
            None => value.clone(),
        };
        let cells = self.served.cells(&stored_form, self.now);
        self.write_cells(cells, self.served.row_conditions(&stored_form), value, out);
    }

    /// A row with these cells. Go prints the fields of a row, and of an object in it, in the order of their structs.
    fn write_cells(&self, cells: Vec<Value>, conditions: Option<Value>, value: &Value, out: &mut Vec<u8>) {
        out.extend_from_slice(br#"{"cells":"#);
        codec::encode_untyped(&cells.into(), out);
        if let Some(Value::Array(conditions)) = conditions {
            for (at, condition) in conditions.iter().enumerate() {
                out.extend_from_slice(if at == 0 { br#","conditions":["# } else { b"," });
                write_fields(condition, &["type", "status", "reason", "message"], out);
            }
            out.push(b']');
        }
        out.extend_from_slice(br#","object":"#);
        match (self.media.form(), self.media.include) {
            (Form::Table(version), Include::Metadata) => {
                let ty = facts().well_known().partial_object_metadata;
                codec::encode(ty, &partial(value, version), out);
            }
            (_, Include::Object) => self.served.encode(value, out),
            _ => out.extend_from_slice(b"null"),
        }
        out.push(b'}');
    }

    /// The whole object in the client's format.
    fn whole(&self, value: &Value) -> Result<Bytes, ApiError> {
        match self.served.form() {
            scheme::Form::BuiltIn { ty, .. } => document(*ty, value, self.media.output),
            scheme::Form::Custom(_) => Ok(untyped(value, self.media.output)),
        }
    }

    /// Items of built-in lists do not repeat their kind; custom objects do.
    fn trim_item(&self, value: &mut Value) {
        if self.served.custom_kind().is_none() {
            for field in ["kind", "apiVersion"] {
                object::remove(value, &[field]);
            }
        }
    }

    /// Whether a list can be sent while it is read: in compact JSON, and in the order of keys.
    pub fn streams(&self) -> bool {
        let ordered = self.media.is_table() && self.served.strategy().table_order().is_some();
        self.media.output.format == Format::Json && self.media.output.pretty == Pretty::Compact && !ordered
    }

    /// The beginning of a list: everything up to its first item.
    pub fn list_head(&self, meta: &ListMeta) -> Bytes {
        let metadata = meta.to_value();
        let head = match self.media.form() {
            // Custom lists are printed in the order of names: metadata comes after the items.
            Form::Whole if self.served.custom_kind().is_some() => {
                format!(r#"{{"apiVersion":"{}","items":["#, self.served.api_version)
            }
            Form::Whole => json_head(&self.served.list_kind(), &self.served.api_version, &metadata, "items"),
            Form::Partial(version) => json_head("PartialObjectMetadataList", version.api_version(), &metadata, "items"),
            Form::Table(version) => self.table_head(version, &metadata, Columns::Defined),
        };
        head.into()
    }

    /// The end of a list: everything after its last item.
    pub fn list_tail(&self, meta: &ListMeta) -> Bytes {
        if self.served.custom_kind().is_none() || self.media.form() != Form::Whole {
            return Bytes::from_static(b"]}\n");
        }
        let mut tail = format!(r#"],"kind":"{}","metadata":"#, self.served.list_kind()).into_bytes();
        codec::encode_untyped(&self.list_metadata(meta), &mut tail);
        tail.extend_from_slice(b"}\n");
        tail.into()
    }

    /// What a list says about itself. A custom one says also that nothing follows.
    fn list_metadata(&self, meta: &ListMeta) -> Value {
        let mut metadata = meta.to_value();
        if self.served.custom_kind().is_some() && self.media.form() == Form::Whole && meta.continue_token.is_empty() {
            metadata["continue"] = "".into();
        }
        metadata
    }

    /// One item of a list, without the comma before it.
    pub fn list_item(&self, stored: &Stored, out: &mut BytesMut) -> Result<(), ApiError> {
        if self.is_plain(stored) {
            out.reserve(stored.len_with(b"{"));
            stored.write(b"{", out);
            return Ok(());
        }
        let json = self.item_json(served_value(self.served, stored)?);
        out.put_slice(&json);
        Ok(())
    }

    /// One item of a list as JSON.
    pub fn item_json(&self, mut value: Value) -> Vec<u8> {
        let mut json = Vec::new();
        match self.media.form() {
            Form::Whole => {
                self.trim_item(&mut value);
                self.served.encode(&value, &mut json);
            }
            Form::Partial(version) => {
                codec::encode(
                    facts().well_known().partial_object_metadata,
                    &partial(&value, version),
                    &mut json,
                );
            }
            Form::Table(_) => self.write_row(&value, &mut json),
        }
        json
    }

    /// A whole list that had to be gathered first, for formats that cannot be streamed.
    pub fn list(&self, meta: &ListMeta, items: &[Stored]) -> Result<Bytes, ApiError> {
        let values = items
            .iter()
            .map(|stored| served_value(self.served, stored))
            .collect::<Result<Vec<_>, _>>()?;
        self.list_values(meta, values)
    }

    pub fn list_values(&self, meta: &ListMeta, mut values: Vec<Value>) -> Result<Bytes, ApiError> {
        let metadata = self.list_metadata(meta);
        Ok(match self.media.form() {
            Form::Whole => {
                values.iter_mut().for_each(|value| self.trim_item(value));
                let (kind, api_version) = (self.served.list_kind(), &self.served.api_version);
                let list = json!({"kind": kind, "apiVersion": api_version, "metadata": metadata, "items": values});
                let row = self.served.row();
                match row.and_then(|row| facts().kind(row.group, row.version, &kind)) {
                    Some(ty) => document(ty, &list, self.media.output)?,
                    None => untyped(&list, self.media.output),
                }
            }
            Form::Partial(version) => {
                // Upstream begins without a list.
                let items = match values.is_empty() {
                    true => Value::Null,
                    false => values.iter().map(|value| partial(value, version)).collect(),
                };
                let (kind, api_version) = ("PartialObjectMetadataList", version.api_version());
                let list = json!({"kind": kind, "apiVersion": api_version, "metadata": metadata, "items": items});
                document(
                    facts().well_known().partial_object_metadata_list,
                    &list,
                    self.media.output,
                )?
            }
            Form::Table(version) => {
                if let Some(order) = self.served.strategy().table_order() {
                    values.sort_by_key(order);
                }
                finish(
                    self.table(version, &metadata, &values, Columns::Defined),
                    self.media.output,
                )
            }
        })
    }

    /// One event of a watch. `first`: the columns of a table are sent once.
    pub fn watch_event(&self, event_type: &str, stored: &Stored, first: FirstEvent) -> Result<Bytes, ApiError> {
        if self.is_plain(stored) {
            return Ok(spliced_event(event_type, self.served, stored));
        }
        self.watch_value(event_type, served_value(self.served, stored)?, first)
    }

    pub fn watch_value(&self, event_type: &str, value: Value, first: FirstEvent) -> Result<Bytes, ApiError> {
        Ok(match self.media.form() {
            Form::Whole => match self.served.form() {
                scheme::Form::BuiltIn { ty, .. } => self.frame(event_type, *ty, &value)?,
                scheme::Form::Custom(_) => untyped_frame(event_type, &value),
            },
            Form::Partial(version) => {
                let ty = facts().well_known().partial_object_metadata;
                self.frame(event_type, ty, &partial(&value, version))?
            }
            Form::Table(version) => {
                let columns = if first == FirstEvent::Yes {
                    Columns::Defined
                } else {
                    Columns::Omitted
                };
                let metadata = json!({"resourceVersion": object::string(&value, &["metadata", "resourceVersion"])});
                frame_of(event_type, &self.table(version, &metadata, &[value], columns))
            }
        })
    }

    /// A bookmark: an empty object that says how far the watch has come.
    pub fn bookmark(&self, revision: Revision, initial_end: bool) -> Result<Bytes, ApiError> {
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if initial_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let value = json!({"kind": self.served.kind(), "apiVersion": self.served.api_version, "metadata": metadata});
        match self.media.form() {
            Form::Table(version) => {
                let metadata = json!({"resourceVersion": revision.to_string()});
                let mut table = self.table_head(version, &metadata, Columns::Omitted).into_bytes();
                self.write_cells(self.served.cells(&value, self.now), None, &value, &mut table);
                table.extend_from_slice(b"]}");
                Ok(frame_of("BOOKMARK", &table))
            }
            _ => self.watch_value("BOOKMARK", value, FirstEvent::No),
        }
    }

    /// The last event of a watch that cannot go on.
    pub fn watch_error(&self, error: &ApiError) -> Bytes {
        let status = error.to_status();
        self.frame("ERROR", facts().well_known().status, &status)
            .unwrap_or_default()
    }

    fn frame(&self, event_type: &str, ty: TypeId, value: &Value) -> Result<Bytes, ApiError> {
        Ok(match self.media.output.format {
            Format::Protobuf => {
                let envelope = protobuf::encode_object(ty, value).map_err(unencodable)?;
                protobuf::watch_frame(event_type, &envelope).into()
            }
            Format::Json | Format::Yaml => {
                let mut out = format!(r#"{{"type":"{event_type}","object":"#).into_bytes();
                codec::encode(ty, value, &mut out);
                finish_frame(out)
            }
        })
    }
}

/// Whether this is the first event of a watch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FirstEvent {
    Yes,
    No,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Columns {
    Defined,
    Omitted,
}

/// What a list says about itself.
#[derive(Clone, Debug, Default)]
pub struct ListMeta {
    pub revision: Revision,
    pub continue_token: String,
    pub remaining: Option<u64>,
}

impl ListMeta {
    fn to_value(&self) -> Value {
        let mut map = Map::new();
        map.insert("resourceVersion".to_owned(), self.revision.to_string().into());
        if !self.continue_token.is_empty() {
            map.insert("continue".to_owned(), self.continue_token.as_str().into());
        }
        if let Some(remaining) = self.remaining {
            map.insert("remainingItemCount".to_owned(), remaining.into());
        }
        Value::Object(map)
    }
}

/// A watch event made of stored bytes.
pub fn spliced_event(event_type: &str, served: &Served, stored: &Stored) -> Bytes {
    const AROUND: usize = r#"{"type":"","object":}"#.len() + 1;
    let mut out = BytesMut::with_capacity(AROUND + event_type.len() + stored.len_with(&served.head));
    out.put_slice(br#"{"type":""#);
    out.put_slice(event_type.as_bytes());
    out.put_slice(br#"","object":"#);
    stored.write(&served.head, &mut out);
    out.put_slice(b"}\n");
    out.freeze()
}

/// A document of a known type in any format.
pub fn document(ty: TypeId, value: &Value, output: Output) -> Result<Bytes, ApiError> {
    Ok(match output.format {
        Format::Protobuf => protobuf::encode_object(ty, value).map_err(unencodable)?.into(),
        Format::Json | Format::Yaml => {
            let mut json = Vec::with_capacity(1024);
            codec::encode(ty, value, &mut json);
            finish(json, output)
        }
    })
}

fn unencodable(error: protobuf::ProtobufError) -> ApiError {
    ApiError::internal("the object cannot be encoded as protobuf").because(error)
}

/// A document of no known type, in JSON or YAML: protobuf is not offered for these.
pub fn untyped(value: &Value, output: Output) -> Bytes {
    let mut json = Vec::with_capacity(1024);
    codec::encode_untyped(value, &mut json);
    finish(json, output)
}

fn finish(mut json: Vec<u8>, output: Output) -> Bytes {
    match (output.format, output.pretty) {
        (Format::Yaml, _) => {
            let value: Value = serde_json::from_slice(&json).expect("what was just encoded is JSON");
            yaml::from_json(&value).into()
        }
        (_, Pretty::Indented) => codec::indent(&json).into(),
        (_, Pretty::Compact) => {
            json.push(b'\n');
            json.into()
        }
    }
}

fn untyped_frame(event_type: &str, value: &Value) -> Bytes {
    let mut json = Vec::new();
    codec::encode_untyped(value, &mut json);
    frame_of(event_type, &json)
}

fn frame_of(event_type: &str, json: &[u8]) -> Bytes {
    let mut out = format!(r#"{{"type":"{event_type}","object":"#).into_bytes();
    out.extend_from_slice(json);
    finish_frame(out)
}

fn finish_frame(mut out: Vec<u8>) -> Bytes {
    out.extend_from_slice(b"}\n");
    out.into()
}

/// The metadata of an object as an object of its own.
fn partial(value: &Value, version: MetaVersion) -> Value {
    let metadata = value.get("metadata").cloned().unwrap_or_else(|| json!({}));
    json!({"kind": "PartialObjectMetadata", "apiVersion": version.api_version(), "metadata": metadata})
}

fn json_head(kind: &str, api_version: &str, metadata: &Value, last_field: &str) -> String {
    // Go prints ListMeta's fields in the order of the struct.
    let mut meta = String::from("{");
    for field in ["resourceVersion", "continue", "remainingItemCount"] {
        if let Some(value) = metadata.get(field) {
            if meta.len() > 1 {
                meta.push(',');
            }
            meta.push_str(&format!("\"{field}\":{value}"));
        }
    }
    format!(r#"{{"kind":"{kind}","apiVersion":"{api_version}","metadata":{meta}}},"{last_field}":["#)
}

/// The fields that a value has, in this order.
fn write_fields(value: &Value, fields: &[&str], out: &mut Vec<u8>) {
    out.push(b'{');
    let found = fields.iter().filter_map(|field| Some((field, value.get(field)?)));
    for (at, (field, value)) in found.enumerate() {
        if at > 0 {
            out.push(b',');
        }
        codec::write_string(field, out);
        out.push(b':');
        codec::encode_untyped(value, out);
    }
    out.push(b'}');
}
