//! Where a control plane is reached: from the endpoint that it names, the templates of its class, or its home.
//!
//! A host that nobody can resolve is as good as any: it is written down, and not asked.

use mica_api::control_plane::{EndpointPolicy, EndpointType, PublishedEndpoint, gateway_endpoint, reason};
use serde_json::Value;

use super::{Observed, Problem, text};
use crate::control_plane::Home;

/// The addresses of a control plane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoints {
    pub internal: String,
    pub external: String,
    /// Only if one was said: then nodes are told how to join.
    pub join: Option<String>,
    /// Whether the external address shows the server's own certificate, or one that everybody trusts.
    pub external_trust: Trust,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trust {
    Server,
    Everybody,
}

impl Endpoints {
    pub fn published(&self) -> Vec<PublishedEndpoint> {
        let one = |r#type, url: &String| PublishedEndpoint {
            r#type,
            url: url.clone(),
        };
        let mut all = vec![
            one(EndpointType::Internal, &self.internal),
            one(EndpointType::External, &self.external),
        ];
        all.extend(self.join.as_ref().map(|url| one(EndpointType::Join, url)));
        all
    }
}

/// Where endpoints come from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source {
    /// A ControlPlaneEndpoint of this name.
    Reference(String),
    /// One that the class's gateway makes.
    Gateway(String),
    Template,
    /// The server that the plane is on.
    Home,
}

/// Where the endpoints of a control plane come from.
pub fn source(at: &Observed) -> Result<Source, Problem> {
    let class = at.class_spec();
    let named = at.spec.endpoint_ref.as_ref().map(|named| named.name.clone());
    let named = named.filter(|name| !name.is_empty());
    let templates = class.endpoints.as_ref().is_some_and(|all| {
        ![&all.internal, &all.external, &all.join]
            .into_iter()
            .all(String::is_empty)
    });
    match (at.spec.endpoint_policy, named) {
        (Some(EndpointPolicy::Reference), None) => Err(Problem::new(
            reason::ENDPOINT_PENDING,
            "spec.endpointPolicy is Reference and spec.endpointRef names nothing: name a ControlPlaneEndpoint",
        )),
        (None | Some(EndpointPolicy::Reference), Some(name)) => Ok(Source::Reference(name)),
        (Some(EndpointPolicy::Template), _) if !templates && class.gateway.is_none() => Err(Problem::new(
            reason::ENDPOINT_PENDING,
            "spec.endpointPolicy is Template and the class has no spec.endpoints: add templates to it, or name another class",
        )),
        (None | Some(EndpointPolicy::Template), _) => Ok(match (templates, class.gateway) {
            (true, _) => Source::Template,
            (false, Some(_)) => Source::Gateway(gateway_endpoint(at.name())),
            (false, None) => Source::Home,
        }),
    }
}

/// The addresses of a control plane on a server.
pub fn resolve(at: &Observed, home: &str) -> Result<Endpoints, Problem> {
    let path = at.cluster_path();
    match source(at)? {
        Source::Home => {
            let url = format!("{home}{}", Home::plane_path(path));
            Ok(Endpoints {
                internal: url.clone(),
                external: url,
                join: None,
                external_trust: Trust::Server,
            })
        }
        Source::Template => from_templates(at, home),
        Source::Reference(name) => from_object(at, &name, Trust::Server),
        Source::Gateway(name) => from_object(at, &name, Trust::Everybody),
    }
}

fn from_templates(at: &Observed, home: &str) -> Result<Endpoints, Problem> {
    let templates = at.class_spec().endpoints.unwrap_or_default();
    let path = at.cluster_path();
    let fill = |template: &str| fill(template, at.name(), path, home);
    let first = |all: &[&String]| all.iter().find(|one| !one.is_empty()).map(|one| fill(one));
    let at_home = || format!("{home}{}", Home::plane_path(path));
    let internal = first(&[&templates.internal]).unwrap_or_else(at_home);
    let external = first(&[&templates.external, &templates.internal]).unwrap_or_else(at_home);
    Ok(Endpoints {
        internal: shape("spec.endpoints.internal of the class", &internal, path)?,
        external: shape("spec.endpoints.external of the class", &external, path)?,
        join: first(&[&templates.join])
            .map(|url| shape("spec.endpoints.join of the class", &url, path))
            .transpose()?,
        external_trust: Trust::Server,
    })
}

