//! Credentials of a control plane's administrator: asked for when they are needed, and kept while they are good.

use std::time::Duration;

use mica_api::control_plane::{ADMIN, ADMIN_NAMESPACE, SecretRef, condition, kubeconfig_secret, management_namespace};
use serde_json::json;

use super::plan::credential::{self, Contents, Token};
use super::plan::status::Report;
use super::plan::{Observed, text};
use super::reconcile::MANAGER;
use super::settings::SHORTEST_LIFETIME;
use super::{ControlPlanes, Home};
use crate::api::Refusal;
use crate::place::{self, Place};

impl ControlPlanes {
    /// Has the Secret there, with a token of this account that is good for a while; with a new one if it is not known which.
    /// How long it is until the next is needed; none if there is no address to give yet.
    pub(super) async fn credentials(
        &self,
        at: &Observed,
        home: &Home,
        account: Option<&str>,
        report: &mut Report,
    ) -> Result<Option<Duration>, Refusal> {
        let Some(endpoints) = report.endpoints.clone() else {
            return Ok(None);
        };
        let now = jiff::Timestamp::now();
        let present = |account| credential::usable(at.secret.as_ref(), account, &home.url, now);
        let token = match account.and_then(present) {
            Some(token) => token,
            None => self.ask(at, home).await?,
        };
        let contents = Contents {
            endpoints: &endpoints,
            server: &home.url,
            ca: home.ca.as_deref(),
            token: &token.text,
        };
        let (namespace, name) = (management_namespace(at.name()), kubeconfig_secret(at.name()));
        if let Some(secret) = credential::secret(at, &contents) {
            let path = place::object(&Place::root(), "v1", "secrets", Some(&namespace), &name);
            self.api.apply(&path, MANAGER, &secret).await?;
        }
        report.done(condition::CREDENTIALS_READY, &format!("Secret {namespace}/{name}"));
        report.secret = Some(SecretRef { name, namespace });
        Ok(token.fresh_for(now))
    }

    /// Asks a plane for a new token of its administrator.
    async fn ask(&self, at: &Observed, home: &Home) -> Result<Token, Refusal> {
        let account = Home::object(at.cluster_path(), "v1", "serviceaccounts", Some(ADMIN_NAMESPACE), ADMIN);
        let seconds = self.settings.lifetime.max(SHORTEST_LIFETIME).as_secs();
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"expirationSeconds": seconds}});
        let answer = home.api.create(&format!("{account}/token"), &request).await?;
        let unreadable = || Refusal::Elsewhere("the server's token says nothing of itself".to_owned());
        Token::read(text(&answer, "/status/token")).ok_or_else(unreadable)
    }
}
