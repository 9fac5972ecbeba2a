//! Lists: which revision, which objects, which page.

use std::sync::Arc;

use http::StatusCode;
use mica_store::{Key, Revision};

use super::token::{Token, invalid_start, is_clean};
use super::{Extent, Registry, Scan, Selection};
use crate::authz::{Grant, Permit};
use crate::custom::everywhere::Everywhere;
use crate::error::ApiError;
use crate::options::{ListOptions, Match, parse_version};
use crate::plane::{Plane, Since};
use crate::scheme::Served;
use crate::stored::Stored;
use crate::tenancy::Within;

/// Upstream's sentence for a page whose snapshot is gone.
const CONTINUE_EXPIRED: &str = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";

/// How much of a list that a webhook converts is held before any of it is sent.
const CONVERTED_AHEAD: usize = 16 << 20;

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
#[derive(Default)]
pub struct ListPage {
    pub items: Vec<(Key, Stored)>,
    /// Empty on the last page.
    pub continue_token: String,
    pub remaining: Option<u64>,
}

impl Registry {
    /// Starts a list. The revision is settled and the first records are read when this returns.
    pub async fn list(&self, grant: &Grant, options: &ListOptions) -> Result<Listing, ApiError> {
        super::check_state(grant)?;
        let target = &grant.target;
        let (plane, served) = (&target.plane, &target.served);
        let selection = Selection::parse(served, &options.label_selector, &options.field_selector)?;
        let selection = selection.within(target.within.as_ref());
        let place = self
            .place(options, |rest| key_of(plane, served, rest), Some(plane))
            .await?;
        let extent = selection.extent(served, target.namespace.as_deref());
        let (at, after) = (place.at, place.after.clone());
        let scan = Scan::of_plane(self.clone(), plane.clone(), served.clone(), &extent, at, after);
        let scan = scan.defined_by(target.definition.as_ref());
        let (scan, selection) = match target.within.as_deref().and_then(Within::relation) {
            // What names one object, or one namespace, has found its place already.
            Some((relation, whose)) if extent == Extent::Resource => {
                (scan.by_relation(relation, whose), selection.led_by_index())
            }
            _ => (scan, selection),
        };
        self.begin(scan, selection, place, options, Tokens::Rests).await
    }

    /// Starts a list over every plane but root. The permit says that the asker may; `everywhere` shows custom resources.
    pub async fn list_all_planes(
        &self,
        _permit: &Permit,
        served: &Arc<Served>,
        everywhere: Option<&Arc<Everywhere>>,
        namespace: Option<&str>,
        options: &ListOptions,
    ) -> Result<Listing, ApiError> {
        let selection = Selection::over_all_planes(served, everywhere, namespace, options)?;
        let place = self.place(options, Key::from_stored, None).await?;
        let scan = Scan::of_all_planes(self.clone(), served.clone(), place.at, place.after.clone());
        let scan = scan.shown_by(everywhere);
        self.begin(scan, selection, place, options, Tokens::Keys).await
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
        let revision = match (scan.revision().await, &place.token) {
            (Ok(revision), _) => revision,
            (Err(error), Some(token)) if error.code() == StatusCode::GONE => return Err(expired_token(token)),
            (Err(error), _) => {
                if let Some(at) = place.at {
                    self.check_reached(at).await?;
                }
                return Err(error);
            }
        };
        if options.limit == 0 && scan.converts() {
            // Upstream converts the whole list before it answers: as long as it is not too large, so do we, and a webhook
            // that fails is told by a Status. Beyond that the answer is cut off, which clients see too.
            scan.read_ahead(CONVERTED_AHEAD).await?;
        }
        Ok(Listing {
            scan,
            selection,
            revision,
            limit: options.limit,
            remaining_before: place.token.as_ref().and_then(|token| token.rem),
            // A token that lost its snapshot also lost its count.
            continued: place.token.as_ref().is_some_and(|token| token.rv > 0),
            tokens,
        })
    }

    async fn place(
        &self,
        options: &ListOptions,
        key: impl Fn(&str) -> Option<Key>,
        plane: Option<&Plane>,
    ) -> Result<Place, ApiError> {
        let since = |version| plane.map_or(Since::Here(version), |plane| plane.since(version));
        if !options.continue_token.is_empty() {
            let token = Token::decode(&options.continue_token)?;
            if !matches!(options.resource_version.as_str(), "" | "0") {
                return Err(ApiError::bad_request(
                    "specifying resource version is not allowed when using continue",
                ));
            }
            let at = match u64::try_from(token.rv).ok().map(|version| since(Revision(version))) {
                Some(Since::Here(at)) => Some(at),
                // A page of the server that the plane came from, of a state that only that server can show.
                Some(Since::There { .. } | Since::Unknown(_)) => return Err(expired_token(&token)),
                None => None,
            };
            let after = match token.place() {
                "" => None,
                place => Some(key(place).ok_or_else(|| invalid_start(&token.start))?),
            };
            return Ok(Place {
                at,
                after,
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
        let at = match version.map(|version| (version, since(version))) {
            Some((_, Since::Here(at))) => {
                self.check_reached(at).await?;
                Some(at)
            }
            // Whatever is here now is newer.
            Some(_) if !exact => None,
            Some((version, Since::There { until, .. } | Since::Unknown(until))) => {
                return Err(ApiError::gone(format!("too old resource version: {version} ({until})")));
            }
            None => None,
        };
        Ok(Place {
            at: at.filter(|_| exact),
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

/// The key at this place of a list, which need not be one that an object has.
fn key_of(plane: &Plane, served: &Served, rest: &str) -> Option<Key> {
    let text = is_clean(rest).then(|| format!("{}/{}/{rest}", plane.id, served.storage.as_key()))?;
    Key::from_stored(&text)
}

/// 410 with a token that goes on without the snapshot.
fn expired_token(token: &Token) -> ApiError {
    let fresh = Token::new(-1, token.start.clone(), None);
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

    /// The next object that matches, among those that have been read already.
    pub fn try_next(&mut self) -> Result<Option<(Key, Stored)>, ApiError> {
        while let Some((key, stored)) = self.scan.try_next() {
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
        if !self.scan.has_more().await? {
            return Ok(ListPage {
                items,
                continue_token: String::new(),
                remaining: None,
            });
        }
        let remaining = self.remaining(&items).await?;
        let last = items.last().map_or("", |(key, _)| match self.tokens {
            Tokens::Rests => key.rest(),
            Tokens::Keys => key.as_str(),
        });
        let start = format!("{last}\0");
        let revision = i64::try_from(self.revision.0).unwrap_or(i64::MAX);
        let token = Token::new(revision, start, remaining);
        Ok(ListPage {
            items,
            continue_token: token.encode(),
            remaining,
        })
    }

    /// How many objects follow this page; unknown under a selector.
    async fn remaining(&mut self, page: &[(Key, Stored)]) -> Result<Option<u64>, ApiError> {
        if !self.selection.is_everything() {
            return Ok(None);
        }
        if self.continued {
            return Ok(self
                .remaining_before
                .map(|before| before.saturating_sub(page.len() as u64)));
        }
        if let Some((last, _)) = page.last()
            && let Some(count) = self.scan.count_after(last).await?
        {
            return Ok(Some(count));
        }
        let mut count = 0;
        while self.scan.next().await?.is_some() {
            count += 1;
        }
        Ok(Some(count))
    }
}
