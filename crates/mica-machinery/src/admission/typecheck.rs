//! Type checks of ValidatingAdmissionPolicies: what expressions get wrong about the kinds that the policy is about.
//!
//! Policies are compiled with objects of no known type; this compiles them again for each kind that their rules name, and
//! what does not compile then is a warning in the policy's status.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::cel::admission::{Compiler, ParamType, Purpose, Refusal};
use crate::cel::schema::Kind as SchemaKind;
use crate::cel::{DeclType, Place, Schema};
use crate::facts::{Shape, TypeId, facts};
use crate::object;

/// Kinds that one policy is checked for. Upstream's number.
const MAX_KINDS: usize = 10;
/// Types within types that are looked into: what describes itself (schemas) ends here.
const MAX_DEPTH: usize = 12;

/// A kind with its schema.
#[derive(Debug, Clone)]
pub struct Typed {
    pub group: String,
    pub version: String,
    pub kind: String,
    /// None: it says nothing about its objects.
    pub ty: Option<Arc<DeclType>>,
}

impl Typed {
    /// A kind that a definition describes.
    pub fn custom(group: &str, version: &str, kind: &str, schema: &Value) -> Self {
        let schema = Schema::from_openapi(schema);
        Self::new(group, version, kind, &schema, Place::Root)
    }

    /// A built-in kind.
    pub fn built_in(group: &str, version: &str, kind: &str, ty: TypeId) -> Self {
        let schema = schema_of(&Shape::Struct(ty), MAX_DEPTH);
        Self::new(group, version, kind, &schema, Place::Inside)
    }

    fn new(group: &str, version: &str, kind: &str, schema: &Schema, place: Place) -> Self {
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
            ty: DeclType::from_schema(schema, place, kind).map(Arc::new),
        }
    }
}

/// The resources whose kinds a policy is checked for: group, version and plural of each, without wildcards, sorted by rule.
pub fn resources(policy: &Value) -> Vec<(String, String, String)> {
    let mut found = Vec::new();
    for rule in object::list(policy, &["spec", "matchConstraints", "resourceRules"]) {
        let sorted = |field: &str| -> Vec<&str> {
            let mut texts: Vec<&str> = object::list(rule, &[field]).iter().filter_map(Value::as_str).collect();
            texts.sort_unstable();
            texts
        };
        let (groups, versions) = (sorted("apiGroups"), sorted("apiVersions"));
        if groups.iter().chain(&versions).any(|text| text.contains('*')) {
            continue;
        }
        for group in &groups {
            for version in &versions {
                for resource in sorted("resources").iter().filter(|name| !name.contains(['*', '/'])) {
                    found.push(((*group).to_owned(), (*version).to_owned(), (*resource).to_owned()));
                }
            }
        }
    }
    found.truncate(MAX_KINDS);
    found
}

/// The `expressionWarnings` of a policy.
pub fn warnings(policy: &Value, kinds: &[Typed], params: Option<&Typed>) -> Vec<Value> {
    let mut kinds: Vec<&Typed> = kinds.iter().filter(|kind| kind.ty.is_some()).collect();
    kinds.sort_by_key(|kind| (&kind.group, &kind.version, &kind.kind));
    kinds.dedup_by_key(|kind| (&kind.group, &kind.version, &kind.kind));
    let has_params = object::get(policy, &["spec", "paramKind"]).is_some_and(Value::is_object);
    let params = match (has_params, params.and_then(|params| params.ty.clone())) {
        (false, _) => ParamType::Absent,
        (true, None) => ParamType::Any,
        (true, Some(ty)) => ParamType::Of(ty),
    };
    let mut found = Vec::new();
    for (at, validation) in object::list(policy, &["spec", "validations"]).iter().enumerate() {
        for field in ["expression", "messageExpression"] {
            let expression = object::string(validation, &[field]);
            if expression.is_empty() {
                continue;
            }
            let wrong: Vec<String> = kinds
                .iter()
                .filter_map(|kind| check(policy, expression, kind, &params))
                .collect();
            if !wrong.is_empty() {
                found.push(json!({"fieldRef": format!("spec.validations[{at}].{field}"), "warning": wrong.join("\n")}));
            }
        }
    }
    found
}

/// What is wrong with an expression about objects of a kind.
fn check(policy: &Value, expression: &str, kind: &Typed, params: &ParamType) -> Option<String> {
    let object = kind.ty.clone()?;
    let mut compiler = Compiler::typed(object, params);
    for variable in object::list(policy, &["spec", "variables"]) {
        let of = |field| object::string(variable, &[field]);
        // What is wrong with a variable shows where it is used.
        let _ = compiler.compile_variable(of("name"), of("expression"));
    }
    let refusal = compiler.compile(expression, Purpose::Variable).err()?;
    let why = match refusal {
        Refusal::Compilation(errors) => errors.to_string(),
        other => format!("type checking error: {other}"),
    };
    let Typed {
        group, version, kind, ..
    } = kind;
    Some(format!("{group}/{version}, Kind={kind}: {why}\n"))
}

