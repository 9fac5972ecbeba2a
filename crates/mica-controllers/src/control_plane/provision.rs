//! Where a control plane's plane is, and that it is there.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mica_api::control_plane::{
    ADOPT_ANNOTATION, DRAIN_ANNOTATION, Mode, SERVER_ANNOTATION, condition, management_namespace, reason,
};
use mica_machinery::duration::parse_go;
use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64;

use super::plan::plane::{self, Holder, Step};
use super::plan::status::Report;
use super::plan::{Novelty, Observed, Problem, text};
use super::{ControlPlanes, Home};
use crate::api::{Absent as _, Refusal};
use crate::dedicated::{DEFAULT_KIND, Wanted as Server};
use crate::migration::plan::Wanted;
use crate::migration::{Case, Owner, Residence, Rest, Standing};
use crate::place::{self, Place};

/// Where a control plane lives.
pub struct Settled {
    /// The server that it is on; none while that cannot be known, or must not be touched.
    pub home: Option<Home>,
    /// The Plane there, as it was seen; none if it is new.
    pub plane: Option<Value>,
    /// When to look again, if it is on its way elsewhere.
    pub again: Option<Duration>,
}

/// When a plane was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Made {
    /// In this look: there is nothing in it but what it was born with.
    Now,
    Before,
}

impl ControlPlanes {
    /// Finds where the plane is, and takes it on if it is to be elsewhere.
    pub(super) async fn settle(&self, at: &Observed, report: &mut Report) -> Result<Settled, Refusal> {
        let server = match at.spec.mode {
            Mode::Dedicated => match self.server(at).await? {
                Ok(server) => server,
                Err(problem) => {
                    report.fail(condition::PROVISIONED, &problem);
                    return Ok(Settled {
                        home: None,
                        plane: None,
                        again: None,
                    });
                }
            },
            // Where nobody runs servers, all are where they belong.
            Mode::Virtual if self.settings.providers.is_empty() && at.novelty == Novelty::Known => {
                let home = self.settings.home.clone();
                let plane = home.api.get(&Home::plane_object(at.cluster_path())).await.or_absent();
                let plane = self.blame(report, condition::PROVISIONED, reason::PROVISIONING, plane)?;
                return Ok(Settled {
                    home: Some(home),
                    plane,
                    again: None,
                });
            }
            Mode::Virtual => {
                if at.novelty == Novelty::New && self.has_no_server(at).await {
                    return Ok(Settled {
                        home: Some(self.settings.home.clone()),
                        plane: None,
                        again: None,
                    });
                }
                any_server(at)
            }
        };
        let standing = Box::pin(self.stand(at, Wanted::At(at.spec.mode), &server)).await;
        let standing = self.blame(report, condition::PROVISIONED, reason::PROVISIONING, standing)?;
        report.migration = standing.report.migration;
        report.told.extend(standing.report.told);
        if let Some(change) = standing.report.condition {
            report.set(change);
        }
        let home = match standing.residence {
            Residence::At { mode, home, version } => {
                // What a server ran that it had once says nothing of the shared one.
                let had_one = mode == Mode::Virtual && !at.status.version.is_empty();
                report.version = version.or(had_one.then(String::new));
                Some(home)
            }
            Residence::Held { reason, message } => {
                report.fail(condition::PROVISIONED, &Problem::new(reason, message));
                None
            }
            Residence::Nowhere => None,
        };
        let again = match standing.rest {
            Rest::Settled => None,
            Rest::After(time) => Some(time),
        };
        Ok(Settled {
            home,
            plane: standing.plane,
            again,
        })
    }

    /// Whether nobody runs a server by the name of a control plane.
    async fn has_no_server(&self, at: &Observed) -> bool {
        for provider in &self.settings.providers {
            if !matches!(provider.find(at.name()).await, Ok(None)) {
                return false;
            }
        }
        true
    }

