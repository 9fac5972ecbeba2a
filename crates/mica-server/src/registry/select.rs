//! Which objects a list, watch or deletecollection is about, decided on stored bytes.

use std::sync::Arc;

use mica_api::PlaneId;
use mica_machinery::select::{FieldSelector, LabelSelector, RawMeta};
use mica_store::Key;

use super::Extent;
use crate::custom::everywhere::Everywhere;
use crate::error::ApiError;
use crate::options::ListOptions;
use crate::scheme::Served;
use crate::stored::Stored;
use crate::tenancy::Within;

/// A label selector and a field selector, compiled once.
pub struct Selection {
    labels: LabelSelector,
    fields: FieldSelector,
    /// Whether a term asks for one of the kind's own fields, which takes the parsed object.
    own_fields: bool,
    served: Arc<Served>,
    reach: Reach,
}

/// Which keys of the range that is read are meant at all.
enum Reach {
    Every,
    /// Those of planes other than root, in this namespace if one is named.
    AllPlanes {
        namespace: Option<String>,
    },
    /// Those of objects that lie within a view.
    View(Arc<Within>),
}

impl Selection {
    pub fn parse(served: &Arc<Served>, labels: &str, fields: &str) -> Result<Self, ApiError> {
        Self::checked(served, labels, fields, |field| served.strategy().selector_error(field))
    }

    /// What a request asks for in a view: only what lies within it.
    #[must_use]
    pub fn within(mut self, within: Option<&Arc<Within>>) -> Self {
        if let Some(within) = within {
            self.reach = Reach::View(within.clone());
        }
        self
    }

    /// What an index of the view leads to lies within it, and is not asked again.
    #[must_use]
    pub fn led_by_index(mut self) -> Self {
        self.reach = Reach::Every;
        self
    }

    /// The same where nobody says which fields objects have: by their names, whatever kind they are.
    fn parse_any(served: &Arc<Served>, labels: &str, fields: &str) -> Result<Self, ApiError> {
        Self::checked(served, labels, fields, |field| {
            (!is_meta(field)).then(|| format!("field label not supported: {field}"))
        })
    }

    fn checked(
        served: &Arc<Served>,
        labels: &str,
        fields: &str,
        problem: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, ApiError> {
        let labels = LabelSelector::parse(labels).map_err(|error| ApiError::bad_request(error.to_string()))?;
        let fields = FieldSelector::parse(fields).map_err(|error| ApiError::bad_request(error.to_string()))?;
        if let Some(problem) = fields.terms().iter().find_map(|term| problem(&term.field)) {
            return Err(ApiError::bad_request(problem));
        }
        let own_fields = fields.terms().iter().any(|term| !is_meta(&term.field));
        Ok(Self {
            labels,
            fields,
            own_fields,
            served: served.clone(),
            reach: Reach::Every,
        })
    }

    /// What a read over all planes asks for: root is left out, and so is every namespace but the one named.
    pub fn over_all_planes(
        served: &Arc<Served>,
        everywhere: Option<&Arc<Everywhere>>,
        namespace: Option<&str>,
        options: &ListOptions,
    ) -> Result<Self, ApiError> {
        // Which fields there are is not for one tenant to say of all.
        let by_tenants = everywhere.is_some_and(|everywhere| everywhere.platform().is_none());
        let parse = if by_tenants { Self::parse_any } else { Self::parse };
        let mut selection = parse(served, &options.label_selector, &options.field_selector)?;
        selection.reach = Reach::AllPlanes {
            namespace: namespace.map(ToOwned::to_owned),
        };
        Ok(selection)
    }

    pub fn is_everything(&self) -> bool {
        matches!(self.reach, Reach::Every) && self.labels.is_everything() && self.fields.is_everything()
    }

    /// The smallest part of the collection that holds everything that can match.
    pub fn extent(&self, served: &Served, namespace: Option<&str>) -> Extent {
        let namespace = if served.namespaced() {
            namespace.or_else(|| self.namespace())
        } else {
            None
        };
        let namespace = namespace.map(ToOwned::to_owned);
        let own = match &self.reach {
            Reach::View(within) => within.name(),
            _ => None,
        };
        match (own.or(self.name()), namespace) {
            (Some(name), namespace) if namespace.is_some() == served.namespaced() => Extent::Object {
                namespace,
                name: name.to_owned(),
            },
            (_, Some(namespace)) => Extent::Namespace(namespace),
            (_, None) => Extent::Resource,
        }
    }

    /// The one namespace that can match, if the fields name one.
    fn namespace(&self) -> Option<&str> {
        self.fields
            .exact("metadata.namespace")
            .filter(|namespace| is_segment(namespace))
    }

    /// The one name that can match, if the fields name one.
    fn name(&self) -> Option<&str> {
        self.fields.exact("metadata.name").filter(|name| is_segment(name))
    }

    pub fn matches(&self, key: &Key, stored: &Stored) -> Result<bool, ApiError> {
        if self.is_everything() {
            return Ok(true);
        }
        if let Reach::AllPlanes { namespace } = &self.reach {
            let named = namespace.as_deref();
            if key.plane() == PlaneId::ROOT || named.is_some_and(|named| key.namespace() != Some(named)) {
                return Ok(false);
            }
        }
        if let Reach::View(within) = &self.reach
            && !within.holds(key, stored)
        {
            return Ok(false);
        }
        let damaged = |error: mica_store::store::BoxError| ApiError::internal("stored data is damaged").because(error);
        let own: Vec<(String, String)> = if self.own_fields {
            let value: serde_json::Value =
                serde_json::from_slice(stored.json()).map_err(|error| damaged(error.into()))?;
            let own = self.served.selectable(&value).into_iter();
            own.map(|(label, value)| (label.to_owned(), value)).collect()
        } else {
            Vec::new()
        };
        let field = |name: &str| match name {
            "metadata.name" => key.name().to_owned(),
            "metadata.namespace" => key.namespace().unwrap_or_default().to_owned(),
            _ => own
                .iter()
                .find(|(label, _)| *label == name)
                .map(|(_, value)| value.clone())
                .unwrap_or_default(),
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

/// Whether a text can be a part of a key: no object has another name.
fn is_segment(text: &str) -> bool {
    !text.is_empty() && !text.contains('/')
}

fn is_meta(field: &str) -> bool {
    matches!(field, "metadata.name" | "metadata.namespace")
}
