//! Schemas of custom resources, their expressions, paths and patterns.

use std::sync::LazyLock;

use mica_machinery::cel::{self, Bindings, Env, OldSelf, Place, Type, Val};
use mica_machinery::kind::{self, NameUse, Strategy as _, User, WriteContext};
use mica_machinery::schema::column::Column;
use mica_machinery::schema::jsonpath::JsonPath;
use mica_machinery::schema::matcher::Pattern;
use mica_machinery::schema::{self as schemas, Compiled, Earlier, Malformed, rule, structural};
use mica_machinery::{facts, object};
use serde_json::{Value, json};

use crate::{parts, text};

const LIMIT: u64 = cel::cost::PER_CALL_LIMIT;

static CEL_SCHEMA: LazyLock<cel::Schema> = LazyLock::new(|| {
    cel::Schema::from_openapi(&json!({"type": "object", "properties": {
        "s": {"type": "string", "maxLength": 100}, "n": {"type": "integer"}, "f": {"type": "number"},
        "b": {"type": "boolean"}, "bytes": {"type": "string", "format": "byte"},
        "time": {"type": "string", "format": "date-time"}, "duration": {"type": "string", "format": "duration"},
        "either": {"x-kubernetes-int-or-string": true},
        "list": {"type": "array", "items": {"type": "integer"}},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}}},
        "props": {"type": "object", "additionalProperties": {"type": "string"}},
        "nested": {"type": "object", "properties": {"self": {"type": "object", "properties": {"x": {"type": "string"}}}}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}))
});

static CEL_DATA: LazyLock<Value> = LazyLock::new(|| {
    json!({"s": "text é𝒳", "n": -3, "f": 1.5, "b": true, "bytes": "aGk=", "time": "2024-02-29T23:59:60Z",
        "duration": "1h2m3s", "either": "80", "list": [3, 1, 2, 9_223_372_036_854_775_807_i64], "set": ["a", "b"],
        "map": [{"k": "a", "v": 1}, {"k": "b"}], "props": {"x": "1", "y.z": "2"}, "nested": {"self": {"x": "x"}},
        "free": {"any": [1, "two", null, {"three": 3.0}]}})
});

/// An expression, as a rule of a custom resource and over untyped data.
pub fn cel(data: &[u8]) {
    let Some(source) = text(data) else { return };
    let value = &*CEL_DATA;
    let schema = &*CEL_SCHEMA;
    let env = Env::for_schema(schema, Place::Inside, OldSelf::Optional).expect("a schema that CEL can see");
    let env = env.with_variable("object", Type::Dyn).with_mutation_types();
    let program = match env.compile(source) {
        Ok(program) => program,
        Err(error) => {
            assert!(error.to_string().len() <= 200 * source.len() + crate::SLACK);
            return;
        }
    };
    let estimate = program.estimate_cost();
    assert!(estimate.min <= estimate.max, "{estimate:?}");
    let typed = || Val::typed(value, schema).expect("the data fits");
    let bindings = Bindings::new()
        .with("self", typed())
        .with("oldSelf", Val::optional(Some(typed())))
        .with("object", Val::dynamic(value));
    let outcome = program.eval(&bindings, LIMIT);
    if let Ok(result) = outcome.result {
        assert!(outcome.cost <= LIMIT, "{} was spent", outcome.cost);
        let _ = (result.to_string().len(), result.size(), result.to_json().is_ok());
    }
}

/// A path of kubectl's JSONPath, then a document.
pub fn json_path(data: &[u8]) {
    let parts = parts(data);
    let Some(source) = text(parts[0]) else { return };
    let document = parts.get(1).and_then(|part| crate::json(part));
    let document = document.as_ref().unwrap_or(&CEL_DATA);
    if let Some(found) = JsonPath::parse(source).ok().and_then(|path| path.find(document).ok()) {
        assert!(found.len() <= 1 << 22, "{} found", found.len());
    }
    for ty in ["string", "integer", "number", "boolean", "date"] {
        let columns = Column::all(&[json!({"name": "c", "type": ty, "jsonPath": source})]);
        for column in columns {
            let _ = column.cell(document, jiff::Timestamp::UNIX_EPOCH);
        }
    }
}

