//! Every write of a migration. Each says which version of a Plane it is about, so that of two who do the same one is refused;
//! and each can be done again.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mica_api::control_plane::{DECOMMISSIONED_ANNOTATION, DeletionPolicy, Mode, reason};
use mica_api::plane::address_holder;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::courier::{Way, trouble_of};
use super::plan::{Keep, Side, Step, other};
use super::report::Trouble;
use super::side::{DECOMMISSIONED, Half, RESERVED};
use super::{Case, Halves, Migrations};
use crate::api::{Absent as _, Api, Propagation, Refusal};
use crate::control_plane::Home;
use crate::dedicated::Retired;
use crate::meta::Meta;
use crate::route::HOSTS;

/// How long changes may take to send just before writes are made to wait for the rest.
const CLOSE: Duration = Duration::from_secs(2);
/// How long writes wait at most before the switch is put off.
const FENCE: Duration = Duration::from_secs(10);

/// What came of a step.
pub enum Done {
    /// It is done, or somebody was faster: the next look tells.
    Look,
    /// It goes on by itself.
    Wait(Duration),
}

/// How soon to look whether something has ended that tells nobody.
const LOOK: Duration = Duration::from_millis(250);

impl Migrations {
    /// Takes a step.
    pub(super) async fn apply(&self, case: &Case<'_>, halves: &Halves, step: &Step) -> Result<Done, Refusal> {
        let path = Home::plane_object(case.cluster_path);
        match *step {
            Step::Settled | Step::Wait(_) | Step::Stuck(..) | Step::Drain => {}
            // Requests know whose turn it is; who runs servers does not.
            Step::Provision | Step::Retire(_) if !self.turn.may_write() => return Err(Refusal::NotOurTurn),
            Step::Provision => return self.provision(case).await,
            Step::Receive(to) => self.receive(case, halves, to).await?,
            Step::Carry(to, _) => {
                let Some(way) = halves.way(case, to) else {
                    return Ok(Done::Look);
                };
                let have = match halves.at(to).side {
                    Side::Arriving(reached) => reached,
                    _ => None,
                };
                self.couriers.send(case.name, way, have);
                return Ok(Done::Wait(Duration::from_secs(1)));
            }
            Step::Switch(to) => Box::pin(self.switch(case, halves, to)).await?,
            Step::Forward(mode) => {
                let (half, to) = (halves.at(mode), halves.at(other(mode)));
                forward(half, half.version(), to, case.cluster_path, "Pass").await?;
            }
            Step::Redirect(mode) => {
                let (half, to) = (halves.at(mode), halves.at(other(mode)));
                let requests = half.text("/spec/movedTo/requests").to_owned();
                forward(half, half.version(), to, case.cluster_path, &requests).await?;
            }
            Step::Refuse(mode) => {
                let patch = json!({"spec": {"movedTo": {"requests": "Refuse"}}});
                change(halves.at(mode), halves.at(mode).version(), &path, patch).await?;
            }
            Step::Unfence(mode) => unfence(halves.at(mode), halves.at(mode).version(), &path).await?,
            Step::Drop(mode) | Step::Remove(mode) => {
                if matches!(step, Step::Remove(_)) {
                    doubt(halves.at(other(mode)), &path).await?;
                }
                remove(halves.at(mode), &path).await?;
                // What goes is gone in a moment; nobody tells of planes of other servers.
                return Ok(Done::Look);
            }
            Step::Mark => self.mark(case, halves).await?,
            Step::Retire(keep) => {
                doubt(halves.at(Mode::Virtual), &path).await?;
                return self.retire(case, keep).await;
            }
        }
        Ok(Done::Look)
    }

