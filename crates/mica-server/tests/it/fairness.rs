//! Planes share the server: floods, queues, refusals, and what clients are told of them.

use std::time::Duration;

use http::Method;
use mica_server::pki::Issued;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::client::Dial;
use super::fixture::HTTP1;
use super::world::{Answer, Api, MAPS, World, map, text};

const FLOW: &str = "/apis/flowcontrol.apiserver.k8s.io/v1";
const FLOW_SCHEMA: &str = "x-kubernetes-pf-flowschema-uid";
const PRIORITY_LEVEL: &str = "x-kubernetes-pf-prioritylevel-uid";
/// Longer than any test waits.
const LONG: Duration = Duration::from_secs(120);
/// Too short for anything to happen.
const SHORT: Duration = Duration::from_millis(50);

/// A request that has begun and does not go on: its body does not come.
struct Stuck(TlsStream<TcpStream>);

impl Stuck {
    async fn at(world: &World, plane: &str) -> Self {
        Self::of(world, plane, Some(&world.admin)).await
    }

    /// The same by somebody else, or nobody. That it is not allowed shows only later.
    async fn of(world: &World, plane: &str, certificate: Option<&Issued>) -> Self {
        let dial = Dial {
            addr: world.addr,
            authority: world.authority.certificate(),
            host: "localhost",
            alpn: HTTP1,
            certificate,
        };
        let mut tls = dial.tls().await.unwrap();
        let head = format!(
            "POST /clusters/{plane}/control-plane{MAPS} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 10\r\n\r\n{{"
        );
        tls.write_all(head.as_bytes()).await.unwrap();
        tls.flush().await.unwrap();
        Self(tls)
    }

    /// Goes on, with nonsense; returns the beginning of the answer.
    async fn finish(mut self) -> String {
        self.0.write_all(b"        x").await.unwrap();
        let mut answer = vec![0; 12];
        self.0.read_exact(&mut answer).await.unwrap();
        String::from_utf8(answer).unwrap()
    }
}

/// Waits until a number that the server tells is this.
async fn until_metric(world: &World, line: &str) {
    let end = tokio::time::Instant::now() + Duration::from_secs(30);
    loop {
        let text = world.server.metrics.encode();
        if text.lines().any(|one| one == line) {
            return;
        }
        let about = line.split([' ', '{']).next().unwrap();
        let shown: Vec<&str> = text.lines().filter(|one| one.starts_with(about)).collect();
        assert!(tokio::time::Instant::now() < end, "{line} is not told, but {shown:#?}");
        tokio::task::yield_now().await;
    }
}

async fn uid(api: &Api, kind: &str, name: &str) -> String {
    text(
        &api.get(&format!("{FLOW}/{kind}/{name}")).await.expect(200),
        "/metadata/uid",
    )
    .to_owned()
}

/// Waits until what was changed is heard of: requests of this client are of the schema with this uid.
async fn until_flow(api: &Api, schema: &str) {
    let end = tokio::time::Instant::now() + Duration::from_secs(30);
    while api.get(MAPS).await.header(FLOW_SCHEMA) != schema {
        assert!(tokio::time::Instant::now() < end, "the schema does not count");
    }
}

async fn expect_flow(api: &Api, answer: &Answer, schema: &str, level: &str) {
    assert_eq!(
        answer.header(FLOW_SCHEMA),
        uid(api, "flowschemas", schema).await,
        "{schema}"
    );
    let levels = "prioritylevelconfigurations";
    assert_eq!(answer.header(PRIORITY_LEVEL), uid(api, levels, level).await, "{level}");
}

#[track_caller]
fn expect_busy(answer: &Answer) {
    assert_eq!(answer.code(), 429, "{}", answer.json());
    assert_eq!(&answer.body[..], b"Too many requests, please try again later.\n");
    assert_eq!(answer.header("retry-after"), "1");
    assert_eq!(answer.header("content-type"), "text/plain; charset=utf-8");
    assert!(!answer.header(FLOW_SCHEMA).is_empty(), "a refusal says by which flow");
}

