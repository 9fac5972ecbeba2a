//! Signing requests, answered: what the signers of upstream's controller manager do (`pkg/controller/certificates/signer`).
//!
//! One loop follows the CertificateSigningRequests of all planes. One that is approved, for a signer that is built in, gets a
//! certificate of its plane's own authority; one that asks for too much is told so; a kubelet's own is approved by who may
//! ([`approve`]). Every server of a shared store runs one: who comes second finds the certificate there.

mod approve;

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mica_api::GroupResource;
use mica_machinery::kind::certificates::request;
use mica_machinery::object;
use mica_store::{Key, KeyRange, Record, Store};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::authz::{self, Authorizer, Target};
use crate::error::ApiError;
use crate::follow;
use crate::pki::{For, PkiError, PlaneAuthorities, SigningRequest};
use crate::plane::directory::Directory;
use crate::plane::{Plane, State};
use crate::registry::Registry;
use crate::request::Verb;
use crate::stored::Content;

const GROUP: &str = "certificates.k8s.io";
const PLURAL: &str = "certificatesigningrequests";
const MANAGER: &str = "kube-controller-manager";

const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
const LEGACY: &str = "kubernetes.io/legacy-unknown";

/// How long certificates live that ask for nothing else, and at most: upstream's default.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);
const SHORTEST: Duration = Duration::from_secs(600);
/// Requests answered at once.
const CONCURRENT: usize = 16;
/// How often one is tried; after that it is looked at when it changes, or when a server starts.
const TRIES: u32 = 6;
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// Answers signing requests.
#[derive(Clone)]
pub struct Signer {
    pub store: Arc<dyn Store>,
    pub registry: Registry,
    pub directory: Arc<Directory>,
    pub authorities: Arc<PlaneAuthorities>,
    pub authorizer: Arc<Authorizer>,
}

/// What was done about a request.
enum Answered {
    /// Whatever it needs.
    Whole,
    /// Nothing, because who made it may not. That can change.
    NotYet,
}