    async fn provision(&self, case: &Case<'_>) -> Result<Done, Refusal> {
        let Some(provider) = self.providers.iter().find(|one| one.kind() == case.provider) else {
            let message = format!("there is no provider {:?}: servers are not run here", case.provider);
            self.couriers.failed(
                case.name,
                Trouble {
                    reason: reason::PROVIDER_NOT_FOUND,
                    message,
                },
            );
            return Ok(Done::Wait(LOOK));
        };
        match provider.provision(case.server).await {
            Ok(_) => {}
            Err(refused) => {
                let message = refused.to_string();
                let reason = match &refused {
                    crate::dedicated::Refused::Unacceptable { reason, .. } => *reason,
                    crate::dedicated::Refused::Failed { .. } => reason::PROVISIONING,
                };
                self.couriers.failed(case.name, Trouble { reason, message });
                return Ok(Done::Wait(LOOK));
            }
        }
        Ok(Done::Look)
    }

    async fn retire(&self, case: &Case<'_>, keep: Keep) -> Result<Done, Refusal> {
        let policy = match keep {
            Keep::Nothing => DeletionPolicy::Destroy,
            Keep::Data => DeletionPolicy::Retain,
        };
        for provider in &self.providers {
            match provider.retire(case.name, policy).await {
                Ok(Retired::Done) => {}
                Ok(Retired::Pending { .. }) => return Ok(Done::Wait(LOOK)),
                Err(refused) => return Err(Refusal::Unreachable(Box::new(refused))),
            }
        }
        Ok(Done::Look)
    }

    /// Makes the plane that is to be filled, or lets the one that had moved away be filled again.
    async fn receive(&self, case: &Case<'_>, halves: &Halves, to: Mode) -> Result<(), Refusal> {
        let (old, new) = (halves.at(other(to)), halves.at(to));
        let Some(home) = &new.home else { return Ok(()) };
        let path = Home::plane_object(case.cluster_path);
        // One that only held the name may be of another profile, and would keep it.
        if new.plane.is_some() && new.text("/spec/profile") != old.text("/spec/profile") {
            return remove(new, &path).await;
        }
        if new.plane.is_some() {
            let patch = json!({
                "metadata": {"annotations": {DECOMMISSIONED_ANNOTATION: null}},
                "spec": {"state": "Arriving", "movedTo": null, "movedFrom": moved_from(old)},
            });
            return change(new, new.version(), &path, patch).await.map(drop);
        }
        let mut plane = (case.plane)(to);
        plane["spec"]["state"] = "Arriving".into();
        // What it was born with it keeps.
        plane["spec"]["profile"] = old.text("/spec/profile").into();
        let from = moved_from(old);
        if !from.is_null() {
            plane["spec"]["movedFrom"] = from;
        }
        create(&home.api, &plane).await
    }

    /// Leaves word on the shared server where the plane is, or is to be, under the name that it has there. Its hosts stay its
    /// own, unless somebody has one by now.
    async fn mark(&self, case: &Case<'_>, halves: &Halves) -> Result<(), Refusal> {
        let own = halves.at(Mode::Dedicated);
        let Some(moved_to) = moved_to(own, case.cluster_path, "Refuse") else {
            return Ok(());
        };
        let mut plane = (case.plane)(Mode::Virtual);
        plane["spec"]["state"] = "Moved".into();
        plane["spec"]["movedTo"] = moved_to;
        let annotations = &mut plane["metadata"]["annotations"];
        if matches!(own.side, Side::Absent | Side::Taken(_)) {
            annotations[DECOMMISSIONED_ANNOTATION] = RESERVED.into();
            return create(&self.shared.api, &plane).await;
        }
        annotations[DECOMMISSIONED_ANNOTATION] = DECOMMISSIONED.into();
        plane["spec"]["profile"] = own.text("/spec/profile").into();
        if let Some((hosts, noted)) = own.hosts() {
            let mut plane = plane.clone();
            plane["metadata"]["annotations"][HOSTS] = noted;
            plane["spec"]["addresses"] = hosts;
            match self.shared.api.create(Home::plane_objects(), &plane).await {
                Err(refusal) if address_holder(&refusal.to_string()).is_some() => {}
                Err(refusal) if refusal.is_conflict() => return Ok(()),
                done => return done.map(drop),
            }
        }
        create(&self.shared.api, &plane).await
    }

