//! What new objects of some kinds are given from others before they are prepared, as upstream's admission plugins give it.

use mica_machinery::kind::pod::{priority, runtime};
use mica_machinery::object;
use serde_json::Value;

use super::scan::{Extent, Scan};
use super::{Registry, stored_value};
use crate::authz::Target;
use crate::error::ApiError;

impl Registry {
    pub(crate) async fn admit(&self, target: &Target, object: &mut Value) -> Result<(), ApiError> {
        match (target.served.group(), target.served.plural()) {
            ("", "pods") => self.admit_pod(target, object).await,
            ("", "persistentvolumeclaims") => self.admit_claim(target, object).await,
            _ => Ok(()),
        }
    }

    /// A pod has the priority of its class, and what its runtime needs.
    async fn admit_pod(&self, target: &Target, pod: &mut Value) -> Result<(), ApiError> {
        self.admit_priority(target, pod).await?;
        self.admit_runtime(target, pod).await
    }

    async fn admit_runtime(&self, target: &Target, pod: &mut Value) -> Result<(), ApiError> {
        let class = self.runtime_class(target, pod).await?;
        runtime::admit(pod, class.as_ref()).map_err(|why| refuse(target, pod, &why))
    }

    /// Refuses a new pod whose overhead is not that of its class.
    pub(crate) async fn check_runtime(&self, target: &Target, pod: &Value) -> Result<(), ApiError> {
        let class = self.runtime_class(target, pod).await?;
        runtime::check(pod, class.as_ref()).map_err(|why| refuse(target, pod, &why))
    }

    async fn runtime_class(&self, target: &Target, pod: &Value) -> Result<Option<Value>, ApiError> {
        let classes = target.plane.scheme.find("node.k8s.io", "v1", "runtimeclasses").cloned();
        let (Some(name), Some(classes)) = (runtime::class_name(pod), classes) else {
            return Ok(None);
        };
        let entry = self.entry(&target.plane, &classes, None, name).await?;
        let Some(stored) = entry.stored else {
            let why = format!(
                "pod rejected: RuntimeClass {} not found",
                mica_machinery::field::quote(name)
            );
            return Err(refuse(target, pod, &why));
        };
        stored_value(&classes, &stored).map(Some)
    }

    async fn admit_priority(&self, target: &Target, pod: &mut Value) -> Result<(), ApiError> {
        let Some(classes) = target
            .plane
            .scheme
            .find("scheduling.k8s.io", "v1", "priorityclasses")
            .cloned()
        else {
            return Ok(());
        };
        let class = match priority::class_name(pod) {
            Some(name) => {
                let entry = self.entry(&target.plane, &classes, None, name).await?;
                let Some(stored) = entry.stored else {
                    return Err(refuse(
                        target,
                        pod,
                        &format!("no PriorityClass with name {name} was found"),
                    ));
                };
                Some(stored_value(&classes, &stored)?)
            }
            None => {
                let all = self.all(target, "scheduling.k8s.io", "priorityclasses").await?;
                priority::default_class(all.iter()).cloned()
            }
        };
        priority::admit(pod, class.as_ref()).map_err(|why| refuse(target, pod, &why))
    }

    /// A claim that says nothing about its class gets the default one, the newest if there are several.
    async fn admit_claim(&self, target: &Target, claim: &mut Value) -> Result<(), ApiError> {
        const CLASS: [&str; 2] = ["spec", "storageClassName"];
        const OLD: [&str; 3] = ["metadata", "annotations", "volume.beta.kubernetes.io/storage-class"];
        const DEFAULT: [&str; 2] = [
            "storageclass.kubernetes.io/is-default-class",
            "storageclass.beta.kubernetes.io/is-default-class",
        ];
        let told = object::get(claim, &CLASS).is_some_and(|class| !class.is_null());
        if told || object::get(claim, &OLD).is_some() {
            return Ok(());
        }
        let is_default = |class: &&Value| {
            let annotation = |name| object::string(class, &["metadata", "annotations", name]) == "true";
            DEFAULT.into_iter().any(annotation)
        };
        let all = self.all(target, "storage.k8s.io", "storageclasses").await?;
        let newest = all.iter().filter(is_default).max_by_key(|class| {
            let created = object::string(class, &["metadata", "creationTimestamp"]);
            // Of two of one second the first by name counts.
            (created.to_owned(), std::cmp::Reverse(object::name(class).to_owned()))
        });
        if let Some(class) = newest {
            object::set(claim, &CLASS, object::name(class));
        }
        Ok(())
    }

    /// Every object of a cluster-scoped kind that a plane has few of.
    async fn all(&self, target: &Target, group: &str, plural: &str) -> Result<Vec<Value>, ApiError> {
        let Some(served) = target.plane.scheme.find(group, "v1", plural).cloned() else {
            return Ok(Vec::new());
        };
        let (plane, extent) = (target.plane.clone(), Extent::Resource);
        let mut scan = Scan::of_plane(self.clone(), plane, served.clone(), &extent, None, None);
        let mut found = Vec::new();
        while let Some((_, stored)) = scan.next().await? {
            found.push(stored_value(&served, &stored)?);
        }
        Ok(found)
    }
}

fn refuse(target: &Target, pod: &Value, why: &str) -> ApiError {
    ApiError::forbidden(&target.served.name, object::name(pod), why)
}
