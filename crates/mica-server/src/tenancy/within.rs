//! What lies within a view: decided on what is stored, never on what a request says.

use mica_api::tenancy::ORGANIZATION_LABEL;
use mica_machinery::{object, select};
use mica_store::Key;
use serde_json::Value;

use super::index::Relation;
use crate::error::ApiError;
use crate::scheme::Served;
use crate::stored::Stored;

const OWNER: &[&str] = &["spec", "ownerRef", "name"];
const LABEL: &[&str] = &["metadata", "labels", ORGANIZATION_LABEL];
const USER: &[&str] = &["spec", "userRef", "name"];

/// What an object must be to lie within a view.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Within {
    /// The one of this name.
    Named(String),
    /// One that holds a text at a path.
    Holding {
        path: &'static [&'static str],
        value: String,
        /// The index that finds these without reading others, if there is one.
        index: Option<Relation>,
    },
}

impl Within {
    /// Projects of an organization.
    pub(super) fn owned_by(organization: &str) -> Self {
        Self::Holding {
            path: OWNER,
            value: organization.to_owned(),
            index: Some(Relation::OrganizationProjects),
        }
    }

    /// Whatever else belongs to an organization and is in no namespace.
    pub(super) fn labelled(organization: &str) -> Self {
        Self::Holding {
            path: LABEL,
            value: organization.to_owned(),
            index: None,
        }
    }

    /// What is about a user.
    pub(super) fn about(user: &str, index: Option<Relation>) -> Self {
        Self::Holding {
            path: USER,
            value: user.to_owned(),
            index,
        }
    }

    pub(crate) fn holds(&self, key: &Key, stored: &Stored) -> bool {
        match self {
            Self::Named(name) => key.name() == name,
            Self::Holding { path, value, .. } => {
                select::text_at(stored.json(), path).is_some_and(|text| text == *value)
            }
        }
    }

    /// The one name that everything within has, if it has one.
    pub(crate) fn name(&self) -> Option<&str> {
        match self {
            Self::Named(name) => Some(name),
            Self::Holding { .. } => None,
        }
    }

    /// The relation, and whose, by which everything within can be found.
    pub(crate) fn relation(&self) -> Option<(Relation, &str)> {
        match self {
            Self::Holding {
                value,
                index: Some(index),
                ..
            } => Some((*index, value)),
            _ => None,
        }
    }

    /// Gives a new object what makes it belong here, where that is the server's to give.
    pub(crate) fn give(&self, object: &mut Value) {
        if let Self::Holding { path, value, .. } = self
            && *path == LABEL
        {
            object::set(object, path, value.as_str());
        }
    }

    /// Refuses to store what would lie outside.
    pub(crate) fn check(&self, served: &Served, object: &Value) -> Result<(), ApiError> {
        let good = match self {
            Self::Named(name) => object::name(object) == name,
            Self::Holding { path, value, .. } => object::string(object, path) == value,
        };
        if good {
            return Ok(());
        }
        let why = match self {
            Self::Named(_) => "it is not this view's to make".to_owned(),
            Self::Holding { path, value, .. } => format!("{} must be {value:?} in this view", path.join(".")),
        };
        Err(ApiError::forbidden(&served.name, object::name(object), &why))
    }
}