    /// Looks at both servers, and takes the next steps of a migration if there is one.
    pub(super) async fn stand(&self, at: &Observed, wanted: Wanted, server: &Server) -> Result<Standing, Refusal> {
        let owner = |plane: &Value, _: Mode| match plane::is_of(plane, at.uid()) {
            true => Owner::Us,
            false => Owner::Other(plane::holder(plane)),
        };
        let new = |_: Mode| plane::new(at);
        let said = at.annotation(DRAIN_ANNOTATION).and_then(|text| parse_go(text).ok());
        let said = said.and_then(|nanoseconds| u64::try_from(nanoseconds).ok());
        let case = Case {
            name: at.name(),
            asked: asked(at),
            cluster_path: at.cluster_path(),
            wanted,
            provider: provider_kind(at),
            server,
            owner: &owner,
            plane: &new,
            reported: at.status.migration.as_ref(),
            published: self.published(at),
            drain: said.map_or(self.settings.drain, Duration::from_nanos),
            now: jiff::Timestamp::now(),
        };
        Box::pin(self.migrations.advance(&case)).await
    }

    /// Whose addresses and credentials clients have.
    fn published(&self, at: &Observed) -> Option<Mode> {
        let secret = at.secret.as_ref()?;
        let server = secret["metadata"]["annotations"][SERVER_ANNOTATION].as_str()?;
        Some(match server == self.settings.home.url {
            true => Mode::Virtual,
            false => Mode::Dedicated,
        })
    }

    /// The server that a dedicated control plane is to have.
    async fn server(&self, at: &Observed) -> Result<Result<Server, Problem>, Refusal> {
        if let Err(problem) = self.provider(at) {
            return Ok(Err(problem));
        }
        let dedicated = at.spec.dedicated.clone().unwrap_or_default();
        Ok(self.parameters(at).await?.map(|parameters| Server {
            version: dedicated.version.filter(|version| !version.is_empty()),
            parameters,
            ..any_server(at)
        }))
    }

    /// Whether there is somebody who runs the server of a dedicated control plane.
    fn provider(&self, at: &Observed) -> Result<(), Problem> {
        let known: Vec<&str> = self.settings.providers.iter().map(|provider| provider.kind()).collect();
        if known.is_empty() {
            let message = "mode Dedicated needs somebody who runs servers, and none is configured here";
            return Err(Problem::new(reason::MODE_NOT_SUPPORTED, message));
        }
        let kind = provider_kind(at);
        match self.settings.provider(kind) {
            Some(_) => Ok(()),
            None => Err(Problem::new(
                reason::PROVIDER_NOT_FOUND,
                format!(
                    "no provider of kind {kind:?} is configured: there is {}",
                    known.join(", ")
                ),
            )),
        }
    }

    /// What the provider is to know: the data of a ConfigMap or a Secret of the management namespace.
    async fn parameters(&self, at: &Observed) -> Result<Result<BTreeMap<String, String>, Problem>, Refusal> {
        let named = at.spec.dedicated.as_ref().and_then(|said| said.parameters_ref.as_ref());
        let Some(named) = named else {
            return Ok(Ok(BTreeMap::new()));
        };
        let namespace = management_namespace(at.name());
        let resource = match named.kind.as_str() {
            "ConfigMap" => "configmaps",
            "Secret" => "secrets",
            other => {
                let message = format!("spec.dedicated.parametersRef.kind is {other:?}: say ConfigMap or Secret");
                return Ok(Err(Problem::new(reason::PROVIDER_NOT_FOUND, message)));
            }
        };
        let path = place::object(&Place::root(), "v1", resource, Some(&namespace), &named.name);
        let Some(found) = self.api.get(&path).await.or_absent()? else {
            let message = format!(
                "{} {:?} of namespace {namespace:?} does not exist: make it",
                named.kind, named.name
            );
            return Ok(Err(Problem::new(reason::PROVISIONING, message)));
        };
        let plain = |value: &Value| -> Option<String> {
            match resource {
                "configmaps" => value.as_str().map(str::to_owned),
                _ => String::from_utf8(STANDARD.decode(value.as_str()?).ok()?).ok(),
            }
        };
        let data = found["data"].as_object().into_iter().flatten();
        Ok(Ok(data
            .filter_map(|(key, value)| Some((key.clone(), plain(value)?)))
            .collect()))
    }

