//! Reads the embedded table into [`Facts`].
//!
//! One line per fact, tab-separated, written only by `facts/main.go`, which documents the columns. A malformed table
//! is a broken build, so everything here panics with a reason instead of returning errors; a test loads it.

use std::collections::HashMap;

use super::{
    Description, Facts, Field, Kind, ListKind, MapKind, PatchStrategy, Printed, Shape, Type, TypeId, Union, WellKnown,
    Wire, WireTarget,
};
use crate::codec::is_always_printed;

type Ids = HashMap<&'static str, TypeId>;

pub(super) fn parse(text: &'static str) -> Facts {
    let ids = number_types(text);
    let mut types: Vec<Type> = Vec::with_capacity(ids.len());
    let mut kinds = Vec::with_capacity(text.len() / 1024);
    let mut unions = Vec::new();
    let mut descriptions = Vec::new();
    for line in text.lines() {
        let (tag, rest) = line.split_once('\t').unwrap_or((line, ""));
        let mut columns = rest.split('\t');
        match tag {
            "T" => types.push(parse_type(types.len(), &mut columns)),
            "F" => {
                let ty = types.last_mut().expect("a field follows its type");
                let field = parse_field(&ids, &mut columns);
                // An embedded struct's fields are in its own message, listed by an E line.
                if field.number != 0 && field.embedded.is_empty() {
                    let at = u16::try_from(ty.fields.len()).expect("a type has few fields");
                    ty.wire.push(Wire {
                        number: field.number,
                        target: WireTarget::Field(at),
                    });
                }
                ty.fields.push(field);
            }
            "E" => {
                let number = next(&mut columns).parse().expect("an embedded struct has a number");
                let target = WireTarget::Embedded(id(&ids, next(&mut columns)));
                types
                    .last_mut()
                    .expect("an embedded struct follows its type")
                    .wire
                    .push(Wire { number, target });
            }
            "K" => kinds.push(Kind {
                group: next(&mut columns),
                version: next(&mut columns),
                kind: next(&mut columns),
                ty: id(&ids, next(&mut columns)),
            }),
            "U" => unions.push(parse_union(
                types.last().expect("a union follows its type").id,
                &mut columns,
            )),
            "D" => {
                let ty = types.last().expect("a description follows what it describes");
                let field = ty.fields.len().checked_sub(1);
                descriptions.push(Description {
                    ty: ty.id,
                    field,
                    text: rest,
                });
            }
            _ => assert!(tag.starts_with('#'), "the table has a line of unknown kind: {line}"),
        }
    }
    for ty in &mut types {
        finish(ty);
    }
    kinds.sort_unstable_by_key(|k| (k.group, k.version, k.kind));
    let mut by_openapi: Vec<TypeId> = types.iter().map(|t| t.id).collect();
    by_openapi.sort_unstable_by_key(|id| types[id.index()].openapi);
    Facts {
        well_known: well_known(&ids),
        types,
        kinds,
        by_openapi,
        unions,
        descriptions,
    }
}

fn number_types(text: &'static str) -> Ids {
    let names = text
        .lines()
        .filter_map(|line| line.strip_prefix("T\t")?.split('\t').next());
    names
        .enumerate()
        .map(|(at, name)| (name, TypeId(u16::try_from(at).expect("fewer than 65536 types"))))
        .collect()
}

fn parse_type(at: usize, columns: &mut dyn Iterator<Item = &'static str>) -> Type {
    let openapi = next(columns);
    let go = next(columns);
    let flags = next(columns);
    Type {
        id: TypeId(u16::try_from(at).expect("fewer than 65536 types")),
        name: go.rsplit('.').next().expect("rsplit yields at least one piece"),
        go,
        openapi,
        map: if flags.contains('a') {
            MapKind::Atomic
        } else {
            MapKind::Granular
        },
        protobuf: flags.contains('p'),
        printed_atomic: flags.contains('m'),
        fields: Vec::new(),
        wire: Vec::new(),
        always: Vec::new(),
        by_name: Vec::new(),
    }
}

fn parse_field(ids: &Ids, columns: &mut dyn Iterator<Item = &'static str>) -> Field {
    let json = next(columns);
    let go = next(columns);
    let embedded = next(columns);
    let number = match next(columns) {
        "" => 0,
        digits => digits.parse().expect("protobuf numbers are decimal"),
    };
    let shape = parse_shape(ids, next(columns));
    let go_types = next(columns);
    let flags = next(columns);
    let (list, strategy, patch_key, default) = (next(columns), next(columns), next(columns), next(columns));
    let printed = parse_printed(next(columns), next(columns), next(columns));
    // What a field says of itself goes before what its type says.
    let map = match printed.map {
        Some(map) => map,
        None if flags.contains('a') => MapKind::Atomic,
        None => MapKind::Granular,
    };
    Field {
        json,
        go,
        embedded,
        number,
        shape,
        go_types,
        pointer: flags.contains('p'),
        omit_empty: flags.contains('e'),
        omit_zero: flags.contains('z'),
        optional: flags.contains('o'),
        list: parse_list(list),
        map,
        patch_strategy: parse_strategy(strategy),
        patch_key,
        default: Some(default).filter(|text| !text.is_empty()),
        printed,
    }
}

