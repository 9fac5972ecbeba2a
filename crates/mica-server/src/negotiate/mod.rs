//! What a client wants its answer in, and what it sends its body in. Pure functions over header texts.
//!
//! Upstream decides in two places with two wordings: its router refuses what no representation of the route matches
//! (`406: Not Acceptable…`, with empty details), its handlers refuse the rest (`only the following media types…`, without
//! details). Custom resources have no router. Both are kept, because clients show these texts.

mod accept;
mod body;

use http::StatusCode;

pub use accept::{Discovery, discovery, document, error_output, is_pretty, output, routed, stream};
pub use body::{PatchType, body_format, patch_type};

use crate::error::ApiError;

/// An encoding of objects, in upstream's order of preference. CBOR is behind a gate there and refused here.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Format {
    Json,
    Yaml,
    Protobuf,
}

impl Format {
    pub const ALL: [Self; 3] = [Self::Json, Self::Yaml, Self::Protobuf];

    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }

    /// The `Content-Type` of a watch; YAML cannot be streamed.
    pub const fn watch_type(self) -> Option<&'static str> {
        match self {
            Self::Json => Some("application/json"),
            Self::Yaml => None,
            Self::Protobuf => Some("application/vnd.kubernetes.protobuf;stream=watch"),
        }
    }
}

/// Whether JSON is indented for people.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Pretty {
    #[default]
    Compact,
    Indented,
}

/// Another shape than the object's own that the client asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Conversion {
    pub target: Target,
    pub version: MetaVersion,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    Table,
    PartialObjectMetadata,
    PartialObjectMetadataList,
}

/// The version of `meta.k8s.io` that the shape is asked for in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MetaVersion {
    V1,
    V1beta1,
}

impl MetaVersion {
    pub const fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "meta.k8s.io/v1",
            Self::V1beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

/// What was agreed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Output {
    pub format: Format,
    pub conversion: Option<Conversion>,
    pub pretty: Pretty,
}

impl Output {
    pub const JSON: Self = Self {
        format: Format::Json,
        conversion: None,
        pretty: Pretty::Compact,
    };
}

/// What upstream's router declares for a path, where it has one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route {
    /// One object, and every write; `/api`, and discovery of versions of built-in kinds.
    Object,
    /// A GET of a collection, which can also be a watch, and the old `/watch/` paths.
    Collection,
    /// `/version`.
    JsonOnly,
    /// Custom resources and their discovery, and the documents of groups: not routed.
    None,
}

/// What can be encoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Encodings {
    /// Built-in kinds: all of them.
    All,
    /// Custom resources: protobuf only for metadata.
    NoProtobuf,
}

/// The parts of a request that negotiation looks at.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked<'a> {
    /// The `Accept` header; empty if there is none.
    pub accept: &'a str,
    pub user_agent: &'a str,
    /// The raw query.
    pub query: &'a str,
}

impl<'a> Asked<'a> {
    pub fn of(parts: &'a http::request::Parts) -> Self {
        let header = |name| {
            parts
                .headers
                .get(name)
                .and_then(|value| value.to_str().ok())
                .unwrap_or_default()
        };
        Self {
            accept: header(http::header::ACCEPT),
            user_agent: header(http::header::USER_AGENT),
            query: parts.uri.query().unwrap_or_default(),
        }
    }
}

/// Nothing the client accepts can be made, or nothing it sends can be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// By the router.
    #[error("406: Not Acceptable\n\nAvailable representations: {0}")]
    NotRouted(String),
    /// By the handler.
    #[error("only the following media types are accepted: {0}")]
    NotAcceptable(String),
    /// A patch, by the router.
    #[error("415: Unsupported Media Type")]
    UnsupportedRoute,
    #[error("the body of the request was in an unknown format - accepted media types include: {0}")]
    Unsupported(String),
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        let (code, reason) = match refusal {
            Refusal::NotRouted(_) | Refusal::NotAcceptable(_) => (StatusCode::NOT_ACCEPTABLE, "NotAcceptable"),
            Refusal::UnsupportedRoute | Refusal::Unsupported(_) => {
                (StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType")
            }
        };
        let error = Self::new(code, reason, refusal.to_string());
        match refusal {
            Refusal::NotRouted(_) | Refusal::UnsupportedRoute => error.with_details(serde_json::Map::new()),
            Refusal::NotAcceptable(_) | Refusal::Unsupported(_) => error,
        }
    }
}

/// Upstream's list of what its serializers read and write.
pub fn media_types() -> String {
    Format::ALL.map(Format::media_type).join(", ")
}

#[cfg(test)]
mod tests;
