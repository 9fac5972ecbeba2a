//! An operator whose turn it is not any more: another one has the planes, and what this one is about must not meet it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream;
use http::{Method, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use kube::client::Body;
use mica_api::control_plane::{DeletionPolicy, Mode};
use mica_runtime::ClusterName;
use mica_runtime::ownership::{All, Engages, Epoch, Ownership, Tenure};
use parking_lot::Mutex;
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;

use super::super::courier::Way;
use super::super::plan::{Carried, Wanted};
use super::super::{Migrations, Rest};
use super::{Own, World, home};
use crate::api::{Api, Refusal};
use crate::control_plane::Home;
use crate::dedicated::{self, Provider, Provisioned, Refused, Retired};
use crate::turn::Turn;

/// A turn that comes and goes when the test says so.
struct Switch {
    ours: AtomicBool,
    all: All,
    changes: watch::Sender<u64>,
}

impl Switch {
    fn turn(&self, ours: bool) {
        self.ours.store(ours, Ordering::SeqCst);
        self.changes.send_modify(|count| *count += 1);
    }
}

#[async_trait]
impl Ownership for Switch {
    fn owns(&self, cluster: &ClusterName) -> Option<Epoch> {
        self.holds(cluster)
    }

    fn holds(&self, cluster: &ClusterName) -> Option<Epoch> {
        let ours = self.ours.load(Ordering::SeqCst);
        self.all.holds(cluster).filter(|_| ours)
    }

    fn begin(&self, cluster: &ClusterName) -> Option<Tenure> {
        let ours = self.ours.load(Ordering::SeqCst);
        self.all.begin(cluster).filter(|_| ours)
    }

    fn engages(&self, _: &ClusterName) -> Engages {
        Engages::Yes
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    async fn run(&self, stop: CancellationToken) {
        stop.cancelled().await;
    }
}

/// What was changed out of turn.
#[derive(Clone)]
struct Trespass {
    switch: Arc<Switch>,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Trespass {
    fn note(&self, what: String) {
        if !self.switch.ours.load(Ordering::SeqCst) {
            self.seen.lock().push(what);
        }
    }

    /// A server at which it is noted.
    fn guard(&self, home: Home, client: kube::Client) -> Home {
        let guard = self.clone();
        let guarded = tower::service_fn(move |request: Request<Body>| {
            if *request.method() != Method::GET {
                guard.note(format!("{} {}", request.method(), request.uri()));
            }
            let client = client.clone();
            async move { client.send(request).await }
        });
        let api = Api::new(kube::Client::new(guarded, "default"));
        Home { api, ..home }
    }
}

/// Who runs the server of its own, with everything that is asked of either noted.
struct Guarded {
    own: Arc<Own>,
    trespass: Trespass,
}

impl Guarded {
    async fn guard(&self, stands: Provisioned) -> Provisioned {
        let server = self.own.server.lock().await;
        match (stands, server.as_ref()) {
            (Provisioned::Running { home, version }, Some(server)) => Provisioned::Running {
                home: self
                    .trespass
                    .guard(home, server.client_inside(mica_server::authz::User::system())),
                version,
            },
            (stands, _) => stands,
        }
    }
}

#[async_trait]
impl Provider for Guarded {
    fn kind(&self) -> &'static str {
        self.own.kind()
    }

    async fn provision(&self, wanted: &dedicated::Wanted) -> Result<Provisioned, Refused> {
        self.trespass.note("provision".to_owned());
        let stands = self.own.provision(wanted).await?;
        Ok(self.guard(stands).await)
    }

    async fn find(&self, name: &str) -> Result<Option<Provisioned>, Refused> {
        match self.own.find(name).await? {
            None => Ok(None),
            Some(stands) => Ok(Some(self.guard(stands).await)),
        }
    }

    async fn will_keep(&self, name: &str, plane_id: &str) -> Result<(), Refused> {
        self.own.will_keep(name, plane_id).await
    }

    async fn retire(&self, name: &str, policy: DeletionPolicy) -> Result<Retired, Refused> {
        self.trespass.note("retire".to_owned());
        self.own.retire(name, policy).await
    }

    fn changes(&self) -> broadcast::Receiver<String> {
        self.own.changes()
    }
}

fn switch() -> Arc<Switch> {
    Arc::new(Switch {
        ours: AtomicBool::new(true),
        all: All::new(),
        changes: watch::Sender::new(0),
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_whose_turn_is_over_changes_nothing_on_any_server() {
    let world = World::start().await;
    world.at(Mode::Virtual).await.furnish().await;
    let switch = switch();
    let trespass = Trespass {
        switch: switch.clone(),
        seen: Arc::default(),
    };
    let inside = world.shared.client_inside(mica_server::authz::User::system());
    let shared = trespass.guard(home(&world.shared), inside);
    let provider = Arc::new(Guarded {
        own: world.own.clone(),
        trespass: trespass.clone(),
    });
    let turn = Turn::new(switch.clone(), ClusterName::local());
    let operator = Arc::new(Migrations::new(shared, vec![provider], turn));
    *world.operator.lock() = operator.clone();
    let mut refused = 0;
    for wanted in [Mode::Dedicated, Mode::Virtual] {
        world.want(Wanted::At(wanted));
        loop {
            // At every step the turn is over for one look.
            operator.couriers.stop("a").await;
            switch.turn(false);
            if let Err(refusal) = world.look().await {
                assert!(matches!(refusal, Refusal::NotOurTurn), "{refusal}");
                refused += 1;
            }
            until_idle(&operator).await;
            assert_eq!(trespass.seen.lock().clone(), Vec::<String>::new());
            switch.turn(true);
            let progress = world.advance().await.unwrap();
            until_idle(&operator).await;
            if progress.rest == Rest::Settled {
                break;
            }
        }
    }
    assert!(refused > 0, "there was something to do");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_being_sent_when_the_turn_is_over_is_broken_off() {
    let switch = switch();
    let endless = tower::service_fn(|_: Request<Body>| async {
        let pieces = stream::pending::<Result<Frame<Bytes>, std::io::Error>>();
        Ok::<_, kube::Error>(Response::new(StreamBody::new(pieces)))
    });
    let (tell, mut begun) = watch::channel(false);
    let tell = Arc::new(tell);
    let receiver = tower::service_fn(move |request: Request<Body>| {
        let tell = tell.clone();
        async move {
            tell.send_replace(true);
            let all = request.into_body().collect().await?;
            Ok::<_, kube::Error>(Response::new(Body::from(all.to_bytes())))
        }
    });
    let api = |client: kube::Client| Api::new(client).in_turn(Turn::new(switch.clone(), ClusterName::local()));
    let way = Way {
        from: api(kube::Client::new(endless, "default")),
        to: api(kube::Client::new(receiver, "default")),
        cluster_path: "p".to_owned(),
    };
    let sending = tokio::spawn(async move { way.copy(&Arc::default()).await.map(drop) });
    let _ = tokio::time::timeout(super::PATIENCE, begun.wait_for(|begun| *begun))
        .await
        .unwrap();
    switch.turn(false);
    let sent = tokio::time::timeout(super::PATIENCE, sending).await.unwrap().unwrap();
    assert!(matches!(sent, Err(Refusal::NotOurTurn)), "{sent:?}");
}

/// Waits until no courier is on the way.
async fn until_idle(operator: &Migrations) {
    let mut changes = operator.changes();
    while operator.couriers.carried("a") == Carried::Running {
        let _ = tokio::time::timeout(super::PATIENCE, changes.recv()).await.unwrap();
    }
}
