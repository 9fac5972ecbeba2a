//! Server-side apply: ownership, pruning, conflicts and refusals, measured by what a real kube-apiserver answered.

use expect_test::{Expect, expect};
use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::schema::TypeRef;
use super::*;
use crate::facts::facts;
use crate::object;
use crate::schema::Compiled;
use crate::schema::rule::NoRules;

/// An object that is applied to and written to, one after another.
struct Story<'s> {
    schema: TypeRef<'s>,
    kind: &'static str,
    api_version: &'static str,
    object: Option<Value>,
    second: i64,
}

impl Story<'static> {
    fn of(group: &str, version: &str, kind: &'static str, api_version: &'static str) -> Self {
        let schema = TypeRef::kind(facts().kind(group, version, kind).unwrap());
        Self {
            schema,
            kind,
            api_version,
            object: None,
            second: 0,
        }
    }

    fn config_map() -> Self {
        Self::of("", "v1", "ConfigMap", "v1")
    }
}

impl Story<'_> {
    fn with_write<T>(&mut self, manager: &str, run: impl FnOnce(Option<&Value>, &Write<'_>) -> T) -> T {
        self.second += 1;
        let reset = Set::of_fields(&[&["status"]]);
        let write = Write {
            manager,
            api_version: self.api_version,
            subresource: "",
            time: Timestamp::from_second(1_700_000_000 + self.second).unwrap(),
            schema: self.schema,
            reset: &reset,
            versions: &OneVersion,
        };
        run(self.object.as_ref(), &write)
    }

    fn try_apply(&mut self, manager: &str, on_conflict: OnConflict, mut body: Value) -> Result<(), ApplyError> {
        let kind = self.kind;
        if body.get("apiVersion").is_none() {
            body["apiVersion"] = self.api_version.into();
            body["kind"] = kind.into();
        }
        let mut new = self.with_write(manager, |live, write| apply(live, &body, kind, on_conflict, write))?;
        object::set(&mut new, &["metadata", "uid"], "u");
        self.object = Some(new);
        Ok(())
    }

    fn apply(&mut self, manager: &str, body: Value) -> &mut Self {
        self.try_apply(manager, OnConflict::Refuse, body).unwrap();
        self
    }

    fn force(&mut self, manager: &str, body: Value) -> &mut Self {
        self.try_apply(manager, OnConflict::Force, body).unwrap();
        self
    }

    fn refused(&mut self, manager: &str, body: Value, expected: Expect) -> &mut Self {
        let error = self.try_apply(manager, OnConflict::Refuse, body).unwrap_err();
        let code = match &error {
            ApplyError::BadRequest(_) => 400,
            ApplyError::Conflict(_) => 409,
            ApplyError::Internal(_) => 500,
        };
        expected.assert_eq(&format!("{code} {error}"));
        self
    }

    fn write(&mut self, manager: &str, mut new: Value) -> &mut Self {
        object::set(&mut new, &["metadata", "uid"], "u");
        self.with_write(manager, |live, write| update(live, &mut new, Request::Usual, write));
        self.object = Some(new);
        self
    }

    fn check(&mut self, expected: Expect) -> &mut Self {
        let mut object = self.object.clone().unwrap();
        let list = object::remove(&mut object, &["metadata", "managedFields"]).unwrap_or_default();
        object::remove(&mut object, &["metadata"]);
        object::remove(&mut object, &["apiVersion"]);
        object::remove(&mut object, &["kind"]);
        let mut lines = vec![object.to_string()];
        for entry in list.as_array().into_iter().flatten() {
            let text = |field: &str| object::string(entry, &[field]);
            let seconds = text("time").get(17..19).unwrap_or("--");
            lines.push(format!(
                "{} {} {seconds} {}",
                text("manager"),
                text("operation"),
                entry["fieldsV1"]
            ));
        }
        expected.assert_eq(&lines.join("\n"));
        self
    }
}

