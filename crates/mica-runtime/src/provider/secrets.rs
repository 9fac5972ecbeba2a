//! Clusters whose kubeconfigs are in Secrets, as multicluster-runtime's kubeconfig provider has them.

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::ResourceExt as _;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::Value;

use super::mapped::Mapped;
use super::{ClusterSink, ClusterSpec, Provider, ProviderError};
use crate::cluster::Access;
use crate::request::ClusterName;

/// The label of Secrets that hold a kubeconfig, with the value `true`.
pub const KUBECONFIG_LABEL: &str = "sigs.k8s.io/multicluster-runtime-kubeconfig";
/// Where the kubeconfig is in the Secret.
pub const KUBECONFIG_KEY: &str = "kubeconfig";

/// Engages a cluster for each labelled Secret of a namespace, under the Secret's name.
///
/// A Secret whose kubeconfig shows another token or certificate for the same server exchanges them; watches go on. The
/// kubeconfig must hold everything itself: whoever may write Secrets may not have commands run or files read here.
pub struct SecretLabel {
    name: String,
    access: Access,
    namespace: String,
    selector: String,
    key: String,
}

impl SecretLabel {
    pub fn new(access: Access, namespace: impl Into<String>) -> Self {
        Self {
            name: "kubeconfig-secrets".to_owned(),
            access,
            namespace: namespace.into(),
            selector: format!("{KUBECONFIG_LABEL}=true"),
            key: KUBECONFIG_KEY.to_owned(),
        }
    }

    /// Another label selector.
    #[must_use]
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.selector = selector.into();
        self
    }

    /// Another key of the Secret.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = key.into();
        self
    }

    /// Another name than `kubeconfig-secrets`, where a fleet has several.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }
}

/// The kubeconfig in a Secret.
pub(super) fn kubeconfig(secret: &Value, key: &str) -> Result<Access, ProviderError> {
    let encoded = secret["data"][key]
        .as_str()
        .ok_or_else(|| ProviderError::Invalid(format!("the Secret has no key {key:?}")))?;
    let bytes = STANDARD
        .decode(encoded)
        .map_err(|error| ProviderError::Other(error.into()))?;
    let yaml = String::from_utf8(bytes).map_err(|error| ProviderError::Other(error.into()))?;
    Ok(Access::from_foreign_kubeconfig(&yaml)?)
}

#[async_trait]
impl Provider for SecretLabel {
    fn name(&self) -> &str {
        &self.name
    }

    async fn run(&self, sink: ClusterSink) -> Result<(), ProviderError> {
        let kind = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("", "v1", "Secret"), "secrets");
        let key = self.key.clone();
        let map = move |name, secret: &DynamicObject| {
            let spec = ClusterSpec::new(name, kubeconfig(&secret.data, &key)?);
            Ok(Some(spec.labels(secret.labels().clone())))
        };
        Mapped::new(&self.name, self.access.clone(), kind, map)
            .namespace(&self.namespace)
            .labels(&self.selector)
            .cluster_names(|secret| ClusterName::new(secret.name_any()))
            .run(sink)
            .await
    }
}
