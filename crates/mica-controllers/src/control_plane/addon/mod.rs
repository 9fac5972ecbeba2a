//! Addons: bundles of manifests that every control plane of a class has.
//!
//! They come from ConfigMaps of the management plane, from a directory, or are built in, in this order. What is applied is
//! written down in the plane first, so that what is dropped later is known and taken away.

mod apply;
pub mod bundle;
mod directory;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mica_api::control_plane::{ADDON_LABEL, ADMIN_NAMESPACE, condition, reason};
use serde_json::Value;

use super::plan::status::Report;
use super::plan::{Observed, Problem, credential, join, text};
use super::provision::Made;
use super::reconcile::MANAGER;
use super::{ControlPlanes, Home};
use crate::api::{Absent as _, Api, Refusal};
use crate::place::{self, Place, query_value};
use bundle::Manifest;
pub use directory::Directory;

/// Where addons are found.
pub struct Library {
    /// The management plane.
    api: Api,
    directory: Option<Arc<Directory>>,
}

impl Library {
    pub fn new(api: Api, directory: Option<Arc<Directory>>) -> Self {
        Self { api, directory }
    }

    /// Waits until addons of the directory came, changed or went, and says which.
    pub async fn changes(&self) -> Vec<String> {
        match &self.directory {
            Some(directory) => directory.changes().await,
            None => std::future::pending().await,
        }
    }

    /// The manifests of an addon.
    async fn find(&self, name: &str) -> Result<Result<Vec<Manifest>, Problem>, Refusal> {
        let mut files = self.in_maps(name).await?;
        if files.is_empty() {
            files = match self.directory.as_ref().map(|directory| directory.files(name)) {
                None => files,
                Some(Ok(files)) => files,
                Some(Err(error)) => {
                    let message = format!("addon {name:?} cannot be read: {error}");
                    return Ok(Err(Problem::new(reason::ADDON_FAILED, message)));
                }
            };
        }
        if files.is_empty() {
            return Ok(bundle::built_in(name).ok_or_else(|| {
                let message = format!(
                    "there is no addon {name:?}: make ConfigMaps of namespace {ADMIN_NAMESPACE:?} with label {ADDON_LABEL}={name}, \
                     or take it out of the class"
                );
                Problem::new(reason::ADDON_NOT_FOUND, message)
            }));
        }
        let read = bundle::read(files.iter().map(|(file, text)| (file.as_str(), text.as_str())));
        Ok(read.map_err(|bad| Problem::new(reason::ADDON_FAILED, format!("addon {name:?}: {bad}"))))
    }

    /// What ConfigMaps hold, by their names and keys.
    async fn in_maps(&self, name: &str) -> Result<BTreeMap<String, String>, Refusal> {
        let path = place::collection(&Place::root(), "v1", "configmaps", Some(ADMIN_NAMESPACE));
        let query = format!("labelSelector={}", query_value(&format!("{ADDON_LABEL}={name}")));
        let Some(found) = self.api.list(&path, &query).await.or_absent()? else {
            return Ok(BTreeMap::new());
        };
        let mut files = BTreeMap::new();
        for map in &found.items {
            for (key, value) in map["data"].as_object().into_iter().flatten() {
                let file = format!("{}/{key}", text(map, "/metadata/name"));
                files.insert(file, value.as_str().unwrap_or_default().to_owned());
            }
        }
        Ok(files)
    }
}

impl ControlPlanes {
    /// Has everything there that the class adds, and what nodes need to join. When to look again, if by the clock.
    pub(super) async fn addons(
        &self,
        at: &Observed,
        home: &Home,
        made: Made,
        report: &mut Report,
    ) -> Result<Option<Duration>, Refusal> {
        let mut manifests = Vec::new();
        let mut problems = Vec::new();
        let named = at.class_spec().addons;
        for name in &named {
            match self.library.find(name).await? {
                Ok(found) => manifests.extend(found),
                Err(problem) => problems.push(problem),
            }
        }
        let mut rejoin = None;
        if let Some(join) = report.endpoints.as_ref().and_then(|endpoints| endpoints.join.clone()) {
            let (tokens, fresh) = self.join_tokens(at, home).await?;
            rejoin = Some(fresh);
            manifests.extend(bundle::own(join::objects(&join, home.ca.as_deref(), &tokens)));
        }
        // What cannot be read now is not what was dropped: nothing is taken away until all is known.
        let prune = match problems.is_empty() {
            true => apply::Prune::Dropped,
            false => apply::Prune::Nothing,
        };
        let empty = manifests.is_empty();
        let manifests = bundle::ordered(manifests);
        match self.put_addons(at, home, made, manifests, prune).await {
            Ok(Ok(())) => {}
            Ok(Err(problem)) => problems.push(problem),
            Err(refusal) => {
                let problem = Problem::new(reason::ADDON_FAILED, refusal.to_string());
                report.fail(condition::ADDONS_APPLIED, &problem);
                return Err(refusal);
            }
        }
        match problems.first() {
            Some(problem) => report.fail(condition::ADDONS_APPLIED, problem),
            None if named.is_empty() && empty => report.dropped.push(condition::ADDONS_APPLIED),
            None => report.done(condition::ADDONS_APPLIED, &format!("{} applied", list(&named))),
        }
        Ok(rejoin)
    }

    /// The tokens that nodes may join with: one of them is good for a while.
    async fn join_tokens(&self, at: &Observed, home: &Home) -> Result<(Vec<join::Token>, Duration), Refusal> {
        let plane = at.cluster_path();
        let secrets = Home::collection(plane, "v1", "secrets", Some(join::TOKEN_NAMESPACE));
        let managed = format!(
            "labelSelector={}",
            query_value(&format!("{}=true", mica_api::control_plane::MANAGED_LABEL))
        );
        let listed = home.api.list(&secrets, &managed).await?;
        let now = jiff::Timestamp::now();
        let lifetime = i64::try_from(self.settings.lifetime.as_secs()).unwrap_or(i64::MAX / 4);
        let join::Tokens { mut good, expired } = join::tokens(&listed.items, now);
        for name in expired {
            home.api.delete_any(&format!("{secrets}/{name}")).await.or_absent()?;
        }
        let fresh_for = |token: &join::Token| {
            let expires = token.expires.as_second();
            credential::fresh_for(expires.saturating_sub(lifetime), expires, now)
        };
        if let Some(fresh) = good.first().and_then(fresh_for) {
            return Ok((good, fresh));
        }
        let expires = now + jiff::SignedDuration::from_secs(lifetime);
        let token = join::mint(|below| rand::random_range(0..below), expires);
        let secret = join::token_secret(&token);
        home.api
            .create(&format!("{secrets}?fieldManager={MANAGER}"), &secret)
            .await?;
        let fresh = fresh_for(&token).unwrap_or(self.settings.lifetime / 3);
        good.insert(0, token);
        Ok((good, fresh))
    }
}

fn list(named: &[String]) -> String {
    match named {
        [] => "what nodes need to join is".to_owned(),
        named => named.join(", "),
    }
}

/// An object that was applied, as it is written down.
pub(super) fn written(value: &Value) -> Option<[String; 4]> {
    let field = |name: &str| value[name].as_str().map(str::to_owned);
    Some([
        field("apiVersion")?,
        field("kind")?,
        field("namespace").unwrap_or_default(),
        field("name")?,
    ])
}