#[tokio::test]
async fn every_answer_tells_its_flow_schema_and_priority_level() {
    let world = World::start().await;
    let (root, one, two) = (world.root().await, world.plane("one").await, world.plane("two").await);
    for api in [&root, &one, &two] {
        expect_flow(api, &api.get(MAPS).await, "exempt", "exempt").await;
        let stranger = api.acting("ann").get(MAPS).await;
        assert_eq!(stranger.code(), 403);
        expect_flow(api, &stranger, "global-default", "global-default").await;
        expect_flow(api, &api.acting("ann").get("/healthz").await, "probes", "exempt").await;
        let account = api.acting("system:serviceaccount:default:x").get("/version").await;
        expect_flow(api, &account, "service-accounts", "workload-low").await;
    }
    let schema = uid(&one, "flowschemas", "exempt").await;
    assert_ne!(schema, uid(&two, "flowschemas", "exempt").await);
}

fn level(name: &str, spec: Value) -> Value {
    json!({"metadata": {"name": name}, "spec": spec})
}

fn rejecting(name: &str) -> Value {
    let limited = json!({"nominalConcurrencyShares": 1, "limitResponse": {"type": "Reject"}});
    level(name, json!({"type": "Limited", "limited": limited}))
}

fn schema(name: &str, level: &str, user: &str) -> Value {
    let everything = json!({
        "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true, "namespaces": ["*"],
    });
    json!({
        "metadata": {"name": name},
        "spec": {
            "priorityLevelConfiguration": {"name": level},
            "matchingPrecedence": 2,
            "rules": [{"subjects": [{"kind": "User", "user": {"name": user}}], "resourceRules": [everything]}],
        },
    })
}

#[tokio::test]
async fn a_plane_s_own_schemas_count_there_at_once_and_nowhere_else() {
    let world = World::start().await;
    let (one, two) = (world.plane("one").await, world.plane("two").await);
    let ann = one.acting("ann");
    expect_flow(&one, &ann.get(MAPS).await, "global-default", "global-default").await;
    let levels = format!("{FLOW}/prioritylevelconfigurations");
    one.post(&levels, &rejecting("mine")).await.expect(201);
    one.post(&format!("{FLOW}/flowschemas"), &schema("anns", "mine", "ann"))
        .await
        .expect(201);
    let mine = uid(&one, "flowschemas", "anns").await;
    until_flow(&ann, &mine).await;
    expect_flow(&one, &ann.get(MAPS).await, "anns", "mine").await;
    expect_flow(
        &two,
        &two.acting("ann").get(MAPS).await,
        "global-default",
        "global-default",
    )
    .await;
    // Without its level the schema does not count.
    one.delete(&format!("{levels}/mine")).await.expect(200);
    until_flow(&ann, &uid(&one, "flowschemas", "global-default").await).await;
    expect_flow(&one, &ann.get(MAPS).await, "global-default", "global-default").await;
    assert!(
        !world.server.metrics.encode().contains("\"anns\""),
        "what tenants name does not become a label"
    );
}

