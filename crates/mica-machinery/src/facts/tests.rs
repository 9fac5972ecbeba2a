//! The table loads, is quick to load, and says what upstream's sources say about a few well-known fields.

use std::time::{Duration, Instant};

use super::*;

fn ty(group: &str, version: &str, kind: &str) -> &'static Type {
    facts().ty(facts().kind(group, version, kind).expect("a built-in kind"))
}

#[test]
fn every_kind_is_found_by_name_and_has_kind_and_api_version() {
    for kind in facts().kinds() {
        let found = facts().kind(kind.group, kind.version, kind.kind);
        assert_eq!(found, Some(kind.ty), "{kind:?}");
        if !matches!(kind.kind, "WatchEvent") {
            let ty = facts().ty(kind.ty);
            assert!(
                ty.field("kind").is_some() && ty.field("apiVersion").is_some(),
                "{kind:?}"
            );
        }
    }
}

#[test]
fn unknown_kinds_are_none_and_shared_kinds_are_everywhere() {
    assert_eq!(facts().kind("", "v1", "Nonsense"), None);
    assert_eq!(facts().kind("apps", "v1", "ConfigMap"), None);
    assert_eq!(
        facts().kind("apps", "v1", "DeleteOptions"),
        Some(facts().well_known().delete_options)
    );
    assert_eq!(facts().kind("", "v1", "Status"), Some(facts().well_known().status));
}

#[test]
fn types_are_found_by_openapi_name() {
    for ty in facts().types() {
        assert_eq!(facts().openapi(ty.openapi), Some(ty.id));
    }
    assert_eq!(facts().openapi("io.k8s.Nothing"), None);
}

#[test]
fn container_ports_are_keyed_by_port_and_protocol_for_apply_but_by_port_for_strategic_merge() {
    let container = facts().ty(facts().openapi("io.k8s.api.core.v1.Container").expect("Container"));
    let ports = container.field("ports").expect("ports");
    assert_eq!(ports.list, ListKind::Map(vec!["containerPort", "protocol"]));
    assert_eq!(
        (ports.patch_strategy, ports.patch_key),
        (PatchStrategy::Merge, "containerPort")
    );
    assert_eq!(
        (ports.go_type(0), ports.go_type(1)),
        ("[]v1.ContainerPort", "v1.ContainerPort")
    );
}

#[test]
fn embedded_structs_are_flattened_in_json_and_nested_in_protobuf() {
    let volume = facts().ty(facts().openapi("io.k8s.api.core.v1.Volume").expect("Volume"));
    let host_path = volume.field("hostPath").expect("hostPath");
    assert_eq!((host_path.embedded, host_path.pointer), ("VolumeSource", true));
    assert_eq!(volume.wire.len(), 2);
    assert!(matches!(
        volume.wire[1],
        Wire {
            number: 2,
            target: WireTarget::Embedded(_)
        }
    ));
}

#[test]
fn atomic_structs_defaults_and_lists_are_marked() {
    assert_eq!(facts().ty(facts().well_known().label_selector).map, MapKind::Atomic);
    // A reference is atomic but for this one, which says otherwise.
    let volume = facts().ty(facts()
        .openapi("io.k8s.api.core.v1.PersistentVolumeSpec")
        .expect("PersistentVolumeSpec"));
    assert_eq!(volume.field("claimRef").expect("claimRef").map, MapKind::Granular);
    let deployment = ty("apps", "v1", "Deployment");
    assert_eq!(deployment.fields[0].json, "kind");
    let port = facts().ty(facts().openapi("io.k8s.api.core.v1.ServicePort").expect("ServicePort"));
    assert_eq!(
        port.field("protocol").expect("protocol").default_value(),
        Some("TCP".into())
    );
    assert_eq!(
        ty("", "v1", "ConfigMapList").item(),
        facts().kind("", "v1", "ConfigMap")
    );
}

#[test]
fn no_type_has_more_fields_than_the_decoder_can_mark() {
    for ty in facts().types() {
        assert!(ty.fields.len() <= 128, "{}", ty.openapi);
    }
}

#[test]
fn the_table_loads_quickly() {
    let quickest = (0..5)
        .map(|_| {
            let start = Instant::now();
            let table = load::parse(include_str!("kubernetes.tsv"));
            assert!(table.types.len() > 1000);
            start.elapsed()
        })
        .min()
        .expect("five runs");
    // A release build takes about 1 ms; the bound is for unoptimised builds on a loaded machine.
    assert!(quickest < Duration::from_millis(60), "{quickest:?}");
}
