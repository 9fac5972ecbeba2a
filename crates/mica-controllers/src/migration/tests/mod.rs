//! Migrations between two servers of this process, looked at as the operator looks, and aborted as it may be.

mod chaos;
mod end;
mod turn;
mod whole;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use kube::client::Body;
use mica_api::control_plane::{DeletionPolicy, Migration, MigrationStep, Mode, UID_ANNOTATION};
use mica_server::authz::User;
use mica_server::pki::Authority;
use mica_testkit::TestServer;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{Mutex as AsyncMutex, broadcast};

use super::plan::Wanted;
use super::{Case, Migrations, Owner, Residence, Rest, Standing};
use crate::api::{Absent as _, Api, Refusal};
use crate::control_plane::Home;
use crate::dedicated::{self, Provider, Provisioned, Refused, Retired};
use crate::turn::Turn;

/// How long anything may take: a machine may be very busy.
pub const PATIENCE: Duration = Duration::from_secs(120);
pub const MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub const PLANE: &str = "/apis/mica.dev/v1alpha1/planes/p";

/// Runs a server in this process, for one control plane.
pub struct Own {
    server: AsyncMutex<Option<TestServer>>,
    authority: Arc<Authority>,
    changes: broadcast::Sender<String>,
    /// Whether its digests are wrong.
    pub tampers: Arc<AtomicBool>,
    /// Whether it says nothing.
    pub silent: AtomicBool,
}

impl Own {
    /// The server again, on the same store and at another address.
    pub async fn restart(&self) {
        let mut server = self.server.lock().await;
        if let Some(old) = server.take() {
            let store = old.store().clone();
            drop(old);
            *server = Some(self.builder().store(store).start().await);
        }
    }

    fn builder(&self) -> mica_testkit::Builder {
        TestServer::builder().authority(self.authority.clone())
    }

    pub async fn home(&self) -> Option<Home> {
        let server = self.server.lock().await;
        server.as_ref().map(|server| self.home_of(server))
    }

    fn home_of(&self, server: &TestServer) -> Home {
        let (tampers, inside) = (self.tampers.clone(), server.client_inside(User::system()));
        let client = tower::service_fn(move |request: Request<Body>| {
            let (inside, tampers) = (inside.clone(), tampers.clone());
            async move {
                let wrong = request.uri().path().ends_with("/digest") && tampers.load(Ordering::Relaxed);
                let answer = inside.send(request).await?;
                if !wrong {
                    return Ok(answer);
                }
                let bytes = answer.into_body().collect().await?.to_bytes();
                let mut digest: Value = serde_json::from_slice(&bytes).unwrap();
                digest["hash"] = "0".into();
                Ok::<_, kube::Error>(Response::new(Body::from(digest.to_string().into_bytes())))
            }
        });
        Home {
            api: Api::new(kube::Client::new(client, "default")),
            ..home(server)
        }
    }
}

#[async_trait]
impl Provider for Own {
    fn kind(&self) -> &'static str {
        "Process"
    }

    async fn provision(&self, wanted: &dedicated::Wanted) -> Result<Provisioned, Refused> {
        let mut server = self.server.lock().await;
        if server.is_none() {
            *server = Some(self.builder().start().await);
            let _ = self.changes.send(wanted.name.clone());
        }
        drop(server);
        let found = self.find(&wanted.name).await?;
        found.ok_or_else(|| Refused::Failed {
            message: "it went".to_owned(),
        })
    }

    async fn find(&self, _name: &str) -> Result<Option<Provisioned>, Refused> {
        let home = self.home().await;
        if self.silent.load(Ordering::Relaxed) {
            let message = "it restarts".to_owned();
            return Ok(Some(Provisioned::Pending { message }));
        }
        Ok(home.map(|home| Provisioned::Running {
            home,
            version: "1".to_owned(),
        }))
    }

    async fn will_keep(&self, _name: &str, _plane_id: &str) -> Result<(), Refused> {
        Ok(())
    }

    async fn retire(&self, _name: &str, _policy: DeletionPolicy) -> Result<Retired, Refused> {
        self.server.lock().await.take();
        Ok(Retired::Done)
    }

    fn changes(&self) -> broadcast::Receiver<String> {
        self.changes.subscribe()
    }
}

