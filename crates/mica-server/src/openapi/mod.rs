//! `/openapi/v3` and `/openapi/v2`: documents of what is served, in JSON and protobuf.
//!
//! A plane's documents are those of the built-in kinds, which exist once, and those of its definitions, which planes with the
//! same definitions share. Addresses in the index stay inside the prefix that the client came by. They carry the document's
//! hash, so that what was once read under such an address is good for ever.

mod build;
mod custom;
mod describe;
mod document;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, EXPIRES, HeaderValue, IF_NONE_MATCH, LOCATION, VARY};
use http::{Response, StatusCode};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};
use mica_machinery::kind::Profile;
use serde_json::{Map, Value, json};

use self::build::Described;
use self::custom::CustomDocuments;
#[cfg(test)]
use self::custom::NoDefinitions;
pub use self::custom::Source;
use self::document::{Added, Document, Documents, Swagger};
use crate::error::ApiError;
use crate::http::Body;
use crate::plane::Plane;
use crate::scheme::Schemes;
use crate::serve::Call;
use crate::tenancy::{View, Viewer};

/// The documents of all schemes.
pub struct OpenApi {
    schemes: Arc<Schemes>,
    /// Of root, of the planes of each profile, and of views.
    described: [OnceLock<Described>; 1 + Profile::ALL.len() + Viewer::ALL.len()],
    custom: CustomDocuments,
}

impl OpenApi {
    pub fn new(schemes: Arc<Schemes>) -> Self {
        Self {
            schemes,
            described: Default::default(),
            custom: CustomDocuments::default(),
        }
    }

    fn described(&self, whose: Whose) -> &Described {
        let (at, scheme) = match whose {
            Whose::Root => (0, self.schemes.root()),
            Whose::Planes(profile) => (1 + profile as usize, self.schemes.planes(profile)),
            Whose::View(viewer) => (1 + Profile::ALL.len() + viewer as usize, self.schemes.view(viewer)),
        };
        self.described[at].get_or_init(|| Described::new(scheme.iter().filter_map(|served| served.row()).collect()))
    }

    /// Answers a request below `/openapi` in a plane with these definitions. The methods are not looked at, as upstream does
    /// not.
    pub(crate) async fn answer(
        &self,
        call: &Call<'_>,
        plane: Option<&Plane>,
        definitions: &dyn Source,
        rest: &[&str],
    ) -> Result<Response<Body>, ApiError> {
        let whose = match plane {
            Some(plane) if plane.is_root() => {
                View::of(&call.located.address).map_or(Whose::Root, |view| Whose::View(view.viewer))
            }
            Some(plane) => Whose::Planes(plane.profile),
            // Over all planes there is what some plane may serve.
            None => Whose::Planes(Profile::Kubernetes),
        };
        let asked = Asked {
            accept: call.header(&http::header::ACCEPT),
            if_none_match: call.header(&IF_NONE_MATCH),
            hash: call.query.get("hash").unwrap_or_default(),
            prefix: &call.located.prefix,
        };
        self.respond(whose, definitions, rest, &asked).await
    }

    async fn respond(
        &self,
        whose: Whose,
        definitions: &dyn Source,
        rest: &[&str],
        asked: &Asked<'_>,
    ) -> Result<Response<Body>, ApiError> {
        match rest {
            ["v2"] => self.swagger(whose, definitions, asked).await,
            ["v3"] => {
                let built_in = self.documents(whose).await?;
                let custom = self.custom.index(definitions).await?;
                // Built-in kinds win, should a definition be of their group and version.
                let mut hashes: BTreeMap<&str, &str> = BTreeMap::new();
                hashes.extend(custom.iter().map(|(name, entry)| (name.as_str(), entry.hash.as_str())));
                hashes.extend(
                    built_in
                        .iter()
                        .map(|(name, document)| (name.as_str(), document.hash.as_str())),
                );
                Ok(index(hashes, asked))
            }
            ["v3", name @ ..] => {
                let name = name.join("/");
                let found = match self.documents(whose).await?.get(&name) {
                    Some(document) => Some(document.clone()),
                    None => self.custom.document(&name, definitions).await?,
                };
                match found {
                    Some(document) => send(&Whole(&document), &OPENAPI3, Some(&name), asked).await,
                    None => Ok(empty(StatusCode::NOT_FOUND)),
                }
            }
            _ => Err(ApiError::page_not_found()),
        }
    }