    /// From the fence to the switch. Whoever fenced the plane here and now may serve it again if something fails before
    /// the other half was asked to open; who finds it fenced may not, because that may have been asked before.
    async fn switch(&self, case: &Case<'_>, halves: &Halves, to: Mode) -> Result<(), Refusal> {
        let (old, new) = (halves.at(other(to)), halves.at(to));
        let (Some(way), Side::Arriving(Some(mut reached))) = (halves.way(case, to), new.side.clone()) else {
            return Ok(());
        };
        let path = Home::plane_object(case.cluster_path);
        let bytes = Arc::<AtomicU64>::default();
        let was_fenced = old.side == Side::Moving;
        let mut version = old.version().to_owned();
        if !was_fenced {
            let begun = Instant::now();
            match way.follow(reached, &bytes).await {
                Ok(arrived) => reached = arrived.revision,
                Err(refusal) if refusal.is_expired() => {
                    self.couriers.stale(case.name);
                    return Ok(());
                }
                Err(refusal) => return Err(refusal),
            }
            if begun.elapsed() > CLOSE {
                self.couriers.stale(case.name);
                return Ok(());
            }
            version = change(old, &version, &path, json!({"spec": {"state": "Moving"}})).await?;
        }
        let fenced = Instant::now();
        let compared = tokio::time::timeout(FENCE, compare(&way, reached, &path)).await;
        let compared = compared.unwrap_or(Err(Refusal::Late));
        let same = match compared {
            Ok(Compared::Same { reached, shown }) => (reached, shown),
            Ok(Compared::Different(how)) => {
                self.differ(case, how);
                remove(new, &path).await?;
                return unfence(old, &version, &path).await;
            }
            Err(refusal) => {
                self.couriers.stale(case.name);
                if !was_fenced {
                    unfence(old, &version, &path).await?;
                } else if refusal.is_expired() {
                    // It has to be copied again, and writes do not wait for that.
                    remove(new, &path).await?;
                }
                return Err(refusal);
            }
        };
        let (reached, shown) = same;
        let body = json!({"revision": shown, "uid": new.uid(), "reached": reached.to_string()});
        way.to.create(&format!("{path}/open"), &body).await?;
        forward(old, &version, new, case.cluster_path, "Pass").await?;
        let waited = fenced.elapsed();
        tracing::info!(
            control_plane = case.name,
            ?waited,
            "a plane has moved; writes waited for it"
        );
        self.switched(case.name, waited);
        Ok(())
    }

    fn differ(&self, case: &Case<'_>, how: String) {
        tracing::warn!(
            control_plane = case.name,
            how,
            "a copy of a plane is not what it was copied from"
        );
        self.couriers.failed(
            case.name,
            Trouble {
                reason: reason::DIGESTS_DIFFER,
                message: format!("the copy is not what it was copied from, and is made again: {how}"),
            },
        );
    }

    /// What failed is tried again after a pause.
    pub(super) fn failed(&self, name: &str, refusal: &Refusal) {
        self.couriers.failed(name, trouble_of(refusal));
    }
}

/// What two servers hold.
enum Compared {
    Same {
        reached: u64,
        /// The newest revision that the old server has shown.
        shown: String,
    },
    Different(String),
}

/// Sends the last changes of a plane that takes no more, and compares.
async fn compare(way: &Way, reached: u64, path: &str) -> Result<Compared, Refusal> {
    let bytes = Arc::<AtomicU64>::default();
    let reached = way.follow(reached, &bytes).await?.revision;
    let digest = format!("{path}/digest");
    let (old, new) = tokio::try_join!(way.from.get(&digest), way.to.get(&digest))?;
    for field in ["objects", "hash"] {
        if old[field] != new[field] || old[field].is_null() {
            return Ok(Compared::Different(difference(&old, &new)));
        }
    }
    let shown = old["revision"].as_str().unwrap_or_default().to_owned();
    Ok(Compared::Same { reached, shown })
}

