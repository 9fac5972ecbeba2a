//! Acting as somebody else: whom the headers ask for, and what must be allowed for it.

use http::HeaderMap;
use mica_machinery::field::quote;

use crate::authz::{Action, User};
use crate::error::ApiError;

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// The user that the headers ask to act as, if they do.
pub(super) fn asked(headers: &HeaderMap) -> Result<Option<User>, ApiError> {
    if !headers.keys().any(|name| name.as_str().starts_with("impersonate-")) {
        return Ok(None);
    }
    let texts = |name: &str| -> Vec<String> {
        headers
            .get_all(name)
            .iter()
            .filter_map(|value| value.to_str().ok().map(ToOwned::to_owned))
            .collect()
    };
    let first = |name: &str| texts(name).into_iter().next().unwrap_or_default();
    let mut user = User {
        name: first(USER),
        uid: first(UID),
        groups: texts(GROUP),
        ..User::default()
    };
    for name in headers.keys() {
        if let Some(key) = name.as_str().strip_prefix(EXTRA) {
            let key = percent_encoding::percent_decode_str(key)
                .decode_utf8_lossy()
                .into_owned();
            user.extra.push((key, texts(name.as_str())));
        }
    }
    user.extra.sort();
    if user.name.is_empty() {
        let asked = !user.uid.is_empty() || !user.groups.is_empty() || !user.extra.is_empty();
        return if asked {
            Err(ApiError::bad_request(format!(
                "requested {} without impersonating a user name",
                go_syntax(&user)
            )))
        } else {
            Ok(None)
        };
    }
    if let Some((namespace, _)) = account(&user.name)
        && user.groups.is_empty()
    {
        user.groups = vec![
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{namespace}"),
        ];
    }
    let added = if user.is_anonymous() {
        "system:unauthenticated"
    } else {
        "system:authenticated"
    };
    if !user.groups.iter().any(|group| group == added) {
        user.groups.push(added.to_owned());
    }
    Ok(Some(user))
}

/// The user as Go prints it in upstream's message.
fn go_syntax(user: &User) -> String {
    let list = |values: &[String]| match values {
        [] => "[]string(nil)".to_owned(),
        values => format!(
            "[]string{{{}}}",
            values.iter().map(|value| quote(value)).collect::<Vec<_>>().join(", ")
        ),
    };
    let extra = match &user.extra[..] {
        [] => "map[string][]string(nil)".to_owned(),
        extra => {
            let entries: Vec<String> = extra
                .iter()
                .map(|(key, values)| format!("{}:{}", quote(key), list(values)))
                .collect();
            format!("map[string][]string{{{}}}", entries.join(", "))
        }
    };
    format!(
        "&user.DefaultInfo{{Name:{}, UID:{}, Groups:{}, Extra:{extra}}}",
        quote(&user.name),
        quote(&user.uid),
        list(&user.groups)
    )
}

/// The namespace and name of a service account that a user is.
fn account(user: &str) -> Option<(&str, &str)> {
    user.strip_prefix(SERVICE_ACCOUNT)?.split_once(':')
}

/// What somebody must be allowed to act as a user, in the order in which upstream asks.
pub(super) fn actions(user: &User) -> Vec<Action<'_>> {
    const AUTHENTICATION: &str = "authentication.k8s.io";
    let base = Action {
        verb: "impersonate",
        ..Action::default()
    };
    let mut actions = vec![match account(&user.name) {
        Some((namespace, name)) => Action {
            resource: "serviceaccounts",
            namespace,
            name,
            ..base
        },
        None => Action {
            resource: "users",
            name: &user.name,
            ..base
        },
    }];
    // Those that are added to everybody need no permission.
    let added = |group: &str| match account(&user.name) {
        Some((namespace, _)) => {
            group == "system:serviceaccounts" || group.strip_prefix("system:serviceaccounts:") == Some(namespace)
        }
        None => false,
    };
    let groups = user.groups.iter().map(String::as_str);
    let groups = groups.filter(|group| !matches!(*group, "system:authenticated" | "system:unauthenticated"));
    actions.extend(groups.filter(|group| !added(group)).map(|name| Action {
        resource: "groups",
        name,
        ..base
    }));
    for (key, values) in &user.extra {
        actions.extend(values.iter().map(|name| Action {
            group: AUTHENTICATION,
            resource: "userextras",
            subresource: key,
            name,
            ..base
        }));
    }
    if !user.uid.is_empty() {
        actions.push(Action {
            group: AUTHENTICATION,
            resource: "uids",
            name: &user.uid,
            ..base
        });
    }
    actions
}
