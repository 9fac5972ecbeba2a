//! The fleet with providers that say what the test wants, and clusters that are not there.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::{FutureExt as _, StreamExt as _};
use http::{Request, Response};
use kube::client::Body;
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tower::service_fn;

use super::*;
use crate::cluster::Wildcard;
use crate::ownership::{All, Tenure};
use crate::provider::{Multi, ProviderError, Static};

fn nowhere() -> Access {
    Access::in_process(service_fn(|_: Request<Body>| async {
        Ok::<_, std::io::Error>(Response::new(Body::empty()))
    }))
}

fn spec(name: &str, access: &Access) -> ClusterSpec {
    ClusterSpec::new(ClusterName::new(name), access.clone())
}

fn fleet() -> Fleet {
    Fleet::new(Arc::new(All::new()))
}

/// What the fleet tells until it is synced, as one line.
async fn story(events: &mut Events) -> String {
    let mut lines = Vec::new();
    loop {
        match events.next().await.expect("the fleet goes on") {
            FleetEvent::Engaged(cluster) => lines.push(format!("+{}", cluster.name())),
            FleetEvent::Changed(cluster) => lines.push(format!("~{}", cluster.name())),
            FleetEvent::Gone(name) => lines.push(format!("-{name}")),
            FleetEvent::Synced => return lines.join(" "),
        }
    }
}

/// What is told already.
fn told(events: &mut Events) -> String {
    let mut lines = Vec::new();
    while let Some(Some(event)) = events.next().now_or_never() {
        lines.push(match event {
            FleetEvent::Engaged(cluster) => format!("+{}", cluster.name()),
            FleetEvent::Changed(cluster) => format!("~{}", cluster.name()),
            FleetEvent::Gone(name) => format!("-{name}"),
            FleetEvent::Synced => "synced".to_owned(),
        });
    }
    lines.join(" ")
}

/// Says what it is told to, and remembers what it is told.
struct Puppet {
    words: Mutex<Option<mpsc::UnboundedReceiver<Word>>>,
    reports: mpsc::UnboundedSender<String>,
}

type Word = Box<dyn FnOnce(&ClusterSink) + Send>;

impl Puppet {
    fn new() -> (Self, mpsc::UnboundedSender<Word>, mpsc::UnboundedReceiver<String>) {
        let (say, words) = mpsc::unbounded_channel();
        let (reports, heard) = mpsc::unbounded_channel();
        let words = Mutex::new(Some(words));
        (Self { words, reports }, say, heard)
    }
}

#[async_trait]
impl Provider for Puppet {
    fn name(&self) -> &str {
        "puppet"
    }

    async fn run(&self, sink: ClusterSink) -> Result<(), ProviderError> {
        let mut words = self.words.lock().take().expect("it is run once");
        while let Some(word) = words.recv().await {
            word(&sink);
        }
        Ok(())
    }

    async fn report(&self, cluster: &ClusterName, health: &Health) -> Result<(), ProviderError> {
        let _ = self.reports.send(format!("{cluster} is {}", health.reason()));
        Ok(())
    }
}

#[tokio::test]
async fn a_follower_hears_first_what_is_there_and_then_what_changes() {
    let (fleet, access) = (fleet(), nowhere());
    let (puppet, say, mut heard) = Puppet::new();
    fleet.add(puppet).unwrap();
    let mut first = fleet.events();
    let (a, b) = (spec("a", &access), spec("b", &access));
    say.send(Box::new(move |sink| {
        sink.upsert(a);
        sink.upsert(b);
        sink.synced();
    }))
    .ok();
    assert_eq!(story(&mut first).await, "+a +b");
    assert_eq!(heard.recv().await.unwrap(), "a is Engaged");
    assert_eq!(heard.recv().await.unwrap(), "b is Engaged");
    let mut second = fleet.events();
    assert_eq!(story(&mut second).await, "+a +b");
    let old = fleet.get(&ClusterName::new("a")).unwrap();

    let labelled = spec("a", &access).label("tier", "gold");
    let elsewhere = spec("b", &access.at("/elsewhere"));
    say.send(Box::new(move |sink| {
        sink.upsert(labelled);
        sink.upsert(elsewhere);
        sink.restart();
        sink.keep(&ClusterName::new("b"));
        sink.synced();
    }))
    .ok();
    for events in [&mut first, &mut second] {
        let mut lines = Vec::new();
        while lines.len() < 3 {
            events.next().await.into_iter().for_each(|event| lines.push(event));
        }
        let text = format!("{lines:?}");
        assert!(text.contains("Gone(\"a\")") && text.contains("Gone(\"b\")"), "{text}");
    }
    assert!(old.lifetime().is_cancelled());
    assert_eq!(
        fleet.get(&ClusterName::new("a")).unwrap_err().to_string(),
        "cluster \"a\" is not engaged"
    );
    assert_eq!(fleet.clusters().len(), 1);
}

