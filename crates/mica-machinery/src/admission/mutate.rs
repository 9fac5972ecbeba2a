//! MutatingAdmissionPolicies, compiled, and the patches that they make.

use serde_json::{Value, json};

use super::condition::Expression;
use super::frame::Frame;
use super::input::{Input, Session};
use crate::cel::Val;
use crate::cel::admission::Purpose;
use crate::cel::cost::RUNTIME_BUDGET;
use crate::cel::value::{Map, Room};
use crate::codec::text::quote;
use crate::managed::schema::TypeRef;
use crate::managed::{Duplicates, atomics_of, merge_objects, validate};
use crate::object;

/// What an operation of a patch, or what is said of a wrong name, takes beside its text.
const NAME: usize = 128;

/// Whether something is asked again when what came after it changed the object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reinvocation {
    Never,
    IfNeeded,
}

impl Reinvocation {
    pub(super) fn read(of: &Value) -> Self {
        match object::string(of, &["reinvocationPolicy"]) {
            "IfNeeded" => Self::IfNeeded,
            _ => Self::Never,
        }
    }
}

/// One mutation of a policy.
#[derive(Debug)]
pub struct Mutation {
    expression: Expression,
    form: Form,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    ApplyConfiguration,
    JsonPatch,
}

/// What a mutation wants.
#[derive(Debug, Clone, PartialEq)]
pub enum Patch {
    /// An object of the same kind that is merged by its type.
    Configuration(Value),
    /// A JSON patch.
    Json(Vec<u8>),
}

#[derive(Debug)]
pub struct MutatingPolicy {
    pub frame: Frame,
    pub reinvocation: Reinvocation,
    pub mutations: Vec<Mutation>,
}

impl MutatingPolicy {
    pub fn new(policy: &Value) -> Self {
        let (frame, compiler) = Frame::read(policy);
        let mutations = object::list(policy, &["spec", "mutations"])
            .iter()
            .filter_map(|mutation| {
                let (field, form, purpose) = match object::string(mutation, &["patchType"]) {
                    "ApplyConfiguration" => (
                        "applyConfiguration",
                        Form::ApplyConfiguration,
                        Purpose::ApplyConfiguration,
                    ),
                    "JSONPatch" => ("jsonPatch", Form::JsonPatch, Purpose::JsonPatch),
                    _ => return None,
                };
                let source = object::string(mutation, &[field, "expression"]);
                Some(Mutation {
                    expression: Expression::new(source, purpose, &compiler),
                    form,
                })
            });
        Self {
            reinvocation: policy.get("spec").map_or(Reinvocation::Never, Reinvocation::read),
            mutations: mutations.collect(),
            frame,
        }
    }

    /// What one of its mutations wants.
    pub fn patch(&self, mutation: &Mutation, input: &Input<'_>) -> Result<Patch, String> {
        if let Err(refusal) = &mutation.expression.program {
            return Err(refusal.to_string());
        }
        let session = Session::new(input, &self.frame.variables, RUNTIME_BUDGET.unsigned_abs());
        let value = session
            .evaluate(&mutation.expression)
            .map_err(|spent| spent.to_string())??;
        match (mutation.form, value) {
            (Form::ApplyConfiguration, value @ Val::Object(..)) => {
                check_named(&value, "Object")?;
                value.to_json().map(Patch::Configuration)
            }
            (Form::ApplyConfiguration, other) => Err(format!(
                "unsupported return type from ApplyConfiguration expression: {}",
                other.type_of()
            )),
            (Form::JsonPatch, Val::List(list)) => {
                let mut operations = Vec::new();
                let mut room = Room::default();
                for item in list.iter() {
                    operations.push(operation(&item?, &mut room)?);
                }
                let json = serde_json::to_vec(&operations).map_err(|error| error.to_string())?;
                Ok(Patch::Json(json))
            }
            (Form::JsonPatch, _) => Err("type mismatch: JSONPatchType.expression should evaluate to array".to_owned()),
        }
    }
}

/// One operation of a JSON patch.
fn operation(item: &Val<'_>, room: &mut Room) -> Result<Value, String> {
    const WANTED: &str = "type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch";
    let Val::Object(name, Map::Owned(fields)) = item else {
        return Err(WANTED.to_owned());
    };
    if &**name != "JSONPatch" {
        return Err(WANTED.to_owned());
    }
    room.take(NAME)?;
    let mut operation = json!({"op": "", "path": ""});
    for (key, value) in fields.values() {
        let Val::String(key) = key else { continue };
        match (&**key, value) {
            ("value", value) => {
                if let Val::Object(name, _) = value {
                    check_named(value, name)?;
                }
                let unfit = |why: String| {
                    format!("JSONPath valueExpression evaluated to a type that could not marshal to JSON: {why}")
                };
                operation["value"] = value.to_json_within(room).map_err(unfit)?;
            }
            ("from", Val::String(text)) if text.is_empty() => {}
            (field @ ("op" | "path" | "from"), Val::String(text)) => {
                room.take(text.len())?;
                operation[field] = (**text).into();
            }
            _ => return Err(WANTED.to_owned()),
        }
    }
    Ok(operation)
}

/// Objects inside objects are named by their way from the root: `Object.spec` is only at `spec`.
fn check_named(value: &Val<'_>, path: &str) -> Result<(), String> {
    let mut wrong = Vec::new();
    check_names(value, path, &mut wrong, &mut Room::default())?;
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(format!("type mismatch: {}", wrong.join("\n")))
    }
}

fn check_names(value: &Val<'_>, path: &str, wrong: &mut Vec<String>, room: &mut Room) -> Result<(), String> {
    // Whether a name is right or not: each may be one more to tell of.
    room.take(path.len() + NAME)?;
    match value {
        Val::Object(name, Map::Owned(fields)) => {
            if &**name != path {
                wrong.push(format!(
                    "unexpected type name {}, expected {}, which matches field name path from root Object type",
                    quote(name),
                    quote(path)
                ));
            }
            for (key, field) in fields.values() {
                if let Val::String(key) = key {
                    check_names(field, &format!("{path}.{}", &**key), wrong, room)?;
                }
            }
        }
        Val::List(list) => {
            let mut items = list.iter().filter_map(Result::ok);
            items.try_for_each(|item| check_names(&item, path, wrong, room))?;
        }
        Val::Map(Map::Owned(entries)) => {
            let mut items = entries.values();
            items.try_for_each(|(_, item)| check_names(item, path, wrong, room))?;
        }
        _ => {}
    }
    Ok(())
}

/// The object with what a policy applies to it.
pub fn merge_configuration(live: &Value, configuration: &Value, ty: TypeRef<'_>) -> Result<Value, String> {
    let failed = |step: &str, why: &dyn std::fmt::Display| format!("error applying patch: {step}{why}");
    let mut configuration = configuration.clone();
    for field in ["apiVersion", "kind"] {
        object::copy(live, &mut configuration, &[field]);
    }
    validate(&configuration, ty, Duplicates::Refused)
        .map_err(|errors| failed("failed to convert patch object to typed object: ", &errors))?;
    let atomics = atomics_of(&configuration, ty);
    if !atomics.is_empty() {
        let listed = atomics.join(", ");
        let why = format!("may not mutate atomic arrays, maps or structs: {listed}");
        return Err(failed("invalid ApplyConfiguration: ", &why));
    }
    merge_objects(live, &configuration, ty).map_err(|errors| failed("failed to merge patch: ", &errors))
}
