//! Custom kinds: what a definition says of one of its versions, as the rules of that version's objects.
//!
//! A [`CustomKind`] is made from a definition's content and nothing else, so that all planes with the same definition share
//! one. Compiled schemas are shared further, by whatever `compile` is given.

use std::sync::Arc;

use serde_json::Value;

use super::extension::definition;
use super::{NameUse, Scope, Strategy, WriteContext, column, condition};
use crate::field::{Error, ErrorList, Path, quote};
use crate::meta::{self, FinalizerRule};
use crate::schema::column::Column;
use crate::schema::jsonpath::JsonPath;
use crate::schema::scale::Scale;
use crate::schema::{Compiled, Earlier, go};
use crate::{names, object};

/// One version of a custom kind.
#[derive(Debug)]
pub struct CustomKind {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub list_kind: String,
    pub plural: String,
    pub singular: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub scope: Scope,
    /// The version that its objects are stored in.
    pub storage_version: String,
    /// How objects get from one version to another: the definition's `spec.conversion`.
    pub conversion: Value,
    pub schema: Arc<Compiled>,
    /// The schemas of all versions of the definition, by their names.
    schemas: Arc<[(String, Arc<Compiled>)]>,
    /// What tells this version's schema from others.
    pub schema_hash: [u8; 32],
    pub status: StatusSubresource,
    pub scale: Option<Scale>,
    pub columns: Vec<Column>,
    /// Sent with every answer, if the version is deprecated.
    pub deprecation: Option<String>,
    pub standing: Standing,
    /// Whether clients may ask for this version.
    pub offered: Offered,
    selectable: Vec<(String, Option<JsonPath>)>,
}

/// Whether status is written apart from the rest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StatusSubresource {
    Apart,
    None,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Offered {
    Yes,
    No,
}

/// How far a definition has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// Its names are not accepted: nobody can use it yet.
    Waiting,
    /// Its names are accepted: it is served, and not yet in discovery.
    Accepted,
    Established,
    /// It is being deleted: its objects may go, and none may come.
    Terminating,
}

impl Standing {
    pub fn of(definition: &Value) -> Self {
        let conditions = object::list(definition, &["status", "conditions"]);
        let is = |r#type| condition::has(conditions, r#type, "True");
        if is("Terminating") && is("Established") {
            Self::Terminating
        } else if is("Established") {
            Self::Established
        } else if is("NamesAccepted") {
            Self::Accepted
        } else {
            Self::Waiting
        }
    }
}

impl CustomKind {
    /// Every version of a definition. `compile` makes, or finds, what a schema compiles to.
    pub fn all(definition: &Value, compile: &mut dyn FnMut(&Value, [u8; 32]) -> Arc<Compiled>) -> Vec<Self> {
        let versions = object::list(definition, &["spec", "versions"]).iter();
        let mut kinds: Vec<Self> = versions
            .map(|version| Self::new(definition, version, compile))
            .collect();
        let schemas = kinds.iter().map(|kind| (kind.version.clone(), kind.schema.clone()));
        let schemas: Arc<[_]> = schemas.collect();
        for kind in &mut kinds {
            kind.schemas = schemas.clone();
        }
        kinds
    }

    /// The schema of another version of the definition, or of this one.
    pub fn schema_of(&self, version: &str) -> Option<&Compiled> {
        let found = self.schemas.iter().find(|(name, _)| name == version);
        found.map(|(_, schema)| &**schema)
    }

