//! Applies manifests to a plane, and takes away what is not among them any more.

use std::collections::BTreeSet;
use std::time::Duration;

use mica_api::control_plane::{ADMIN_NAMESPACE, MANAGED_LABEL, reason};
use serde_json::{Value, json};

use super::bundle::Manifest;
use super::written;
use crate::api::{Absent as _, Refusal};
use crate::control_plane::plan::{Observed, Problem};
use crate::control_plane::provision::Made;
use crate::control_plane::{ControlPlanes, Home};
use crate::kinds::{Catalog, Scope, Served};
use crate::place::Place;

/// Who is recorded in managedFields of what addons hold.
const MANAGER: &str = "control-plane-addons";
/// The ConfigMap of a plane that says what was applied to it.
const INVENTORY: &str = "controlplane-addons";
const OBJECTS: &str = "objects";
/// The namespace of what names none.
const DEFAULT_NAMESPACE: &str = "default";
/// How often a kind is looked for that was defined a moment ago, and the pause between.
const LOOKS: usize = 100;
const LOOK: Duration = Duration::from_millis(20);

/// What is taken away.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Prune {
    /// What was applied before and is not any more.
    Dropped,
    Nothing,
}

/// What tells an object from others.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Key([String; 4]);

impl Key {
    fn to_value(&self) -> Value {
        let [api_version, kind, namespace, name] = &self.0;
        json!({"apiVersion": api_version, "kind": kind, "namespace": namespace, "name": name})
    }

    /// The namespace that the operator itself lives in is not an addon's to take away.
    fn is_ours(&self) -> bool {
        self.0[1] == "Namespace" && self.0[3] == ADMIN_NAMESPACE
    }
}

/// A plane that addons are applied to.
struct Target<'a> {
    home: &'a Home,
    plane: &'a str,
    catalog: &'a Catalog,
    place: Place,
}

impl ControlPlanes {
    /// Has these manifests applied, in this order. What is wrong with one of them is a problem; trouble with the server is not.
    pub(super) async fn put_addons(
        &self,
        at: &Observed,
        home: &Home,
        made: Made,
        manifests: Vec<Manifest>,
        prune: Prune,
    ) -> Result<Result<(), Problem>, Refusal> {
        let own;
        let catalog = match self.is_shared(home) {
            true => &self.catalog,
            false => {
                own = Catalog::new(home.api.clone());
                &own
            }
        };
        let target = Target {
            home,
            plane: at.cluster_path(),
            catalog,
            // By its name alone: what is kept about it is asked for anew when a kind is missing.
            place: Place::plane(at.cluster_path(), at.uid()),
        };
        let before = match made {
            Made::Now => BTreeSet::new(),
            Made::Before => target.inventory().await?,
        };
        if manifests.is_empty() && before.is_empty() {
            return Ok(Ok(()));
        }
        let mut wanted = BTreeSet::new();
        let mut after: BTreeSet<Key> = before.clone();
        let keys: Vec<Key> = manifests.iter().map(key).collect();
        for key in keys {
            wanted.insert(key.clone());
            after.insert(key);
        }
        if after != before {
            target.write_inventory(&after).await?;
        }
        let mut problem = None;
        for manifest in &manifests {
            match target.apply(manifest).await {
                Ok(()) => {}
                Err(refusal) if refusal.is_passing() => return Err(refusal),
                Err(refusal) => {
                    let message = format!("{} {:?}: {refusal}", manifest.kind(), manifest.text("/metadata/name"));
                    problem.get_or_insert(Problem::new(reason::ADDON_FAILED, message));
                }
            }
        }
        if prune == Prune::Dropped && wanted != after {
            for dropped in after.difference(&wanted).filter(|key| !key.is_ours()) {
                target.delete(dropped).await?;
            }
            target.write_inventory(&wanted).await?;
        }
        Ok(problem.map_or(Ok(()), Err))
    }
}

fn key(manifest: &Manifest) -> Key {
    Key(["/apiVersion", "/kind", "/metadata/namespace", "/metadata/name"]
        .map(|pointer| manifest.text(pointer).to_owned()))
}

