//! What holds after any story of applies and updates by several managers, on every kind of list and map.
//!
//! Values are drawn from few names, so that managers meet on the same fields all the time.

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::schema::TypeRef;
use super::*;
use crate::object;
use crate::schema::rule::NoRules;
use crate::schema::{Compiled, Malformed};

/// A custom resource with lists by key (in each other), sets, atomic lists and maps, free and granular maps.
fn widget() -> Compiled {
    let text = json!({"type": "string"});
    let leaf = json!({"type": "object", "required": ["k"], "properties": {"k": text, "v": text}});
    let list = |keys: &[&str], items: &Value| json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys, "items": items});
    let item = json!({"type": "object", "required": ["name"], "properties": {
        "name": text, "port": {"type": "integer", "default": 80}, "v": text, "inner": list(&["k"], &leaf)}});
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "text": text,
        "items": list(&["name", "port"], &item),
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": text},
        "whole": {"type": "array", "x-kubernetes-list-type": "atomic", "items": text},
        "unit": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": text},
        "map": {"type": "object", "additionalProperties": text},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}});
    Compiled::new(&schema, &NoRules)
}

/// One write of a story.
#[derive(Clone, Debug)]
enum Act {
    Apply {
        manager: u8,
        force: OnConflict,
        spec: Value,
    },
    Update {
        manager: u8,
        spec: Value,
    },
}

fn word() -> impl Strategy<Value = String> + Clone {
    "[ab]"
}

fn words(most: usize) -> impl Strategy<Value = Value> {
    proptest::collection::btree_set(word(), 1..=most).prop_map(|words| json!(words))
}

fn texts() -> impl Strategy<Value = Value> {
    proptest::collection::btree_map(word(), word(), 1..3).prop_map(|map| json!(map))
}

fn optional(strategy: impl Strategy<Value = Value> + 'static) -> impl Strategy<Value = Option<Value>> {
    proptest::option::weighted(0.6, strategy)
}

fn item() -> impl Strategy<Value = Value> {
    let inner = proptest::collection::btree_map(word(), proptest::option::of(word()), 1..3).prop_map(|inner| {
        let items = inner
            .into_iter()
            .map(|(k, v)| v.map_or(json!({"k": k}), |v| json!({"k": k, "v": v})));
        items.collect::<Value>()
    });
    let port = proptest::option::of(prop_oneof![Just(80), Just(81)]);
    (word(), port, proptest::option::of(word()), optional(inner)).prop_map(|(name, port, v, inner)| {
        let members = [
            ("name", Some(json!(name))),
            ("port", port.map(Value::from)),
            ("v", v.map(Value::from)),
            ("inner", inner),
        ];
        present(members)
    })
}

fn present<const N: usize>(members: [(&str, Option<Value>); N]) -> Value {
    let members = members
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Object(members.collect::<Map<_, _>>())
}

/// Items of which no two have the same keys.
fn items() -> impl Strategy<Value = Value> {
    proptest::collection::vec(item(), 1..4).prop_map(|mut items| {
        let mut seen = Vec::new();
        items.retain(|item| {
            let key = (item["name"].clone(), item.get("port").cloned().unwrap_or(80.into()));
            let fresh = !seen.contains(&key);
            seen.push(key);
            fresh
        });
        json!(items)
    })
}

fn free() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        word().prop_map(Value::from),
        Just(json!([1])),
        Just(json!([1, {"a": 1}]))
    ];
    let value = leaf.prop_recursive(2, 6, 2, |inner| {
        proptest::collection::btree_map(word(), inner, 1..3).prop_map(|map| json!(map))
    });
    proptest::collection::btree_map(word(), value, 1..3).prop_map(|map| json!(map))
}

fn spec() -> impl Strategy<Value = Value> {
    let text = word().prop_map(Value::from);
    let parts = (
        optional(text),
        optional(items()),
        optional(words(2)),
        optional(words(2)),
        optional(texts()),
        optional(texts()),
        optional(free()),
    );
    parts.prop_map(|(text, items, tags, whole, unit, map, free)| {
        present([
            ("text", text),
            ("items", items),
            ("tags", tags),
            ("whole", whole),
            ("unit", unit),
            ("map", map),
            ("free", free),
        ])
    })
}

/// Not empty: a map that loses its last member goes, and applying it empty once more brings it back, as upstream.
fn acted() -> impl Strategy<Value = Value> {
    spec().prop_filter("says something", |spec| !is_hollow(spec))
}

