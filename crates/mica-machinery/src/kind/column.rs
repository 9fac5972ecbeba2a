//! Columns and cells that many kinds share.
//!
//! Descriptions are what upstream serves in `columnDefinitions`; clients show them in `kubectl explain`-like views.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::{Value, json};

use super::Column;
use crate::object;

pub const NAME: Column = Column {
    name: "Name",
    r#type: "string",
    format: "name",
    description: "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to request the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and configuration definition. Cannot be updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names",
    priority: 0,
};

const CREATED: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

pub const AGE: Column = text("Age", CREATED);

pub const CREATED_AT: Column = Column {
    r#type: "date",
    ..text("Created At", CREATED)
};

/// The columns of kinds that have none of their own.
pub const DEFAULT: &[Column] = &[NAME, CREATED_AT];

/// A column of text that is always shown.
pub const fn text(name: &'static str, description: &'static str) -> Column {
    Column {
        name,
        r#type: "string",
        format: "",
        description,
        priority: 0,
    }
}

/// A column of whole numbers that is always shown.
pub const fn integer(name: &'static str, description: &'static str) -> Column {
    Column {
        r#type: "integer",
        ..text(name, description)
    }
}

/// The same column, shown only when a client asks for wide output.
pub const fn wide(column: Column) -> Column {
    Column { priority: 1, ..column }
}

/// The cells of [`DEFAULT`].
pub fn default_cells(object: &Value) -> Vec<Value> {
    let created = match object::string(object, &["metadata", "creationTimestamp"]) {
        "" => "0001-01-01T00:00:00Z",
        created => created,
    };
    vec![object::name(object).into(), created.into()]
}

/// How long ago the object was created.
pub fn age(object: &Value, now: jiff::Timestamp) -> Value {
    json!(since(object::string(object, &["metadata", "creationTimestamp"]), now))
}

/// How long ago a time was, in short.
pub fn since(time: &str, now: jiff::Timestamp) -> String {
    crate::duration::age(time, now)
}

/// Columns of the kinds that only the `kubernetes` profile has, as upstream serves them: resource, name, type, format,
/// priority and description. `=name` and `=created` stand for the texts above.
const KUBERNETES: &str = include_str!("columns.tsv");

static BY_RESOURCE: LazyLock<HashMap<&'static str, Vec<Column>>> = LazyLock::new(|| {
    let mut columns: HashMap<&'static str, Vec<Column>> = HashMap::new();
    for line in KUBERNETES.lines() {
        let mut cells = line.split('\t');
        let mut cell = || cells.next().expect("six cells a line");
        let resource = cell();
        columns.entry(resource).or_default().push(Column {
            name: cell(),
            r#type: cell(),
            format: cell(),
            priority: cell().parse().expect("a priority is a number"),
            description: match cell() {
                "=name" => NAME.description,
                "=created" => CREATED,
                text if text.contains("\\n") => text.replace("\\n", "\n").leak(),
                text => text,
            },
        });
    }
    columns
});

/// The columns of a resource of the `kubernetes` profile: `apps/deployments`, `pods`.
pub fn of(resource: &str) -> &'static [Column] {
    BY_RESOURCE.get(resource).map_or(DEFAULT, Vec::as_slice)
}
