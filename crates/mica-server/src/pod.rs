//! What is asked of pods, nodes and services beyond their objects: bindings, evictions, and connections to what runs.
//!
//! Nothing runs here. Bindings and evictions are writes like any other; a connection is refused with upstream's words where
//! upstream would refuse it, and else with ours.

use http::{Response, StatusCode};
use mica_machinery::facts::facts;
use mica_machinery::field;
use mica_machinery::kind::pod::evict::{self, Refusal};
use mica_machinery::meta::DeleteOptions;
use mica_machinery::object;
use serde_json::{Map, Value, json};

use crate::admission::Doing;
use crate::authz::{self, Grant, Target};
use crate::encode;
use crate::error::ApiError;
use crate::http::Body;
use crate::negotiate::{self, Route};
use crate::options::{DryRun, WriteOptions, WriteUse};
use crate::registry::{Extent, Managers, PatchRequest, Patched, Scan, stored_value};
use crate::request::Verb;
use crate::serve::{Call, resource, respond};
use crate::subresource::read;

const BINDING: (&str, &str, &str) = ("", "v1", "Binding");
const EVICTION: (&str, &str, &str) = ("policy", "v1", "Eviction");

/// A part of a pod, node or service with an answer of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    Binding,
    Eviction,
    Log,
    /// Attach, exec, port-forward and proxy.
    Connection,
    NodeProxy,
    ServiceProxy,
}

impl Part {
    pub fn find(plural: &str, part: &str) -> Option<Self> {
        Some(match (plural, part) {
            ("bindings", "") | ("pods", "binding") => Self::Binding,
            ("pods", "eviction") => Self::Eviction,
            ("pods", "log") => Self::Log,
            ("pods", "attach" | "exec" | "portforward" | "proxy") => Self::Connection,
            ("nodes", "proxy") => Self::NodeProxy,
            ("services", "proxy") => Self::ServiceProxy,
            _ => return None,
        })
    }

    pub(crate) async fn answer(self, call: &Call<'_>, grant: &Grant) -> Result<Response<Body>, ApiError> {
        match self {
            Self::Binding => bind(call, grant).await,
            Self::Eviction => evict(call, grant).await,
            Self::Log => log(call, grant).await,
            Self::Connection => {
                admit_connection(call, grant).await?;
                let pod = found(call, grant).await?;
                let name = object::name(&pod);
                if evict::is_placed(&pod) {
                    return Err(unreachable_node());
                }
                Err(ApiError::bad_request(format!(
                    "pod {name} does not have a host assigned"
                )))
            }
            Self::NodeProxy => {
                admit_connection(call, grant).await?;
                found(call, grant).await?;
                Err(unreachable_node())
            }
            Self::ServiceProxy => {
                admit_connection(call, grant).await?;
                let service = found(call, grant).await?;
                let name = field::quote(object::name(&service));
                Err(ApiError::unavailable(format!(
                    "no endpoints available for service {name}"
                )))
            }
        }
    }
}

fn unreachable_node() -> ApiError {
    let message = "this server keeps pods and nodes as data and connects to none of them";
    ApiError::new(StatusCode::NOT_IMPLEMENTED, "NotImplemented", message)
}

/// The object that the request names.
async fn found(call: &Call<'_>, grant: &Grant) -> Result<Value, ApiError> {
    let stored = call.server.registry.get(grant, "").await?;
    stored_value(&grant.target.served, &stored)
}

/// A pod's log is empty until it runs somewhere.
async fn log(call: &Call<'_>, grant: &Grant) -> Result<Response<Body>, ApiError> {
    let pod = found(call, grant).await?;
    let (name, container) = (object::name(&pod), call.query.text("container"));
    if !container.is_empty() && !evict::has_container(&pod, container) {
        return Err(ApiError::bad_request(format!(
            "container {container} is not valid for pod {name}"
        )));
    }
    let containers = object::list(&pod, &["spec", "containers"]);
    if container.is_empty() && containers.len() > 1 {
        let names: Vec<&str> = containers.iter().map(|one| object::string(one, &["name"])).collect();
        let names = names.join(" ");
        return Err(ApiError::bad_request(format!(
            "a container name must be specified for pod {name}, choose one of: [{names}]"
        )));
    }
    if evict::is_placed(&pod) {
        return Err(unreachable_node());
    }
    Ok(respond(StatusCode::OK, "text/plain", Body::full(bytes::Bytes::new())))
}

