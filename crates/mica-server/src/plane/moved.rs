//! Where a plane went and came from: what its old address says of it, what it takes to pass requests on, and who may.

use std::fmt::Write as _;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use mica_machinery::field::{Error, ErrorList, Path};
use mica_machinery::kind::webhook::validate_url;
use mica_machinery::object;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::Plane;
use crate::authn::{FrontProxy, Headers};
use crate::egress::ClientConfig;
use crate::error::ApiError;

/// The common name of the certificate by which a plane's old server proves itself to its new one.
pub const PASSER: &str = "mica-pass";

/// What happens to requests that still come to the old address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Requests {
    /// They are passed on to where the plane is.
    #[default]
    Pass,
    /// They are told where the plane is.
    Refuse,
}

/// `spec.movedTo` of a Plane.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MovedTo {
    /// The plane's address there: `https://host:port/prefix`.
    pub server: String,
    /// Who signs that server's certificate: base64 of PEM. Without it the machine's authorities count.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub ca_bundle: String,
    #[serde(default)]
    pub requests: Requests,
}

impl MovedTo {
    /// What a Plane says, if that is complete.
    pub(super) fn of(plane: &Value) -> Option<Self> {
        serde_json::from_value(plane["spec"]["movedTo"].clone()).ok()
    }

    /// How the plane is reached there.
    pub(crate) fn config(&self) -> Result<ClientConfig, ApiError> {
        let config = json!({"url": self.server, "caBundle": self.ca_bundle});
        ClientConfig::from_value(&config)
            .map_err(|error| ApiError::internal("a plane's new address cannot be read").because(error))
    }
}

/// `spec.movedFrom` of a Plane: the server that passes on what still comes there, and says who asks.
///
/// Its word counts for this plane alone, which was all its own before.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MovedFrom {
    /// Who signs the certificate that it shows: base64 of PEM.
    pub ca_bundle: String,
}

impl MovedFrom {
    /// What a Plane says, if that is complete.
    pub(super) fn of(plane: &Value) -> Option<Self> {
        serde_json::from_value(plane["spec"]["movedFrom"].clone()).ok()
    }

    /// What that server's requests are told by. Nothing is, if this was stored by somebody who does not check it.
    pub(super) fn passer(&self) -> Option<Arc<FrontProxy>> {
        let pem = String::from_utf8(STANDARD.decode(&self.ca_bundle).ok()?).ok()?;
        let proxy = FrontProxy::new(&pem, vec![PASSER.to_owned()], Headers::usual());
        proxy.ok().map(Arc::new)
    }
}

/// 421: the plane is elsewhere, and where.
pub fn away(plane: &Plane) -> ApiError {
    let mut message = format!("control plane \"{}\" has moved to another server", plane.name);
    let mut details = Map::new();
    if let Some(to) = plane.moved_to() {
        let _ = write!(message, ": {}", to.server);
        details.insert(
            "causes".to_owned(),
            json!([{"reason": "MovedTo", "field": "spec.movedTo.server", "message": to.server}]),
        );
    }
    ApiError::new(StatusCode::MISDIRECTED_REQUEST, "PlaneMoved", message).with_details(details)
}

/// What is wrong with `spec.movedTo`.
pub(super) fn validate(plane: &Value, path: &Path) -> ErrorList {
    let to = &plane["spec"]["movedTo"];
    let state = object::string(plane, &["spec", "state"]);
    if to.is_null() {
        return match state {
            "Moved" => vec![Error::required(
                &path.child("server"),
                "a plane that has moved is somewhere",
            )],
            _ => ErrorList::new(),
        };
    }
    let mut errors = ErrorList::new();
    if !matches!(state, "Moving" | "Moved") {
        errors.push(Error::forbidden(path, "only a plane that moves has a new address"));
    }
    match object::string(to, &["server"]) {
        "" => errors.push(Error::required(&path.child("server"), "the plane's new address")),
        url => errors.extend(validate_url(url, &path.child("server"))),
    }
    let requests = object::string(to, &["requests"]);
    if !matches!(requests, "" | "Pass" | "Refuse") {
        errors.push(Error::not_supported(
            &path.child("requests"),
            requests,
            &["Pass", "Refuse"],
        ));
    }
    if let Err(error) = ClientConfig::from_value(&json!({"url": "", "caBundle": to["caBundle"]})) {
        errors.push(Error::invalid(&path.child("caBundle"), "", error.to_string()));
    }
    errors
}

/// What is wrong with `spec.movedFrom`.
pub(super) fn validate_from(plane: &Value, path: &Path) -> ErrorList {
    let from = &plane["spec"]["movedFrom"];
    if from.is_null() {
        return ErrorList::new();
    }
    let path = path.child("caBundle");
    match MovedFrom::of(plane) {
        Some(from) if from.ca_bundle.is_empty() => vec![Error::required(&path, "who signs that server's certificate")],
        None => vec![Error::required(&path, "who signs that server's certificate")],
        Some(from) if from.passer().is_none() => {
            vec![Error::invalid(&path, "", "it is not base64 of certificates in PEM")]
        }
        Some(_) => ErrorList::new(),
    }
}

/// Which states may follow which. The steps of a move come one after another, so that none can be left out by mistake.
pub(super) fn validate_step(new: &Value, old: &Value, subresource: &str, path: &Path) -> ErrorList {
    let [now, before] = [new, old].map(|plane| object::string(plane, &["spec", "state"]));
    let plain = |state: &str| matches!(state, "Active" | "ReadOnly" | "Suspended");
    let why = match (before, now) {
        (before, now) if before == now || (plain(before) && plain(now)) => return ErrorList::new(),
        (_, "Arriving") if before == "Moved" => return ErrorList::new(),
        ("Arriving", "Active") if subresource == "open" => return ErrorList::new(),
        ("Arriving", _) => "a plane that arrives is opened with its subresource open",
        (_, "Arriving") => "a plane that is in use cannot be filled: create another",
        (before, "Moving") if plain(before) => return ErrorList::new(),
        ("Moving", now) if plain(now) || now == "Moved" => return ErrorList::new(),
        ("Moved", _) => "the plane is elsewhere: it can only arrive again",
        _ => "a plane is Moving before it is Moved",
    };
    vec![Error::invalid(path, now, why)]
}