fn act() -> impl Strategy<Value = Act> {
    let force = prop_oneof![Just(OnConflict::Force), Just(OnConflict::Refuse)];
    prop_oneof![
        3 => (0..3_u8, force, acted()).prop_map(|(manager, force, spec)| Act::Apply { manager, force, spec }),
        1 => (0..2_u8, acted()).prop_map(|(manager, spec)| Act::Update { manager, spec }),
    ]
}

struct Story<'s> {
    widget: &'s Compiled,
    schema: TypeRef<'s>,
    object: Option<Value>,
    second: i64,
}

impl<'s> Story<'s> {
    fn new(widget: &'s Compiled) -> Self {
        let schema = widget.merge_type();
        Self {
            widget,
            schema,
            object: None,
            second: 0,
        }
    }

    fn write<T>(&mut self, manager: &str, run: impl FnOnce(Option<&Value>, &Write<'_>) -> T) -> T {
        self.second += 1;
        let reset = Set::of_fields(&[&["status"]]);
        let write = Write {
            manager,
            api_version: "g.io/v1",
            subresource: "",
            time: Timestamp::from_second(self.second).unwrap(),
            schema: self.schema,
            reset: &reset,
            versions: &OneVersion,
        };
        run(self.object.as_ref(), &write)
    }

    /// Applies, and keeps times as the server does for a write that changes nothing else.
    fn apply(&mut self, manager: &str, spec: Option<&Value>, force: OnConflict) -> Result<(), ApplyError> {
        let mut body = json!({"apiVersion": "g.io/v1", "kind": "Widget", "metadata": {"name": "w"}});
        if let Some(spec) = spec {
            body["spec"] = spec.clone();
        }
        let mut new = self.write(manager, |live, write| apply(live, &body, "Widget", force, write))?;
        self.widget.prepare(&mut new, Malformed::Drop).unwrap();
        if let Some(old) = &self.object {
            keep_times_of_noop(&mut new, old);
        }
        self.object = Some(new);
        Ok(())
    }

    fn update(&mut self, manager: &str, spec: &Value) {
        let mut new = json!({"apiVersion": "g.io/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": spec});
        self.write(manager, |live, write| update(live, &mut new, Request::Usual, write));
        self.object = Some(new);
    }

    fn act(&mut self, act: &Act) -> Result<(), ApplyError> {
        match act {
            Act::Apply { manager, force, spec } => self.apply(&format!("m{manager}"), Some(spec), *force),
            Act::Update { manager, spec } => {
                self.update(&format!("u{manager}"), spec);
                Ok(())
            }
        }
    }

    fn object(&self) -> &Value {
        self.object.as_ref().unwrap()
    }

    fn entries(&self) -> Entries {
        let list = object::list(self.object(), &["metadata", "managedFields"]);
        Entries::from_list(list).unwrap()
    }

    /// Every field there is, with the structs and items that lead to them.
    fn fields(&self) -> Set {
        let fields = fields_of(self.object(), self.schema).unwrap();
        fields.with_named_fields(Some(self.schema))
    }
}

/// Whether there is a null anywhere.
fn has_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(members) => members.values().any(has_null),
        Value::Array(items) => items.iter().any(has_null),
        _ => false,
    }
}

/// Whether a path is of a map or list that may lose all that is in it and go: who owned it as such still does, as upstream.
fn is_emptied(path: &str) -> bool {
    path.starts_with(".spec.free.")
        || ["spec", "free", "map", "items", "tags", "inner"]
            .iter()
            .any(|name| path.ends_with(&format!(".{name}")))
}

/// Whether the object says all that was applied: items by their keys, sets by their members, the rest as it is.
fn holds(object: &Value, applied: &Value) -> bool {
    match (object, applied) {
        (Value::Object(object), Value::Object(applied)) => applied
            .iter()
            .all(|(name, applied)| object.get(name).is_some_and(|object| holds(object, applied))),
        (Value::Array(object), Value::Array(applied)) => applied
            .iter()
            .all(|applied| object.iter().any(|object| holds(object, applied))),
        _ => object == applied,
    }
}