/// The body of a request as admission leaves it.
async fn admitted(
    call: &Call<'_>,
    grant: &Grant,
    options: &WriteOptions,
    kind: (&'static str, &'static str, &'static str),
    body: Value,
) -> Result<Value, ApiError> {
    let (body, warnings) = call
        .server
        .registry
        .admit_part(grant, Doing::Create(options), kind, body)
        .await?;
    call.warnings.lock().extend(warnings);
    Ok(body)
}

/// Asks admission about a connection, whose options are an object.
async fn admit_connection(call: &Call<'_>, grant: &Grant) -> Result<(), ApiError> {
    let kind = match (grant.target.served.plural(), grant.target.subresource.as_str()) {
        ("pods", "exec") => "PodExecOptions",
        ("pods", "attach") => "PodAttachOptions",
        ("pods", "portforward") => "PodPortForwardOptions",
        ("nodes", _) => "NodeProxyOptions",
        ("services", _) => "ServiceProxyOptions",
        _ => "PodProxyOptions",
    };
    let query = &call.query;
    let mut options = json!({"kind": kind, "apiVersion": "v1"});
    match kind {
        "PodExecOptions" | "PodAttachOptions" => {
            for field in ["stdin", "stdout", "stderr", "tty"] {
                if query.flag(field) {
                    options[field] = true.into();
                }
            }
            if !query.text("container").is_empty() {
                options["container"] = query.text("container").into();
            }
            if kind == "PodExecOptions" {
                options["command"] = query.all("command").collect();
            }
        }
        "PodPortForwardOptions" => {
            let ports = query.all("ports").filter_map(|port| port.parse::<i64>().ok());
            options["ports"] = ports.collect();
        }
        _ => options["path"] = query.text("path").into(),
    }
    let admitting = call
        .server
        .registry
        .admit_part(grant, Doing::Connect, ("", "v1", kind), options);
    let (_, warnings) = admitting.await?;
    call.warnings.lock().extend(warnings);
    Ok(())
}

/// `Status` of a write that leaves nothing to show.
fn success(call: &Call<'_>, target: &Target) -> Result<Response<Body>, ApiError> {
    let media = resource::media(call, Route::Object, &target.served)?;
    let status = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "code": StatusCode::CREATED.as_u16(),
    });
    let output = negotiate::Output {
        conversion: None,
        ..media.output
    };
    let bytes = encode::document(facts().well_known().status, &status, output)?;
    Ok(respond(
        StatusCode::CREATED,
        output.format.media_type(),
        Body::full(bytes),
    ))
}

/// Brings a pod to a node.
async fn bind(call: &Call<'_>, grant: &Grant) -> Result<Response<Body>, ApiError> {
    let options = WriteOptions::read(&call.query, WriteUse::Create)?;
    let read = read(call, BINDING, &options)?;
    call.warnings.lock().extend(read.warnings);
    let binding = read.object;
    let asked = object::name(&binding).to_owned();
    match grant.target.name.as_deref() {
        Some(name) if name != asked => {
            return Err(ApiError::bad_request(
                "name in URL does not match name in Binding object",
            ));
        }
        None if asked.is_empty() => return Err(ApiError::bad_request("Name parameter required.")),
        _ => {}
    }
    let binding = admitted(call, grant, &options, BINDING, binding).await?;
    let errors = evict::validate_binding(&binding);
    if !errors.is_empty() {
        return Err(ApiError::internal_text(field::aggregate(&errors)));
    }
    let pods = other(grant, "", "pods", "binding", Verb::Update, Some(&asked))?;
    let now = jiff::Timestamp::now();
    let told = |field: &str| object::string(&binding, &["metadata", field]).to_owned();
    let (uid, version) = (told("uid"), told("resourceVersion"));
    let patch = |document: &[u8]| -> Result<Patched, ApiError> {
        let pod: Value = serde_json::from_slice(document)
            .map_err(|error| ApiError::internal("stored data is damaged").because(error))?;
        for (field, wanted) in [("uid", &uid), ("resourceVersion", &version)] {
            let held = object::string(&pod, &["metadata", field]);
            if !wanted.is_empty() && wanted != held {
                let why =
                    format!("Precondition failed: {field} in precondition: {wanted}, {field} in object meta: {held}");
                return Err(ApiError::conflict(&pods.target.served.name, &asked, &why));
            }
        }
        let bound = evict::bind(pod, &binding, now).map_err(|why| taken(&asked, &why))?;
        // Upstream records nobody for what a binding changes.
        Ok(Patched {
            object: bound,
            managers: Managers::Applied,
            warnings: Vec::new(),
        })
    };
    let request = PatchRequest {
        patch: &patch,
        options,
        manager: String::new(),
        view: None,
    };
    call.server.registry.patch(&pods, request).await?;
    success(call, &grant.target)
}

/// Upstream names the part of a pod as if it were a resource.
fn taken(pod: &str, why: &str) -> ApiError {
    const BINDINGS: &str = "pods/binding";
    let message = format!(
        "Operation cannot be fulfilled on {BINDINGS} {}: {why}",
        field::quote(pod)
    );
    let mut details = Map::new();
    details.insert("name".to_owned(), pod.into());
    details.insert("kind".to_owned(), BINDINGS.into());
    ApiError::new(StatusCode::CONFLICT, "Conflict", message).with_details(details)
}