    fn new(definition: &Value, version: &Value, compile: &mut dyn FnMut(&Value, [u8; 32]) -> Arc<Compiled>) -> Self {
        let accepted = |field: &str| {
            let texts = [["status", "acceptedNames", field], ["spec", "names", field]];
            let found = texts
                .iter()
                .map(|at| object::string(definition, at))
                .find(|text| !text.is_empty());
            found.unwrap_or_default().to_owned()
        };
        let texts = |field: &str| {
            let list = object::list(definition, &["status", "acceptedNames", field]);
            list.iter().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let no_schema = Value::Object(serde_json::Map::new());
        let schema = object::get(version, &["schema", "openAPIV3Schema"]).unwrap_or(&no_schema);
        let schema_hash = crate::schema::content_hash(schema);
        let subresource = |name: &str| object::get(version, &["subresources", name]).is_some_and(|sub| !sub.is_null());
        Self {
            group: object::string(definition, &["spec", "group"]).to_owned(),
            version: object::string(version, &["name"]).to_owned(),
            kind: accepted("kind"),
            list_kind: accepted("listKind"),
            plural: accepted("plural"),
            singular: accepted("singular"),
            short_names: texts("shortNames"),
            categories: texts("categories"),
            scope: match object::string(definition, &["spec", "scope"]) {
                "Cluster" => Scope::Cluster,
                _ => Scope::Namespaced,
            },
            storage_version: definition::storage_version(definition).unwrap_or_default(),
            conversion: object::get(definition, &["spec", "conversion"])
                .cloned()
                .unwrap_or_default(),
            schema: compile(schema, schema_hash),
            schemas: Arc::default(),
            schema_hash,
            status: if subresource("status") {
                StatusSubresource::Apart
            } else {
                StatusSubresource::None
            },
            scale: Scale::of(version),
            columns: columns(version),
            deprecation: deprecation(definition, version),
            standing: Standing::of(definition),
            offered: if definition::flag(version, "served") {
                Offered::Yes
            } else {
                Offered::No
            },
            selectable: selectable(version),
        }
    }

    pub fn api_version(&self) -> String {
        format!("{}/{}", self.group, self.version)
    }

    /// The fields that objects can be selected by, beside their names: label and value of each.
    pub fn selectable_fields(&self, object: &Value) -> Vec<(&str, String)> {
        let value = |path: &Option<JsonPath>| {
            let found = path.as_ref()?.find(object).ok()?;
            match found.first()?.value() {
                Value::Null => None,
                Value::String(text) => Some(text.clone()),
                Value::Number(number) => Some(go::number(number)),
                other => Some(other.to_string()),
            }
        };
        let fields = self.selectable.iter();
        fields
            .map(|(label, path)| (label.as_str(), value(path).unwrap_or_default()))
            .collect()
    }

    /// One object's cells: its name, then a cell for each column.
    pub fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        let mut cells = vec![object::name(object).into()];
        cells.extend(self.columns.iter().map(|column| column.cell(object, now)));
        cells
    }

    fn is_status(&self, ctx: &WriteContext<'_>) -> bool {
        ctx.subresource == "status"
    }

    /// What is wrong with what an object says that it is.
    fn type_errors(&self, object: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let api_version = self.api_version();
        for (field, wanted) in [("kind", self.kind.as_str()), ("apiVersion", &api_version)] {
            let found = object::string(object, &[field]);
            if found != wanted {
                errors.push(Error::invalid(&Path::new(field), found, format!("must be {wanted}")));
            }
        }
        errors
    }

    fn metadata_errors(&self, object: &Value) -> ErrorList {
        let path = Path::new("metadata");
        meta::create_errors(&object["metadata"], self.scope, names::name_is_dns_subdomain, &path)
    }
}

/// The columns of a version; its objects' age if it names none.
fn columns(version: &Value) -> Vec<Column> {
    let defined = object::list(version, &["additionalPrinterColumns"]);
    if !defined.is_empty() {
        return Column::all(defined);
    }
    let age = serde_json::json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp",
        "description": column::AGE.description});
    Column::all(&[age])
}

fn selectable(version: &Value) -> Vec<(String, Option<JsonPath>)> {
    let fields = object::list(version, &["selectableFields"]).iter();
    let paths = fields.map(|field| object::string(field, &["jsonPath"]));
    paths
        .map(|path| {
            (
                path.strip_prefix('.').unwrap_or(path).to_owned(),
                JsonPath::parse(path).ok(),
            )
        })
        .collect()
}

