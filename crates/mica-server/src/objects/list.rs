//! Lists of objects: pages, or a stream of everything.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use futures::stream;
use http::{Response, StatusCode};
use mica_store::{Key, Revision};
use serde::{Deserialize, Serialize};

use super::table::{Columns, list_metadata};
use super::walk::{Found, Walk};
use super::{Asked, Describer};
use crate::error::ApiError;
use crate::http::Body;
use crate::options::{ListOptions, ListUse, Match, parse_version};
use crate::plane::Plane;
use crate::serve::{Call, respond};

/// How much of a list is gathered before it is handed to the connection.
const CHUNK: usize = 128 * 1024;

/// Where a page ended, and at which revision; at revision 0 the newest state goes on.
#[derive(Serialize, Deserialize)]
struct Token {
    rv: u64,
    after: String,
}

impl Token {
    fn encode(&self) -> String {
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).expect("a token is plain JSON"))
    }

    fn decode(text: &str) -> Result<(Self, Key), ApiError> {
        let bad = || ApiError::bad_request("invalid continue token: continue key is not valid");
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| bad())?;
        let token: Self = serde_json::from_slice(&bytes).map_err(|_| bad())?;
        let after = Key::from_stored(&token.after).ok_or_else(bad)?;
        Ok((token, after))
    }
}

pub(super) async fn list(call: &Call<'_>, plane: Option<&Plane>) -> Result<Response<Body>, ApiError> {
    let options = ListOptions::read(&call.query, ListUse::List)?;
    let asked = Asked::read(plane, &options)?;
    let version = parse_version(&options.resource_version).map_err(|error| error.for_list())?;
    let store = call.server.store.clone();
    if let Some(version) = version {
        let newest = store.status().await?.revision;
        if version > newest {
            return Err(ApiError::revision_too_large(version.0, newest.0));
        }
    }
    let exact = options.version_match == Match::Exact || (options.version_match == Match::Unset && options.limit > 0);
    let (at, after) = match options.continue_token.as_str() {
        "" => (version.filter(|_| exact), None),
        _ if version.is_some() => {
            return Err(ApiError::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        token => {
            let (token, after) = Token::decode(token)?;
            (Some(Revision(token.rv)).filter(|at| at.0 > 0), Some(after))
        }
    };
    let mut walk = Walk::new(store, &asked, at, after.clone());
    let revision = walk.revision().await?;
    let describer = Describer::new(call, asked.scope)?;
    let listing = Listing {
        walk,
        asked,
        describer,
        out: Vec::new(),
        first: true,
        finished: false,
    };
    let body = if options.limit > 0 {
        listing
            .page(usize::try_from(options.limit).unwrap_or(usize::MAX), revision)
            .await
            .map_err(|error| {
                // The state that the token is of is gone; the newest one can be read on from the same place.
                let gone = error.code() == StatusCode::GONE;
                match after.filter(|_| gone) {
                    Some(after) => error.with_continue(
                        Token {
                            rv: 0,
                            after: after.as_str().to_owned(),
                        }
                        .encode(),
                    ),
                    None => error,
                }
            })?
    } else {
        listing.streamed(revision).await?
    };
    Ok(respond(StatusCode::OK, "application/json", body))
}

/// The beginning of a list: everything up to its first item. An empty token is none.
fn head(describer: &Describer, revision: Revision, token: &str) -> Vec<u8> {
    let metadata = list_metadata(revision, token);
    if let Some(table) = &describer.table {
        return table.head(&metadata, Columns::Defined);
    }
    let api_version = describer.form.api_version();
    format!(r#"{{"kind":"PartialObjectMetadataList","apiVersion":"{api_version}","metadata":{metadata},"items":["#)
        .into_bytes()
}

struct Listing {
    walk: Walk,
    asked: Asked,
    describer: Describer,
    out: Vec<u8>,
    first: bool,
    finished: bool,
}

impl Listing {
    /// Appends the next object that matches, and says where it was.
    async fn next(&mut self) -> Result<Option<Key>, ApiError> {
        while let Some(Found { cursor, key, stored }) = self.walk.next().await? {
            let Some(kind) = self.describer.kind(&key, &stored) else {
                continue;
            };
            if !self.asked.filter.matches(&key, &kind, &stored)? {
                continue;
            }
            if !std::mem::take(&mut self.first) {
                self.out.push(b',');
            }
            self.describer.write(&key, &kind, &stored, &mut self.out).await?;
            return Ok(Some(cursor));
        }
        Ok(None)
    }

    /// At most so many objects, with a token if there may be more.
    async fn page(mut self, limit: usize, revision: Revision) -> Result<Body, ApiError> {
        let mut last = None;
        for _ in 0..limit {
            last = self.next().await?;
            if last.is_none() {
                break;
            }
        }
        // Whether anything follows does not depend on whether it matches: looking for a match could walk everything.
        let token = match last {
            Some(last) if self.walk.next().await?.is_some() => Token {
                rv: revision.0,
                after: last.as_str().to_owned(),
            }
            .encode(),
            _ => String::new(),
        };
        let mut whole = head(&self.describer, revision, &token);
        whole.extend_from_slice(&self.out);
        whole.extend_from_slice(b"]}\n");
        Ok(Body::full(whole))
    }

    /// Everything, sent while it is read. The first chunk is made before the response begins, so that what fails at once is
    /// still answered with a Status.
    async fn streamed(mut self, revision: Revision) -> Result<Body, ApiError> {
        self.out = head(&self.describer, revision, "");
        let first = self.chunk().await?;
        if self.finished {
            return Ok(Body::full(first));
        }
        let rest = stream::unfold(Some(self), |listing| async move {
            let mut listing = listing.filter(|listing| !listing.finished)?;
            match listing.chunk().await {
                Ok(chunk) => Some((Ok(chunk), Some(listing))),
                Err(error) => Some((Err(error), None)),
            }
        });
        let first = stream::once(std::future::ready(Ok::<_, ApiError>(first)));
        Ok(Body::try_stream(futures::StreamExt::chain(first, rest)))
    }

    async fn chunk(&mut self) -> Result<Bytes, ApiError> {
        while self.out.len() < CHUNK {
            if self.next().await?.is_none() {
                self.out.extend_from_slice(b"]}\n");
                self.finished = true;
                break;
            }
        }
        Ok(std::mem::take(&mut self.out).into())
    }
}
