//! Parameters of policies: objects of the plane that expressions read.

use std::sync::Arc;

use mica_machinery::admission::{Binding, ParamKind, ParamScope, WantedParams};
use serde_json::Value;

use super::Home;
use super::gate::Gate;
use super::view::tree;
use crate::custom::Definition;
use crate::error::ApiError;
use crate::plane::Plane;
use crate::registry::{Extent, Scan, served_value};
use crate::scheme::Served;

/// Parameters of one binding. Each is an evaluation of its own.
const MAX_PARAMS: usize = 1000;

/// The resource that parameters are objects of.
pub(super) struct ParamResource {
    /// Where they are.
    plane: Arc<Plane>,
    served: Arc<Served>,
    definition: Option<Definition>,
}

impl ParamResource {
    pub(super) fn served(&self) -> &Served {
        &self.served
    }
}

impl Gate<'_> {
    /// The resource of a kind; `None` if nothing serves it.
    pub(super) async fn param_resource(&self, home: Home, kind: &ParamKind) -> Result<Option<ParamResource>, ApiError> {
        let plane = &self.home(home);
        let (group, version) = kind.group_version();
        let mut built_in = plane.scheme.iter();
        let is = |served: &Served| (served.group(), served.version(), served.kind()) == (group, version, &kind.kind);
        if let Some(served) = built_in.find(|served| is(served)) {
            return Ok(Some(ParamResource {
                plane: plane.clone(),
                served: served.clone(),
                definition: None,
            }));
        }
        let Some(admission) = self.registry.admission() else {
            return Ok(None);
        };
        let customs = admission.definitions.of(plane).await?;
        let found = customs
            .set()
            .shown()
            .find(|served| is(served))
            .and_then(|served| customs.find(group, version, served.plural()));
        Ok(found.map(|(served, definition)| ParamResource {
            plane: plane.clone(),
            served,
            definition: Some(definition),
        }))
    }

    /// The parameters that a binding names; one that is nothing where it needs none. An inner error is the binding's.
    pub(super) async fn params(
        &self,
        resource: Option<&ParamResource>,
        binding: &Binding,
    ) -> Result<Result<Vec<Option<Value>>, String>, ApiError> {
        let (Some(resource), Some(param)) = (resource, &binding.param) else {
            return Ok(Ok(vec![None]));
        };
        let scope = if resource.served.namespaced() {
            ParamScope::Namespaced
        } else {
            ParamScope::Cluster
        };
        let wanted = match param.wanted(scope, self.namespace_name()) {
            Ok(wanted) => wanted,
            Err(why) => return Ok(Err(why)),
        };
        let found = match wanted {
            WantedParams::One { namespace, name } => self.param(resource, namespace, name).await?,
            WantedParams::Selected { namespace, selector } => {
                let extent = namespace.map_or(Extent::Resource, |namespace| Extent::Namespace(namespace.to_owned()));
                let mut all = self.param_scan(resource, &extent);
                let mut found = Vec::new();
                while let Some((_, stored)) = all.next().await? {
                    let value = self.param_value(resource, &stored)?;
                    if selector.matches_object(&value) {
                        found.push(Some(value));
                    }
                    if found.len() > MAX_PARAMS {
                        return Ok(Err(format!("more than {MAX_PARAMS} params are selected")));
                    }
                }
                found
            }
        };
        if found.is_empty()
            && let Err(why) = param.nothing_found()
        {
            return Ok(Err(why));
        }
        Ok(Ok(found))
    }

    async fn param(
        &self,
        resource: &ParamResource,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Vec<Option<Value>>, ApiError> {
        let extent = Extent::Object {
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        };
        match self.param_scan(resource, &extent).next().await? {
            Some((_, stored)) => Ok(vec![Some(self.param_value(resource, &stored)?)]),
            None => Ok(Vec::new()),
        }
    }

    fn param_scan(&self, resource: &ParamResource, extent: &Extent) -> Scan {
        let (plane, served) = (resource.plane.clone(), resource.served.clone());
        let scan = Scan::of_plane(self.registry.clone(), plane, served, extent, None, None);
        scan.defined_by(resource.definition.as_ref())
    }

    fn param_value(&self, resource: &ParamResource, stored: &crate::stored::Stored) -> Result<Value, ApiError> {
        let mut json = Vec::new();
        resource
            .served
            .encode(&served_value(&resource.served, stored)?, &mut json);
        tree(&json)
    }
}