/// The first resource that two digests do not agree on.
fn difference(old: &Value, new: &Value) -> String {
    let empty = serde_json::Map::new();
    let [mine, theirs] = [old, new].map(|digest| digest["resources"].as_object().unwrap_or(&empty));
    let mut resources: Vec<&String> = mine.keys().chain(theirs.keys()).collect();
    resources.sort();
    let differs = |resource: &&&String| {
        let of = |all: &serde_json::Map<String, Value>| {
            let found = all.get(resource.as_str());
            found.map(|sum| (sum["objects"].clone(), sum["hash"].clone()))
        };
        of(mine) != of(theirs)
    };
    match resources.iter().find(differs) {
        Some(resource) => format!(
            "{resource} ({} objects here, {} there)",
            mine.get(resource.as_str()).map_or(&Value::Null, |sum| &sum["objects"]),
            theirs
                .get(resource.as_str())
                .map_or(&Value::Null, |sum| &sum["objects"]),
        ),
        None => format!("{} objects here, {} there", old["objects"], new["objects"]),
    }
}

/// Changes a Plane if it is still what was looked at; its version then.
async fn change(half: &Half, version: &str, path: &str, mut patch: Value) -> Result<String, Refusal> {
    let Some(home) = &half.home else {
        return Ok(String::new());
    };
    patch["metadata"]["resourceVersion"] = version.into();
    let changed = home.api.merge(path, &patch).await?;
    Ok(changed["metadata"]["resourceVersion"]
        .as_str()
        .unwrap_or_default()
        .to_owned())
}

async fn unfence(half: &Half, version: &str, path: &str) -> Result<(), Refusal> {
    let patch = json!({"spec": {"state": "Active", "movedTo": null}});
    change(half, version, path, patch).await.map(drop)
}

/// Makes a plane lead to its other half.
async fn forward(half: &Half, version: &str, to: &Half, cluster_path: &str, requests: &str) -> Result<(), Refusal> {
    let Some(moved_to) = moved_to(to, cluster_path, requests) else {
        return Ok(());
    };
    let patch = json!({"spec": {"state": "Moved", "movedTo": moved_to}});
    let path = Home::plane_object(cluster_path);
    change(half, version, &path, patch).await.map(drop)
}

/// Where a plane is, for requests that come elsewhere.
fn moved_to(half: &Half, cluster_path: &str, requests: &str) -> Option<Value> {
    let home = half.home.as_ref()?;
    let mut to = json!({"server": home.plane_url(cluster_path), "requests": requests});
    if let Some(ca) = &home.ca {
        to["caBundle"] = STANDARD.encode(ca).into();
    }
    Some(to)
}

/// Whose word counts for requests that the old server passes on.
fn moved_from(half: &Half) -> Value {
    match half.home.as_ref().and_then(|home| home.ca.as_ref()) {
        Some(ca) => json!({"caBundle": STANDARD.encode(ca)}),
        None => Value::Null,
    }
}

/// The old server passes nothing on any more: its word does not count from now on.
async fn doubt(half: &Half, path: &str) -> Result<(), Refusal> {
    let believes = half
        .plane
        .as_ref()
        .is_some_and(|plane| !plane["spec"]["movedFrom"].is_null());
    if half.side != Side::Active || !believes {
        return Ok(());
    }
    let patch = json!({"spec": {"movedFrom": null}});
    change(half, half.version(), path, patch).await.map(drop)
}

async fn create(api: &Api, plane: &Value) -> Result<(), Refusal> {
    match api.create(Home::plane_objects(), plane).await {
        // Somebody was faster: the next look tells who.
        Err(refusal) if refusal.is_conflict() => Ok(()),
        done => done.map(drop),
    }
}

/// Deletes a Plane if it is still what was looked at.
async fn remove(half: &Half, path: &str) -> Result<(), Refusal> {
    let Some(home) = &half.home else { return Ok(()) };
    let meta = Meta {
        uid: half.uid().into(),
        resource_version: half.version().into(),
        ..Meta::default()
    };
    let deleted = home.api.delete(path, &meta, Propagation::Background).await;
    deleted.or_absent().map(drop)
}
