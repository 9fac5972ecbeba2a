//! In what words values are refused that a function or an index was not made for.
//!
//! Upstream's words tell how it is made: which functions look at the types of all arguments, which ask the first argument
//! whether it can add or compare, and what its types are called inside.

use super::library::EvalError;
use super::schema::ListKind;
use super::value::Val;

/// Functions outside the core say which arguments they were not made for.
pub fn no_overload(error: EvalError, function: &str, args: &[Val<'_>]) -> EvalError {
    if let (Some(first), true) = (args.first(), error == EvalError::no_overload())
        && lacks_trait(function, first)
    {
        return EvalError::failed(format!("no such overload: {function}"));
    }
    let core = function.starts_with(['_', '@', '!', '-'])
        || matches!(
            function,
            "contains" | "startsWith" | "endsWith" | "matches" | "size" | "sort"
        )
        || matches!((function, args), ("containsIP", [Val::Cidr(_), Val::String(_)]));
    if core || error != EvalError::no_overload() {
        return error;
    }
    let types: Vec<String> = args.iter().map(|arg| arg.type_of().runtime_name().to_owned()).collect();
    EvalError::failed(format!("no such overload: {function}({})", types.join(", ")))
}

/// Whether upstream does not even try an operator on such a value.
fn lacks_trait(function: &str, value: &Val<'_>) -> bool {
    // These are asked themselves, whatever the operator.
    if let Val::String(_) | Val::Duration(_) | Val::Timestamp(_) = value {
        return false;
    }
    let number = matches!(value, Val::Int(_) | Val::Uint(_) | Val::Double(_));
    match function {
        "_+_" => !number && !matches!(value, Val::Bytes(_) | Val::List(_)),
        "_-_" | "_*_" | "_/_" => !number,
        "_%_" => !matches!(value, Val::Int(_) | Val::Uint(_)),
        "_<_" | "_<=_" | "_>_" | "_>=_" => !number && !matches!(value, Val::Bool(_) | Val::Bytes(_)),
        "-_" => !matches!(value, Val::Int(_) | Val::Double(_) | Val::Bool(_)),
        "matches" => true,
        _ => false,
    }
}

/// What can stand in brackets: anything else is refused before it is looked for.
pub fn check_qualifier(key: &Val<'_>) -> Result<(), String> {
    match key {
        Val::Bool(_) | Val::Int(_) | Val::Uint(_) | Val::Double(_) | Val::String(_) => Ok(()),
        other => Err(format!("invalid qualifier type: {}", go_name(other))),
    }
}

/// What upstream's implementation calls the type, which shows in error texts.
pub fn go_name(value: &Val<'_>) -> &'static str {
    match value {
        Val::Null => "types.Null",
        Val::Bool(_) => "types.Bool",
        Val::Int(_) => "types.Int",
        Val::Uint(_) => "types.Uint",
        Val::Double(_) => "types.Double",
        Val::String(_) => "types.String",
        Val::Bytes(_) => "types.Bytes",
        Val::Duration(_) => "types.Duration",
        Val::Timestamp(_) => "types.Timestamp",
        Val::Optional(_) => "*types.Optional",
        Val::Type(_) => "*types.Type",
        Val::List(list) => match list.kind() {
            Some((ListKind::Atomic, _)) => "*common.unstructuredList",
            Some((ListKind::Set, _)) => "*common.unstructuredSetList",
            Some((ListKind::Map, _)) => "*common.unstructuredMapList",
            None => "*types.baseList",
        },
        Val::Map(map) if map.has_schema() => "*common.unstructuredMap",
        Val::Map(_) => "*types.baseMap",
        Val::Quantity(_) => "cel.Quantity",
        Val::Semver(_) => "cel.Semver",
        Val::Ip(_) => "cel.IP",
        Val::Cidr(_) => "cel.CIDR",
        Val::Url(_) => "cel.URL",
        Val::Format(_) => "cel.Format",
        Val::Preserved(_) => "*common.unknownPreserved",
        _ => "*types.baseObject",
    }
}