/// Fills in what a template leaves open.
pub fn fill(template: &str, name: &str, path: &str, server: &str) -> String {
    template
        .replace("{name}", name)
        .replace("{clusterPath}", path)
        .replace("{server}", server)
}

/// The addresses of a ControlPlaneEndpoint. What a provider observed stands before what was asked for.
fn from_object(at: &Observed, name: &str, external_trust: Trust) -> Result<Endpoints, Problem> {
    let Some(object) = &at.endpoint else {
        let message =
            format!("ControlPlaneEndpoint {name:?} does not exist (yet): make it, or name another in spec.endpointRef");
        return Err(Problem::new(reason::ENDPOINT_NOT_FOUND, message));
    };
    let path = at.cluster_path();
    let said = |field: &str| said(object, field);
    let what = |field: &str| format!("{field} of ControlPlaneEndpoint {name:?}");
    let internal = said("endpoint").or_else(|| said("externalEndpoint"));
    let external = said("externalEndpoint").or_else(|| said("endpoint"));
    let (Some(internal), Some(external)) = (internal, external) else {
        let message = format!("ControlPlaneEndpoint {name:?} says no endpoint yet, in its spec or its status");
        return Err(Problem::new(reason::ENDPOINT_PENDING, message));
    };
    Ok(Endpoints {
        internal: shape(&what("endpoint"), internal, path)?,
        external: match external_trust {
            Trust::Server => shape(&what("externalEndpoint"), external, path)?,
            // The gateway's route leads from its root to the plane.
            Trust::Everybody => check(&what("externalEndpoint"), external)?.to_owned(),
        },
        join: said("joinEndpoint")
            .map(|url| shape(&what("joinEndpoint"), url, path))
            .transpose()?,
        external_trust,
    })
}

fn said<'a>(object: &'a Value, field: &str) -> Option<&'a str> {
    let observed = text(object, &format!("/status/{field}"));
    let asked = text(object, &format!("/spec/{field}"));
    [observed, asked].into_iter().find(|url| !url.is_empty())
}

/// Whether a text is an address that clients can be given; without a slash at its end.
fn check<'a>(what: &str, url: &'a str) -> Result<&'a str, Problem> {
    let bad = |why: &str| {
        let message = format!("{what} is {url:?}, which {why}: say https://HOST[:PORT], with or without a path");
        Err(Problem::new(reason::INVALID_ENDPOINT, message))
    };
    let Ok(parsed) = url.parse::<http::Uri>() else {
        return bad("is no URL");
    };
    if !matches!(parsed.scheme_str(), Some("https" | "http")) {
        return bad("is neither https nor http");
    }
    let Some(authority) = parsed.authority() else {
        return bad("has no host");
    };
    if authority.host().is_empty() || authority.as_str().contains('@') {
        return bad("is no plain host");
    }
    if parsed.query().is_some() || url.contains('#') {
        return bad("has more than a path");
    }
    Ok(url.trim_end_matches('/'))
}

/// An address that leads to a plane: the plane's path is added to one that has none.
fn shape(what: &str, url: &str, path: &str) -> Result<String, Problem> {
    let url = check(what, url)?;
    let Some((_, after)) = url
        .split_once("/clusters/")
        .filter(|(_, after)| after.contains("/control-plane"))
    else {
        return Ok(format!("{url}{}", Home::plane_path(path)));
    };
    let plane = after.split('/').next().unwrap_or_default();
    if plane != path {
        let message = format!("{what} is {url:?}, which leads to plane {plane:?} and not to {path:?}");
        return Err(Problem::new(reason::INVALID_ENDPOINT, message));
    }
    Ok(url.to_owned())
}
