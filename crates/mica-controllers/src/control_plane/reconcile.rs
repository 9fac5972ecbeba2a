//! One look at a control plane: each step does its part and says how it stands; a step that cannot be done does not undo
//! what others published.

use std::time::Duration;

use mica_api::control_plane::{
    API_VERSION, CONTROL_PLANES, FINALIZER, REGISTRATIONS, condition, management_namespace, reason,
};
use mica_runtime::queue::Outcome;
use serde_json::{Value, json};

use super::plan::registration::Step as Registering;
use super::plan::status::Report;
use super::plan::{self, NamespaceStep, Novelty, Observed, Problem, endpoint, status};
use super::{ControlPlanes, Home};
use crate::api::{Absent as _, Refusal};
use crate::event;
use crate::place::{self, Place};

/// Who is recorded in managedFields and in events.
pub const MANAGER: &str = "control-plane-controller";

impl ControlPlanes {
    pub(super) async fn reconcile(&self, name: &str) -> Result<Outcome, Refusal> {
        let Some(mut at) = Box::pin(self.observe(name)).await? else {
            self.settings.census.forget(name);
            return Ok(Outcome::Done);
        };
        self.settings.census.saw(name, &at.object["status"]);
        if self.is_run_by_another(&at) {
            tracing::info!(
                control_plane = name,
                "its server is run by another operator, which sees to it"
            );
            return Ok(Outcome::Done);
        }
        if at.is_deleting() {
            return Box::pin(self.remove(&at)).await;
        }
        if !at.is_held() {
            at.object = self.hold(&at).await?;
        }
        let mut report = Report::default();
        let ended = Box::pin(self.steps(&at, &mut report)).await;
        match &ended {
            // There is something already: the next look reads what.
            Err(refusal) if refusal.is_conflict() && at.novelty == Novelty::New => {
                return Ok(Outcome::Again(Duration::ZERO));
            }
            // Somebody wrote meanwhile: the next look knows more.
            Err(refusal) if refusal.is_conflict() => {}
            // Nothing is wrong with what is asked for, and it can still be used.
            Err(refusal) if (refusal.is_passing() || refusal.is_going()) && at.was_ready() => {}
            _ => Box::pin(self.report(&at, &report)).await?,
        }
        match ended? {
            None => Ok(Outcome::Done),
            Some(later) => Ok(Outcome::Again(later)),
        }
    }

    /// Whether a control plane has a server of its own that nobody here could have started. It is left as it is, its deletion
    /// included: whoever took it for one without a server would leave that server and its data to nobody.
    fn is_run_by_another(&self, at: &Observed) -> bool {
        self.settings.providers.is_empty() && !at.status.version.is_empty()
    }

    /// Everything that a control plane needs, in order. When to look again, if by the clock.
    async fn steps(&self, at: &Observed, report: &mut Report) -> Result<Option<Duration>, Refusal> {
        match plan::class(at).and_then(|class| plan::path(at).map(|()| class)) {
            Ok(class) => report.done(condition::CLASS_RESOLVED, &class),
            Err(problem) if problem.reason == reason::INVALID_CLUSTER_PATH => {
                report.fail(condition::PROVISIONED, &problem);
                return Ok(None);
            }
            Err(problem) => {
                report.fail(condition::CLASS_RESOLVED, &problem);
                return Ok(None);
            }
        }
        if let Err(problem) = Box::pin(self.management(at, report)).await? {
            report.fail(condition::CREDENTIALS_READY, &problem);
            return Ok(None);
        }
        let settled = Box::pin(self.settle(at, report)).await?;
        let Some(home) = &settled.home else {
            return Ok(settled.again);
        };
        let made = Box::pin(self.plane(at, home, settled.plane, report)).await?;
        let Some(made) = made else {
            return Ok(settled.again);
        };
        self.tell_what_is_held(at, report);
        match endpoint::resolve(at, &home.url) {
            Ok(endpoints) => {
                report.done(condition::ENDPOINT_READY, &endpoints.internal);
                report.endpoints = Some(endpoints);
            }
            Err(problem) => report.fail(condition::ENDPOINT_READY, &problem),
        }
        let inside = Box::pin(self.inside(at, home, made)).await;
        let account = self.blame(report, condition::BOOTSTRAPPED, reason::BOOTSTRAPPING, inside)?;
        report.done(condition::BOOTSTRAPPED, "the administrator is there");
        let credentials = Box::pin(self.credentials(at, home, account.as_deref(), report)).await;
        let renewal = self.blame(
            report,
            condition::CREDENTIALS_READY,
            reason::KUBECONFIG_PENDING,
            credentials,
        )?;
        let rejoin = Box::pin(self.addons(at, home, made, report)).await?;
        let registered = Box::pin(self.register(at, report)).await;
        self.blame(report, condition::REGISTERED, reason::NOT_REGISTERED, registered)?;
        Ok([settled.again, renewal, rejoin].into_iter().flatten().min())
    }