#[test]
fn an_applier_owns_what_it_names_and_drops_what_it_stops_naming() {
    Story::config_map()
        .apply(
            "m1",
            json!({"metadata": {"name": "a", "labels": {"x": "y"}}, "data": {"k": "v", "l": "w"}}),
        )
        .check(expect![[r#"
            {"data":{"k":"v","l":"w"}}
            m1 Apply 21 {"f:data":{"f:k":{},"f:l":{}},"f:metadata":{"f:labels":{"f:x":{}}}}"#]])
        .apply("m1", json!({"metadata": {"name": "a"}, "data": {"k": "v"}}))
        .check(expect![[r#"
            {"data":{"k":"v"}}
            m1 Apply 22 {"f:data":{"f:k":{}}}"#]])
        .apply("m1", json!({"metadata": {"name": "a"}, "data": {}}))
        .check(expect![[r#"
            {"data":null}
            m1 Apply 23 {"f:data":{}}"#]]);
}

#[test]
fn applying_the_same_again_changes_nothing() {
    let mut story = Story::config_map();
    story.apply("m1", json!({"metadata": {"name": "a"}, "data": {"k": "v"}}));
    let before = story.object.clone();
    story.apply("m1", json!({"metadata": {"name": "a"}, "data": {"k": "v"}}));
    assert_eq!(story.object, before);
}

#[test]
fn shared_fields_stay_until_the_last_owner_drops_them() {
    Story::config_map()
        .apply("m1", json!({"data": {"k": "v", "l": "1"}}))
        .apply("m2", json!({"data": {"k": "v"}}))
        // An apply that only adds an owner has no time of its own.
        .check(expect![[r#"
            {"data":{"k":"v","l":"1"}}
            m2 Apply -- {"f:data":{"f:k":{}}}
            m1 Apply 21 {"f:data":{"f:k":{},"f:l":{}}}"#]])
        .apply("m1", json!({"data": {"l": "1"}}))
        .check(expect![[r#"
            {"data":{"k":"v","l":"1"}}
            m2 Apply -- {"f:data":{"f:k":{}}}
            m1 Apply 21 {"f:data":{"f:l":{}}}"#]])
        .apply("m2", json!({"metadata": {"name": "a"}}))
        .check(expect![[r#"
            {"data":{"l":"1"}}
            m1 Apply 21 {"f:data":{"f:l":{}}}"#]]);
}

#[test]
fn conflicts_name_the_managers_and_force_takes_over() {
    Story::config_map()
        .apply(
            "m1",
            json!({"data": {"k": "1", "a.b": "1"}, "metadata": {"labels": {"app.io/x": "1"}}}),
        )
        .write(
            "u1",
            json!({"data": {"k": "2", "a.b": "1"}, "metadata": {"labels": {"app.io/x": "1"}}}),
        )
        .refused(
            "m2",
            json!({"data": {"k": "3"}}),
            expect![[r#"409 Apply failed with 1 conflict: conflict with "u1" using v1: .data.k"#]],
        )
        .refused(
            "m2",
            json!({"data": {"k": "3", "a.b": "3"}, "metadata": {"labels": {"app.io/x": "3"}}}),
            expect![[r#"
            409 Apply failed with 3 conflicts: conflicts with "m1":
            - .data.a.b
            - .metadata.labels.app.io/x
            conflicts with "u1" using v1:
            - .data.k"#]],
        )
        .force("m2", json!({"data": {"k": "3"}}))
        .check(expect![[r#"
            {"data":{"a.b":"1","k":"3"}}
            m1 Apply 21 {"f:data":{"f:a.b":{}},"f:metadata":{"f:labels":{"f:app.io/x":{}}}}
            m2 Apply 25 {"f:data":{"f:k":{}}}"#]]);
}

#[test]
fn causes_of_a_conflict_name_field_and_manager() {
    let mut story = Story::config_map();
    story.apply("my \"tool\"", json!({"data": {"k": "1"}}));
    let Err(ApplyError::Conflict(conflicts)) = story.try_apply("m", OnConflict::Refuse, json!({"data": {"k": "2"}}))
    else {
        panic!("a conflict")
    };
    let cause = ConflictCause {
        field: ".data.k".to_owned(),
        message: r#"conflict with "my \"tool\"""#.to_owned(),
    };
    assert_eq!(conflicts.causes(), [cause]);
}

#[test]
fn what_nobody_tracked_belongs_to_before_first_apply() {
    let mut story = Story::config_map();
    story.object = Some(
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "uid": "u"}, "data": {"k": "v"}}),
    );
    story
        .refused(
            "m1",
            json!({"data": {"k": "w"}}),
            expect![[r#"409 Apply failed with 1 conflict: conflict with "before-first-apply" using v1: .data.k"#]],
        )
        .apply("m1", json!({"data": {"l": "1"}}))
        .check(expect![[r#"
            {"data":{"k":"v","l":"1"}}
            m1 Apply 22 {"f:data":{"f:l":{}}}
            before-first-apply Update 22 {"f:data":{".":{},"f:k":{}}}"#]]);
}

#[test]
fn what_does_not_fit_is_refused_with_upstreams_texts() {
    let mut story = Story::config_map();
    story
        .refused("m", json!({"apiVersion": "apps/v1", "kind": "ConfigMap"}), expect!["400 invalid object type: apps/v1, Kind=ConfigMap"])
        .refused("m", json!({"apiVersion": "", "kind": ""}), expect!["400 invalid object type: /, Kind="])
        .refused("m", json!({"metadata": {"managedFields": []}}), expect!["400 metadata.managedFields must be nil"])
        .refused("m", json!({"metadata": "a"}), expect!["500 failed to create typed patch object (/; /v1, Kind=ConfigMap): .metadata: expected map, got &{a}"])
        .refused("m", json!({"metadata": {"name": "a"}, "nope": 1}), expect!["500 failed to create typed patch object (/a; /v1, Kind=ConfigMap): .nope: field not declared in schema"])
        .refused("m", json!({"metadata": {"name": "a"}, "data": {"k": 5}}), expect!["500 failed to create typed patch object (/a; /v1, Kind=ConfigMap): .data.k: expected string, got &value.valueUnstructured{Value:5}"])
        .refused("m", json!({"metadata": {"name": "a"}, "data": {"k": {"x": "y"}}}), expect![[r#"500 failed to create typed patch object (/a; /v1, Kind=ConfigMap): .data.k: expected string, got &value.valueUnstructured{Value:map[string]interface {}{"x":"y"}}"#]])
        .refused("m", json!({"metadata": {"name": "a", "finalizers": ["x.io/a", "x.io/a"]}}), expect![[r#"500 failed to create typed patch object (/a; /v1, Kind=ConfigMap): .metadata.finalizers: duplicate entries for key [="x.io/a"]"#]])
        .refused("m", json!({"metadata": {"name": "a", "finalizers": [null]}, "data": ["x"]}), expect![[r#"
            500 failed to create typed patch object (/a; /v1, Kind=ConfigMap): errors:
              .data: expected map, got &{[x]}
              .metadata.finalizers: element 0: associative list without keys has an element that's an explicit null"#]]);
}

#[test]
fn items_merge_by_key_and_leave_with_their_owner() {
    let ports = |ports: Value| json!({"metadata": {"name": "s"}, "spec": {"ports": ports}});
    let mut story = Story::of("", "v1", "Service", "v1");
    story
        .apply("m1", ports(json!([{"port": 80, "name": "a"}])))
        .apply("m2", ports(json!([{"port": 80, "protocol": "UDP", "name": "b"}])))
        .apply("m1", ports(json!([{"port": 81, "name": "a"}])))
        .check(expect![[r#"
            {"spec":{"ports":[{"name":"b","port":80,"protocol":"UDP"},{"name":"a","port":81}]},"status":{"loadBalancer":{}}}
            m2 Apply 22 {"f:spec":{"f:ports":{"k:{\"port\":80,\"protocol\":\"UDP\"}":{".":{},"f:name":{},"f:port":{},"f:protocol":{}}}}}
            m1 Apply 23 {"f:spec":{"f:ports":{"k:{\"port\":81,\"protocol\":\"TCP\"}":{".":{},"f:name":{},"f:port":{}}}}}"#]])
        .refused("m1", ports(json!([{"port": 80}, {"port": 80, "protocol": "TCP"}])), expect![[r#"500 failed to create typed patch object (/s; /v1, Kind=Service): .spec.ports: duplicate entries for key [port=80,protocol="TCP"]"#]]);
}

#[test]
fn the_applied_order_wins_where_it_says_something() {
    let envs = |names: &str| -> Value {
        let env: Value = names
            .chars()
            .map(|name| json!({"name": name.to_string(), "value": "1"}))
            .collect();
        json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "env": env}]}})
    };
    for (live, applied, expected) in [
        ("abc", "abc", "abc"),
        ("abc", "ca", "bca"),
        ("abc", "d", "abcd"),
        ("abc", "cdb", "acdb"),
        ("abcd", "dcba", "dcba"),
        ("", "ba", "ba"),
    ] {
        let mut story = Story::of("", "v1", "Pod", "v1");
        story.object = Some(envs(live));
        story.object.as_mut().unwrap()["apiVersion"] = "v1".into();
        story.force("m", envs(applied));
        let object = story.object.as_ref().unwrap();
        let env = object::list(&object["spec"]["containers"][0], &["env"]);
        let names: String = env.iter().map(|env| object::string(env, &["name"])).collect();
        assert_eq!(names, expected, "{live} + {applied}");
    }
}

#[test]
fn kubectl_takes_over_what_it_applied_from_the_client_side() {
    let last = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"v"}}"#;
    let body = |data: Value| json!({"metadata": {"name": "a", "annotations": {"kubectl.kubernetes.io/last-applied-configuration": last}}, "data": data});
    let mut story = Story::config_map();
    story.write("kubectl-client-side-apply", body(json!({"k": "v"})));
    story.refused(
        "other",
        json!({"metadata": {"name": "a"}, "data": {"k": "w"}}),
        expect![[r#"409 Apply failed with 1 conflict: conflict with "kubectl-client-side-apply" using v1: .data.k"#]],
    );
    story.apply("kubectl", json!({"metadata": {"name": "a"}, "data": {"k": "w"}}));
    let annotation = object::string(
        story.object.as_ref().unwrap(),
        &[
            "metadata",
            "annotations",
            "kubectl.kubernetes.io/last-applied-configuration",
        ],
    );
    assert_eq!(
        annotation,
        "{\"apiVersion\":\"v1\",\"data\":{\"k\":\"w\"},\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"a\"}}\n"
    );
    // What the annotation does not tell is still somebody else's.
    story.write("u1", body(json!({"k": "x"})));
    story.refused(
        "kubectl",
        json!({"metadata": {"name": "a"}, "data": {"k": "y"}}),
        expect![[r#"409 Apply failed with 1 conflict: conflict with "u1" using v1: .data.k"#]],
    );
}

/// A custom resource with a list of items by name and defaulted protocol, a set, and an atomic map.
fn widget() -> Compiled {
    let text = json!({"type": "string"});
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "items": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name", "protocol"],
            "items": {"type": "object", "properties": {
                "name": text, "protocol": {"type": "string", "default": "TCP"}, "v": text}}},
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": text},
        "bytes": {"type": "string", "format": "byte"}, "odd": {"type": "string", "format": "float"},
        "amap": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": text},
        "free": {"x-kubernetes-preserve-unknown-fields": true}}}}});
    Compiled::new(&schema, &NoRules)
}

#[test]
fn custom_resources_merge_by_their_own_schema() {
    let widget = widget();
    let mut story = Story {
        schema: widget.merge_type(),
        kind: "Widget",
        api_version: "g.io/v1",
        object: None,
        second: 0,
    };
    story
        .apply("m1", json!({"spec": {"items": [{"name": "a", "v": "1"}], "tags": ["x"], "amap": {"k": "1"}, "free": {"l": [1], "m": {"n": 1}}}}))
        .apply("m2", json!({"spec": {"items": [{"name": "a", "protocol": "UDP", "v": "2"}], "tags": ["y"]}}))
        .check(expect![[r#"
            {"spec":{"amap":{"k":"1"},"free":{"l":[1],"m":{"n":1}},"items":[{"name":"a","v":"1"},{"name":"a","protocol":"UDP","v":"2"}],"tags":["x","y"]}}
            m1 Apply 21 {"f:spec":{"f:amap":{},"f:free":{"f:l":{},"f:m":{".":{},"f:n":{}}},"f:items":{"k:{\"name\":\"a\",\"protocol\":\"TCP\"}":{".":{},"f:name":{},"f:v":{}}},"f:tags":{"v:\"x\"":{}}}}
            m2 Apply 22 {"f:spec":{"f:items":{"k:{\"name\":\"a\",\"protocol\":\"UDP\"}":{".":{},"f:name":{},"f:protocol":{},"f:v":{}}},"f:tags":{"v:\"y\"":{}}}}"#]])
        .refused("m3", json!({"spec": {"items": [{"name": "a", "protocol": "TCP", "v": "9"}], "amap": {"z": "1"}, "free": {"l": [2]}}}), expect![[r#"
            409 Apply failed with 3 conflicts: conflicts with "m1":
            - .spec.amap
            - .spec.free.l
            - .spec.items[name="a",protocol="TCP"].v"#]])
        .refused("m3", json!({"spec": {"items": ["x"]}}), expect!["500 failed to create typed patch object (/; g.io/v1, Kind=Widget): .spec.items: element 0: associative list with keys may not have non-map elements"])
        .refused("m3", json!({"spec": {"bytes": 1}}), expect!["500 failed to create typed patch object (/; g.io/v1, Kind=Widget): .spec.bytes: expected string, got &value.valueUnstructured{Value:1}"])
        // A text of any other format, known or not, may be any scalar here; validation comes later.
        .refused("m3", json!({"spec": {"odd": {"a": 1}}}), expect!["500 failed to create typed patch object (/; g.io/v1, Kind=Widget): .spec.odd: expected any scalar, got &{map[a:1]}"])
        .refused("m3", json!({"spec": {"odd": 1, "amap": {}}}), expect![[r#"409 Apply failed with 1 conflict: conflict with "m1": .spec.amap"#]])
        .apply("m2", json!({"spec": {"tags": ["y"]}}))
        .check(expect![[r#"
            {"spec":{"amap":{"k":"1"},"free":{"l":[1],"m":{"n":1}},"items":[{"name":"a","v":"1"}],"tags":["x","y"]}}
            m1 Apply 21 {"f:spec":{"f:amap":{},"f:free":{"f:l":{},"f:m":{".":{},"f:n":{}}},"f:items":{"k:{\"name\":\"a\",\"protocol\":\"TCP\"}":{".":{},"f:name":{},"f:v":{}}},"f:tags":{"v:\"x\"":{}}}}
            m2 Apply 28 {"f:spec":{"f:tags":{"v:\"y\"":{}}}}"#]]);
}

#[test]
fn a_resource_that_declares_no_fields_has_those_of_every_resource_only() {
    let bare = Compiled::new(&json!({"type": "object"}), &NoRules);
    let mut story = Story {
        schema: bare.merge_type(),
        kind: "Widget",
        api_version: "g.io/v1",
        object: None,
        second: 0,
    };
    story
        .apply("m1", json!({"metadata": {"labels": {"a": "b"}}}))
        .check(expect![[r#"
            {}
            m1 Apply 21 {"f:metadata":{"f:labels":{"f:a":{}}}}"#]])
        .refused(
            "m1",
            json!({"x": 1}),
            expect![
                "500 failed to create typed patch object (/; g.io/v1, Kind=Widget): .x: field not declared in schema"
            ],
        );
}

#[test]
fn what_does_not_fit_its_schema_of_today_is_tracked_by_nobody() {
    let before = Compiled::new(
        &json!({"type": "object", "properties": {"x": {"type": "string"}}}),
        &NoRules,
    );
    let after = Compiled::new(
        &json!({"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "string"}}}),
        &NoRules,
    );
    let mut story = Story {
        schema: before.merge_type(),
        kind: "Widget",
        api_version: "g.io/v1",
        object: None,
        second: 0,
    };
    story.write("m1", json!({"x": "s"}));
    story.schema = after.merge_type();
    story
        .write("m2", json!({"x": "s", "y": "z"}))
        .check(expect![[r#"{"x":"s","y":"z"}"#]])
        .refused("m3", json!({"y": "a"}), expect!["500 failed to create manager for existing fields: failed to convert new object (/; g.io/v1, Kind=) to smd typed: .x: expected numeric (int or float), got string"]);
}

/// Two versions that call one field by two names.
struct Renaming;

impl Versions for Renaming {
    fn convert(&self, object: &Value, api_version: &str) -> Option<Versioned<'_>> {
        let (from, to) = match api_version {
            "g.io/v1" => ("old", "new"),
            "g.io/v0" => ("new", "old"),
            _ => return None,
        };
        let mut object = object.clone();
        if let Some(value) = object::remove(&mut object, &["spec", from]) {
            object::set(&mut object, &["spec", to], value);
        }
        object::set(&mut object, &["apiVersion"], api_version);
        Some(Versioned {
            object,
            schema: TypeRef::DEDUCED,
            reset: Set::new(),
        })
    }
}

#[test]
fn managers_in_another_version_are_seen_through_conversion() {
    let reset = Set::new();
    let write = |manager: &'static str, api_version: &'static str| Write {
        manager,
        api_version,
        subresource: "",
        time: Timestamp::UNIX_EPOCH,
        schema: TypeRef::DEDUCED,
        reset: &reset,
        versions: &Renaming,
    };
    let body = |version: &str, field: &str, value: i64| json!({"apiVersion": version, "kind": "K", "metadata": {"name": "a"}, "spec": {field: value}});
    let live = apply(
        None,
        &body("g.io/v0", "old", 1),
        "K",
        OnConflict::Refuse,
        &write("m0", "g.io/v0"),
    )
    .unwrap();
    let live = Renaming.convert(&live, "g.io/v1").unwrap().object;
    let error = apply(
        Some(&live),
        &body("g.io/v1", "new", 2),
        "K",
        OnConflict::Refuse,
        &write("m1", "g.io/v1"),
    )
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        r#"Apply failed with 1 conflict: conflict with "m0": .spec.old"#
    );
    let taken = apply(
        Some(&live),
        &body("g.io/v1", "new", 2),
        "K",
        OnConflict::Force,
        &write("m1", "g.io/v1"),
    )
    .unwrap();
    let owners = Entries::from_list(object::list(&taken, &["metadata", "managedFields"])).unwrap();
    let owned: Vec<String> = owners
        .iter()
        .map(|entry| format!("{} {}", entry.manager.name, entry.fields.to_fields()))
        .collect();
    assert_eq!(owned, [r#"m0 {"f:spec":{}}"#, r#"m1 {"f:spec":{".":{},"f:new":{}}}"#]);
    // The same applier in the new version drops what it applied in the old one.
    let mut bare = body("g.io/v1", "other", 3);
    bare["spec"] = json!({"other": 3});
    let moved = apply(Some(&live), &bare, "K", OnConflict::Refuse, &write("m0", "g.io/v1")).unwrap();
    assert_eq!(moved["spec"], json!({"other": 3}));
}

/// A version with a field, and one without it that objects are not pruned for.
struct Narrower(Compiled);

impl Versions for Narrower {
    fn convert(&self, object: &Value, api_version: &str) -> Option<Versioned<'_>> {
        (api_version == "g.io/v1").then(|| Versioned {
            object: object.clone(),
            schema: self.0.merge_type(),
            reset: Set::new(),
        })
    }
}

#[test]
fn an_object_that_does_not_fit_the_version_of_another_manager_cannot_be_applied_to() {
    let fields =
        |fields: Value| json!({"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}});
    let text = json!({"type": "string"});
    let tags = |list: &str| json!({"type": "array", "x-kubernetes-list-type": list, "items": text});
    let wide = Compiled::new(&fields(json!({"a": text, "b": text, "tags": tags("atomic")})), &NoRules);
    let versions = Narrower(Compiled::new(
        &fields(json!({"a": text, "tags": tags("set")})),
        &NoRules,
    ));
    let reset = Set::new();
    let write = |manager, api_version| Write {
        manager,
        api_version,
        subresource: "",
        time: Timestamp::UNIX_EPOCH,
        schema: wide.merge_type(),
        reset: &reset,
        versions: &versions,
    };
    let body = |version: &str, spec: Value| json!({"apiVersion": version, "kind": "K", "metadata": {"name": "a"}, "spec": spec});
    let refused = |live: &Value, spec: Value| {
        apply(
            Some(live),
            &body("g.io/v2", spec),
            "K",
            OnConflict::Force,
            &write("m2", "g.io/v2"),
        )
        .unwrap_err()
        .to_string()
    };
    let first = body("g.io/v1", json!({"a": "1"}));
    let mut live = apply(None, &first, "K", OnConflict::Refuse, &write("m1", "g.io/v1")).unwrap();
    expect!["failed to convert new object: .spec.b: field not declared in schema"]
        .assert_eq(&refused(&live, json!({"b": "1"})));
    expect![[r#"failed to convert new object: .spec.tags: duplicate entries for key [="x"]"#]]
        .assert_eq(&refused(&live, json!({"tags": ["x", "x"]})));
    live["spec"]["b"] = json!("1");
    expect![".spec.b: field not declared in schema"].assert_eq(&refused(&live, json!({"a": "2"})));
}

proptest! {
    #[test]
    fn an_applier_gets_what_it_applies_and_can_take_it_back(live in spec(), applied in spec()) {
        let mut story = Story { schema: TypeRef::DEDUCED, kind: "K", api_version: "g.io/v1", object: None, second: 0 };
        story.write("u", json!({"apiVersion": "g.io/v1", "kind": "K", "spec": live}));
        let before = story.object.clone().unwrap();
        story.force("m", json!({"spec": applied}));
        let object = story.object.clone().unwrap();
        prop_assert!(holds(&object["spec"], &applied), "{} {}", object, applied);
        let once = story.object.clone();
        story.force("m", json!({"spec": applied}));
        prop_assert_eq!(&story.object, &once, "applying twice");
        // Taking everything back leaves nothing that was not there before.
        story.force("m", json!({"metadata": {"name": "a"}}));
        let after = story.object.clone().unwrap();
        prop_assert!(within(&after["spec"], &before["spec"]) || !applied.is_null(), "{} {}", after, before);
    }
}

/// Whether `object` says everything that `part` says.
fn holds(object: &Value, part: &Value) -> bool {
    match (object, part) {
        (Value::Object(object), Value::Object(part)) => part
            .iter()
            .all(|(key, part)| object.get(key).is_some_and(|object| holds(object, part))),
        _ => object == part || part.as_object().is_some_and(serde_json::Map::is_empty),
    }
}

fn within(part: &Value, whole: &Value) -> bool {
    match (part, whole) {
        (Value::Object(part), Value::Object(whole)) => part
            .iter()
            .all(|(key, part)| part.is_null() || whole.get(key).is_some_and(|whole| within(part, whole))),
        _ => part.is_null() || part == whole,
    }
}

fn spec() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![any::<i8>().prop_map(Value::from), "[a-c]{0,2}".prop_map(Value::from)];
    let value = leaf.prop_recursive(3, 16, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 1..3).prop_map(Value::from),
            proptest::collection::btree_map("[a-c]", inner, 1..3).prop_map(|map| map.into_iter().collect()),
        ]
    });
    proptest::collection::btree_map("[a-c]", value, 1..4).prop_map(|map| map.into_iter().collect())
}