/// What users of a deprecated version are warned of.
fn deprecation(definition: &Value, version: &Value) -> Option<String> {
    if !definition::flag(version, "deprecated") {
        return None;
    }
    if let Some(text) = version.get("deprecationWarning").and_then(Value::as_str) {
        return Some(text.to_owned());
    }
    let (group, kind) = (
        object::string(definition, &["spec", "group"]),
        object::string(definition, &["spec", "names", "kind"]),
    );
    let own = object::string(version, &["name"]);
    let others = object::list(definition, &["spec", "versions"]).iter();
    let newer = others
        .filter(|other| definition::flag(other, "served") && !definition::flag(other, "deprecated"))
        .map(|other| object::string(other, &["name"]))
        .filter(|name| compare_versions(own, name).is_lt())
        .max_by(|a, b| compare_versions(a, b));
    let text = format!("{group}/{own} {kind} is deprecated");
    Some(match newer {
        Some(newer) => format!("{text}; use {group}/{newer} {kind}"),
        None => text,
    })
}

/// Upstream's order of versions: GA before beta before alpha, then the higher number; other names come last, by name.
pub fn compare_versions(a: &str, b: &str) -> std::cmp::Ordering {
    match (rank(a), rank(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        (Some(_), None) => std::cmp::Ordering::Greater,
        (None, Some(_)) => std::cmp::Ordering::Less,
        (None, None) => b.cmp(a),
    }
}

/// How stable a version is, and its numbers; `None` if its name does not say.
fn rank(version: &str) -> Option<(u8, u64, u64)> {
    fn number(text: &str) -> Option<u64> {
        let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty() && !text.starts_with('0');
        plain.then(|| text.parse().ok()).flatten()
    }
    let body = version.strip_prefix('v')?;
    for (word, stability) in [("beta", 1), ("alpha", 0)] {
        if let Some((major, minor)) = body.split_once(word) {
            return Some((stability, number(major)?, number(minor)?));
        }
    }
    Some((2, number(body)?, 0))
}

/// Finalizers that need no domain.
const STANDARD_FINALIZERS: [&str; 3] = ["orphan", "foregroundDeletion", "kubernetes"];

fn finalizer_warnings(finalizer: &str) -> Vec<String> {
    let about = |text: &str| format!("metadata.finalizers: {}: {text}", quote(finalizer));
    let mut warnings: Vec<String> = names::qualified_name(finalizer)
        .iter()
        .map(|text| about(text))
        .collect();
    if !finalizer.contains('/') && !STANDARD_FINALIZERS.contains(&finalizer) {
        let path = if finalizer.contains('.') {
            " including a path (/)"
        } else {
            ""
        };
        warnings.push(about(&format!(
            "prefer a domain-qualified finalizer name{path} to avoid accidental conflicts with other finalizer writers"
        )));
    }
    warnings
}

impl Strategy for CustomKind {
    fn default(&self, object: &mut Value) {
        self.schema.default(object);
    }

    fn prepare_create(&self, _ctx: &WriteContext<'_>, object: &mut Value) {
        if self.status == StatusSubresource::Apart {
            object::remove(object, &["status"]);
        }
    }

    fn prepare_update(&self, ctx: &WriteContext<'_>, new: &mut Value, old: &Value) {
        if self.is_status(ctx) {
            let status = new.get("status").cloned();
            let managed = object::get(new, &["metadata", "managedFields"]).cloned();
            new.clone_from(old);
            match managed {
                Some(managed) => object::set(new, &["metadata", "managedFields"], managed),
                None => drop(object::remove(new, &["metadata", "managedFields"])),
            }
            match status {
                Some(status) => object::set(new, &["status"], status),
                None => drop(object::remove(new, &["status"])),
            }
        } else if self.status == StatusSubresource::Apart {
            object::copy(old, new, &["status"]);
        }
    }

    fn validate(&self, _ctx: &WriteContext<'_>, object: &Value) -> ErrorList {
        let mistaken = self.type_errors(object);
        if !mistaken.is_empty() {
            return mistaken;
        }
        let scale = self
            .scale
            .as_ref()
            .map(|scale| scale.errors(object))
            .unwrap_or_default();
        let earlier = Earlier {
            metadata: &self.metadata_errors(object),
            scale: &scale,
        };
        self.schema.validate(object, None, earlier).errors
    }

    fn check_update(&self, ctx: &WriteContext<'_>, new: &Value, old: &Value, warnings: &mut Vec<String>) -> ErrorList {
        let mistaken = self.type_errors(new);
        if !mistaken.is_empty() {
            return mistaken;
        }
        let metadata = meta::update_errors(&new["metadata"], &old["metadata"], &Path::new("metadata"));
        let scale = self.scale.as_ref();
        let checked = if self.is_status(ctx) {
            let scale = scale.map(|scale| scale.status_errors(new)).unwrap_or_default();
            let earlier = Earlier {
                metadata: &metadata,
                scale: &scale,
            };
            self.schema.validate_status(new, old, earlier)
        } else {
            let scale = scale.map(|scale| scale.errors(new)).unwrap_or_default();
            let earlier = Earlier {
                metadata: &metadata,
                scale: &scale,
            };
            self.schema.validate(new, Some(old), earlier)
        };
        warnings.extend(checked.warnings);
        checked.errors
    }

    fn forbidden(&self, _object: &Value) -> Option<String> {
        let terminating = self.standing == Standing::Terminating;
        terminating.then(|| "create not allowed while custom resource definition is terminating".to_owned())
    }

    fn warnings(&self, _ctx: &WriteContext<'_>, new: &Value, old: Option<&Value>) -> Vec<String> {
        let finalizers = |object| super::check::strings(object, &["metadata", "finalizers"]);
        let known = old.map(finalizers).unwrap_or_default();
        let mut added = finalizers(new);
        added.retain(|finalizer| !known.contains(finalizer));
        added.sort_unstable();
        added.dedup();
        added.into_iter().flat_map(finalizer_warnings).collect()
    }

    fn name_errors(&self, name: &str, name_use: NameUse) -> Vec<String> {
        names::name_is_dns_subdomain(name, name_use)
    }

    fn selector_error(&self, label: &str) -> Option<String> {
        let known = label == "metadata.name"
            || (label == "metadata.namespace" && self.scope == Scope::Namespaced)
            || self.selectable.iter().any(|(own, _)| own == label);
        (!known).then(|| format!("field label not supported: {label}"))
    }

    fn unconditional_update(&self) -> bool {
        false
    }

    fn finalizer_rule(&self) -> FinalizerRule {
        FinalizerRule::Qualified
    }

    /// Every change but one of metadata, and of a status that is written apart.
    fn generation(&self, ctx: &WriteContext<'_>, new: &Value, old: Option<&Value>) -> Option<i64> {
        let Some(old) = old else { return Some(1) };
        let generation = object::int(old, &["metadata", "generation"]).unwrap_or(1);
        if self.is_status(ctx) {
            return Some(generation);
        }
        Some(if object::equal_without(&["metadata"], Some(new), Some(old)) {
            generation
        } else {
            generation + 1
        })
    }

    fn reset_fields(&self, subresource: &str) -> &'static [&'static [&'static str]] {
        match (subresource, self.status) {
            ("status", _) => &[&["metadata"], &["spec"]],
            (_, StatusSubresource::Apart) => &[&["status"]],
            (_, StatusSubresource::None) => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::rule;

    fn kinds(version: Value, conditions: Value) -> Vec<CustomKind> {
        let definition = json!({
            "spec": {"group": "x.io", "scope": "Namespaced",
                "names": {"kind": "Widget", "listKind": "WidgetList", "plural": "widgets", "singular": "widget"},
                "versions": [version, {"name": "v2", "served": true, "storage": true}]},
            "status": {"acceptedNames": {"kind": "Widget", "listKind": "WidgetList", "plural": "widgets",
                "singular": "widget", "shortNames": ["wd"]}, "conditions": conditions},
        });
        CustomKind::all(&definition, &mut |schema, _| {
            Arc::new(Compiled::new(schema, rule::compiler()))
        })
    }

    fn context(subresource: &str) -> WriteContext<'_> {
        WriteContext {
            now: jiff::Timestamp::UNIX_EPOCH,
            subresource,
            group: "x.io",
            version: "v1",
            user: super::super::User::default(),
        }
    }

    #[test]
    fn a_definition_says_what_its_versions_are() {
        let version = json!({"name": "v1beta1", "served": true, "deprecated": true, "subresources": {"status": {}},
            "selectableFields": [{"jsonPath": ".spec.size"}]});
        let all = kinds(version, json!([{"type": "Established", "status": "True"}]));
        let kind = &all[0];
        assert_eq!(kind.storage_version, "v2");
        assert_eq!(kind.standing, Standing::Established);
        assert_eq!(kind.short_names, ["wd"]);
        assert_eq!(
            kind.deprecation.as_deref(),
            Some("x.io/v1beta1 Widget is deprecated; use x.io/v2 Widget")
        );
        let widget = json!({"metadata": {"name": "a"}, "spec": {"size": 3}});
        assert_eq!(kind.selectable_fields(&widget), [("spec.size", "3".to_owned())]);
        assert_eq!(kind.selector_error("spec.size"), None);
        assert!(kind.selector_error("spec.colour").is_some());
    }

    #[test]
    fn status_that_is_written_apart_does_not_count_a_generation() {
        let apart = kinds(
            json!({"name": "v1", "served": true, "subresources": {"status": {}}}),
            json!([]),
        )
        .remove(0);
        let old = json!({"metadata": {"name": "a", "generation": 4, "labels": {"l": "1"}}, "spec": 1, "status": 1});
        let mut new = json!({"metadata": {"name": "a", "labels": {"l": "2"}}, "spec": 2, "status": 2});
        apart.prepare_update(&context("status"), &mut new, &old);
        assert_eq!((&new["spec"], &new["status"]), (&json!(1), &json!(2)));
        assert_eq!(new["metadata"]["labels"]["l"], "1");
        assert_eq!(apart.generation(&context("status"), &new, Some(&old)), Some(4));
        let mut new = json!({"metadata": {"name": "a"}, "spec": 2, "status": 2});
        apart.prepare_update(&context(""), &mut new, &old);
        assert_eq!(new["status"], 1);
        assert_eq!(apart.generation(&context(""), &new, Some(&old)), Some(5));
        let whole = kinds(json!({"name": "v1", "served": true}), json!([])).remove(0);
        let mut new = json!({"metadata": {"name": "a"}, "spec": 1, "status": 2});
        whole.prepare_update(&context(""), &mut new, &old);
        assert_eq!(whole.generation(&context(""), &new, Some(&old)), Some(5));
        assert_eq!(whole.generation(&context(""), &new, None), Some(1));
    }

    #[test]
    fn versions_are_ordered_as_upstream_orders_them() {
        let mut versions = [
            "v1",
            "foo10",
            "v10",
            "v2beta1",
            "v11alpha2",
            "v3beta1",
            "v12alpha1",
            "foo1",
            "v2",
        ];
        versions.sort_by(|a, b| compare_versions(b, a));
        assert_eq!(
            versions,
            [
                "v10",
                "v2",
                "v1",
                "v3beta1",
                "v2beta1",
                "v12alpha1",
                "v11alpha2",
                "foo1",
                "foo10"
            ]
        );
    }

    #[test]
    fn finalizers_without_a_domain_are_warned_of_once() {
        let kind = kinds(json!({"name": "v1", "served": true}), json!([])).remove(0);
        let with = |finalizers: &[&str]| json!({"metadata": {"finalizers": finalizers}});
        let warnings = kind.warnings(&context(""), &with(&["a", "a.b", "x.io/f", "orphan"]), None);
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        assert!(warnings[0].contains("\"a\": prefer a domain-qualified finalizer name to"));
        assert!(warnings[1].contains("\"a.b\": prefer a domain-qualified finalizer name including a path (/) to"));
        assert!(
            kind.warnings(&context(""), &with(&["a"]), Some(&with(&["a"])))
                .is_empty()
        );
    }
}
