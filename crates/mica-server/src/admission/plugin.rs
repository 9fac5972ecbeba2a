//! The plugins that are built in, in upstream's order: what they give new objects, and what they refuse.
//!
//! They need no configuration of a plane, so they are asked whether it has any or not; each looks at its own kinds only.

use mica_machinery::admission::{Operation, limit};
use mica_machinery::object;
use mica_machinery::quantity::Quantity;
use serde_json::{Value, json};

use super::gate::Gate;
use super::switch::Plugin;
use crate::authz::{Action, Asked};
use crate::error::ApiError;
use crate::registry::{Extent, Scan, stored_value};

const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const TOKEN_VOLUME: &str = "kube-api-access-";
const DEFAULT_ACCOUNT: &str = "default";
const MIRROR: &str = "kubernetes.io/config.mirror";
const DEFAULT_CLASS: &str = "ingressclass.kubernetes.io/is-default-class";
/// Where claims named their class before there was a field.
const OLD_STORAGE_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
const OLD_CLASS: &str = "kubernetes.io/ingress.class";

/// Whether new pods get a service account, which must then be there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PodAccounts {
    /// As where nothing makes service accounts, envtest among them.
    #[default]
    Unasked,
    Required,
}

impl Gate<'_> {
    pub(super) fn is(&self, group: &str, plural: &str, subresource: &str) -> bool {
        let target = &self.grant.target;
        target.served.group() == group && target.served.plural() == plural && target.subresource == subresource
    }

    /// Gives a new object what plugins give it.
    pub(super) async fn plug_in(&self, object: &mut Value) -> Result<(), ApiError> {
        let target = &self.grant.target;
        if self.operation != Operation::Create || !target.subresource.is_empty() {
            return Ok(());
        }
        let plugins = self.registry.plugins();
        if self.is("", "pods", "") {
            if plugins.is_on(Plugin::LimitRanger) {
                for range in self.limit_ranges().await? {
                    limit::default_pod(&range, object);
                }
            }
            self.give_account(object).await?;
        }
        self.registry.admit(target, object).await?;
        if plugins.is_on(Plugin::DefaultIngressClass) && self.is("networking.k8s.io", "ingresses", "") {
            self.give_ingress_class(object).await?;
        }
        Ok(())
    }

    /// Refuses what plugins refuse.
    pub(super) async fn check_plugins(&self, new: Option<&Value>, old: Option<&Value>) -> Result<(), ApiError> {
        let Some(new) = new else { return Ok(()) };
        let creates = self.operation == Operation::Create;
        let limited = self.registry.plugins().is_on(Plugin::LimitRanger);
        if limited && ((creates && self.is("", "pods", "")) || self.is("", "pods", "resize")) {
            self.check_limits(new, old, limit::check_pod).await?;
        } else if limited && self.is("", "persistentvolumeclaims", "") {
            self.check_limits(new, old, limit::check_claim).await?;
        }
        self.check_security(new, old).await?;
        self.check_owners(new, old).await?;
        self.check_resize(new, old).await?;
        if creates && self.is("", "pods", "") {
            self.registry.check_runtime(&self.grant.target, new).await?;
        }
        self.check_signer(new, old).await
    }

    /// A claim grows only if it is bound, and if its class says that it can.
    async fn check_resize(&self, new: &Value, old: Option<&Value>) -> Result<(), ApiError> {
        let on = self.registry.plugins().is_on(Plugin::PersistentVolumeClaimResize);
        let (Some(old), true) = (old, on && self.is("", "persistentvolumeclaims", "")) else {
            return Ok(());
        };
        let size = |claim: &Value| {
            let text = object::string(claim, &["spec", "resources", "requests", "storage"]);
            Quantity::parse(text).unwrap_or_else(|_| Quantity::zero())
        };
        if size(new).minus(&size(old)).signum() <= 0 {
            return Ok(());
        }
        if object::string(old, &["status", "phase"]) != "Bound" {
            return Err(self.refuse(new, "Only bound persistent volume claims can be expanded"));
        }
        let class = |claim: &Value| {
            let annotated = object::get(claim, &["metadata", "annotations", OLD_STORAGE_CLASS]).and_then(Value::as_str);
            let named = annotated.unwrap_or_else(|| object::string(claim, &["spec", "storageClassName"]));
            named.to_owned()
        };
        let (class, before) = (class(new), class(old));
        let plane = &self.grant.target.plane;
        let classes = plane.scheme.find("storage.k8s.io", "v1", "storageclasses");
        let grows = match classes {
            Some(classes) if !class.is_empty() && class == before => {
                let stored = self.registry.stored(plane, classes, &class).await?;
                let stored = stored.map(|stored| stored_value(classes, &stored)).transpose()?;
                stored.is_some_and(|class| class["allowVolumeExpansion"] == true)
            }
            _ => false,
        };
        if grows {
            return Ok(());
        }
        let why = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize";
        Err(self.refuse(new, why))
    }

    pub(super) fn refuse(&self, object: &Value, why: &str) -> ApiError {
        ApiError::forbidden(&self.grant.target.served.name, object::name(object), why)
    }

    async fn limit_ranges(&self) -> Result<Vec<Value>, ApiError> {
        self.namespaced("limitranges").await
    }

    /// Every object of a core kind in the request's namespace.
    async fn namespaced(&self, plural: &str) -> Result<Vec<Value>, ApiError> {
        let plane = &self.grant.target.plane;
        let Some(served) = plane.scheme.find("", "v1", plural).cloned() else {
            return Ok(Vec::new());
        };
        let extent = Extent::Namespace(self.namespace_name().to_owned());
        let mut scan = Scan::of_plane(
            self.registry.clone(),
            plane.clone(),
            served.clone(),
            &extent,
            None,
            None,
        );
        let mut found = Vec::new();
        while let Some((_, stored)) = scan.next().await? {
            found.push(stored_value(&served, &stored)?);
        }
        Ok(found)
    }

    async fn check_limits(
        &self,
        new: &Value,
        old: Option<&Value>,
        check: fn(&Value, &Value) -> Option<String>,
    ) -> Result<(), ApiError> {
        // What goes away may still lose its finalizers.
        if old.is_some_and(|old| object::get(old, &["metadata", "deletionTimestamp"]).is_some()) {
            return Ok(());
        }
        for range in self.limit_ranges().await? {
            if let Some(why) = check(&range, new) {
                return Err(self.refuse(new, &why));
            }
        }
        Ok(())
    }

    /// A pod runs as a service account of its namespace, whose token it finds mounted.
    async fn give_account(&self, pod: &mut Value) -> Result<(), ApiError> {
        if self.registry.accounts() != PodAccounts::Required
            || object::get(pod, &["metadata", "annotations", MIRROR]).is_some()
        {
            return Ok(());
        }
        if object::string(pod, &["spec", "serviceAccountName"]).is_empty() {
            object::set(pod, &["spec", "serviceAccountName"], DEFAULT_ACCOUNT);
            object::set(pod, &["spec", "serviceAccount"], DEFAULT_ACCOUNT);
        }
        let name = object::string(pod, &["spec", "serviceAccountName"]).to_owned();
        let accounts = self.namespaced("serviceaccounts").await?;
        let Some(account) = accounts.iter().find(|account| object::name(account) == name) else {
            let namespace = self.namespace_name();
            let why = format!(
                "error looking up service account {namespace}/{name}: serviceaccount {} not found",
                mica_machinery::field::quote(&name)
            );
            return Err(self.refuse(pod, &why));
        };
        let told = |of: &Value, path: &[&str]| object::get(of, path).and_then(Value::as_bool);
        let mounts = told(pod, &["spec", "automountServiceAccountToken"])
            .or_else(|| told(account, &["automountServiceAccountToken"]))
            .unwrap_or(true);
        if mounts {
            mount_token(pod);
        }
        let pulls = object::list(account, &["imagePullSecrets"]);
        if object::list(pod, &["spec", "imagePullSecrets"]).is_empty() && !pulls.is_empty() {
            object::set(pod, &["spec", "imagePullSecrets"], pulls.to_vec());
        }
        Ok(())
    }

    /// An ingress that names no class gets the default one, the newest if there are several.
    async fn give_ingress_class(&self, ingress: &mut Value) -> Result<(), ApiError> {
        let named = object::get(ingress, &["spec", "ingressClassName"]).is_some_and(|class| !class.is_null());
        if named || object::get(ingress, &["metadata", "annotations", OLD_CLASS]).is_some() {
            return Ok(());
        }
        let plane = &self.grant.target.plane;
        let Some(classes) = plane.scheme.find("networking.k8s.io", "v1", "ingressclasses").cloned() else {
            return Ok(());
        };
        let extent = Extent::Resource;
        let mut scan = Scan::of_plane(
            self.registry.clone(),
            plane.clone(),
            classes.clone(),
            &extent,
            None,
            None,
        );
        let mut newest: Option<(String, String)> = None;
        while let Some((_, stored)) = scan.next().await? {
            let class = stored_value(&classes, &stored)?;
            if object::string(&class, &["metadata", "annotations", DEFAULT_CLASS]) != "true" {
                continue;
            }
            let created = object::string(&class, &["metadata", "creationTimestamp"]).to_owned();
            // Of two of one second the first by name counts, and names come in order.
            if newest.as_ref().is_none_or(|(known, _)| created > *known) {
                newest = Some((created, object::name(&class).to_owned()));
            }
        }
        if let Some((_, name)) = newest {
            object::set(ingress, &["spec", "ingressClassName"], name);
        }
        Ok(())
    }

    /// Whoever approves, signs or attests must be allowed to for the signer.
    async fn check_signer(&self, new: &Value, old: Option<&Value>) -> Result<(), ApiError> {
        let requests = |part| self.is("certificates.k8s.io", "certificatesigningrequests", part);
        let changed = |path: &[&str]| old.is_some_and(|old| object::get(old, path) != object::get(new, path));
        let bundles = self.is("certificates.k8s.io", "clustertrustbundles", "");
        let (verb, what) = if requests("approval") {
            ("approve", "approve requests with")
        } else if requests("status") && (changed(&["status", "certificate"]) || changed(&["status", "conditions"])) {
            ("sign", "sign requests with")
        } else if bundles && (old.is_none() || changed(&["spec"])) {
            ("attest", "attest for")
        } else {
            return Ok(());
        };
        let signer = object::string(old.unwrap_or(new), &["spec", "signerName"]);
        if (bundles && signer.is_empty()) || self.grant.is_internal() {
            return Ok(());
        }
        let domain = signer.split_once('/').map_or(signer, |(domain, _)| domain);
        for name in [signer, &format!("{domain}/*")] {
            let action = Action {
                verb,
                group: "certificates.k8s.io",
                resource: "signers",
                name,
                ..Action::default()
            };
            let (user, plane) = (&self.grant.user, &self.grant.target.plane);
            let asked = Asked::Resource(action);
            if self
                .registry
                .authorizer()
                .decide(user, plane, &asked)
                .await?
                .is_allowed()
            {
                return Ok(());
            }
        }
        let signer = mica_machinery::field::quote(signer);
        Err(self.refuse(new, &format!("user not permitted to {what} signerName {signer}")))
    }
}