#[tokio::test]
async fn other_credentials_are_the_same_cluster_and_another_identity_is_another() {
    let (fleet, access) = (fleet(), nowhere());
    let shared = &fleet.shared;
    let mut events = fleet.events();
    assert_eq!(told(&mut events), "synced");
    let plane = |id: &str| {
        spec("a", &access).wildcard(Wildcard {
            server: access.root(),
            plane: "a".to_owned(),
            plane_id: id.to_owned(),
        })
    };
    shared.upsert(0, 0, plane("1"));
    let first = fleet.get(&ClusterName::new("a")).unwrap();
    shared.upsert(0, 0, plane("1"));
    assert_eq!(told(&mut events), "+a", "nothing new was said");
    shared.upsert(0, 0, plane("1").label("tier", "gold"));
    assert_eq!(told(&mut events), "~a");
    assert_eq!(first.labels()["tier"], "gold");
    shared.upsert(0, 0, plane("2"));
    assert_eq!(told(&mut events), "-a +a");
    assert!(first.lifetime().is_cancelled() && !fleet.clusters()[0].is_same(&first));
    shared.upsert(0, 0, spec("a", &access).identity("3"));
    shared.upsert(0, 0, spec("a", &access).identity("4"));
    assert_eq!(told(&mut events), "-a +a", "what came and went meanwhile is not told");
    // One that may move is the same elsewhere, and another where it is another.
    let moving = |path: &str, identity: &str| spec("a", &access.at(path)).identity(identity).wherever();
    shared.upsert(0, 0, moving("/one", "4"));
    assert_eq!(told(&mut events), "~a");
    let fourth = fleet.get(&ClusterName::new("a")).unwrap();
    let one = fourth.access().url();
    let mut moved = std::pin::pin!(fourth.moved_from(&one));
    assert!(moved.as_mut().now_or_never().is_none());
    shared.upsert(0, 0, moving("/two", "4"));
    assert!(fleet.clusters()[0].is_same(&fourth) && fourth.access().url().ends_with("/two"));
    assert!(moved.now_or_never().is_some());
    assert_eq!(told(&mut events), "~a");
    shared.upsert(0, 0, moving("/two", "5"));
    assert_eq!(told(&mut events), "-a +a");
    shared.upsert(0, 0, spec("b", &access));
    shared.withdraw(&mut shared.state.lock(), 0, &ClusterName::new("b"));
    assert_eq!(told(&mut events), "");
}

#[tokio::test]
async fn of_two_that_claim_a_name_the_first_counts_until_it_lets_go() {
    let (fleet, access) = (fleet(), nowhere());
    let mut events = fleet.events();
    assert_eq!(story(&mut events).await, "");
    fleet
        .add(Static::new([spec("a", &access.at("/one"))]).named("one"))
        .unwrap();
    assert_eq!(story(&mut events).await, "+a");
    fleet
        .add(Static::new([spec("a", &access.at("/two")), spec("b", &access)]).named("two"))
        .unwrap();
    assert_eq!(story(&mut events).await, "+b");
    assert_eq!(
        fleet.add(Static::new([]).named("two")),
        Err(FleetError::ProviderExists("two".to_owned()))
    );
    let path = |fleet: &Fleet| fleet.get(&ClusterName::new("a")).unwrap().access().path().to_owned();
    assert_eq!(path(&fleet), "/one");
    fleet.remove("one");
    assert_eq!(story(&mut events).await, "-a +a");
    assert_eq!(path(&fleet), "/two");
    fleet.remove("two");
    assert_eq!(story(&mut events).await, "-a -b");
    assert!(fleet.clusters().is_empty() && fleet.providers().is_empty());
}

