//! What single calls cost: before they run, by the sizes of their operands, and after, by the values themselves.
//!
//! The numbers are Kubernetes' (`apiserver/pkg/cel/library/cost.go`), then those of cel-go's extensions, then cel-go's own.

use super::{Coster, Estimate, Operand, Size};
use crate::cel::ast::{Kind, Literal};
use crate::cel::library::{EvalError, Host};
use crate::cel::types::Type;
use crate::cel::value::Val;

pub const STRING_FACTOR: f64 = 0.1;
const REGEX_FACTOR: f64 = 0.25;
const AUTHORIZATION_CHECK: u64 = 350_000;
const LIST_CREATE: u64 = 10;
const STRUCT_CREATE: u64 = 40;
const NAME_PATTERN_SIZE: f64 = 128.0;
const MAX_FORMAT_SIZE: u64 = 64;

type Estimated = Option<(Estimate, Option<Size>)>;

/// Functions that cost 1 whatever they get.
fn is_nominal(function: &str) -> bool {
    matches!(
        function,
        "serviceAccount"
            | "path"
            | "group"
            | "resource"
            | "subresource"
            | "namespace"
            | "name"
            | "allowed"
            | "reason"
            | "error"
            | "errored"
            | "masked"
            | "prefixLength"
            | "family"
            | "isUnspecified"
            | "isLoopback"
            | "isLinkLocalMulticast"
            | "isLinkLocalUnicast"
            | "isGlobalUnicast"
            | "format.named"
            | "sign"
            | "asInteger"
            | "isInteger"
            | "asApproximateFloat"
            | "isGreaterThan"
            | "isLessThan"
            | "compareTo"
            | "add"
            | "sub"
            | "major"
            | "minor"
            | "patch"
            | "getScheme"
            | "getHostname"
            | "getHost"
            | "getPort"
            | "getEscapedPath"
            | "getQuery"
    )
}

/// What the libraries say a call will cost, its operands not included, and how large its result is.
pub(super) fn estimate(
    coster: &mut Coster<'_>,
    function: &str,
    overload: &str,
    target: Option<&Operand<'_>>,
    args: &[Operand<'_>],
) -> Estimated {
    if let Some(found) = extension(coster, overload, target, args) {
        return Some(found);
    }
    if is_nominal(function) {
        return Some((Estimate::fixed(1), None));
    }
    let first = args.first();
    match function {
        "check" => Some((Estimate::fixed(AUTHORIZATION_CHECK), None)),
        "fieldSelector" | "labelSelector" if args.len() == 1 => Some((selector(size_of(coster, &args[0])), None)),
        "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => {
            target.map(|target| (traversal(coster, target), None))
        }
        "url" | "jsonpatch.escapeKey" if args.len() == 1 => {
            let size = size_of(coster, &args[0]);
            Some((size.times_factor(STRING_FACTOR), Some(size)))
        }
        "lowerAscii" | "upperAscii" | "substring" | "trim" => target.map(|target| {
            let size = size_of(coster, target);
            (size.times_factor(STRING_FACTOR), Some(size))
        }),
        "replace" if args.len() >= 2 => target.map(|target| replace(coster, target, args)),
        "split" => target.map(|target| split(coster, target, args)),
        "join" => target.map(|target| join(coster, target, first)),
        "find" | "findAll" if first.is_some() => target.map(|target| {
            let size = size_of(coster, target);
            let text = size.plus(Size::fixed(1)).times_factor(STRING_FACTOR);
            let pattern = size_of(coster, &args[0]).times_factor(REGEX_FACTOR);
            (text.times(pattern), Some(Size { min: 0, max: size.max }))
        }),
        "ip" if overload == "cidr_ip" => Some((Estimate::fixed(1), None)),
        "cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver" => {
            first.map(|arg| (size_of(coster, arg).times_factor(STRING_FACTOR), None))
        }
        "ip.isCanonical" => first.map(|arg| (size_of(coster, arg).times_factor(2.0 * STRING_FACTOR), None)),
        "containsIP" | "containsCIDR" => first.map(|arg| (contains_address(coster, overload, arg), None)),
        "validate" => first.map(|arg| {
            let text = size_of(coster, arg).times_factor(STRING_FACTOR);
            (text.times_factor(NAME_PATTERN_SIZE * REGEX_FACTOR), None)
        }),
        "_==_" if args.len() == 2 => equality(args),
        _ => None,
    }
}

