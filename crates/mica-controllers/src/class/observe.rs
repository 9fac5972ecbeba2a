//! A class, and which of its addons nobody has.

use mica_api::control_plane::{ADDON_LABEL, ADMIN_NAMESPACE, API_VERSION, CLASSES, ControlPlaneClassSpec};

use super::Classes;
use super::plan::Observed;
use crate::api::{Absent as _, Refusal};
use crate::endpoint::read;
use crate::place::{self, Place};

/// Addons that need nobody.
const BUILT_IN: [&str; 1] = ["starter"];

impl Classes {
    pub(super) async fn observe(&self, name: &str) -> Result<Option<Observed>, Refusal> {
        let path = place::object(&Place::root(), API_VERSION, CLASSES, None, name);
        let Some(class) = self.api.get(&path).await.or_object_absent()? else {
            return Ok(None);
        };
        let spec: ControlPlaneClassSpec = read(&class["spec"]);
        let mut unknown = Vec::new();
        let outside: Vec<String> = spec
            .addons
            .into_iter()
            .filter(|one| !BUILT_IN.contains(&one.as_str()))
            .collect();
        if outside.is_empty() {
            self.with_addons.lock().remove(name);
        } else {
            // Before ConfigMaps are looked for: one that comes after that is heard of.
            self.with_addons.lock().insert(name.into());
        }
        for addon in outside {
            let is_here = self.addons.as_ref().is_some_and(|directory| directory.has(&addon));
            if !is_here && !self.is_in_config_map(&addon).await? {
                unknown.push(addon);
            }
        }
        Ok(Some(Observed { class, unknown }))
    }

    async fn is_in_config_map(&self, addon: &str) -> Result<bool, Refusal> {
        let path = place::collection(&Place::root(), "v1", "configmaps", Some(ADMIN_NAMESPACE));
        let selector = place::query_value(&format!("{ADDON_LABEL}={addon}"));
        match self
            .api
            .list_metadata(&path, &format!("labelSelector={selector}"))
            .await
        {
            Ok(found) => Ok(!found.items.is_empty()),
            // A name that no label can have.
            Err(refusal) if refusal.code() == 400 => Ok(false),
            Err(refusal) => Err(refusal),
        }
    }
}