    /// Puts what a step was refused into its condition.
    pub(super) fn blame<T>(
        &self,
        report: &mut Report,
        r#type: &'static str,
        reason: &'static str,
        done: Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        if let Err(refusal) = &done {
            report.fail(r#type, &Problem::new(reason, refusal.to_string()));
        }
        done
    }

    /// Makes sure that nobody takes the ControlPlane away before what it made is gone.
    async fn hold(&self, at: &Observed) -> Result<Value, Refusal> {
        let mut finalizers = at.finalizers();
        finalizers.push(FINALIZER.into());
        let patch = json!({"metadata": {
            "resourceVersion": at.object["metadata"]["resourceVersion"],
            "finalizers": finalizers,
        }});
        self.api.merge(&path(at), &patch).await
    }

    /// The management namespace.
    async fn management(&self, at: &Observed, report: &mut Report) -> Result<Result<(), Problem>, Refusal> {
        let step = match plan::namespace(at) {
            Ok(step) => step,
            Err(problem) => return Ok(Err(problem)),
        };
        let written = match step {
            NamespaceStep::Nothing => return Ok(Ok(())),
            NamespaceStep::Create(object) => {
                let path = place::collection(&Place::root(), "v1", "namespaces", None);
                let path = format!("{path}?fieldManager={MANAGER}");
                self.api.create(&path, &object).await
            }
            NamespaceStep::Apply(object) => {
                let name = management_namespace(at.name());
                let path = place::object(&Place::root(), "v1", "namespaces", None, &name);
                self.api.apply(&path, MANAGER, &object).await
            }
        };
        self.blame(
            report,
            condition::CREDENTIALS_READY,
            reason::KUBECONFIG_PENDING,
            written,
        )?;
        Ok(Ok(()))
    }

    /// The registration for the services of the class.
    async fn register(&self, at: &Observed, report: &mut Report) -> Result<(), Refusal> {
        let (step, said) = match plan::registration::plan(at) {
            Ok(planned) => planned,
            Err(problem) => {
                report.fail(condition::REGISTERED, &problem);
                return Ok(());
            }
        };
        let path = place::object(&Place::root(), API_VERSION, REGISTRATIONS, None, at.name());
        match step {
            Registering::Nothing => {}
            Registering::Apply(object) => self.api.apply(&path, MANAGER, &object).await.map(drop)?,
            Registering::Delete => self.api.delete_any(&path).await.or_absent().map(drop)?,
        }
        match said {
            Some(said) => report.done(condition::REGISTERED, &said),
            None => report.dropped.push(condition::REGISTERED),
        }
        Ok(())
    }

    /// Writes the status, and tells what changed.
    pub(super) async fn report(&self, at: &Observed, report: &Report) -> Result<(), Refusal> {
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let (patch, told) = status::plan(at, report, &now);
        if let Some(patch) = patch {
            let path = format!("{}/status", path(at));
            let Some(written) = self.api.merge(&path, &patch).await.or_absent()? else {
                return Ok(());
            };
            let (before, after) = (&at.object["status"], &written["status"]);
            self.settings.census.wrote(at.name(), before, after);
        }
        let tell = told
            .iter()
            .map(|told| event::tell(&self.api, MANAGER, &at.object, told));
        futures::future::join_all(tell).await;
        Ok(())
    }
}

/// The path of a ControlPlane.
pub fn path(at: &Observed) -> String {
    place::object(&Place::root(), API_VERSION, CONTROL_PLANES, None, at.name())
}

impl ControlPlanes {
    /// Whether a home is the one that virtual control planes share.
    pub(super) fn is_shared(&self, home: &Home) -> bool {
        home.url == self.settings.home.url
    }
}