impl Target<'_> {
    fn inventory_path(&self) -> String {
        Home::object(self.plane, "v1", "configmaps", Some(ADMIN_NAMESPACE), INVENTORY)
    }

    async fn inventory(&self) -> Result<BTreeSet<Key>, Refusal> {
        let Some(map) = self.home.api.get(&self.inventory_path()).await.or_absent()? else {
            return Ok(BTreeSet::new());
        };
        let objects = map["data"][OBJECTS].as_str().unwrap_or("[]");
        let objects: Vec<Value> = serde_json::from_str(objects).unwrap_or_default();
        Ok(objects.iter().filter_map(written).map(Key).collect())
    }

    async fn write_inventory(&self, keys: &BTreeSet<Key>) -> Result<(), Refusal> {
        let objects: Vec<Value> = keys.iter().map(Key::to_value).collect();
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": INVENTORY, "namespace": ADMIN_NAMESPACE, "labels": {MANAGED_LABEL: "true"}},
            "data": {OBJECTS: Value::Array(objects).to_string()}});
        self.home
            .api
            .apply(&self.inventory_path(), MANAGER, &map)
            .await
            .map(drop)
    }

    async fn apply(&self, manifest: &Manifest) -> Result<(), Refusal> {
        let served = self.served(manifest.text("/apiVersion"), manifest.kind()).await?;
        let path = self.path(
            &served,
            manifest.text("/metadata/namespace"),
            manifest.text("/metadata/name"),
        );
        self.home.api.apply(&path, MANAGER, &manifest.object).await?;
        if manifest.kind() == "CustomResourceDefinition" {
            self.catalog.forget(&self.place);
        }
        Ok(())
    }

    /// Where objects of a kind are. One that was defined a moment ago may take a moment to be served.
    async fn served(&self, api_version: &str, kind: &str) -> Result<std::sync::Arc<Served>, Refusal> {
        let mut looks = 0;
        loop {
            match self.catalog.find(&self.place, api_version, kind).await {
                Err(refusal @ Refusal::UnknownKind { .. }) => {
                    looks += 1;
                    if looks >= LOOKS || !self.is_defined(api_version, kind).await? {
                        return Err(refusal);
                    }
                    tokio::time::sleep(LOOK).await;
                }
                found => return found,
            }
        }
    }

    /// Whether the plane has a definition of a kind.
    async fn is_defined(&self, api_version: &str, kind: &str) -> Result<bool, Refusal> {
        let path = Home::collection(self.plane, "apiextensions.k8s.io/v1", "customresourcedefinitions", None);
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        let all = self.home.api.list(&path, "").await?;
        Ok(all
            .items
            .iter()
            .any(|one| one["spec"]["group"] == group && one["spec"]["names"]["kind"] == kind))
    }

    fn path(&self, served: &Served, namespace: &str, name: &str) -> String {
        let namespace = match (served.scope, namespace) {
            (Scope::Cluster, _) => None,
            (Scope::Namespaced, "") => Some(DEFAULT_NAMESPACE),
            (Scope::Namespaced, named) => Some(named),
        };
        Home::object(
            self.plane,
            &served.what.api_version,
            &served.what.resource,
            namespace,
            name,
        )
    }

    /// Takes away what was applied before, if it is still ours.
    async fn delete(&self, key: &Key) -> Result<(), Refusal> {
        let [api_version, kind, namespace, name] = &key.0;
        let served = match self.catalog.find(&self.place, api_version, kind).await {
            Ok(served) => served,
            // Its definition is gone, and with it every object.
            Err(Refusal::UnknownKind { .. }) => return Ok(()),
            Err(refusal) => return Err(refusal),
        };
        let path = self.path(&served, namespace, name);
        let Some(present) = self.home.api.get(&path).await.or_absent()? else {
            return Ok(());
        };
        if present["metadata"]["labels"][MANAGED_LABEL] != "true" {
            return Ok(());
        }
        self.home.api.delete_any(&path).await.or_absent()?;
        if kind == "CustomResourceDefinition" {
            self.catalog.forget(&self.place);
        }
        Ok(())
    }
}