#[tokio::test]
async fn a_schema_says_whether_its_level_exists() {
    let world = World::start().await;
    let api = world.plane("p").await;
    let (schemas, levels) = (
        format!("{FLOW}/flowschemas"),
        format!("{FLOW}/prioritylevelconfigurations"),
    );
    api.post(&schemas, &schema("anns", "mine", "ann")).await.expect(201);
    let until_dangling = async |wanted: &str| {
        let end = tokio::time::Instant::now() + Duration::from_secs(30);
        loop {
            let schema = api.get(&format!("{schemas}/anns")).await.expect(200);
            let condition = &schema["status"]["conditions"][0];
            let said = format!("{} {} {}", condition["type"], condition["status"], condition["message"]);
            if said == wanted {
                return;
            }
            assert!(tokio::time::Instant::now() < end, "{said}");
        }
    };
    let about = "This FlowSchema references the PriorityLevelConfiguration object named";
    let missing = format!(r#""Dangling" "True" "{about} \"mine\" but there is no such object""#);
    let found = format!(r#""Dangling" "False" "{about} \"mine\" and it exists""#);
    until_dangling(&missing).await;
    api.post(&levels, &rejecting("mine")).await.expect(201);
    until_dangling(&found).await;
    api.delete(&format!("{levels}/mine")).await.expect(200);
    until_dangling(&missing).await;
}

#[tokio::test]
async fn metrics_of_a_plane_tell_the_seats_of_its_levels() {
    let world = World::start().await;
    let root = world.root().await;
    root.post(&format!("{FLOW}/prioritylevelconfigurations"), &rejecting("mine"))
        .await
        .expect(201);
    until_metric_of(
        &root,
        "apiserver_flowcontrol_nominal_limit_seats{priority_level=\"mine\"} 3",
    )
    .await;
    until_metric_of(
        &root,
        "apiserver_flowcontrol_nominal_limit_seats{priority_level=\"workload-low\"} 244",
    )
    .await;
    let plane = world.plane("p").await;
    let levels = format!("{FLOW}/prioritylevelconfigurations");
    plane.post(&levels, &rejecting("theirs")).await.expect(201);
    let line = "apiserver_flowcontrol_nominal_limit_seats{priority_level=\"theirs\"} 3";
    until_metric_of(&plane, line).await;
    let told = String::from_utf8(plane.get("/metrics").await.body.to_vec()).unwrap();
    let mut other = told.lines().filter(|line| !line.starts_with('#'));
    let other = other.find(|line| !line.starts_with("apiserver_flowcontrol_"));
    assert_eq!(other, None, "a plane is told of nothing but its levels");
}

/// The same of what `/metrics` answers.
async fn until_metric_of(api: &Api, line: &str) {
    let end = tokio::time::Instant::now() + Duration::from_secs(30);
    loop {
        let text = String::from_utf8(api.get("/metrics").await.body.to_vec()).unwrap();
        if text.lines().any(|one| one == line) {
            return;
        }
        let about = line.split([' ', '{']).next().unwrap();
        let shown: Vec<&str> = text.lines().filter(|one| one.starts_with(about)).collect();
        assert!(tokio::time::Instant::now() < end, "{line} is not told, but {shown:#?}");
    }
}

#[tokio::test]
async fn a_plane_full_of_stuck_requests_delays_no_other() {
    let world = World::sharing(5, LONG).await;
    let (a, b) = (world.plane("a").await, world.plane("b").await);
    let mut stuck = Vec::new();
    for _ in 0..4 {
        stuck.push(Stuck::at(&world, "a").await);
    }
    until_metric(&world, "mica_seats_used 4").await;
    // They are of an administrator, so exempt in their plane, and yet:
    let waiting = tokio::spawn({
        let a = a.clone();
        async move { a.get(MAPS).await }
    });
    until_metric(&world, "mica_seats_waiting 1").await;
    until_metric(
        &world,
        "apiserver_flowcontrol_current_inqueue_requests{priority_level=\"exempt\",flow_schema=\"exempt\"} 1",
    )
    .await;
    for _ in 0..20 {
        assert_eq!(b.get(MAPS).await.code(), 200);
        assert_eq!(world.root().await.get(MAPS).await.code(), 200);
        assert_eq!(a.get("/livez").await.code(), 200, "health is always told");
    }
    assert!(!waiting.is_finished());
    let answer = stuck.pop().unwrap().finish().await;
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    assert_eq!(waiting.await.unwrap().code(), 200);
    drop(stuck);
    until_metric(&world, "mica_seats_used 0").await;
}

#[tokio::test]
async fn who_waits_in_vain_is_told_so_and_all_is_well_again_after() {
    let world = World::sharing(5, SHORT).await;
    let a = world.plane("a").await;
    let mut stuck = Vec::new();
    for _ in 0..4 {
        stuck.push(Stuck::at(&world, "a").await);
    }
    until_metric(&world, "mica_seats_used 4").await;
    expect_busy(&a.get(MAPS).await);
    let posted = a.post(MAPS, &map("m")).await;
    expect_busy(&posted);
    drop(stuck);
    a.until(MAPS, 200).await;
    a.post(MAPS, &map("m")).await.expect(201);
    let text = world.server.metrics.encode();
    let rejected = "apiserver_flowcontrol_rejected_requests_total{priority_level=\"exempt\",flow_schema=\"exempt\",reason=\"time-out\"}";
    assert!(text.contains(rejected), "{text}");
}

#[tokio::test]
async fn who_goes_while_waiting_leaves_no_trace() {
    let world = World::sharing(5, LONG).await;
    let a = world.plane("a").await;
    let mut stuck = Vec::new();
    for _ in 0..4 {
        stuck.push(Stuck::at(&world, "a").await);
    }
    until_metric(&world, "mica_seats_used 4").await;
    let impatient = tokio::spawn({
        let a = a.clone();
        async move { a.get(MAPS).await }
    });
    until_metric(&world, "mica_seats_waiting 1").await;
    impatient.abort();
    until_metric(&world, "mica_seats_waiting 0").await;
    drop(stuck);
    until_metric(&world, "mica_seats_used 0").await;
}

#[tokio::test]
async fn what_is_exempt_in_root_gets_in_when_nobody_else_does() {
    let world = World::sharing(2, SHORT).await;
    for plane in ["a", "b", "c"] {
        world.plane(plane).await;
    }
    let root = world.root().await;
    let stuck = [Stuck::at(&world, "a").await, Stuck::at(&world, "b").await];
    until_metric(&world, "mica_seats_used 2").await;
    expect_busy(&root.at_plane("c").get(MAPS).await);
    assert_eq!(root.get(MAPS).await.code(), 200);
    drop(stuck);
    root.at_plane("c").until(MAPS, 200).await;
}

#[tokio::test]
async fn a_level_that_rejects_does_so_at_once() {
    let world = World::sharing(10, LONG).await;
    let a = world.plane("a").await;
    let levels = format!("{FLOW}/prioritylevelconfigurations");
    let limited = json!({
        "nominalConcurrencyShares": 1, "borrowingLimitPercent": 0, "limitResponse": {"type": "Reject"},
    });
    a.post(&levels, &level("mine", json!({"type": "Limited", "limited": limited})))
        .await
        .expect(201);
    a.post(
        &format!("{FLOW}/flowschemas"),
        &schema("strangers", "mine", "system:anonymous"),
    )
    .await
    .expect(201);
    let stranger = world.as_user(None).await.at_plane("a");
    until_flow(&stranger, &uid(&a, "flowschemas", "strangers").await).await;
    let stuck = Stuck::of(&world, "a", None).await;
    until_metric(&world, "mica_seats_used 1").await;
    expect_busy(&stranger.get(MAPS).await);
    assert_eq!(a.get(MAPS).await.code(), 200, "others are in other levels");
    drop(stuck);
    stranger.until(MAPS, 403).await;
}

#[tokio::test]
async fn a_watch_has_no_seat_once_it_has_begun() {
    let world = World::sharing(2, LONG).await;
    let a = world.plane("a").await;
    let mut watches = Vec::new();
    for _ in 0..20 {
        watches.push(a.watch(&format!("{MAPS}?watch=1")).await);
    }
    until_metric(&world, "mica_seats_used 0").await;
    let posted = a.call(
        Method::POST,
        MAPS,
        &[("content-type", "application/json")],
        map("m").to_string(),
    );
    posted.await.expect(201);
    for watch in &mut watches {
        let event = watch.next().await.unwrap();
        assert_eq!(event["type"], "ADDED");
    }
}