/// Mounts the token where a container mounts nothing itself.
fn mount_token(pod: &mut Value) {
    let volumes = object::list(pod, &["spec", "volumes"]);
    let known = volumes
        .iter()
        .map(|volume| object::string(volume, &["name"]))
        .find(|name| name.starts_with(TOKEN_VOLUME))
        .map(str::to_owned);
    let name = known
        .clone()
        .unwrap_or_else(|| mica_machinery::meta::name_from_prefix(TOKEN_VOLUME, rand::random));
    let mut used = false;
    for list in ["initContainers", "containers"] {
        let containers = pod.pointer_mut(&format!("/spec/{list}")).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let mut mounts = object::list(container, &["volumeMounts"]).to_vec();
            if mounts
                .iter()
                .any(|mount| object::string(mount, &["mountPath"]) == TOKEN_PATH)
            {
                continue;
            }
            mounts.push(json!({"name": name, "readOnly": true, "mountPath": TOKEN_PATH}));
            object::set(container, &["volumeMounts"], mounts);
            used = true;
        }
    }
    if known.is_none() && used {
        let mut volumes = object::list(pod, &["spec", "volumes"]).to_vec();
        volumes.push(limit::token_volume(&name));
        object::set(pod, &["spec", "volumes"], volumes);
    }
}
