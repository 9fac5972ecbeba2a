//! `/openapi/v3` and `/openapi/v2`: documents of what is served, in JSON and protobuf.
//!
//! Addresses in the index stay inside the prefix that the client came by. They carry the document's hash, so that what was
//! once read under such an address is good for ever.

mod build;
mod describe;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, EXPIRES, HeaderValue, IF_NONE_MATCH, LOCATION, VARY};
use http::{Response, StatusCode};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};
use serde_json::{Map, Value, json};
use tokio::sync::OnceCell;

use self::build::{Described, Document, Documents};
use crate::error::ApiError;
use crate::http::Body;
use crate::plane::Plane;
use crate::scheme::Scheme;
use crate::serve::Call;

/// The documents of both schemes.
pub struct OpenApi {
    root: Described,
    plane: Described,
    /// Those of OpenAPI 3.0: root's and the planes'.
    documents: OnceCell<[Documents; 2]>,
}

impl OpenApi {
    pub fn new(root: &Scheme, plane: &Scheme) -> Self {
        let described = |scheme: &Scheme| Described::new(scheme.iter().filter_map(|served| served.row()).collect());
        Self {
            root: described(root),
            plane: described(plane),
            documents: OnceCell::new(),
        }
    }

    /// Answers a request below `/openapi`. The methods are not looked at, as upstream does not.
    pub(crate) async fn answer(
        &self,
        call: &Call<'_>,
        plane: Option<&Plane>,
        rest: &[&str],
    ) -> Result<Response<Body>, ApiError> {
        let whose = if plane.is_some_and(Plane::is_root) {
            Whose::Root
        } else {
            Whose::Planes
        };
        let asked = Asked {
            accept: call.header(&http::header::ACCEPT),
            if_none_match: call.header(&IF_NONE_MATCH),
            hash: call.query.get("hash").unwrap_or_default(),
            prefix: &call.located.prefix,
        };
        self.respond(whose, rest, &asked).await
    }

    async fn respond(&self, whose: Whose, rest: &[&str], asked: &Asked<'_>) -> Result<Response<Body>, ApiError> {
        match rest {
            ["v2"] => {
                let described = if whose == Whose::Root { &self.root } else { &self.plane };
                send(described.swagger().await?, SWAGGER, None, asked).await
            }
            ["v3"] => Ok(index(self.documents(whose).await?, asked)),
            ["v3", name @ ..] => {
                let name = name.join("/");
                match self.documents(whose).await?.get(&name) {
                    Some(document) => send(document, OPENAPI3, Some(&name), asked).await,
                    None => Ok(empty(StatusCode::NOT_FOUND)),
                }
            }
            _ => Err(ApiError::page_not_found()),
        }
    }

    async fn documents(&self, whose: Whose) -> Result<&Documents, ApiError> {
        let [root, plane] = self
            .documents
            .get_or_try_init(|| build::documents(&self.root, &self.plane))
            .await?;
        Ok(if whose == Whose::Root { root } else { plane })
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    Root,
    Planes,
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

/// Which documents there are, by name, and where.
fn index(documents: &Documents, asked: &Asked<'_>) -> Response<Body> {
    let entry = |(name, document): (&String, &Arc<Document>)| {
        (
            name.clone(),
            json!({"serverRelativeURL": locator(asked.prefix, name, document)}),
        )
    };
    let paths: Map<String, Value> = documents.iter().map(entry).collect();
    let mut response = Response::new(Body::full(json!({"paths": paths}).to_string()));
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn locator(prefix: &str, name: &str, document: &Document) -> String {
    format!("{prefix}/openapi/v3/{name}?hash={}", document.hash)
}

/// Sends a document, or says that the client has it, or where it is now. `name`: it is one of several, with a hash to ask by.
async fn send(
    document: &Document,
    media: Media,
    name: Option<&str>,
    asked: &Asked<'_>,
) -> Result<Response<Body>, ApiError> {
    let mut response = match negotiate(asked.accept, &media) {
        None => empty(StatusCode::NOT_ACCEPTABLE),
        Some(encoding) => {
            let mut response = match name {
                Some(name) if !asked.hash.is_empty() && asked.hash != document.hash => moved(document, name, asked)?,
                _ if is_known(asked.if_none_match, &document.hash) => empty(StatusCode::NOT_MODIFIED),
                _ => full(document, encoding).await?,
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
            if name.is_some() && asked.hash == document.hash {
                keep_for_ever(&mut response);
            }
            let tag = HeaderValue::from_str(&format!("\"{}\"", document.hash)).expect("a hash is hexadecimal");
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

async fn full(document: &Document, encoding: Encoding) -> Result<Response<Body>, ApiError> {
    let bytes = match encoding {
        Encoding::Json => document.json(),
        Encoding::Protobuf => document.protobuf().await?,
    };
    Ok(Response::new(Body::full(bytes)))
}

/// The hash is an old one: here is the address with the current one.
fn moved(document: &Document, name: &str, asked: &Asked<'_>) -> Result<Response<Body>, ApiError> {
    let mut response = empty(StatusCode::MOVED_PERMANENTLY);
    let address = HeaderValue::from_str(&locator(asked.prefix, name, document));
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