/// Says one cluster less in every run, and never ends well.
struct Failing {
    runs: AtomicUsize,
    access: Access,
}

#[async_trait]
impl Provider for Failing {
    fn name(&self) -> &str {
        "failing"
    }

    async fn run(&self, sink: ClusterSink) -> Result<(), ProviderError> {
        let run = self.runs.fetch_add(1, Ordering::Relaxed);
        for name in &["a", "b", "c"][run.min(2)..] {
            sink.upsert(spec(name, &self.access));
        }
        assert!(run != 1, "before it has said everything");
        sink.synced();
        Err(ProviderError::Invalid(format!("run {run} failed")))
    }
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_fails_or_panics_is_run_again_and_what_it_does_not_repeat_goes() {
    let fleet = fleet();
    let mut events = fleet.events();
    assert_eq!(story(&mut events).await, "");
    let failing = Failing {
        runs: AtomicUsize::new(0),
        access: nowhere(),
    };
    fleet.add(failing).unwrap();
    assert_eq!(story(&mut events).await, "+a +b +c");
    // The second run panics and takes nothing away; the third is synced with one of them.
    let gone = [events.next().await.unwrap(), events.next().await.unwrap()];
    assert_eq!(format!("{gone:?}"), r#"[Gone("a"), Gone("b")]"#);
    let state = fleet.providers().remove(0);
    assert!(state.synced);
    assert_eq!(state.trouble.as_deref(), Some("run 2 failed"));
    fleet.stop().await;
    assert_eq!(format!("{:?}", events.next().await), "None");
}

#[tokio::test]
async fn parts_of_a_multi_have_their_names_before_their_clusters() {
    let (fleet, access) = (fleet(), nowhere());
    let (puppet, say, mut heard) = Puppet::new();
    let multi = Multi::new()
        .with("east", puppet)
        .and_then(|multi| multi.with("west", Static::new([spec("a", &access)])))
        .unwrap();
    assert!(Multi::new().with("a#b", Static::new([])).is_err());
    fleet.add(multi).unwrap();
    let mut events = fleet.events();
    assert_eq!(
        format!(
            "{:?}",
            events.next().await.map(|event| matches!(event, FleetEvent::Engaged(_)))
        ),
        "Some(true)"
    );
    assert!(!fleet.is_synced(), "east has not said all");
    let a = spec("a", &access);
    say.send(Box::new(|sink| {
        sink.upsert(a);
        sink.synced();
    }))
    .ok();
    assert_eq!(story(&mut events).await, "+east#a");
    assert_eq!(
        heard.recv().await.unwrap(),
        "a is Engaged",
        "it knows nothing of the prefix"
    );
    let gone = ClusterName::new("a");
    say.send(Box::new(move |sink| sink.remove(&gone))).ok();
    assert_eq!(format!("{:?}", events.next().await), r#"Some(Gone("east#a"))"#);
}

/// An ownership that is what the test says.
struct Turns {
    owns: Mutex<(Engages, Option<Epoch>)>,
    changes: watch::Sender<u64>,
}

impl Turns {
    fn set(&self, engages: Engages, epoch: Option<Epoch>) {
        *self.owns.lock() = (engages, epoch);
        self.changes.send_modify(|count| *count += 1);
    }
}

#[async_trait]
impl Ownership for Turns {
    fn owns(&self, _: &ClusterName) -> Option<Epoch> {
        self.owns.lock().1
    }

    fn holds(&self, _: &ClusterName) -> Option<Epoch> {
        self.owns.lock().1
    }

    fn begin(&self, _: &ClusterName) -> Option<Tenure> {
        None
    }

    fn engages(&self, _: &ClusterName) -> Engages {
        self.owns.lock().0
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    async fn run(&self, stop: CancellationToken) {
        stop.cancelled().await;
    }
}

/// What a client is told: `sent`, or why not.
async fn write(client: &kube::Client) -> String {
    let request = Request::post("/api/v1/namespaces").body(Body::empty()).unwrap();
    outcome(client.send(request).await)
}

async fn read(client: &kube::Client) -> String {
    outcome(client.send(Request::get("/version").body(Body::empty()).unwrap()).await)
}

fn outcome(answer: kube::Result<Response<Body>>) -> String {
    match answer {
        Ok(_) => "sent".to_owned(),
        Err(error) => format!("{:?}", crate::cluster::Refused::of(&error).expect("refused here")),
    }
}

#[tokio::test]
async fn a_lost_epoch_cannot_write_even_if_there_is_a_new_one() {
    let turns = Arc::new(Turns {
        owns: Mutex::new((Engages::Yes, Some(1))),
        changes: watch::Sender::new(0),
    });
    let fleet = Fleet::new(turns.clone());
    let mut events = fleet.events();
    fleet.add(Static::new([spec("a", &nowhere())])).unwrap();
    assert_eq!(format!("{:?}", events.next().await.is_some()), "true");
    assert_eq!(story(&mut events).await, "+a");
    let name = ClusterName::new("a");
    let cluster = fleet.get(&name).unwrap();
    let first = cluster.client();
    assert_eq!(
        (write(&first).await, read(&first).await),
        ("sent".to_owned(), "sent".to_owned())
    );

    turns.set(Engages::Yes, None);
    assert!(matches!(events.next().await, Some(FleetEvent::Changed(_))), "a standby");
    assert_eq!(fleet.get(&name).unwrap_err(), FleetError::NotOwned(name.clone()));
    assert_eq!(write(&first).await, r#"NotOwned("a")"#);
    assert_eq!(read(&first).await, "sent", "it still watches");
    assert_eq!(write(&cluster.client()).await, r#"NotOwned("a")"#);

    turns.set(Engages::Yes, Some(2));
    assert!(matches!(events.next().await, Some(FleetEvent::Changed(_))));
    assert_eq!(write(&first).await, r#"NotOwned("a")"#, "it was made under the first");
    assert_eq!(write(&cluster.client()).await, "sent");

    turns.set(Engages::No, None);
    assert!(matches!(events.next().await, Some(FleetEvent::Gone(_))));
    assert_eq!(read(&cluster.client()).await, r#"Gone("a")"#);
    assert_eq!(fleet.get(&name).unwrap_err(), FleetError::NotOwned(name));
}

#[tokio::test(start_paused = true)]
async fn a_dead_cluster_is_asked_by_a_probe_alone_until_it_answers() {
    let (alive, asked) = (Arc::new(Mutex::new(false)), Arc::new(AtomicUsize::new(0)));
    let (living, counted) = (alive.clone(), asked.clone());
    let access = Access::in_process(service_fn(move |_: Request<Body>| {
        counted.fetch_add(1, Ordering::Relaxed);
        let answer = match *living.lock() {
            true => Ok(Response::new(Body::empty())),
            false => Err(std::io::Error::other("no route")),
        };
        async move { answer }
    }));
    let fleet = fleet();
    let (puppet, say, mut heard) = Puppet::new();
    fleet.add(puppet).unwrap();
    let mut events = fleet.events();
    let a = spec("a", &access);
    say.send(Box::new(|sink| {
        sink.upsert(a);
        sink.synced();
    }))
    .ok();
    assert_eq!(story(&mut events).await, "+a");
    assert_eq!(heard.recv().await.unwrap(), "a is Engaged");
    let cluster = fleet.clusters().remove(0);
    let client = cluster.client();
    for _ in 0..5 {
        assert!(
            client
                .send(Request::get("/version").body(Body::empty()).unwrap())
                .await
                .is_err()
        );
    }
    assert!(matches!(events.next().await, Some(FleetEvent::Changed(held)) if !held.is_reachable()));
    assert_eq!(heard.recv().await.unwrap(), "a is Unreachable");
    assert_eq!(
        cluster.health().to_string(),
        "does not answer: the server does not answer: no route"
    );
    assert_eq!(read(&client).await, r#"Unreachable("a")"#);
    assert_eq!(asked.load(Ordering::Relaxed), 5, "that one was not sent");
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert_eq!(asked.load(Ordering::Relaxed), 8, "after one, three and seven seconds");

    *alive.lock() = true;
    cluster.reachable().await;
    assert!(matches!(events.next().await, Some(FleetEvent::Changed(free)) if free.is_reachable()));
    assert_eq!(heard.recv().await.unwrap(), "a is Reachable");
    assert_eq!(read(&client).await, "sent");
}