/// What CEL knows of a built-in type.
fn schema_of(shape: &Shape, depth: usize) -> Schema {
    let formatted = |format: &str| Schema {
        format: format.to_owned(),
        ..Schema::of(SchemaKind::String)
    };
    if depth == 0 {
        return Schema::default();
    }
    match shape {
        Shape::String | Shape::Quantity | Shape::Duration => Schema::of(SchemaKind::String),
        Shape::Bytes => formatted("byte"),
        Shape::Time | Shape::MicroTime => formatted("date-time"),
        Shape::Bool => Schema::of(SchemaKind::Boolean),
        Shape::Float32 | Shape::Float64 => Schema::of(SchemaKind::Number),
        Shape::Int32 | Shape::Int64 | Shape::Uint8 | Shape::Uint16 | Shape::Uint32 | Shape::Uint64 => {
            Schema::of(SchemaKind::Integer)
        }
        Shape::IntOrString => Schema::of(SchemaKind::IntOrString),
        Shape::Raw | Shape::FieldsV1 => Schema::object([]),
        Shape::Json | Shape::SchemaOrBool(_) | Shape::SchemaOrArray(_) | Shape::SchemaOrStringArray(_) => {
            Schema::default()
        }
        Shape::StringList => list_of(Schema::of(SchemaKind::String)),
        Shape::List(element) => list_of(schema_of(element, depth - 1)),
        Shape::Map(element) => Schema {
            additional: Some(Arc::new(schema_of(element, depth - 1))),
            ..Schema::of(SchemaKind::Object)
        },
        Shape::Struct(ty) => {
            let fields = facts().ty(*ty).fields.iter();
            Schema::object(fields.map(|field| (field.json, schema_of(&field.shape, depth - 1))))
        }
    }
}

fn list_of(element: Schema) -> Schema {
    Schema {
        items: Some(Arc::new(element)),
        ..Schema::of(SchemaKind::Array)
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn expressions_are_checked_against_the_kinds_that_rules_name() {
        let ty = facts().kind("apps", "v1", "Deployment").expect("a kind");
        let deployment = Typed::built_in("apps", "v1", "Deployment", ty);
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"n": {"type": "integer"}}}}});
        let thing = Typed::custom("g", "v1", "Thing", &schema);
        let policy = json!({"spec": {"variables": [{"name": "r", "expression": "object.spec.replicas"}], "validations": [
            {"expression": "object.spec.replicas > 1 && object.metadata.labels['a'] == 'b' && variables.r < 3"},
            {"expression": "object.foo == 1", "messageExpression": "'a' + string(object.spec.template.spec.containers[0].ports)"},
            {"expression": "object.spec.n == 'x'"}]}});
        let shown = |kinds: &[Typed]| {
            let warnings = warnings(&policy, kinds, None);
            let lines = warnings.iter().map(|one| {
                format!(
                    "{}: {}",
                    object::string(one, &["fieldRef"]),
                    object::string(one, &["warning"])
                )
            });
            lines.collect::<Vec<_>>().join("")
        };
        expect![[r#"
            spec.validations[1].expression: apps/v1, Kind=Deployment: ERROR: <input>:1:7: undefined field 'foo'
             | object.foo == 1
             | ......^
            spec.validations[1].messageExpression: apps/v1, Kind=Deployment: ERROR: <input>:1:13: found no matching overload for 'string' applied to '(list(Deployment.spec.template.spec.containers.@idx.ports.@idx))'
             | 'a' + string(object.spec.template.spec.containers[0].ports)
             | ............^
            spec.validations[2].expression: apps/v1, Kind=Deployment: ERROR: <input>:1:12: undefined field 'n'
             | object.spec.n == 'x'
             | ...........^
        "#]]
        .assert_eq(&shown(std::slice::from_ref(&deployment)));
        assert!(
            shown(&[thing]).contains("g/v1, Kind=Thing: ERROR: <input>:1:15: found no matching overload for '_==_'")
        );
    }

    #[test]
    fn wildcards_and_parts_are_not_checked() {
        let rule = |groups: &[&str], resources: &[&str]| json!({"apiGroups": groups, "apiVersions": ["v1"], "resources": resources});
        let policy = json!({"spec": {"matchConstraints": {"resourceRules": [
            rule(&["b", "a"], &["things", "things/status", "*"]), rule(&["*"], &["others"])]}}});
        let text = |texts: [&str; 3]| (texts[0].to_owned(), texts[1].to_owned(), texts[2].to_owned());
        assert_eq!(
            resources(&policy),
            [text(["a", "v1", "things"]), text(["b", "v1", "things"])]
        );
    }
}