proptest! {
    #[test]
    fn a_story_of_many_managers_keeps_its_promises(acts in proptest::collection::vec(act(), 1..7)) {
        let widget = widget();
        let mut story = Story::new(&widget);
        for act in &acts {
            let before = story.object.clone();
            if story.act(act).is_err() {
                prop_assert_eq!(&story.object, &before, "a refusal changes nothing");
                continue;
            }
            let there = story.fields();
            for entry in story.entries().iter() {
                let leaked = entry.fields.difference(&there).paths();
                let leaked: Vec<String> = leaked.iter().map(|path| path_text(path)).filter(|path| !is_emptied(path)).collect();
                prop_assert!(leaked.is_empty(), "{} owns what is not there: {:?} of {}", entry.manager.name, leaked, story.object());
                prop_assert!(!entry.fields.is_empty(), "{} owns nothing", entry.manager.name);
            }
            let Act::Apply { manager, spec, .. } = act else { continue };
            let (manager, applied) = (format!("m{manager}"), story.object.clone());
            prop_assert!(holds(&story.object()["spec"], spec) || spec.as_object().unwrap().is_empty(), "{} lacks {}", story.object(), spec);
            let claimed = fields_of(&json!({"spec": spec}), story.schema).unwrap();
            let own = story.entries().iter().find(|entry| entry.manager.name == manager).map(|entry| entry.fields.clone());
            prop_assert_eq!(own.unwrap_or_default(), claimed, "an applier owns what it applied, and no more");
            if has_null(story.object()) {
                // A free map that loses its last member is null, and a map again when it is applied again: as upstream.
                continue;
            }
            story.apply(&manager, Some(spec), OnConflict::Refuse).unwrap();
            prop_assert_eq!(&story.object, &applied, "applying again changes nothing, times included");
        }
    }

    #[test]
    fn whoever_takes_all_back_leaves_what_others_have(first in spec(), second in spec(), third in spec()) {
        let widget = widget();
        let mut whole = Story::new(&widget);
        whole.apply("m0", Some(&first), OnConflict::Force).unwrap();
        whole.apply("m1", Some(&second), OnConflict::Force).unwrap();
        let before = whole.object.clone();
        // Somebody who only comes and goes, and takes nothing over, leaves no trace but an order of items.
        if whole.apply("m2", Some(&third), OnConflict::Refuse).is_ok() {
            whole.apply("m2", None, OnConflict::Refuse).unwrap();
            let names: Vec<String> = whole.entries().iter().map(|entry| entry.manager.name.clone()).collect();
            prop_assert!(!names.contains(&"m2".to_owned()), "{:?}", names);
            let owned = |object: &Option<Value>| {
                let list = object::list(object.as_ref().unwrap(), &["metadata", "managedFields"]).to_vec();
                let entries = Entries::from_list(&list).unwrap();
                entries.iter().map(|entry| (entry.manager.clone(), entry.fields.clone())).collect::<Vec<_>>()
            };
            let (mut left, mut right) = (owned(&whole.object), owned(&before));
            left.sort_by(|a, b| a.0.name.cmp(&b.0.name));
            right.sort_by(|a, b| a.0.name.cmp(&b.0.name));
            prop_assert_eq!(left, right, "others own what they owned");
            let old = &before.as_ref().unwrap()["spec"];
            prop_assert!(holds(&whole.object()["spec"], old) && holds(old, &whole.object()["spec"]), "{} was {}", whole.object(), old);
        }
        // When all are gone, nothing is left.
        for manager in ["m0", "m1"] {
            whole.apply(manager, None, OnConflict::Refuse).unwrap();
        }
        prop_assert_eq!(whole.entries().iter().count(), 0);
        let rest = whole.object().get("spec").cloned().unwrap_or_default();
        prop_assert!(rest.as_object().is_none_or(|rest| rest.values().all(is_hollow)), "{} is left", rest);
    }

    #[test]
    fn merging_is_idempotent_and_keeps_what_is_not_named(live in spec(), applied in spec()) {
        let widget = widget();
        let ty = widget.merge_type();
        let (live, applied) = (json!({"spec": live}), json!({"spec": applied}));
        let once = super::merge::merge(&live, &applied, ty).unwrap();
        prop_assert_eq!(&super::merge::merge(&once, &applied, ty).unwrap(), &once);
        prop_assert!(holds(&once, &applied), "{} lacks {}", once, applied);
        let lost = fields_of(&live, ty).unwrap().difference(&fields_of(&once, ty).unwrap()).paths();
        // An empty map is a field of its own until something is in it; a free value may take another's place.
        let lost: Vec<String> = lost.iter().map(|path| path_text(path)).filter(|path| path != ".spec" && !path.starts_with(".spec.free.")).collect();
        prop_assert!(lost.is_empty(), "{:?} lost of {}", lost, live);
    }
}

/// Whether nothing is in it.
fn is_hollow(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(members) => members.values().all(is_hollow),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}