fn parse_printed(flags: &'static str, enumeration: &'static str, meanings: &'static str) -> Printed {
    let map = if flags.contains('c') {
        MapKind::Granular
    } else {
        MapKind::Atomic
    };
    Printed {
        required: flags.contains('r'),
        list: flags.contains('l'),
        map: flags.contains('m').then_some(map),
        enumeration,
        meanings,
        blank_lines: flags.matches('b').count(),
    }
}

fn parse_union(ty: TypeId, columns: &mut dyn Iterator<Item = &'static str>) -> Union {
    let discriminator = next(columns);
    let members = next(columns)
        .split(',')
        .filter_map(|member| member.split_once('='))
        .collect();
    Union {
        ty,
        discriminator,
        members,
    }
}

fn parse_shape(ids: &Ids, text: &'static str) -> Shape {
    if let Some(inner) = text.strip_prefix("list:") {
        return Shape::List(Box::new(parse_shape(ids, inner)));
    }
    if let Some(inner) = text.strip_prefix("map:") {
        return Shape::Map(Box::new(parse_shape(ids, inner)));
    }
    if let Some((union, schema)) = text.split_once(':') {
        return match union {
            "orbool" => Shape::SchemaOrBool(id(ids, schema)),
            "orarray" => Shape::SchemaOrArray(id(ids, schema)),
            "orstrings" => Shape::SchemaOrStringArray(id(ids, schema)),
            _ => panic!("unknown union in the table: {text}"),
        };
    }
    match text {
        "string" => Shape::String,
        "bool" => Shape::Bool,
        "int32" => Shape::Int32,
        "int64" => Shape::Int64,
        "uint8" => Shape::Uint8,
        "uint16" => Shape::Uint16,
        "uint32" => Shape::Uint32,
        "uint64" => Shape::Uint64,
        "float32" => Shape::Float32,
        "float64" => Shape::Float64,
        "bytes" => Shape::Bytes,
        "time" => Shape::Time,
        "microtime" => Shape::MicroTime,
        "duration" => Shape::Duration,
        "quantity" => Shape::Quantity,
        "intorstring" => Shape::IntOrString,
        "raw" => Shape::Raw,
        "fieldsv1" => Shape::FieldsV1,
        "json" => Shape::Json,
        "strings" => Shape::StringList,
        name => Shape::Struct(id(ids, name)),
    }
}

fn parse_list(text: &'static str) -> ListKind {
    match text.split_once(':') {
        Some(("map", keys)) => ListKind::Map(keys.split(',').collect()),
        _ if text == "set" => ListKind::Set,
        _ => ListKind::Atomic,
    }
}

fn parse_strategy(text: &str) -> PatchStrategy {
    match text {
        "" => PatchStrategy::None,
        "merge" => PatchStrategy::Merge,
        "replace" => PatchStrategy::Replace,
        "retainKeys" => PatchStrategy::RetainKeys,
        "merge+retainKeys" => PatchStrategy::MergeRetainKeys,
        _ => panic!("unknown patch strategy in the table: {text}"),
    }
}

fn finish(ty: &mut Type) {
    ty.wire.sort_unstable_by_key(|w| w.number);
    let mut by_name: Vec<u16> = (0..u16::try_from(ty.fields.len()).expect("a type has few fields")).collect();
    ty.always = by_name
        .iter()
        .copied()
        .filter(|at| is_always_printed(&ty.fields[usize::from(*at)]))
        .collect();
    by_name.sort_unstable_by_key(|at| ty.fields[usize::from(*at)].json);
    ty.by_name = by_name;
}

fn well_known(ids: &Ids) -> WellKnown {
    let meta = |name: &str| ids[format!("io.k8s.apimachinery.pkg.apis.meta.v1.{name}").as_str()];
    WellKnown {
        object_meta: meta("ObjectMeta"),
        list_meta: meta("ListMeta"),
        type_meta: meta("TypeMeta"),
        owner_reference: meta("OwnerReference"),
        managed_fields_entry: meta("ManagedFieldsEntry"),
        label_selector: meta("LabelSelector"),
        status: meta("Status"),
        watch_event: meta("WatchEvent"),
        delete_options: meta("DeleteOptions"),
        table: meta("Table"),
        partial_object_metadata: meta("PartialObjectMetadata"),
        partial_object_metadata_list: meta("PartialObjectMetadataList"),
    }
}

fn id(ids: &Ids, name: &str) -> TypeId {
    *ids.get(name)
        .unwrap_or_else(|| panic!("the table names a type it does not have: {name}"))
}

/// The next column; trailing empty ones are not written.
fn next(columns: &mut dyn Iterator<Item = &'static str>) -> &'static str {
    columns.next().unwrap_or("")
}
