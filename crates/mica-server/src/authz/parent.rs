//! Whose a plane is, and that it is said to whoever decides about its requests.
//!
//! A plane's parent (its project, say) is stored on its Plane in root, where only the platform writes. Users carry it as
//! extras in that plane, so that webhooks, policies and audit see it. What a client claims under these names, by acting as
//! another or by a token, is taken out: only [`carried`] puts anything there.

use std::sync::Arc;

use mica_machinery::field::{Error, ErrorList, Path};
use mica_machinery::{names, object};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Place, Realm, User};

/// Extras whose names begin like this are ours.
const RESERVED: &str = "mica.dev/";
/// In which plane something is done.
pub const PLANE: &str = "mica.dev/plane";
const REALM: &str = "mica.dev/realm";
const GROUP: &str = "iam.miloapis.com/parent-api-group";
const TYPE: &str = "iam.miloapis.com/parent-type";
const NAME: &str = "iam.miloapis.com/parent-name";

/// What a plane belongs to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Parent {
    #[serde(default)]
    pub api_group: String,
    pub kind: String,
    pub name: String,
}

impl Parent {
    /// The parent that a Plane states.
    pub fn of(plane: &Value) -> Option<Self> {
        object::map(plane, &["spec", "parent"])?;
        let text = |field: &str| object::string(plane, &["spec", "parent", field]).to_owned();
        Some(Self {
            api_group: text("apiGroup"),
            kind: text("kind"),
            name: text("name"),
        })
    }

    /// The parent that a user carries: what [`carried`] put there, because what clients claim is taken out before.
    pub fn carried_by(user: &User) -> Option<Self> {
        let text = |key: &str| {
            let (_, values) = user.extra.iter().find(|(name, _)| name == key)?;
            values.first().cloned()
        };
        Some(Self {
            api_group: text(GROUP).unwrap_or_default(),
            kind: text(TYPE)?,
            name: text(NAME)?,
        })
    }

    fn extras(&self) -> [(String, Vec<String>); 3] {
        [(GROUP, &self.api_group), (NAME, &self.name), (TYPE, &self.kind)]
            .map(|(key, value)| (key.to_owned(), vec![value.clone()]))
    }
}

/// What is wrong with a stated parent.
pub fn validate(plane: &Value, path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    let Some(parent) = Parent::of(plane) else {
        return errors;
    };
    if parent.kind.is_empty() {
        errors.push(Error::required(&path.child("kind"), ""));
    }
    if parent.name.is_empty() {
        errors.push(Error::required(&path.child("name"), ""));
    }
    if !parent.api_group.is_empty() {
        let problems = names::dns1123_subdomain(&parent.api_group).into_iter();
        errors.extend(
            problems.map(|problem| Error::invalid(&path.child("apiGroup"), parent.api_group.as_str(), problem)),
        );
    }
    errors
}

fn is_reserved(key: &str) -> bool {
    key.starts_with(RESERVED) || [GROUP, TYPE, NAME].contains(&key)
}

/// The extras that a client may claim.
pub fn claimed(extra: Vec<(String, Vec<String>)>) -> Vec<(String, Vec<String>)> {
    extra.into_iter().filter(|(key, _)| !is_reserved(key)).collect()
}

/// A user as it counts in a plane: without what it claims to know of parents, and with what is stored.
pub fn carried(user: Arc<User>, parent: Option<&Parent>) -> Arc<User> {
    if parent.is_none() && !user.extra.iter().any(|(key, _)| is_reserved(key)) {
        return user;
    }
    let mut user = Arc::unwrap_or_clone(user);
    user.extra = claimed(user.extra);
    user.extra.extend(parent.into_iter().flat_map(Parent::extras));
    user.extra.sort();
    Arc::new(user)
}

/// The extras of a user as webhooks of the platform are told: with the plane, and whether the user is the plane's own.
pub(super) fn shown(user: &User, place: Place<'_>) -> Vec<(String, Vec<String>)> {
    let mut extra = user.extra.clone();
    let mut put = |key: &str, value: &str| extra.push((key.to_owned(), vec![value.to_owned()]));
    match place {
        Place::Plane(plane) if plane.is_root() => {}
        Place::Plane(plane) => put(PLANE, &plane.name),
        Place::Everywhere => put(PLANE, "*"),
    }
    if user.realm != Realm::Platform {
        put(REALM, "plane");
    }
    extra
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(extra: &[(&str, &str)]) -> Arc<User> {
        let extra = extra
            .iter()
            .map(|(key, value)| ((*key).to_owned(), vec![(*value).to_owned()]));
        Arc::new(User {
            extra: extra.collect(),
            ..User::default()
        })
    }

    #[test]
    fn only_what_is_stored_is_believed_of_a_parent() {
        let claims = [(NAME, "theirs"), ("mica.dev/plane", "other"), ("scopes", "x")];
        assert_eq!(carried(user(&claims), None).extra, user(&[("scopes", "x")]).extra);
        let parent = Parent {
            api_group: "resourcemanager.miloapis.com".to_owned(),
            kind: "Project".to_owned(),
            name: "ours".to_owned(),
        };
        let carried = carried(user(&claims), Some(&parent));
        let expected = [
            (GROUP, "resourcemanager.miloapis.com"),
            (NAME, "ours"),
            (TYPE, "Project"),
            ("scopes", "x"),
        ];
        assert_eq!(carried.extra, user(&expected).extra);
    }
}