/// A pattern, then a text.
pub fn pattern(data: &[u8]) {
    let parts = parts(data);
    let (Some(source), Some(subject)) = (text(parts[0]), parts.get(1).map_or(Some("aé"), |part| text(part))) else {
        return;
    };
    let pattern = Pattern::new(source);
    assert_eq!(pattern.source(), source);
    let _ = pattern.matches(subject);
}

/// An `openAPIV3Schema`, then an object, then the object before it.
pub fn schema(data: &[u8]) {
    let parts = parts(data);
    let Some(schema) = crate::json(parts[0]) else { return };
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.g.io"},
        "spec": {"group": "g.io", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
                "selectableFields": [{"jsonPath": ".spec.s"}],
                "additionalPrinterColumns": [{"name": "c", "type": "string", "jsonPath": ".spec.s"}]}]}});
    let Some(definition) = accepted(&definition) else {
        return;
    };
    let version = &object::list(&definition, &["spec", "versions"])[0];
    let schema = &version["schema"]["openAPIV3Schema"];
    let _ = structural::condition(&definition);
    let compiled = Compiled::new(schema, rule::compiler());
    let objects: Vec<Value> = parts[1..].iter().take(2).filter_map(|part| crate::json(part)).collect();
    let mut prepared = Vec::new();
    for mut object in objects.into_iter().filter(Value::is_object) {
        let _ = compiled.prepare(&mut object.clone(), Malformed::Drop);
        if compiled.prepare(&mut object, Malformed::Refuse).is_err() {
            continue;
        }
        compiled.default(&mut object);
        let mut again = object.clone();
        let unknown = compiled
            .prepare(&mut again, Malformed::Refuse)
            .expect("it was right once");
        assert_eq!(unknown, Vec::<String>::new(), "pruned once is pruned");
        compiled.default(&mut again);
        assert_eq!(again, object, "defaulting is idempotent");
        prepared.push(object);
    }
    for object in &prepared {
        let checked = compiled.validate(object, None, Earlier::default());
        let same = compiled.validate(object, Some(object), Earlier::default());
        assert!(
            same.errors.len() <= checked.errors.len() + 1,
            "what is unchanged is forgiven: {:?}",
            same.errors
        );
        let _ = checked.errors.iter().map(ToString::to_string).collect::<Vec<_>>();
        let _ = compiled.validate_status(object, object, Earlier::default());
        for column in Column::all(object::list(version, &["additionalPrinterColumns"])) {
            let _ = column.cell(object, jiff::Timestamp::UNIX_EPOCH);
        }
    }
    if let [new, old, ..] = &prepared[..] {
        let _ = compiled.validate(new, Some(old), Earlier::default());
    }
    let _ = schemas::content_hash(schema);
}

/// The definition as it would be stored, if validation lets it pass.
fn accepted(definition: &Value) -> Option<Value> {
    let ty = facts::facts()
        .kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition")
        .expect("a built-in kind");
    let strategy = &kind::extension::definition::Definition;
    let mut definition = mica_machinery::codec::decode_value(ty, definition).ok()?.value;
    let context = WriteContext {
        now: jiff::Timestamp::UNIX_EPOCH,
        subresource: "",
        group: "apiextensions.k8s.io",
        version: "v1",
        user: User::default(),
    };
    strategy.default(&mut definition);
    strategy.prepare_create(&context, &mut definition);
    let errors = strategy.validate(&context, &definition);
    let _ = errors.iter().map(ToString::to_string).collect::<Vec<_>>();
    let _ = strategy.name_errors("widgets.g.io", NameUse::Name);
    errors.is_empty().then_some(definition)
}
