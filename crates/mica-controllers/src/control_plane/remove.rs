//! The end of a control plane: what it held is kept, detached, or destroyed; then it goes, and what it owned with it.

use mica_api::control_plane::{ADOPT_ANNOTATION, DeletionPolicy, FINALIZER, Mode, condition, reason};
use mica_runtime::queue::Outcome;
use serde_json::{Value, json};

use super::plan::status::Report;
use super::plan::{Observed, Problem, plane, text};
use super::provision::any_server;
use super::reconcile::{MANAGER, path};
use super::{ControlPlanes, Home};
use crate::api::{Absent as _, Refusal};
use crate::condition::find;
use crate::dedicated::{Refused, Retired};
use crate::event::{self, Severity, Told};
use crate::migration::plan::Wanted;
use crate::migration::{Residence, Rest};

/// How far something is.
enum Going {
    Gone,
    /// It takes time; what is waited for.
    Waiting(String),
}

impl ControlPlanes {
    pub(super) async fn remove(&self, at: &Observed) -> Result<Outcome, Refusal> {
        if !at.is_held() {
            return Ok(Outcome::Done);
        }
        let policy = at.deletion_policy();
        // What a migration began is ended first: then one plane is left, or none.
        if !self.settings.providers.is_empty() {
            let server = any_server(at);
            let standing = Box::pin(self.stand(at, Wanted::Gone, &server)).await?;
            if let Rest::After(time) = standing.rest {
                return Ok(Outcome::Again(time));
            }
            if let (Residence::At { mode, home, .. }, DeletionPolicy::Retain) = (&standing.residence, policy)
                && *mode == Mode::Dedicated
            {
                Box::pin(self.retain_its_own(at, home)).await?;
            }
        }
        let mut waiting = match self.remove_plane(at, policy).await? {
            Going::Gone => None,
            Going::Waiting(what) => Some(what),
        };
        for provider in &self.settings.providers {
            match provider.retire(at.name(), policy).await {
                Ok(Retired::Done) => {}
                Ok(Retired::Pending { message }) => waiting = waiting.or(Some(message)),
                Err(refused @ (Refused::Failed { .. } | Refused::Unacceptable { .. })) => {
                    return Err(Refusal::Elsewhere(refused.to_string()));
                }
            }
        }
        if let Some(what) = waiting {
            let mut report = Report::default();
            report.fail(condition::PROVISIONED, &Problem::new(reason::DELETING, what));
            self.report(at, &report).await?;
            return Ok(Outcome::Done);
        }
        self.let_go(at).await?;
        Ok(Outcome::Done)
    }

    /// What of it is on the shared server. A plane that is somebody else's stays as it is.
    async fn remove_plane(&self, at: &Observed, policy: DeletionPolicy) -> Result<Going, Refusal> {
        let home = &self.settings.home;
        let path = Home::plane_object(at.cluster_path());
        let plane = home.api.get(&path).await.or_absent()?;
        let Some(plane) = plane.filter(|plane| plane::is_of(plane, at.uid())) else {
            return Ok(Going::Gone);
        };
        let deleting = !plane["metadata"]["deletionTimestamp"].is_null();
        match policy {
            DeletionPolicy::Retain if !deleting => {
                self.retain(at, home, &path, &plane).await?;
                Ok(Going::Gone)
            }
            _ if deleting => {
                let drained = find(&plane["status"]["conditions"], "Drained");
                let blocking = drained
                    .filter(|drained| drained["status"] == "False")
                    .and_then(|drained| drained["message"].as_str());
                let waiting = "waiting for everything in the plane to be deleted";
                Ok(Going::Waiting(blocking.unwrap_or(waiting).to_owned()))
            }
            _ => {
                let deleted = home.api.delete_uid(&path, text(&plane, "/metadata/uid")).await;
                deleted.or_absent()?;
                // Most are empty and go at once; of others it is heard when they do.
                match home.api.metadata(&path).await.or_absent()? {
                    None => Ok(Going::Gone),
                    Some(_) => Ok(Going::Waiting(
                        "the plane is being deleted with everything in it".to_owned(),
                    )),
                }
            }
        }
    }

    /// Lets the plane on a server of its own go before that server is ended: as on the shared one, nobody has credentials
    /// for it and it can be adopted.
    async fn retain_its_own(&self, at: &Observed, home: &Home) -> Result<(), Refusal> {
        let path = Home::plane_object(at.cluster_path());
        let plane = home.api.get(&path).await.or_absent()?;
        let Some(plane) = plane.filter(|plane| plane::is_of(plane, at.uid())) else {
            return Ok(());
        };
        // Said first: what is let go is not looked at again.
        for provider in &self.settings.providers {
            let kept = provider.will_keep(at.name(), text(&plane, "/status/id")).await;
            kept.map_err(|refused| Refusal::Elsewhere(refused.to_string()))?;
        }
        self.retain(at, home, &path, &plane).await
    }

    /// Keeps a plane when its ControlPlane goes: nobody has credentials for it any more, and it can be found and adopted.
    async fn retain(&self, at: &Observed, home: &Home, path: &str, plane: &Value) -> Result<(), Refusal> {
        match self.disown(at, home).await {
            Ok(()) => {}
            // A plane that takes no requests has credentials that do nothing. They end with their lifetime.
            Err(refusal) if refusal.code() == 403 => {}
            Err(refusal) => return Err(refusal),
        }
        home.api.merge(path, &plane::detach(at)).await.or_absent()?;
        let (name, id) = (at.cluster_path(), text(plane, "/status/id"));
        let told = Told {
            kind: Severity::Normal,
            reason: reason::RETAINED.to_owned(),
            message: format!("plane {name:?} is kept; a ControlPlane with {ADOPT_ANNOTATION}={id} takes it over"),
        };
        event::tell(&self.api, MANAGER, &at.object, &told).await;
        Ok(())
    }

    async fn let_go(&self, at: &Observed) -> Result<(), Refusal> {
        let left: Vec<Value> = at.finalizers().into_iter().filter(|one| one != FINALIZER).collect();
        let patch = json!({"metadata": {
            "resourceVersion": at.object["metadata"]["resourceVersion"],
            "finalizers": left,
        }});
        self.api.merge(&path(at), &patch).await.or_absent().map(drop)
    }
}
