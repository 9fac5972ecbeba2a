//! `kube-system/extension-apiserver-authentication` of root: what servers that stand behind this one need to know about how
//! clients and proxies prove themselves.

use mica_machinery::{managed, object};
use serde_json::{Value, json};

use super::account;
use crate::authz::{self, Target};
use crate::error::ApiError;
use crate::options::{DryRun, FieldValidation, WriteOptions};
use crate::registry::{Managers, WriteRequest};
use crate::request::Verb;
use crate::serve::Server;

const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";

impl Server {
    /// Writes it, where a proxy may stand in front. Who signs the certificates of clients is told, if that is known.
    pub(crate) async fn publish_authentication(&self, client_ca: &str) -> Result<(), ApiError> {
        let Some(proxy) = &self.authenticator.front_proxy else {
            return Ok(());
        };
        let list = |texts: &[String]| Value::String(json!(texts).to_string());
        let headers = proxy.headers();
        let mut data = json!({
            "requestheader-username-headers": list(&headers.username),
            "requestheader-group-headers": list(&headers.group),
            "requestheader-extra-headers-prefix": list(&headers.extra_prefixes),
            "requestheader-client-ca-file": proxy.authorities(),
            "requestheader-allowed-names": list(proxy.names()),
        });
        if !headers.uid.is_empty() {
            data["requestheader-uid-headers"] = list(&headers.uid);
        }
        if !client_ca.is_empty() {
            data["client-ca-file"] = client_ca.into();
        }
        let root = self.directory.root();
        let served = root.scheme.find("", "v1", "configmaps").cloned();
        let served = served.ok_or_else(|| ApiError::internal("root serves no configmaps"))?;
        let present = account::read(&self.registry, &root, "configmaps", NAMESPACE, NAME)
            .await
            .ok();
        if present.as_ref().is_some_and(|present| present["data"] == data) {
            return Ok(());
        }
        let verb = if present.is_some() { Verb::Update } else { Verb::Create };
        let mut map = present.unwrap_or_else(
            || json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": NAME, "namespace": NAMESPACE}}),
        );
        object::set(&mut map, &["data"], data);
        let target = Target {
            plane: root,
            served,
            namespace: Some(NAMESPACE.into()),
            name: Some(NAME.into()),
            subresource: "".into(),
            definition: None,
            within: None,
        };
        let request = WriteRequest {
            object: map,
            managers: Managers::Recorded(managed::Request::Usual),
            options: WriteOptions {
                dry_run: DryRun::No,
                field_manager: String::new(),
                field_validation: FieldValidation::Ignore,
                asked_validation: String::new(),
            },
            manager: "kube-apiserver".to_owned(),
        };
        let grant = authz::system(verb, target);
        let written = match verb {
            Verb::Create => self.registry.create(&grant, request).await,
            _ => self.registry.update(&grant, request).await,
        };
        match written {
            Ok(_) => Ok(()),
            // Another server that starts on the same store says the same.
            Err(error) if error.code() == http::StatusCode::CONFLICT => Ok(()),
            Err(error) => Err(error),
        }
    }
}