impl Signer {
    pub async fn run(self, stop: CancellationToken) {
        let range = KeyRange::AllPlanes(GroupResource::new(GROUP, PLURAL));
        let (tasks, slots) = (TaskTracker::new(), Arc::new(Semaphore::new(CONCURRENT)));
        let seen = |key: &Key, record: &Record| {
            if !wants_answer(record) {
                return;
            }
            let (signer, key, slots, stop) = (self.clone(), key.clone(), slots.clone(), stop.clone());
            tasks.spawn(async move {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = signer.answer_until_done(&key, &slots) => {}
                }
            });
        };
        follow::records(&*self.store, &range, &stop, "signing requests", seen).await;
        tasks.close();
        tasks.wait().await;
    }

    async fn answer_until_done(&self, key: &Key, slots: &Semaphore) {
        let mut pause = FIRST_PAUSE;
        for _ in 0..TRIES {
            let slot = slots.acquire().await.expect("the semaphore is never closed");
            let answered = self.answer(key).await;
            drop(slot);
            match answered {
                Ok(Answered::Whole) => return,
                Ok(Answered::NotYet) => {
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                    continue;
                }
                Err(error) if error.code() == http::StatusCode::NOT_FOUND => return,
                Err(error) => tracing::debug!(request = key.name(), %error, "a signing request was not answered yet"),
            }
            if let Ok(Some(name)) = self.directory.name_of(key.plane()).await {
                self.directory.forget(&name);
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        tracing::warn!(request = key.name(), plane = %key.plane(), "a signing request could not be answered");
    }

    /// Answers a request as it is now, if it still wants that.
    async fn answer(&self, key: &Key) -> Result<Answered, ApiError> {
        let plane = self.directory.by_id(key.plane()).await?;
        let Some(plane) = plane.filter(|plane| plane.state == State::Active) else {
            return Ok(Answered::Whole);
        };
        let record = self.store.get(key).await?;
        let Some(record) = record.filter(wants_answer) else {
            return Ok(Answered::Whole);
        };
        let asked = value_of(&record).unwrap_or_default();
        if approve::is_pending(&asked) {
            return self.approve(&plane, key.name(), &asked).await;
        }
        let now = jiff::Timestamp::now();
        let (path, answer): (&[&str], Value) = match self.decide(&plane, &asked, now) {
            Ok(chain) => (&["status", "certificate"], STANDARD.encode(chain).into()),
            Err(Refusal::Asked(why)) => {
                let mut conditions = object::list(&asked, &["status", "conditions"]).to_vec();
                let at = mica_machinery::time::now_text(now);
                conditions.push(
                    json!({"type": "Failed", "status": "True", "reason": "SignerValidationFailure",
                    "message": why, "lastUpdateTime": at}),
                );
                (&["status", "conditions"], conditions.into())
            }
            Err(Refusal::Ours(error)) => {
                return Err(ApiError::internal("a certificate could not be made").because(error));
            }
        };
        self.tell(&plane, key.name(), &asked, ("status", is_open), (path, &answer))
            .await?;
        Ok(Answered::Whole)
    }

    /// Writes an answer into a request, through a subresource, if it still waits for that.
    async fn tell(
        &self,
        plane: &Arc<Plane>,
        name: &str,
        asked: &Value,
        (subresource, waits): (&'static str, fn(&Value) -> bool),
        (path, answer): (&[&str], &Value),
    ) -> Result<(), ApiError> {
        let Some(served) = plane.scheme.find(GROUP, "v1", PLURAL).cloned() else {
            return Ok(());
        };
        let target = Target {
            plane: plane.clone(),
            served,
            namespace: None,
            name: Some(name.into()),
            subresource: subresource.into(),
            definition: None,
            within: None,
        };
        let uid = object::string(asked, &["metadata", "uid"]);
        let change = |mut now: Value| {
            if object::string(&now, &["metadata", "uid"]) == uid && waits(&now) {
                object::set(&mut now, path, answer.clone());
            }
            now
        };
        let grant = authz::system(Verb::Update, target);
        self.registry.change(&grant, MANAGER, &change).await
    }

    /// The certificate that a request gets, in PEM.
    fn decide(&self, plane: &Plane, asked: &Value, now: jiff::Timestamp) -> Result<String, Refusal> {
        let der = request::parse(asked).map_err(Refusal::Asked)?;
        let parsed = SigningRequest::from_der(&der).map_err(|error| Refusal::Asked(error.to_string()))?;
        let usages = usages(asked);
        check(object::string(asked, &["spec", "signerName"]), &parsed, &usages).map_err(Refusal::Asked)?;
        let seconds = object::int(asked, &["spec", "expirationSeconds"]);
        let life = seconds.map_or(LONGEST, |seconds| {
            Duration::from_secs(u64::try_from(seconds).unwrap_or_default()).clamp(SHORTEST, LONGEST)
        });
        // Whatever is for more than clients is signed by what nobody outside the plane believes.
        let clients = usages.iter().all(|usage| !is_purpose(usage) || *usage == "client auth");
        let what = if clients { For::Clients } else { For::Servers };
        let authority = self.authorities.of(plane.id, what).map_err(Refusal::Ours)?;
        let leaf = authority.sign(&parsed, &usages, life, now).map_err(Refusal::Ours)?;
        // Clients need no more than the leaf, as upstream. Who signed for a server is not written down elsewhere.
        Ok(match what {
            For::Servers if !plane.is_root() => format!("{leaf}{}", authority.certificate_pem()),
            For::Clients | For::Servers => leaf,
        })
    }
}

/// Why a request gets no certificate.
enum Refusal {
    /// It asks for what its signer does not sign.
    Asked(String),
    /// It is not its fault.
    Ours(PkiError),
}

/// Whether a usage is one of those that name a purpose, and not a bit of the key's.
fn is_purpose(usage: &str) -> bool {
    const BITS: [&str; 10] = [
        "signing",
        "digital signature",
        "content commitment",
        "key encipherment",
        "key agreement",
        "data encipherment",
        "cert sign",
        "crl sign",
        "encipher only",
        "decipher only",
    ];
    !BITS.contains(&usage)
}

fn value_of(record: &Record) -> Option<Value> {
    let stored = Content::read(record).ok()?.object()?;
    serde_json::from_slice(stored.json()).ok()
}

fn wants_answer(record: &Record) -> bool {
    value_of(record).is_some_and(|request| is_open(&request) || approve::is_pending(&request))
}

fn usages(asked: &Value) -> Vec<&str> {
    let usages = object::list(asked, &["spec", "usages"]).iter();
    usages.filter_map(Value::as_str).collect()
}

fn condition(request: &Value, r#type: &str) -> bool {
    object::list(request, &["status", "conditions"])
        .iter()
        .any(|one| object::string(one, &["type"]) == r#type && object::string(one, &["status"]) != "False")
}

/// Whether a request is approved, for one of our signers, and neither answered nor failed.
fn is_open(request: &Value) -> bool {
    let has = |r#type| condition(request, r#type);
    let signer = object::string(request, &["spec", "signerName"]);
    [CLIENT, KUBELET_CLIENT, KUBELET_SERVING, LEGACY].contains(&signer)
        && object::string(request, &["status", "certificate"]).is_empty()
        && has("Approved")
        && !has("Denied")
        && !has("Failed")
}

/// What upstream's signers ask of requests, in their words.
fn check(signer: &str, request: &SigningRequest, usages: &[&str]) -> Result<(), String> {
    let names = &request.names;
    let of_node = || {
        if request.organizations != ["system:nodes"] {
            return Err("subject organization is not system:nodes");
        }
        Ok(())
    };
    let named_node = || match request.common_name.starts_with("system:node:") {
        true => Ok(()),
        false => Err("subject common name does not begin with system:node:"),
    };
    let refuse = |list: &[Vec<u8>], why: &'static str| if list.is_empty() { Ok(()) } else { Err(why) };
    match signer {
        KUBELET_SERVING => {
            of_node()?;
            if names.dns.is_empty() && names.addresses.is_empty() {
                return Err("DNS or IP subjectAltName is required".to_owned());
            }
            refuse(&names.emails, "Email subjectAltNames are not allowed")?;
            refuse(&names.uris, "URI subjectAltNames are not allowed")?;
            usages_for(usages, "server auth")?;
            Ok(named_node()?)
        }
        KUBELET_CLIENT => {
            of_node()?;
            refuse(&names.dns, "DNS subjectAltNames are not allowed")?;
            refuse(&names.emails, "Email subjectAltNames are not allowed")?;
            refuse(&names.addresses, "IP subjectAltNames are not allowed")?;
            refuse(&names.uris, "URI subjectAltNames are not allowed")?;
            named_node()?;
            usages_for(usages, "client auth")
        }
        CLIENT => {
            let optional = ["digital signature", "key encipherment"];
            if let Some(usage) = usages
                .iter()
                .find(|usage| **usage != "client auth" && !optional.contains(usage))
            {
                return Err(format!("invalid usage for client certificate: {usage}"));
            }
            if !usages.contains(&"client auth") {
                return Err("missing required usage for client certificate: client auth".to_owned());
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Kubelets ask for exactly this, with or without what only keys of RSA can do.
fn usages_for(usages: &[&str], purpose: &str) -> Result<(), String> {
    let optional = usages.contains(&"key encipherment");
    let required = ["digital signature", purpose];
    let whole = required.iter().all(|usage| usages.contains(usage));
    if whole && usages.len() == required.len() + usize::from(optional) {
        return Ok(());
    }
    let mut all = [purpose, "digital signature", "key encipherment"];
    all.sort_unstable();
    Err(format!("usages did not match [{}]", all.join(" ")))
}