fn home(server: &TestServer) -> Home {
    Home {
        api: Api::new(server.client_inside(User::system())),
        url: server.url(),
        ca: Some(server.authority().certificate_pem().to_owned()),
    }
}

/// What the management plane keeps of a control plane.
struct Kept {
    wanted: Wanted,
    asked: u64,
    reported: Option<Migration>,
    published: Option<Mode>,
}

/// A shared server with the plane `p`, and a control plane that it is of.
pub struct World {
    pub shared: TestServer,
    pub own: Arc<Own>,
    operator: Mutex<Arc<Migrations>>,
    kept: Mutex<Kept>,
}

impl World {
    pub async fn start() -> Self {
        let shared = TestServer::start().await;
        let own = Arc::new(Own {
            server: AsyncMutex::default(),
            authority: Arc::new(Authority::generate("test-ca", SystemTime::now()).unwrap()),
            changes: broadcast::Sender::new(16),
            tampers: Arc::default(),
            silent: AtomicBool::default(),
        });
        let operator = Mutex::new(operator(&shared, &own));
        let api = home(&shared).api;
        api.create(Home::plane_objects(), &plane(Mode::Virtual)).await.unwrap();
        Self {
            shared,
            own,
            operator,
            kept: Mutex::new(Kept {
                wanted: Wanted::At(Mode::Virtual),
                asked: 1,
                reported: None,
                published: Some(Mode::Virtual),
            }),
        }
    }

    /// As if the operator had been killed and started again: it knows nothing of before.
    pub fn restart_operator(&self) {
        let new = operator(&self.shared, &self.own);
        *self.operator.lock() = new;
    }

    pub fn want(&self, wanted: Wanted) {
        let mut kept = self.kept.lock();
        kept.wanted = wanted;
        kept.asked += 1;
    }

    pub fn reported(&self) -> Option<Migration> {
        self.kept.lock().reported.clone()
    }

    pub fn step(&self) -> Option<MigrationStep> {
        self.reported().map(|reported| reported.step)
    }

    /// One look of the operator, which then tells what it saw.
    pub async fn advance(&self) -> Result<Standing, Refusal> {
        let progress = self.look().await?;
        let mut kept = self.kept.lock();
        kept.reported = progress.report.migration.clone();
        if let Residence::At { mode, .. } = &progress.residence {
            kept.published = Some(*mode);
        }
        Ok(progress)
    }

    /// One look of the operator, which then has no time to tell.
    pub async fn look(&self) -> Result<Standing, Refusal> {
        let server = dedicated::Wanted {
            name: "a".to_owned(),
            cluster_path: "p".to_owned(),
            version: None,
            parameters: std::collections::BTreeMap::new(),
            adopts: None,
        };
        let (wanted, asked, reported, published) = {
            let kept = self.kept.lock();
            (kept.wanted, kept.asked, kept.reported.clone(), kept.published)
        };
        let owner = |plane: &Value, _: Mode| match plane["metadata"]["annotations"][UID_ANNOTATION].as_str() {
            Some("u") => Owner::Us,
            other => Owner::Other(format!("{other:?}")),
        };
        let case = Case {
            name: "a",
            asked,
            cluster_path: "p",
            wanted,
            provider: "Process",
            server: &server,
            owner: &owner,
            plane: &plane,
            reported: reported.as_ref(),
            published,
            drain: Duration::ZERO,
            now: Timestamp::now(),
        };
        let migrations = self.operator.lock().clone();
        migrations.advance(&case).await
    }