/// The lists and sets extensions, which count by overload.
fn extension(coster: &mut Coster<'_>, overload: &str, target: Option<&Operand<'_>>, args: &[Operand<'_>]) -> Estimated {
    let made = |factor: f64, size: Size| {
        let cost = size
            .times_factor(factor)
            .plus(Estimate::fixed(1))
            .plus(Estimate::fixed(LIST_CREATE));
        Some((cost, Some(size)))
    };
    match (overload, target, args) {
        ("list_slice", Some(target), [start, end]) => {
            let size = size_of(coster, target);
            let (start, end) = (int_or(start, 0), int_or(end, size.max));
            made(1.0, Size::fixed(end.wrapping_sub(start)))
        }
        ("lists_range", None, [count]) => made(1.0, Size::fixed(int_or(count, u64::MAX))),
        ("list_reverse", Some(target), []) => {
            let size = size_of(coster, target);
            made(1.0, size)
        }
        ("list_flatten" | "list_flatten_int", Some(target), rest) => {
            let depth = rest.first().map_or(1, |depth| int_or(depth, u64::MAX));
            let size = size_of(coster, target);
            made(depth as f64, size)
        }
        ("list_distinct", Some(target), []) => {
            let size = size_of(coster, target);
            made(2.0, size.times_size(size))
        }
        ("list_sets_contains_list" | "list_sets_intersects_list" | "list_sets_equivalent_list", _, [a, b]) => {
            let factor = if overload == "list_sets_equivalent_list" {
                2.0
            } else {
                1.0
            };
            let (a, b) = (size_of(coster, a), size_of(coster, b));
            Some((a.times_size(b).times_factor(factor).plus(Estimate::fixed(1)), None))
        }
        (overload, Some(target), args) => {
            let sorted = overload.strip_prefix("list_")?;
            let (of, keys) = match (
                sorted.strip_suffix("_sort"),
                sorted.strip_suffix("_sortByAssociatedKeys"),
                args,
            ) {
                (Some(of), _, []) => (of, target),
                (_, Some(of), [keys]) => (of, keys),
                _ => return None,
            };
            let factor = if matches!(of, "string" | "bytes") {
                2.0 + STRING_FACTOR
            } else {
                2.0
            };
            let size = size_of(coster, keys);
            made(factor, size.times_size(size))
        }
        _ => None,
    }
}

fn int_or(operand: &Operand<'_>, default: u64) -> u64 {
    match &operand.expr.kind {
        Kind::Literal(Literal::Int(value)) => (*value).max(0) as u64,
        _ => default,
    }
}

fn size_of(coster: &Coster<'_>, operand: &Operand<'_>) -> Size {
    operand
        .computed
        .or_else(|| coster.declared_size(&operand.path))
        .unwrap_or(Size::UNKNOWN)
}

fn selector(length: Size) -> Estimate {
    let requirements = length
        .times_factor(0.5)
        .times_factor((LIST_CREATE + STRUCT_CREATE) as f64);
    Estimate::fixed(LIST_CREATE)
        .plus(length.times_factor(STRING_FACTOR))
        .plus(requirements)
}

/// The type of a list's elements and, from the schema, their size.
fn element(coster: &Coster<'_>, list: &Operand<'_>) -> Option<(Type, Size)> {
    let of = match &list.of {
        Type::List(of) => (**of).clone(),
        Type::Map(key, _) => (**key).clone(),
        Type::Opaque(_, params) => params.first()?.clone(),
        _ => return None,
    };
    let size = if list.path.is_empty() {
        None
    } else {
        let mut path = list.path.clone();
        path.push("@items".to_owned());
        coster.declared_size(&path)
    };
    Some((of, size.unwrap_or(Size::UNKNOWN)))
}

fn traversal(coster: &Coster<'_>, target: &Operand<'_>) -> Estimate {
    let size = size_of(coster, target);
    match element(coster, target) {
        Some((Type::String | Type::Bytes, each)) => {
            size.times(Estimate::fixed(1).plus(each.times_factor(STRING_FACTOR)))
        }
        Some(_) => size.times(Estimate::fixed(1)),
        None => size.times_factor(STRING_FACTOR),
    }
}

fn replace(coster: &Coster<'_>, target: &Operand<'_>, args: &[Operand<'_>]) -> (Estimate, Option<Size>) {
    let size = size_of(coster, target);
    let (old, new) = (size_of(coster, &args[0]), size_of(coster, &args[1]));
    let (mut count, mut kept) = (Size::fixed(0), Size::fixed(0));
    if old.min == 0 {
        count.max = size.max.saturating_add(1);
        kept.max = size.max;
    } else if new.max <= old.min {
        kept.max = size.max;
    } else {
        count.max = (size.max as f64 / old.min as f64).ceil() as u64;
    }
    if old.max == 0 {
        count.min = size.min.saturating_add(1);
        kept.min = size.min;
    } else if old.max <= new.min {
        kept.min = size.min;
    } else {
        count.min = (size.min as f64 / old.max as f64).ceil() as u64;
    }
    (
        size.times_factor(2.0 * STRING_FACTOR),
        Some(count.times_size(new).plus(kept)),
    )
}

fn split(coster: &Coster<'_>, target: &Operand<'_>, args: &[Operand<'_>]) -> (Estimate, Option<Size>) {
    let size = size_of(coster, target);
    let max = match args.get(1).map(|limit| &limit.expr.kind) {
        Some(Kind::Literal(Literal::Int(limit))) => *limit as u64,
        _ => size.max,
    };
    (size.times_factor(2.0 * STRING_FACTOR), Some(Size { min: 0, max }))
}

fn join(coster: &Coster<'_>, target: &Operand<'_>, separator: Option<&Operand<'_>>) -> (Estimate, Option<Size>) {
    let list = size_of(coster, target);
    let mut size = element(coster, target).map_or(Size::fixed(0), |(_, each)| list.times_size(each));
    if let Some(separator) = separator {
        let count = Size {
            min: list.min.saturating_sub(1),
            max: list.max.saturating_sub(1),
        };
        size = size.plus(size_of(coster, separator).times_size(count));
    }
    (size.times_factor(STRING_FACTOR), Some(size))
}

fn contains_address(coster: &Coster<'_>, overload: &str, arg: &Operand<'_>) -> Estimate {
    let address = Size { min: 4, max: 16 };
    let mut cost = address.plus(address).times_factor(STRING_FACTOR);
    if overload.starts_with("cidr_contains_cidr") {
        cost = cost.plus(address.times_factor(STRING_FACTOR)).plus(Estimate::fixed(1));
    }
    if overload.ends_with("_string") {
        cost = cost.plus(size_of(coster, arg).times_factor(STRING_FACTOR));
    }
    cost
}

fn equality(args: &[Operand<'_>]) -> Estimated {
    let (left, right) = (&args[0], &args[1]);
    if left.of != right.of {
        return None;
    }
    match &left.of {
        Type::Opaque(name, _) if matches!(&**name, "net.IP" | "net.CIDR") => Some((Estimate::fixed(1), None)),
        Type::Struct(name) => match &**name {
            "kubernetes.Quantity" | "kubernetes.Semver" => Some((Estimate::fixed(1), None)),
            name if name.starts_with("kubernetes.authorization.") => Some((Estimate::fixed(1), None)),
            "kubernetes.NamedFormat" => Some((
                Estimate {
                    min: 1,
                    max: MAX_FORMAT_SIZE,
                }
                .times_factor(STRING_FACTOR),
                None,
            )),
            "kubernetes.URL" => {
                let max = right.computed.map_or(1, |size| size.max);
                Some((Estimate { min: 1, max }.times_factor(STRING_FACTOR), None))
            }
            _ => None,
        },
        _ => None,
    }
}

/// What cel-go itself says of its standard functions.
pub(super) fn estimate_standard(
    overload: &str,
    target: Option<&Operand<'_>>,
    args: &[Operand<'_>],
) -> (Estimate, Option<Size>) {
    let one = (Estimate::fixed(1), None);
    match (overload, target, args) {
        ("string_format", Some(target), _) => (target.size_or_unknown().times_factor(STRING_FACTOR), None),
        ("string_to_bytes", _, [arg]) => {
            let size = arg.size_or_unknown();
            (
                size.times_factor(STRING_FACTOR),
                Some(Size {
                    min: size.min,
                    max: size.max.wrapping_mul(4),
                }),
            )
        }
        ("bytes_to_string", _, [arg]) => {
            let size = arg.size_or_unknown();
            (
                size.times_factor(STRING_FACTOR),
                Some(Size {
                    min: size.min / 4,
                    max: size.max,
                }),
            )
        }
        ("strings_quote", _, [arg]) => {
            let size = arg.size_or_unknown();
            let quoted = Size {
                min: size.min.wrapping_add(2),
                max: size.max.wrapping_mul(2).wrapping_add(2),
            };
            (size.times_factor(STRING_FACTOR), Some(quoted))
        }
        ("starts_with_string" | "ends_with_string", _, [arg]) => {
            (arg.size_or_unknown().times_factor(STRING_FACTOR), None)
        }
        ("in_list", _, [_, list]) => (list.size_or_unknown().times_factor(1.0), None),
        ("matches_string", Some(target), [pattern]) => {
            let text = target
                .size_or_unknown()
                .plus(Size::fixed(1))
                .times_factor(STRING_FACTOR);
            (text.times(pattern.size_or_unknown().times_factor(REGEX_FACTOR)), None)
        }
        ("contains_string", Some(target), [part]) => {
            let text = target.size_or_unknown().times_factor(STRING_FACTOR);
            (text.times(part.size_or_unknown().times_factor(STRING_FACTOR)), None)
        }
        (overload, _, [a, b]) if compares_sizes(overload) => {
            let max = a.size_or_unknown().max.min(b.size_or_unknown().max);
            (Estimate { min: max.min(1), max }.times_factor(STRING_FACTOR), None)
        }
        _ => one,
    }
}

fn compares_sizes(overload: &str) -> bool {
    matches!(
        overload,
        "less_string"
            | "greater_string"
            | "less_equals_string"
            | "greater_equals_string"
            | "less_bytes"
            | "greater_bytes"
            | "less_equals_bytes"
            | "greater_equals_bytes"
            | "equals"
            | "not_equals"
    )
}

/// What a call that was made cost, if it takes a walk through the data to tell.
pub fn metered(
    host: &mut Host<'_>,
    function: &str,
    overload: &str,
    args: &[Val<'_>],
    result: Option<&Val<'_>>,
) -> Result<u64, EvalError> {
    match (function, args.first()) {
        ("isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf", Some(first)) => walk(host, first),
        _ => Ok(runtime(function, overload, args, result)),
    }
}

/// The cost of walking a value once.
fn walk(host: &mut Host<'_>, value: &Val<'_>) -> Result<u64, EvalError> {
    host.work(1)?;
    Ok(match value {
        Val::String(text) => (text.len() as f64 * STRING_FACTOR) as u64,
        Val::Bytes(bytes) => (bytes.len() as f64 * STRING_FACTOR) as u64,
        Val::List(list) => {
            let mut sum = 0u64;
            for item in list.iter() {
                sum = sum.saturating_add(item.map_or(Ok(1), |item| walk(host, &item))?);
            }
            sum
        }
        Val::Map(map) => {
            let mut sum = 0u64;
            for key in map.keys() {
                sum = sum.saturating_add(walk(host, &key)?);
                if let Ok(Some(value)) = map.find(&key) {
                    sum = sum.saturating_add(walk(host, &value)?);
                }
            }
            sum
        }
        _ => 1,
    })
}

/// What a call that was made cost.
pub fn runtime(function: &str, overload: &str, args: &[Val<'_>], result: Option<&Val<'_>>) -> u64 {
    let size = |index: usize| args.get(index).map_or(1, Val::size);
    let text = |size: u64, factor: f64| (size as f64 * factor).ceil() as u64;
    if let Some(cost) = runtime_extension(overload, args, result) {
        return cost;
    }
    if is_nominal(function) {
        return 1;
    }
    match function {
        "check" => AUTHORIZATION_CHECK,
        "fieldSelector" | "labelSelector" if args.len() >= 2 => selector(Size::fixed(size(1))).max,
        "url"
        | "lowerAscii"
        | "upperAscii"
        | "substring"
        | "trim"
        | "jsonpatch.escapeKey"
        | "cidr"
        | "isIP"
        | "isCIDR"
        | "quantity"
        | "isQuantity"
        | "semver"
        | "isSemver" => text(size(0), STRING_FACTOR),
        "ip" if overload == "cidr_ip" => 1,
        "ip" => text(size(0), STRING_FACTOR),
        "replace" | "split" | "ip.isCanonical" => text(size(0), 2.0 * STRING_FACTOR),
        "join" => text(result.map_or(1, Val::size), 2.0 * STRING_FACTOR),
        "find" | "findAll" => text(size(0) + 1, STRING_FACTOR) * text(size(1), REGEX_FACTOR),
        "containsIP" | "containsCIDR" => {
            let mut cost = text(size(0) * 2, STRING_FACTOR);
            if function == "containsCIDR" {
                cost += text(size(0), STRING_FACTOR) + 1;
            }
            if overload.ends_with("_string") {
                cost += text(size(1), STRING_FACTOR);
            }
            cost
        }
        "validate" => match args.first() {
            Some(Val::Format(format)) => text(size(1) + 1, STRING_FACTOR) * text(format.pattern_size, REGEX_FACTOR),
            _ => runtime_standard(overload, args),
        },
        "_==_" => match args.first() {
            Some(
                Val::Quantity(..)
                | Val::Ip(_)
                | Val::Cidr(_)
                | Val::Format(_)
                | Val::Url(_)
                | Val::Semver(_)
                | Val::Authz(_),
            ) => 1,
            _ => runtime_standard(overload, args),
        },
        _ => runtime_standard(overload, args),
    }
}

fn runtime_extension(overload: &str, args: &[Val<'_>], result: Option<&Val<'_>>) -> Option<u64> {
    let size = |value: Option<&Val<'_>>| value.map_or(1, Val::size);
    let made = |factor: f64, size: u64| (size as f64 * factor) as u64 + 1 + LIST_CREATE;
    let against_itself = |list: Option<&Val<'_>>| {
        let length = size(list);
        let first = match list {
            Some(Val::List(list)) => list.get(0).and_then(Result::ok),
            _ => None,
        };
        let factor = if matches!(first, Some(Val::String(_) | Val::Bytes(_))) {
            2.0 + STRING_FACTOR
        } else {
            2.0
        };
        made(factor, length.saturating_mul(length))
    };
    Some(match overload {
        "list_slice" | "lists_range" | "list_reverse" => made(1.0, size(result)),
        "list_flatten" => made(1.0, size(args.first())),
        "list_flatten_int" => match args.get(1) {
            Some(Val::Int(depth)) => made(*depth as f64, size(args.first())),
            _ => made(1.0, size(args.first())),
        },
        "list_distinct" => against_itself(args.first()),
        "list_sets_contains_list" | "list_sets_intersects_list" => {
            1 + size(args.first()).saturating_mul(size(args.get(1)))
        }
        "list_sets_equivalent_list" => 1 + 2 * size(args.first()).saturating_mul(size(args.get(1))),
        _ if overload.ends_with("_sortByAssociatedKeys") => against_itself(args.get(1)),
        _ if overload.starts_with("list_") && overload.ends_with("_sort") => against_itself(args.first()),
        _ => return None,
    })
}

fn runtime_standard(overload: &str, args: &[Val<'_>]) -> u64 {
    let size = |index: usize| match args.get(index) {
        Some(Val::Optional(Some(value))) => value.size(),
        Some(value) => value.size(),
        None => 1,
    };
    let text = |size: u64, factor: f64| (size as f64 * factor).ceil() as u64;
    match overload {
        "starts_with_string" | "ends_with_string" | "string_to_bytes" | "bytes_to_string" | "strings_quote"
        | "string_format" => text(size(0), STRING_FACTOR),
        "in_list" => size(1),
        "add_string" | "add_bytes" => text(size(0) + size(1), STRING_FACTOR),
        "matches_string" => text(size(0) + 1, STRING_FACTOR) * text(size(1), REGEX_FACTOR),
        "contains_string" => text(size(0), STRING_FACTOR) * text(size(1), STRING_FACTOR),
        overload if compares_sizes(overload) => text(size(0).min(size(1)), STRING_FACTOR),
        _ => 1,
    }
}
