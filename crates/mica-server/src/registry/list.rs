//! Lists: which revision, which objects, which page.

use std::sync::Arc;

use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use base64::{DecodeError, Engine};
use http::StatusCode;
use mica_store::{Key, Revision};
use serde::{Deserialize, Serialize};

use super::{Registry, Scan, Selection};
use crate::authz::{Grant, Permit};
use crate::error::ApiError;
use crate::options::{ListOptions, Match, parse_version};
use crate::plane::Plane;
use crate::scheme::Served;
use crate::stored::Stored;

/// Upstream's sentence for a page whose snapshot is gone.
const CONTINUE_EXPIRED: &str = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";

/// A list under way: an ordered walk, filtered.
pub struct Listing {
    scan: Scan,
    selection: Selection,
    pub revision: Revision,
    pub limit: u64,
    /// What remained after the page before, if that page counted.
    remaining_before: Option<u64>,
    continued: bool,
    tokens: Tokens,
}

/// How a continue token names the last key of its page.
#[derive(Clone, Copy)]
enum Tokens {
    /// As upstream does: namespace and name.
    Rests,
    /// Whole, where keys are of many planes.
    Keys,
}

/// One page of a list with a limit.
pub struct ListPage {
    pub items: Vec<(Key, Stored)>,
    /// Empty on the last page.
    pub continue_token: String,
    pub remaining: Option<u64>,
}

/// What a continue token says. The fields are upstream's, but for `rem`.
#[derive(Serialize, Deserialize)]
struct Token {
    v: String,
    rv: i64,
    start: String,
    /// How many objects remain after the page that this token ended, so that only the first page counts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rem: Option<u64>,
}

const TOKEN_VERSION: &str = "meta.k8s.io/v1";

/// What Go says of text that is no base64.
fn illegal(error: &DecodeError) -> String {
    let at = match error {
        DecodeError::InvalidByte(at, _) | DecodeError::InvalidLastSymbol(at, _) => *at,
        DecodeError::InvalidLength(length) => length.saturating_sub(1),
        DecodeError::InvalidPadding => 0,
    };
    format!("illegal base64 data at input byte {at}")
}

impl Token {
    fn encode(&self) -> String {
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).expect("a token is plain JSON"))
    }

    fn decode(text: &str) -> Result<Self, ApiError> {
        let bad = |what: String| invalid_token(&what);
        let bytes = URL_SAFE_NO_PAD
            .decode(text.trim_end_matches('='))
            .map_err(|error| bad(illegal(&error)))?;
        let token: Self = serde_json::from_slice(&bytes).map_err(|error| bad(error.to_string()))?;
        if token.v != TOKEN_VERSION {
            return Err(bad(format!(
                "server does not recognize this encoded version {}",
                mica_machinery::field::quote(&token.v)
            )));
        }
        if token.start.is_empty() || token.start.starts_with('/') || token.start.split('/').any(|part| part == "..") {
            return Err(bad(token.start));
        }
        if token.rv == 0 || token.rv < -1 {
            return Err(bad("incorrect encoded start resourceVersion".to_owned()));
        }
        Ok(token)
    }
}

impl Registry {
    /// Starts a list. The revision is settled and the first records are read when this returns.
    pub async fn list(&self, grant: &Grant, options: &ListOptions) -> Result<Listing, ApiError> {
        super::check_state(grant)?;
        let target = &grant.target;
        let (plane, served) = (&target.plane, &target.served);
        let selection = Selection::parse(served, &options.label_selector, &options.field_selector)?;
        let place = self.place(options, |rest| key_of(plane, served, rest)).await?;
        let extent = selection.extent(served, target.namespace.as_deref());
        let (at, after) = (place.at, place.after.clone());
        let scan = Scan::of_plane(self.clone(), plane.clone(), served.clone(), &extent, at, after);
        self.begin(scan, selection, place, options, Tokens::Rests).await
    }

    /// Starts a list over every plane but root. The permit says that the asker may.
    pub async fn list_all_planes(
        &self,
        _permit: &Permit,
        served: &Arc<Served>,
        namespace: Option<&str>,
        options: &ListOptions,
    ) -> Result<Listing, ApiError> {
        let selection = Selection::parse(served, &options.label_selector, &options.field_selector)?;
        let place = self.place(options, Key::from_stored).await?;
        let scan = Scan::of_all_planes(self.clone(), served.clone(), place.at, place.after.clone());
        self.begin(scan, selection.over_all_planes(namespace), place, options, Tokens::Keys)
            .await
    }

    async fn begin(
        &self,
        mut scan: Scan,
        selection: Selection,
        place: Place,
        options: &ListOptions,
        tokens: Tokens,
    ) -> Result<Listing, ApiError> {
        if options.limit > 0 && selection.is_everything() {
            scan = scan.expecting(usize::try_from(options.limit).unwrap_or(usize::MAX).saturating_add(1));
        }
        let revision = scan.revision().await.map_err(|error| match &place.token {
            Some(token) if error.code() == StatusCode::GONE => expired_token(token),
            _ => error,
        })?;
        Ok(Listing {
            scan,
            selection,
            revision,
            limit: options.limit,
            remaining_before: place.token.as_ref().and_then(|token| token.rem),
            continued: place.token.is_some(),
            tokens,
        })
    }