    async fn swagger(
        &self,
        whose: Whose,
        definitions: &dyn Source,
        asked: &Asked<'_>,
    ) -> Result<Response<Body>, ApiError> {
        let swagger = self.described(whose).swagger().await?;
        match self.custom.swagger(definitions, swagger.clone()).await? {
            None => send(&Whole(&swagger.document), &SWAGGER, None, asked).await,
            Some(added) => send(&Extended(swagger, &added), &SWAGGER, None, asked).await,
        }
    }

    /// The documents of OpenAPI 3.0. Those that others have, too, are the same.
    async fn documents(&self, whose: Whose) -> Result<&Documents, ApiError> {
        let built = || {
            self.described
                .iter()
                .filter_map(OnceLock::get)
                .filter_map(Described::built)
        };
        self.described(whose).documents(|| built().collect()).await
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    Root,
    /// Those of a profile.
    Planes(Profile),
    View(Viewer),
}

/// What of a request decides the answer.
struct Asked<'a> {
    accept: &'a str,
    if_none_match: &'a str,
    hash: &'a str,
    prefix: &'a str,
}

/// The protobuf media types of a format: clients still ask for the first, which is no valid media type, and are answered the
/// second.
struct Media {
    old: &'static str,
    new: &'static str,
}

const OPENAPI3: Media = Media {
    old: "com.github.proto-openapi.spec.v3@v1.0+protobuf",
    new: "application/com.github.proto-openapi.spec.v3.v1.0+protobuf",
};
const SWAGGER: Media = Media {
    old: "com.github.proto-openapi.spec.v2@v1.0+protobuf",
    new: "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
};

/// Something to send in either encoding.
#[async_trait]
trait Sendable: Sync {
    fn hash(&self) -> Cow<'_, str>;
    async fn encoded(&self, encoding: Encoding) -> Result<Bytes, ApiError>;
}

struct Whole<'a>(&'a Document);

#[async_trait]
impl Sendable for Whole<'_> {
    fn hash(&self) -> Cow<'_, str> {
        self.0.hash.as_str().into()
    }

    async fn encoded(&self, encoding: Encoding) -> Result<Bytes, ApiError> {
        match encoding {
            Encoding::Json => Ok(self.0.json()),
            Encoding::Protobuf => self.0.protobuf().await,
        }
    }
}

/// A Swagger document with custom resources added.
struct Extended<'a>(&'a Swagger, &'a Added);

#[async_trait]
impl Sendable for Extended<'_> {
    fn hash(&self) -> Cow<'_, str> {
        self.0.hash_with(self.1).into()
    }

    async fn encoded(&self, encoding: Encoding) -> Result<Bytes, ApiError> {
        match encoding {
            Encoding::Json => Ok(self.0.json_with(self.1)),
            Encoding::Protobuf => self.0.protobuf_with(self.1).await,
        }
    }
}

