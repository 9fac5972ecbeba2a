//! Which objects a list, watch or deletecollection is about, decided on stored bytes.

use mica_machinery::kind::Strategy;
use mica_machinery::select::{FieldSelector, LabelSelector, RawMeta};
use mica_store::Key;

use crate::error::ApiError;
use crate::scheme::Served;
use crate::stored::Stored;

/// A label selector and a field selector, compiled once.
pub struct Selection {
    labels: LabelSelector,
    fields: FieldSelector,
    /// Whether a term asks for one of the kind's own fields, which takes the parsed object.
    own_fields: bool,
    strategy: &'static dyn Strategy,
}

impl Selection {
    pub fn parse(served: &Served, labels: &str, fields: &str) -> Result<Self, ApiError> {
        let labels = LabelSelector::parse(labels).map_err(|error| ApiError::bad_request(error.to_string()))?;
        let fields = FieldSelector::parse(fields).map_err(|error| ApiError::bad_request(error.to_string()))?;
        let strategy = served.strategy();
        for term in fields.terms() {
            if let Some(problem) = strategy.selector_error(&term.field) {
                return Err(ApiError::bad_request(problem));
            }
        }
        let own_fields = fields.terms().iter().any(|term| !is_meta(&term.field));
        Ok(Self { labels, fields, own_fields, strategy })
    }

    pub fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.fields.is_everything()
    }

    /// The one namespace that can match, if the fields name one.
    pub fn namespace(&self) -> Option<&str> {
        self.fields.exact("metadata.namespace").filter(|namespace| !namespace.is_empty())
    }

    /// The one name that can match, if the fields name one.
    pub fn name(&self) -> Option<&str> {
        self.fields.exact("metadata.name").filter(|name| !name.is_empty())
    }

    pub fn matches(&self, key: &Key, stored: &Stored) -> Result<bool, ApiError> {
        if self.is_everything() {
            return Ok(true);
        }
        let damaged = |error: mica_store::store::BoxError| ApiError::internal("stored data is damaged").because(error);
        let own = if self.own_fields {
            let value: serde_json::Value = serde_json::from_slice(stored.json()).map_err(|error| damaged(error.into()))?;
            self.strategy.selectable(&value)
        } else {
            Vec::new()
        };
        let field = |name: &str| match name {
            "metadata.name" => key.name().to_owned(),
            "metadata.namespace" => key.namespace().unwrap_or_default().to_owned(),
            _ => own.iter().find(|(label, _)| *label == name).map(|(_, value)| value.clone()).unwrap_or_default(),
        };
        if !self.fields.matches(field) {
            return Ok(false);
        }
        if self.labels.is_everything() {
            return Ok(true);
        }
        let meta = RawMeta::parse(stored.json()).map_err(|error| damaged(error.into()))?;
        Ok(self.labels.matches(&meta))
    }
}

fn is_meta(field: &str) -> bool {
    matches!(field, "metadata.name" | "metadata.namespace")
}
