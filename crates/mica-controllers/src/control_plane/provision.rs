//! Where a control plane's plane is, and that it is there.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mica_api::control_plane::{Mode, condition, management_namespace, reason};
use serde_json::Value;

use super::plan::plane::{self, Holder, Step};
use super::plan::status::Report;
use super::plan::{Observed, Problem, text};
use super::{ControlPlanes, Home};
use crate::api::{Absent as _, Refusal};
use crate::dedicated::{DEFAULT_KIND, Provider, Provisioned, Refused, Wanted};
use crate::migration::{self, Move};
use crate::place::{self, Place};

/// Where a control plane lives.
pub struct Settled {
    pub home: Home,
    /// When to look again, if it is on its way elsewhere.
    pub again: Option<Duration>,
}

/// A server of a control plane's own.
enum Own {
    Running { home: Home, version: String },
    Pending(String),
    None,
}

impl Refused {
    fn into_refusal(self) -> Refusal {
        Refusal::Elsewhere(self.to_string())
    }
}

impl ControlPlanes {
    /// Finds where the plane is, and takes it on if it is to be elsewhere. `None`: it cannot be anywhere yet.
    pub(super) async fn settle(&self, at: &Observed, report: &mut Report) -> Result<Option<Settled>, Refusal> {
        let own = match at.spec.mode {
            Mode::Dedicated => match self.provisioned(at).await? {
                Ok(own) => own,
                Err(problem) => {
                    report.fail(condition::PROVISIONED, &problem);
                    return Ok(None);
                }
            },
            Mode::Virtual => self.own_server(at).await?,
        };
        let (dedicated, version) = match &own {
            Own::Running { home, version } => (Some(home), Some(version.clone())),
            Own::Pending(_) | Own::None => (None, None),
        };
        // Most are where they belong and never were elsewhere: nobody else has to be asked.
        if at.spec.mode == Mode::Virtual && matches!(own, Own::None) {
            return Ok(Some(Settled {
                home: self.settings.home.clone(),
                again: None,
            }));
        }
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let progress = migration::advance(&Move {
            name: at.name(),
            uid: at.uid(),
            cluster_path: at.cluster_path(),
            wanted: at.spec.mode,
            shared: &self.settings.home,
            dedicated,
            reported: at.status.migration.as_ref(),
            now: &now,
        })
        .await?;
        report.migration = progress.report;
        report.told.extend(progress.told);
        if let Some(change) = progress.condition {
            report.set(change);
        }
        let home = match progress.residence {
            Mode::Virtual => self.settings.home.clone(),
            Mode::Dedicated => match (dedicated, own_message(&own)) {
                (Some(home), _) => {
                    report.version = version;
                    home.clone()
                }
                (None, message) => {
                    report.fail(condition::PROVISIONED, &Problem::new(reason::PROVISIONING, message));
                    return Ok(None);
                }
            },
        };
        Ok(Some(Settled {
            home,
            again: progress.again,
        }))
    }

    /// Has the server of a dedicated control plane started.
    async fn provisioned(&self, at: &Observed) -> Result<Result<Own, Problem>, Refusal> {
        let provider = match self.provider(at) {
            Ok(provider) => provider,
            Err(problem) => return Ok(Err(problem)),
        };
        let dedicated = at.spec.dedicated.clone().unwrap_or_default();
        let wanted = Wanted {
            name: at.name().to_owned(),
            cluster_path: at.cluster_path().to_owned(),
            version: dedicated.version.filter(|version| !version.is_empty()),
            parameters: match self.parameters(at).await? {
                Ok(parameters) => parameters,
                Err(problem) => return Ok(Err(problem)),
            },
            trusts: self.settings.home.ca.clone(),
        };
        match provider.provision(&wanted).await {
            Ok(provisioned) => Ok(Ok(provisioned.into())),
            Err(Refused::Unacceptable { reason, message }) => Ok(Err(Problem::new(reason, message))),
            Err(refused @ Refused::Failed { .. }) => Err(refused.into_refusal()),
        }
    }

    /// Who runs the server of a dedicated control plane.
    fn provider(&self, at: &Observed) -> Result<&dyn Provider, Problem> {
        let known: Vec<&str> = self.settings.providers.iter().map(|provider| provider.kind()).collect();
        if known.is_empty() {
            let message = "mode Dedicated needs somebody who runs servers, and none is configured here";
            return Err(Problem::new(reason::MODE_NOT_SUPPORTED, message));
        }
        let named = at.spec.dedicated.as_ref().and_then(|said| said.provider_ref.as_ref());
        let kind = named.map_or(DEFAULT_KIND, |named| named.kind.as_str());
        match self.settings.provider(kind) {
            Some(provider) => Ok(&**provider),
            None => Err(Problem::new(
                reason::PROVIDER_NOT_FOUND,
                format!(
                    "no provider of kind {kind:?} is configured: there is {}",
                    known.join(", ")
                ),
            )),
        }
    }

    /// A server of its own that a control plane has already, whoever runs it.
    async fn own_server(&self, at: &Observed) -> Result<Own, Refusal> {
        for provider in &self.settings.providers {
            if let Some(found) = provider.find(at.name()).await.map_err(Refused::into_refusal)? {
                return Ok(found.into());
            }
        }
        Ok(Own::None)
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

    /// Has the plane there, as the class wants it. Whether it takes requests.
    pub(super) async fn plane(&self, at: &Observed, home: &Home, report: &mut Report) -> Result<bool, Refusal> {
        let made = self.keep_plane(at, home).await;
        let made = match made {
            Ok(made) => made,
            Err(refusal) => {
                report.fail(
                    condition::PROVISIONED,
                    &Problem::new(reason::PROVISIONING, refusal.to_string()),
                );
                return Err(refusal);
            }
        };
        let plane = match made {
            Ok(plane) => plane,
            Err(problem) => {
                report.fail(condition::PROVISIONED, &problem);
                return Ok(false);
            }
        };
        if let Some(problem) = plane::inactive(&plane) {
            report.fail(condition::PROVISIONED, &problem);
            return Ok(false);
        }
        let mut message = format!("plane {:?} with id {}", at.cluster_path(), text(&plane, "/status/id"));
        if let Some(remark) = plane::remark(at, &plane) {
            message = format!("{message}; {remark}");
        }
        report.done(condition::PROVISIONED, &message);
        Ok(true)
    }

    async fn keep_plane(&self, at: &Observed, home: &Home) -> Result<Result<Value, Problem>, Refusal> {
        let path = Home::plane_object(at.cluster_path());
        let present = home.api.get(&path).await.or_absent()?;
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

impl From<Provisioned> for Own {
    fn from(provisioned: Provisioned) -> Self {
        match provisioned {
            Provisioned::Pending { message } => Self::Pending(message),
            Provisioned::Running { home, version } => Self::Running { home, version },
        }
    }
}

fn own_message(own: &Own) -> &str {
    match own {
        Own::Pending(message) => message,
        Own::Running { .. } | Own::None => "its server is not there yet",
    }
}
