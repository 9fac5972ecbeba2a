//! In what words values are refused that a function or an index was not made for.
//!
//! Upstream's words tell how it is made: which functions look at the types of all arguments, which ask the first argument
//! whether it can add or compare, and what its types are called inside.

use super::library::EvalError;
use super::schema::ListKind;
use super::types::Type;
use super::value::{Origin, Val};

/// Functions outside the core say which arguments they were not made for.
pub fn no_overload(error: EvalError, function: &str, args: &[Val<'_>]) -> EvalError {
    if let (Some(first), true) = (args.first(), error == EvalError::no_overload())
        && lacks_trait(function, first)
    {
        return EvalError::failed(format!("no such overload: {function}"));
    }
    let core = is_core(function)
        || function == "sort"
        || matches!((function, args), ("containsIP", [Val::Cidr(_), Val::String(_)]));
    if core || error != EvalError::no_overload() {
        return error;
    }
    let types: Vec<String> = args.iter().map(|arg| arg.type_of().runtime_name().to_owned()).collect();
    EvalError::failed(format!("no such overload: {function}({})", types.join(", ")))
}

/// Whether one implementation serves all overloads of a function.
pub fn is_core(function: &str) -> bool {
    function.starts_with(['_', '@', '!', '-'])
        || matches!(function, "contains" | "startsWith" | "endsWith" | "matches" | "size")
}

/// Whether upstream looks at the types of the arguments before it calls a function.
pub fn is_guarded(function: &str) -> bool {
    !is_core(function) && !matches!(function, "type" | "dyn" | "flatten" | "sort" | "@sortByAssociatedKeys")
}

/// Whether a value is what an overload takes. Of a list or map only the first entry is looked at.
pub fn fits(value: &Val<'_>, wanted: &Type) -> bool {
    let entry = |found: Option<Result<Val<'_>, String>>, wanted: &Type| match found {
        Some(Ok(found)) => fits(&found, wanted),
        Some(Err(_)) => matches!(wanted, Type::Dyn | Type::Param(_)),
        None => true,
    };
    match (wanted, value) {
        (Type::Dyn | Type::Param(_), _) => true,
        (Type::List(of), Val::List(list)) => entry(list.get(0), of),
        (Type::Map(key, of), Val::Map(map)) => match map.keys().first() {
            Some(first) => fits(first, key) && entry(map.find(first).transpose(), of),
            None => true,
        },
        _ => value.type_of().runtime_name() == wanted.runtime_name(),
    }
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
        Val::Quantity(_, Origin::Text) => "cel.Quantity",
        Val::Quantity(_, Origin::Reckoned) => "*cel.Quantity",
        Val::Semver(_) => "cel.Semver",
        Val::Ip(_) => "cel.IP",
        Val::Cidr(_) => "cel.CIDR",
        Val::Url(_) => "cel.URL",
        Val::Format(_) => "cel.Format",
        Val::Preserved(_) => "*common.unknownPreserved",
        _ => "*types.baseObject",
    }
}

/// Why upstream breaks down when it reckons what a call cost: some functions of lists are taken to have got a list, and a
/// depth, whatever they got. `failures` has a bit for every argument without a value.
pub fn breakdown(overload: &str, args: &[Val<'_>], failures: u64) -> Option<String> {
    let name = |i: usize| match failures >> i & 1 {
        0 => args.get(i).map_or("nil", go_name),
        _ => "*types.Err",
    };
    let at = match overload {
        "list_distinct" => 0,
        "list_flatten_int" => {
            let is_depth = failures & 2 == 0 && matches!(args.get(1), Some(Val::Int(_)));
            return (!is_depth).then(|| format!("interface conversion: ref.Val is {}, not types.Int", name(1)));
        }
        _ if overload.ends_with("_sortByAssociatedKeys") => 1,
        _ if overload.starts_with("list_") && overload.ends_with("_sort") => 0,
        _ => return None,
    };
    let method = match args.get(at) {
        _ if failures >> at & 1 == 1 => "Add",
        Some(Val::List(_)) => return None,
        Some(value) if lacks_trait("_+_", value) => "Add",
        _ => "Contains",
    };
    Some(format!(
        "interface conversion: {} is not traits.Lister: missing method {method}",
        name(at)
    ))
}
