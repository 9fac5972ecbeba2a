//! `metadata.managedFields`: who manages which fields, as a list in the object and as sets to work with.

use std::cmp::Ordering;

use indexmap::IndexMap;
use serde_json::{Map, Value, json};

use super::set::Set;
use crate::object;
use crate::time::{Precision, Time};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Operation {
    Apply,
    Update,
}

impl Operation {
    fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// Who manages: entries that agree in this are one.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Manager {
    pub name: String,
    pub operation: Operation,
    /// Empty for appliers, who stay the same when they apply another version.
    pub api_version: String,
    pub subresource: String,
}

impl Manager {
    pub(super) fn new(name: &str, operation: Operation, api_version: &str, subresource: &str) -> Self {
        let api_version = match operation {
            Operation::Apply => String::new(),
            Operation::Update => api_version.to_owned(),
        };
        Self {
            name: name.to_owned(),
            operation,
            api_version,
            subresource: subresource.to_owned(),
        }
    }

    /// Upstream's name for it, by which it sorts.
    pub(super) fn identifier(&self) -> String {
        let mut out = b"{".to_vec();
        let members = [
            ("manager", &*self.name),
            ("operation", self.operation.as_str()),
            ("apiVersion", &*self.api_version),
            ("subresource", &*self.subresource),
        ];
        for (name, text) in members.into_iter().filter(|(_, text)| !text.is_empty()) {
            if out.len() > 1 {
                out.push(b',');
            }
            crate::codec::write_string(name, &mut out);
            out.push(b':');
            crate::codec::write_string(text, &mut out);
        }
        out.push(b'}');
        String::from_utf8(out).expect("JSON is text")
    }
}

/// One manager's fields.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    pub manager: Manager,
    /// The version that the fields are named in.
    pub api_version: String,
    /// As it stands in the object; `None` if it has none.
    pub time: Option<String>,
    pub fields: Set,
}

impl Entry {
    pub(super) fn is_applied(&self) -> bool {
        self.manager.operation == Operation::Apply
    }

    /// Its time to the second, the epoch if there is none.
    fn seconds(&self) -> Time {
        let parse = |text: &str| Time::parse(text, Precision::Second).ok();
        self.time
            .as_deref()
            .and_then(parse)
            .unwrap_or_else(|| Time::from(jiff::Timestamp::UNIX_EPOCH))
    }

    pub(super) fn compare_age(&self, other: &Self) -> Ordering {
        self.seconds().cmp(&other.seconds())
    }

    fn to_value(&self) -> Value {
        let mut entry = Map::new();
        let mut put = |name: &str, text: &str| {
            if !text.is_empty() {
                entry.insert(name.to_owned(), text.into());
            }
        };
        put("manager", &self.manager.name);
        put("operation", self.manager.operation.as_str());
        put("apiVersion", &self.api_version);
        put("time", self.time.as_deref().unwrap_or_default());
        put("fieldsType", "FieldsV1");
        put("subresource", &self.manager.subresource);
        entry.insert("fieldsV1".to_owned(), self.fields.to_fields());
        Value::Object(entry)
    }
}

/// Why `managedFields` cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct EntriesError(String);

/// All managers of an object. There may be thousands: only updaters are capped.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Entries(pub(super) IndexMap<Manager, Entry>);

impl Entries {
    /// Reads the list; one bad entry spoils it all.
    pub fn from_list(list: &[Value]) -> Result<Self, EntriesError> {
        let mut entries = Self::default();
        for (at, value) in list.iter().enumerate() {
            entries.put(read(value, at).map_err(EntriesError)?);
        }
        Ok(entries)
    }

    /// The list as it stands in an object, or `None` if there is nothing to write.
    pub fn to_list(&self) -> Option<Value> {
        if self.0.is_empty() {
            return None;
        }
        let mut sorted: Vec<&Entry> = self.0.values().collect();
        sorted.sort_by(|a, b| {
            let (p, q) = (&a.manager, &b.manager);
            let operation = p.operation.cmp(&q.operation);
            operation
                .then_with(|| a.compare_age(b))
                .then_with(|| p.name.cmp(&q.name))
                .then_with(|| a.api_version.cmp(&b.api_version))
                .then_with(|| p.subresource.cmp(&q.subresource))
        });
        Some(sorted.into_iter().map(Entry::to_value).collect())
    }

    /// What an object has; broken lists count as none.
    pub(super) fn of(object: &Value) -> Self {
        Self::from_list(object::list(object, &["metadata", "managedFields"])).unwrap_or_default()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.0.values()
    }

    pub(super) fn get(&self, manager: &Manager) -> Option<&Entry> {
        self.0.get(manager)
    }

    pub(super) fn get_mut(&mut self, manager: &Manager) -> Option<&mut Entry> {
        self.0.get_mut(manager)
    }

    /// Takes an entry out; the last one takes its place.
    pub(super) fn remove(&mut self, manager: &Manager) -> Option<Entry> {
        self.0.swap_remove(manager)
    }

    /// Puts the entry in the place of one of the same manager.
    pub(super) fn put(&mut self, entry: Entry) {
        self.0.insert(entry.manager.clone(), entry);
    }
}

fn read(value: &Value, at: usize) -> Result<Entry, String> {
    let text = |field: &str| object::string(value, &[field]);
    let operation = match text("operation") {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update,
        _ => return Err("operation must be `Apply` or `Update`".to_owned()),
    };
    if text("apiVersion").is_empty() {
        return Err("apiVersion must not be empty".to_owned());
    }
    match text("fieldsType") {
        "FieldsV1" => {}
        "" => return Err(format!("missing fieldsType in managed fields entry {at}")),
        other => {
            return Err(format!(
                "invalid fieldsType {} in managed fields entry {at}",
                crate::field::quote(other)
            ));
        }
    }
    let empty = json!({});
    let fields = value
        .get("fieldsV1")
        .filter(|fields| !fields.is_null())
        .unwrap_or(&empty);
    let fields = Set::from_fields(fields)
        .map_err(|error| format!("error decoding versioned set: error decoding set: {error}"))?;
    Ok(Entry {
        manager: Manager::new(text("manager"), operation, text("apiVersion"), text("subresource")),
        api_version: text("apiVersion").to_owned(),
        time: value.get("time").and_then(Value::as_str).map(str::to_owned),
        fields,
    })
}
