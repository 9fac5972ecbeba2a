//! The whole pattern in one reconciler: a kind of our own (`Website`), what it owns (a ConfigMap), what must be cleaned up
//! elsewhere (an entry in the management cluster), its status, and events.
//!
//! Run it against a Mica server whose planes have the definition:
//! `KUBECONFIG=.mica/admin.kubeconfig cargo run -p mica-runtime --example whole`

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use kube::api::DeleteParams;
use kube::{Api, CustomResource, ResourceExt as _};
use mica_runtime::apply::{Applier, own};
use mica_runtime::conditions::{self, Change, READY, Status, Wanted};
use mica_runtime::finalizer::{Cleaned, Finalizer};
use mica_runtime::provider::Planes;
use mica_runtime::{Access, Action, Cx, Manager, ReconcileError, Reconciler};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A page to be published.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "Website",
    namespaced,
    status = "WebsiteStatus",
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#
)]
pub struct WebsiteSpec {
    pub title: String,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
pub struct WebsiteStatus {
    #[serde(default)]
    pub conditions: Vec<Condition>,
}

static FINALIZER: Finalizer = Finalizer::new("example.com/website");
const MANAGER: &str = "website";

struct Websites {
    applier: Applier,
}

/// The entry of a website in the management cluster: its name is the plane's and its own.
fn entry_name(cx: &Cx<Website>, website: &Website) -> String {
    format!("website-{}-{}", cx.cluster().name(), website.name_any())
}

impl Websites {
    async fn publish(&self, cx: &Cx<Website>, website: &Website) -> Result<Action, ReconcileError> {
        let namespace = website.namespace().unwrap_or_default();
        if website.spec.title.is_empty() {
            let wanted = Wanted::new(READY, Status::False, "NoTitle").message("A website needs a title.");
            self.tell(cx, website, wanted).await?;
            // Nothing changes by trying again.
            return Err(ReconcileError::terminal("the website has no title"));
        }
        // What it owns goes with it: the garbage collector sees to that.
        let mut page = named(&website.name_any());
        page.metadata.namespace = Some(namespace.clone());
        page.data = Some(BTreeMap::from([(
            "index.html".to_owned(),
            format!("<h1>{}</h1>", website.spec.title),
        )]));
        own(website, &mut page)?;
        self.applier
            .apply(&Api::namespaced(cx.client(), &namespace), &page)
            .await?;
        // What is elsewhere does not, and is what the finalizer is for.
        let mut entry = named(&entry_name(cx, website));
        entry.metadata.namespace = Some("default".to_owned());
        entry.data = Some(BTreeMap::from([("title".to_owned(), website.spec.title.clone())]));
        self.applier
            .apply(&Api::namespaced(cx.local(), "default"), &entry)
            .await?;
        let wanted = Wanted::new(READY, Status::True, "Published").message("The page is published.");
        self.tell(cx, website, wanted).await?;
        Ok(Action::await_change())
    }

    async fn retract(&self, cx: &Cx<Website>, website: &Website) -> Result<Cleaned<Action>, ReconcileError> {
        let entries: Api<ConfigMap> = Api::namespaced(cx.local(), "default");
        match entries.delete(&entry_name(cx, website), &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            done => drop(done?),
        }
        cx.events().normal("Retracted", "The page is not published any more.");
        Ok(Cleaned::Done)
    }

    /// Writes the status, and an event, if there is anything new to tell.
    async fn tell(&self, cx: &Cx<Website>, website: &Website, wanted: Wanted) -> Result<(), ReconcileError> {
        let mut status = website.status.clone().unwrap_or_default();
        let before = conditions::status(&status.conditions, READY);
        if conditions::set(&mut status.conditions, wanted.observed(website), Timestamp::now()) == Change::Unchanged {
            return Ok(());
        }
        let api: Api<Website> = Api::namespaced(cx.client(), &website.namespace().unwrap_or_default());
        self.applier.apply_status(&api, website, &status).await?;
        match conditions::status(&status.conditions, READY) {
            after if after == before => {}
            Status::True => cx.events().normal("Published", "The page is published."),
            _ => cx
                .events()
                .warning("NotPublished", "The page is not published: see the conditions."),
        }
        Ok(())
    }
}

fn named(name: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    map
}

#[async_trait]
impl Reconciler for Websites {
    type Kind = Website;
    type Error = ReconcileError;

    async fn reconcile(&self, cx: Cx<Website>) -> Result<Action, ReconcileError> {
        let namespace = cx.request().namespace.as_deref().unwrap_or_default();
        let api: Api<Website> = Api::namespaced(cx.client(), namespace);
        let done = FINALIZER
            .run(
                &api,
                cx.object(),
                async |website: Arc<Website>| self.publish(&cx, &website).await,
                async |website: Arc<Website>| self.retract(&cx, &website).await,
            )
            .await?;
        Ok(done.unwrap_or_default())
    }
}

/// Adds the controller to a manager.
pub fn install(manager: &Manager) -> Result<(), Box<dyn std::error::Error>> {
    let applier = Applier::new(MANAGER);
    manager
        .controller("website")
        .for_::<Website>()
        .owns::<ConfigMap>()
        .concurrency(16)
        .per_cluster(4)
        .reconcile(Websites { applier })?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = Access::infer().await?;
    let manager = Manager::builder(server.clone()).provider(Planes::new(server)).build()?;
    install(&manager)?;
    let interrupted = async { drop(tokio::signal::ctrl_c().await) };
    Ok(manager.run_until(interrupted).await?)
}