    /// Looks until something is so.
    pub async fn until(&self, what: &str, is_so: impl Fn(&Standing) -> bool) -> Standing {
        let looking = async {
            loop {
                let changes = self.operator.lock().changes();
                match self.advance().await {
                    Ok(progress) if is_so(&progress) => return progress,
                    Ok(Standing {
                        rest: Rest::After(time),
                        ..
                    }) => wait(changes, time).await,
                    Ok(_) => wait(changes, Duration::from_millis(20)).await,
                    Err(_) => wait(changes, Duration::from_millis(20)).await,
                }
            }
        };
        match tokio::time::timeout(PATIENCE, looking).await {
            Ok(progress) => progress,
            Err(_elapsed) => panic!("it is not {what}: {:?}", self.reported()),
        }
    }

    pub async fn settle(&self) -> Residence {
        let progress = self.until("settled", |progress| progress.rest == Rest::Settled).await;
        progress.residence
    }

    /// The plane on the shared server, over TLS: what comes there is passed on when it has moved.
    pub async fn old_address(&self) -> At {
        At::new(Api::new(self.shared.client().await))
    }

    /// The plane where it is now.
    pub async fn at(&self, mode: Mode) -> At {
        match mode {
            Mode::Virtual => At::new(home(&self.shared).api),
            Mode::Dedicated => At::new(self.own.home().await.expect("it has a server").api),
        }
    }

    /// What the shared server says of the plane.
    pub async fn left(&self) -> Option<Value> {
        home(&self.shared).api.get(PLANE).await.or_absent().unwrap()
    }
}

fn operator(shared: &TestServer, own: &Arc<Own>) -> Arc<Migrations> {
    Arc::new(Migrations::new(home(shared), vec![own.clone()], Turn::always()))
}

/// Waits for a word of a courier, or for some time.
async fn wait(mut changes: broadcast::Receiver<String>, time: Duration) {
    let _ = tokio::time::timeout(time.min(Duration::from_secs(1)), changes.recv()).await;
}

/// The plane as the operator makes it.
pub fn plane(_: Mode) -> Value {
    json!({"apiVersion": "mica.dev/v1alpha1", "kind": "Plane",
        "metadata": {"name": "p", "annotations": {UID_ANNOTATION: "u"}}, "spec": {"state": "Active"}})
}

/// The plane at an address.
#[derive(Clone)]
pub struct At {
    pub api: Api,
}

impl At {
    fn new(api: Api) -> Self {
        Self { api }
    }

    pub fn path(path: &str) -> String {
        format!("/clusters/p/control-plane{path}")
    }

    pub async fn map(&self, name: &str) -> Result<Value, Refusal> {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "v"}});
        self.api.create(&Self::path(MAPS), &map).await
    }

    /// Something of every sort.
    pub async fn furnish(&self) {
        for i in 0..20 {
            self.map(&format!("m{i}")).await.unwrap();
        }
        let path = Self::path(&format!("{MAPS}/m1"));
        self.api.merge(&path, &json!({"data": {"k": "2"}})).await.unwrap();
        self.api.delete_any(&Self::path(&format!("{MAPS}/m2"))).await.unwrap();
        let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
            "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
        let path = Self::path("/apis/apps/v1/namespaces/default/deployments");
        self.api.create(&path, &deployment).await.unwrap();
        let scaled = json!({"spec": {"replicas": 3}});
        self.api.merge(&format!("{path}/web"), &scaled).await.unwrap();
    }

    /// Everything of some kinds: uids, generations and versions too.
    pub async fn content(&self) -> Vec<Value> {
        let mut all = Vec::new();
        for path in [
            "/api/v1/namespaces",
            "/api/v1/configmaps",
            "/api/v1/serviceaccounts",
            "/apis/apps/v1/deployments",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        ] {
            all.extend(self.api.list(&Self::path(path), "").await.unwrap().items);
        }
        all
    }
}