/// The server's own permission for another kind of the same plane and namespace.
fn other(
    grant: &Grant,
    group: &str,
    plural: &str,
    subresource: &str,
    verb: Verb,
    name: Option<&str>,
) -> Result<Grant, ApiError> {
    let served = grant.target.plane.scheme.find(group, "v1", plural).cloned();
    let served = served.ok_or_else(|| ApiError::internal("a kind of the profile is not served"))?;
    Ok(authz::system(
        verb,
        Target {
            served,
            name: name.map(Into::into),
            subresource: subresource.into(),
            ..grant.target.clone()
        },
    ))
}

/// Deletes a pod if its disruption budget, where it has one, has something left.
async fn evict(call: &Call<'_>, grant: &Grant) -> Result<Response<Body>, ApiError> {
    let options = WriteOptions::read(&call.query, WriteUse::Create)?;
    let read = read(call, EVICTION, &options)?;
    call.warnings.lock().extend(read.warnings);
    let eviction = read.object;
    if object::name(&eviction) != grant.target.object() {
        return Err(ApiError::bad_request(
            "name in URL does not match name in Eviction object",
        ));
    }
    let eviction = admitted(call, grant, &options, EVICTION, eviction).await?;
    let deletion = eviction.get("deleteOptions").cloned().unwrap_or_default();
    let mut deletion = DeleteOptions::from_value(&deletion);
    if options.dry_run == DryRun::All {
        deletion.dry_run = vec!["All".to_owned()];
    }
    let pods = other(grant, "", "pods", "", Verb::Delete, grant.target.name.as_deref())?;
    let pod = found(call, &pods).await?;
    if !evict::goes_freely(&pod) {
        spend(call, grant, &pod, options.dry_run).await?;
    }
    call.server.registry.delete(&pods, &deletion).await?;
    success(call, &grant.target)
}

/// Takes one disruption from the pod's budget.
async fn spend(call: &Call<'_>, grant: &Grant, pod: &Value, dry_run: DryRun) -> Result<(), ApiError> {
    let registry = &call.server.registry;
    let budgets = other(grant, "policy", "poddisruptionbudgets", "", Verb::List, None)?;
    let mut covering = Vec::new();
    let (plane, served) = (budgets.target.plane.clone(), budgets.target.served.clone());
    let extent = Extent::Namespace(grant.target.namespace.as_deref().unwrap_or_default().to_owned());
    let mut scan = Scan::of_plane(registry.clone(), plane, served.clone(), &extent, None, None);
    while let Some((_, stored)) = scan.next().await? {
        let budget = stored_value(&served, &stored)?;
        if evict::covers(&budget, pod) {
            covering.push(object::name(&budget).to_owned());
        }
    }
    let name = match &covering[..] {
        [] => return Ok(()),
        [only] => only,
        _ => {
            return Err(ApiError::internal_text(
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            ));
        }
    };
    let budget = other(
        grant,
        "policy",
        "poddisruptionbudgets",
        "status",
        Verb::Update,
        Some(name),
    )?;
    let now = jiff::Timestamp::now();
    let patch = |document: &[u8]| -> Result<Patched, ApiError> {
        let held: Value = serde_json::from_slice(document)
            .map_err(|error| ApiError::internal("stored data is damaged").because(error))?;
        let object = if evict::ignores(&held, pod) {
            held
        } else {
            evict::disrupt(&held, object::name(pod), now).map_err(|refusal| refused(refusal, name))?
        };
        Ok(Patched {
            object,
            managers: Managers::Recorded(mica_machinery::managed::Request::Usual),
            warnings: Vec::new(),
        })
    };
    let request = PatchRequest {
        patch: &patch,
        options: WriteOptions {
            dry_run,
            field_manager: String::new(),
            field_validation: crate::options::FieldValidation::Ignore,
            asked_validation: String::new(),
        },
        manager: "kube-apiserver".to_owned(),
        view: None,
    };
    registry.patch(&budget, request).await.map(drop)
}

fn refused(refusal: Refusal, budget: &str) -> ApiError {
    match refusal {
        Refusal::Forbidden(why) => ApiError::forbidden(
            &mica_api::GroupResource::new("policy", "poddisruptionbudget"),
            budget,
            why,
        ),
        Refusal::TooMany { message, cause, retry } => {
            let mut details = Map::new();
            details.insert(
                "causes".to_owned(),
                json!([{"reason": "DisruptionBudget", "message": cause}]),
            );
            let error = ApiError::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message).with_details(details);
            match retry {
                Some(seconds) => error.with_retry_after(seconds),
                None => error,
            }
        }
    }
}