/// Which documents there are, by name, and where: `hashes` are theirs.
fn index(hashes: BTreeMap<&str, &str>, asked: &Asked<'_>) -> Response<Body> {
    let entry = |(name, hash): (&str, &str)| {
        let address = locator(asked.prefix, name, hash);
        (name.to_owned(), json!({"serverRelativeURL": address}))
    };
    let paths: Map<String, Value> = hashes.into_iter().map(entry).collect();
    let mut response = Response::new(Body::full(json!({"paths": paths}).to_string()));
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn locator(prefix: &str, name: &str, hash: &str) -> String {
    format!("{prefix}/openapi/v3/{name}?hash={hash}")
}

/// Sends a document, or says that the client has it, or where it is now. `name`: it is one of several, with a hash to ask by.
async fn send(
    document: &dyn Sendable,
    media: &Media,
    name: Option<&str>,
    asked: &Asked<'_>,
) -> Result<Response<Body>, ApiError> {
    let hash = document.hash();
    let mut response = match negotiate(asked.accept, media) {
        None => empty(StatusCode::NOT_ACCEPTABLE),
        Some(encoding) => {
            let mut response = match name {
                Some(name) if !asked.hash.is_empty() && asked.hash != hash => moved(&hash, name, asked)?,
                _ if is_known(asked.if_none_match, &hash) => empty(StatusCode::NOT_MODIFIED),
                _ => Response::new(Body::full(document.encoded(encoding).await?)),
            };
            if response.status() != StatusCode::NOT_MODIFIED {
                let content_type = if encoding == Encoding::Json {
                    "application/json"
                } else {
                    media.new
                };
                response
                    .headers_mut()
                    .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
            }
            if name.is_some() && asked.hash == hash {
                keep_for_ever(&mut response);
            }
            let tag = HeaderValue::from_str(&format!("\"{hash}\"")).expect("a hash is hexadecimal");
            response.headers_mut().insert(ETAG, tag);
            response
        }
    };
    response.headers_mut().insert(VARY, HeaderValue::from_static("Accept"));
    Ok(response)
}

fn empty(code: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = code;
    response
}

/// The hash is an old one: here is the address with the current one.
fn moved(hash: &str, name: &str, asked: &Asked<'_>) -> Result<Response<Body>, ApiError> {
    let mut response = empty(StatusCode::MOVED_PERMANENTLY);
    let address = HeaderValue::from_str(&locator(asked.prefix, name, hash));
    let address = address.map_err(|error| ApiError::internal("writing an address").because(error))?;
    response.headers_mut().insert(LOCATION, address);
    Ok(response)
}

/// Lets caches keep an answer that its address has the hash of.
fn keep_for_ever(response: &mut Response<Body>) {
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("public, immutable"));
    let now = Timestamp::now().to_zoned(TimeZone::UTC);
    if let Ok(next_year) = now.checked_add(1.year()) {
        let text = next_year.strftime("%a, %d %b %Y %H:%M:%S UTC").to_string();
        headers.insert(EXPIRES, HeaderValue::from_str(&text).expect("a date is ASCII"));
    }
}

/// Whether one of the entity tags that the client has is this one.
fn is_known(if_none_match: &str, hash: &str) -> bool {
    if_none_match.split(',').map(str::trim).any(|tag| {
        let tag = tag.strip_prefix("W/").unwrap_or(tag);
        tag == "*" || tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"')) == Some(hash)
    })
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Encoding {
    Json,
    Protobuf,
}

/// The encoding that the client likes best: by weight, then by how exactly it is named. JSON if it does not care.
fn negotiate(accept: &str, media: &Media) -> Option<Encoding> {
    let accept = if accept.is_empty() { "*/*" } else { accept };
    let mut clauses: Vec<(f64, &str, &str)> = accept
        .split(',')
        .filter_map(|clause| {
            let mut parts = clause.split(';').map(str::trim);
            let (main, sub) = parts.next()?.split_once('/')?;
            let weight = parts
                .find_map(|part| part.strip_prefix("q="))
                .and_then(|text| text.parse().ok());
            Some((weight.unwrap_or(1.0), main, sub))
        })
        .collect();
    let vague = |main: &str, sub: &str| (main == "*", sub == "*");
    clauses.sort_by(|a, b| b.0.total_cmp(&a.0).then(vague(a.1, a.2).cmp(&vague(b.1, b.2))));
    clauses.into_iter().find_map(|(_, main, sub)| match (main, sub) {
        ("application" | "*", "json" | "*") => Some(Encoding::Json),
        ("application" | "*", sub) if sub == media.old || media.new.ends_with(&format!("/{sub}")) => {
            Some(Encoding::Protobuf)
        }
        _ => None,
    })
}
