//! PodTemplates.

use serde_json::Value;

use crate::field::{ErrorList, Path};
use crate::kind::check::{entries, is_set};
use crate::kind::column::{NAME, text};
use crate::kind::pod::{default_template, template_warnings, validate_template};
use crate::kind::{Column, NameUse, Strategy, WriteContext};
use crate::{names, object};

#[derive(Debug)]
pub struct PodTemplate;

impl Strategy for PodTemplate {
    fn default(&self, object: &mut Value) {
        default_template(object, &["template"]);
    }

    fn validate(&self, _ctx: &WriteContext<'_>, object: &Value) -> ErrorList {
        validate_template(object.get("template").unwrap_or(&Value::Null), &Path::new("template"))
    }

    fn validate_update(&self, ctx: &WriteContext<'_>, new: &Value, _old: &Value) -> ErrorList {
        self.validate(ctx, new)
    }

    fn warnings(&self, _ctx: &WriteContext<'_>, new: &Value, old: Option<&Value>) -> Vec<String> {
        let generation = |object: &Value| object::int(object, &["metadata", "generation"]);
        if old.is_some_and(|old| generation(old) == generation(new)) {
            return Vec::new();
        }
        let old = old.and_then(|old| old.get("template"));
        template_warnings(new.get("template"), old, &Path::new("template"))
    }

    fn name_errors(&self, name: &str, name_use: NameUse) -> Vec<String> {
        names::name_is_dns_subdomain(name, name_use)
    }

    fn columns(&self) -> &'static [Column] {
        const COLUMNS: &[Column] = &[
            NAME,
            text("Containers", "Names of each container in the template."),
            text("Images", "Images referenced by each container in the template."),
            text("Pod Labels", "The labels for the pod template."),
        ];
        COLUMNS
    }

    fn cells(&self, object: &Value, _now: jiff::Timestamp) -> Vec<Value> {
        let containers = object::list(object, &["template", "spec", "containers"]);
        let joined = |field| {
            let all: Vec<&str> = containers.iter().map(|one| object::string(one, &[field])).collect();
            Value::from(all.join(","))
        };
        let labels: Vec<String> = entries(object, &["template", "metadata", "labels"])
            .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
            .collect();
        let labels = if is_set(object, &["template", "metadata", "labels"]) {
            labels.join(",")
        } else {
            "<none>".to_owned()
        };
        vec![
            object::name(object).into(),
            joined("name"),
            joined("image"),
            labels.into(),
        ]
    }

    fn returns_deleted(&self) -> bool {
        true
    }

    fn generation_fields(&self) -> &'static [&'static str] {
        &["template"]
    }
}