    async fn place(&self, options: &ListOptions, key: impl Fn(&str) -> Option<Key>) -> Result<Place, ApiError> {
        if !options.continue_token.is_empty() {
            let token = Token::decode(&options.continue_token)?;
            if !matches!(options.resource_version.as_str(), "" | "0") {
                return Err(ApiError::bad_request(
                    "specifying resource version is not allowed when using continue",
                ));
            }
            let at = u64::try_from(token.rv).ok().map(Revision);
            let after = key(token.start.trim_end_matches('\0')).ok_or_else(|| invalid_token(&token.start))?;
            return Ok(Place {
                at,
                after: Some(after),
                token: Some(token),
            });
        }
        let version = parse_version(&options.resource_version).map_err(|error| error.for_list())?;
        let exact = match options.version_match {
            Match::Exact => true,
            Match::NotOlderThan => false,
            // A page from a given version has always meant that very version.
            Match::Unset => options.limit > 0,
        };
        if let Some(revision) = version {
            self.check_reached(revision).await?;
        }
        Ok(Place {
            at: version.filter(|_| exact),
            after: None,
            token: None,
        })
    }

    /// Refuses a revision that does not exist yet.
    pub(super) async fn check_reached(&self, revision: Revision) -> Result<(), ApiError> {
        let status = self.store.status().await?;
        if revision > status.revision {
            return Err(ApiError::revision_too_large(revision.0, status.revision.0));
        }
        Ok(())
    }
}

/// Where a list begins.
struct Place {
    at: Option<Revision>,
    after: Option<Key>,
    token: Option<Token>,
}

fn key_of(plane: &Plane, served: &Served, rest: &str) -> Option<Key> {
    let (namespace, name) = match rest.split_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, rest),
    };
    let usable = !name.is_empty() && !name.contains('/');
    usable.then(|| plane.keys.object(&served.storage, namespace, name))
}

fn invalid_token(what: &str) -> ApiError {
    ApiError::bad_request(format!("invalid continue token: continue key is not valid: {what}"))
}

/// 410 with a token that goes on without the snapshot.
fn expired_token(token: &Token) -> ApiError {
    let fresh = Token {
        v: TOKEN_VERSION.to_owned(),
        rv: -1,
        start: token.start.clone(),
        rem: None,
    };
    ApiError::gone(CONTINUE_EXPIRED).with_continue(fresh.encode())
}

impl Listing {
    /// The next object that matches.
    pub async fn next(&mut self) -> Result<Option<(Key, Stored)>, ApiError> {
        while let Some((key, stored)) = self.scan.next().await? {
            if self.selection.matches(&key, &stored)? {
                return Ok(Some((key, stored)));
            }
        }
        Ok(None)
    }

    /// The page that the limit asks for.
    pub async fn page(mut self) -> Result<ListPage, ApiError> {
        let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
        let mut items: Vec<(Key, Stored)> = Vec::new();
        while items.len() < limit {
            match self.next().await? {
                Some(item) => items.push(item),
                None => {
                    return Ok(ListPage {
                        items,
                        continue_token: String::new(),
                        remaining: None,
                    });
                }
            }
        }
        // Whether anything follows does not depend on whether it matches: looking for a match could walk everything.
        if self.scan.next().await?.is_none() {
            return Ok(ListPage {
                items,
                continue_token: String::new(),
                remaining: None,
            });
        }
        let remaining = self.remaining(items.len() as u64).await?;
        let last = items.last().map_or("", |(key, _)| match self.tokens {
            Tokens::Rests => key.rest(),
            Tokens::Keys => key.as_str(),
        });
        let start = format!("{last}\0");
        let token = Token {
            v: TOKEN_VERSION.to_owned(),
            rv: i64::try_from(self.revision.0).unwrap_or(i64::MAX),
            start,
            rem: remaining,
        };
        Ok(ListPage {
            items,
            continue_token: token.encode(),
            remaining,
        })
    }

    /// How many objects follow this page; unknown under a selector. One was taken from the walk already.
    async fn remaining(&mut self, page: u64) -> Result<Option<u64>, ApiError> {
        if !self.selection.is_everything() {
            return Ok(None);
        }
        if self.continued {
            return Ok(self.remaining_before.map(|before| before.saturating_sub(page)));
        }
        let mut count = 1;
        while self.scan.next().await?.is_some() {
            count += 1;
        }
        Ok(Some(count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_round_trip_and_garbage_is_refused() {
        let token = Token {
            v: TOKEN_VERSION.to_owned(),
            rv: 12,
            start: "ns/a\0".to_owned(),
            rem: Some(3),
        };
        let back = Token::decode(&token.encode()).unwrap();
        assert_eq!((back.rv, back.start.as_str(), back.rem), (12, "ns/a\0", Some(3)));
        for bad in ["garbage", "", "e30", "!!!"] {
            let Err(error) = Token::decode(bad) else {
                panic!("{bad} is no token")
            };
            assert!(
                error
                    .message()
                    .starts_with("invalid continue token: continue key is not valid"),
                "{error}"
            );
        }
        let evil = Token {
            v: TOKEN_VERSION.to_owned(),
            rv: 1,
            start: "../../x".to_owned(),
            rem: None,
        };
        assert!(Token::decode(&evil.encode()).is_err());
    }
}