    /// Has the plane there, as the class wants it. Whether it was made now; none if it takes no requests.
    pub(super) async fn plane(
        &self,
        at: &Observed,
        home: &Home,
        present: Option<Value>,
        report: &mut Report,
    ) -> Result<Option<Made>, Refusal> {
        let made = match &present {
            None => Made::Now,
            Some(_) => Made::Before,
        };
        let kept = self.keep_plane(at, home, present).await;
        let plane = match self.blame(report, condition::PROVISIONED, reason::PROVISIONING, kept)? {
            Ok(plane) => plane,
            Err(problem) => {
                report.fail(condition::PROVISIONED, &problem);
                return Ok(None);
            }
        };
        if let Some(problem) = plane::inactive(&plane) {
            report.fail(condition::PROVISIONED, &problem);
            return Ok(None);
        }
        let mut message = format!("plane {:?} with id {}", at.cluster_path(), text(&plane, "/status/id"));
        if let Some(remark) = plane::remark(at, &plane) {
            message = format!("{message}; {remark}");
        }
        report.done(condition::PROVISIONED, &message);
        Ok(Some(made))
    }

    async fn keep_plane(
        &self,
        at: &Observed,
        home: &Home,
        present: Option<Value>,
    ) -> Result<Result<Value, Problem>, Refusal> {
        let path = Home::plane_object(at.cluster_path());
        let holder = self.holder(at, present.as_ref()).await?;
        let step = match plane::plan(at, present.as_ref(), holder) {
            Ok(step) => step,
            Err(problem) => return Ok(Err(problem)),
        };
        Ok(match (step, present) {
            (Step::Create(plane), _) => match home.api.create(Home::plane_objects(), &plane).await {
                Ok(plane) => Ok(plane),
                // What the server does not take, no other try will make good.
                Err(refusal) if matches!(refusal.code(), 400 | 403 | 422) => {
                    Err(Problem::new(reason::FAILED, refusal.to_string()))
                }
                Err(refusal) => return Err(refusal),
            },
            (Step::Patch(patch), _) => match home.api.merge(&path, &patch).await {
                Ok(plane) => Ok(plane),
                Err(refusal) if refusal.code() == 422 => Err(Problem::new(reason::FAILED, refusal.to_string())),
                Err(refusal) => return Err(refusal),
            },
            (Step::Nothing, present) => Ok(present.unwrap_or_default()),
        })
    }

    /// Whether the ControlPlane is there that a plane says to belong to, if that is another.
    async fn holder(&self, at: &Observed, plane: Option<&Value>) -> Result<Holder, Refusal> {
        let claimed = plane.and_then(plane::claimed_by).filter(|(_, uid)| *uid != at.uid());
        let Some((name, uid)) = claimed else {
            return Ok(Holder::Gone);
        };
        let path = place::object(
            &Place::root(),
            mica_api::control_plane::API_VERSION,
            mica_api::control_plane::CONTROL_PLANES,
            None,
            name,
        );
        let found = self.api.metadata(&path).await.or_absent()?;
        Ok(match found.is_some_and(|found| found.uid == uid) {
            true => Holder::There,
            false => Holder::Gone,
        })
    }
}

/// Another number when something else is asked for, in the spec or in what the operator is told beside it.
fn asked(at: &Observed) -> u64 {
    let annotations = [ADOPT_ANNOTATION, DRAIN_ANNOTATION].map(|name| at.annotation(name));
    let said = format!("{} {annotations:?}", at.object["metadata"]["generation"]);
    xxh3_64(said.as_bytes())
}

/// The kind of who runs servers for it.
fn provider_kind(at: &Observed) -> &str {
    let named = at.spec.dedicated.as_ref().and_then(|said| said.provider_ref.as_ref());
    named.map_or(DEFAULT_KIND, |named| named.kind.as_str())
}

/// A server of which nothing is asked but that it is this one's.
pub fn any_server(at: &Observed) -> Server {
    Server {
        name: at.name().to_owned(),
        cluster_path: at.cluster_path().to_owned(),
        version: None,
        parameters: BTreeMap::new(),
        adopts: at.annotation(ADOPT_ANNOTATION).map(str::to_owned),
    }
}
