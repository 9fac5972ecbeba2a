//! Which objects a list or watch shows, whatever their kinds.

use mica_machinery::select::{FieldOperator, FieldSelector, FieldTerm, LabelSelector, RawMeta};
use mica_store::Key;

use super::What;
use super::cut::{API_VERSION_ANNOTATION, KIND_ANNOTATION, RESOURCE_ANNOTATION};
use crate::error::ApiError;
use crate::stored::Stored;
use crate::wildcard::PLANE_ID_ANNOTATION;

const NAME: &str = "metadata.name";
const NAMESPACE: &str = "metadata.namespace";
/// Equal if any of the owners has the uid.
const OWNER: &str = "metadata.ownerReferences.uid";
const FIELDS: [&str; 7] = [
    NAME,
    NAMESPACE,
    OWNER,
    PLANE_ID_ANNOTATION,
    API_VERSION_ANNOTATION,
    KIND_ANNOTATION,
    RESOURCE_ANNOTATION,
];

/// Selectors over metadata and kind.
pub struct Filter {
    labels: LabelSelector,
    fields: FieldSelector,
}

impl Filter {
    pub fn parse(labels: &str, fields: &str) -> Result<Self, ApiError> {
        let labels = LabelSelector::parse(labels).map_err(|error| ApiError::bad_request(error.to_string()))?;
        let fields = FieldSelector::parse(fields).map_err(|error| ApiError::bad_request(error.to_string()))?;
        if let Some(term) = fields
            .terms()
            .iter()
            .find(|term| !FIELDS.contains(&term.field.as_str()))
        {
            return Err(ApiError::bad_request(format!(
                "field label not supported: {}",
                term.field
            )));
        }
        Ok(Self { labels, fields })
    }

    /// The one plane that can match, if the fields name one.
    pub fn plane(&self) -> Option<&str> {
        self.fields.exact(PLANE_ID_ANNOTATION)
    }

    /// The owner that all matches have, if the fields name one.
    pub fn owner(&self) -> Option<&str> {
        self.fields.exact(OWNER)
    }

    /// Whether an event about a whole plane concerns whoever asked: objects' names and labels do not count.
    pub fn shows_plane(&self, id: &str) -> bool {
        self.fields
            .terms()
            .iter()
            .filter(|term| term.field == PLANE_ID_ANNOTATION)
            .all(|term| agrees(term, id == term.value))
    }

    pub fn matches(&self, key: &Key, kind: &What, stored: &Stored) -> Result<bool, ApiError> {
        let by_place = |term: &FieldTerm| {
            let value = match term.field.as_str() {
                NAME => key.name(),
                NAMESPACE => key.namespace().unwrap_or_default(),
                API_VERSION_ANNOTATION => kind.api_version(),
                KIND_ANNOTATION => kind.kind(),
                RESOURCE_ANNOTATION => kind.plural(),
                PLANE_ID_ANNOTATION => return agrees(term, key.plane().as_str() == term.value),
                _ => return true,
            };
            agrees(term, value == term.value)
        };
        let terms = self.fields.terms();
        if !terms.iter().all(by_place) {
            return Ok(false);
        }
        let owners = terms.iter().any(|term| term.field == OWNER);
        if self.labels.is_everything() && !owners {
            return Ok(true);
        }
        let meta = RawMeta::parse(stored.json())
            .map_err(|error| ApiError::internal("stored data is damaged").because(error))?;
        let by_owner = |term: &FieldTerm| {
            term.field != OWNER || agrees(term, meta.owners.iter().any(|owner| owner.uid == term.value.as_str()))
        };
        Ok(terms.iter().all(by_owner) && self.labels.matches(&meta))
    }
}

fn agrees(term: &FieldTerm, equal: bool) -> bool {
    equal == (term.operator == FieldOperator::Equals)
}
