//! Of several that could work one does: processes of controllers at a server, and servers that share a store.

use std::path::Path;

use serde_json::Value;

use super::super::etcd::Etcd;
use super::super::process::{Up, run};
use super::{Controllers, client, see_controllers_work, send, until};

pub const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
pub const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/mica-controllers";
/// Of servers that share a store.
const SERVERS: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/mica-server-controllers";
const QUICK: [&str; 3] = [
    "--leader-elect-lease-duration=4s",
    "--leader-elect-renew-deadline=2500ms",
    "--leader-elect-retry-period=200ms",
];

/// Who holds the lease.
pub fn holder(found: &Result<Value, u16>) -> Option<&str> {
    let holder = found.as_ref().ok()?["spec"]["holderIdentity"].as_str();
    holder.filter(|holder| !holder.is_empty())
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_processes_of_controllers_the_second_works_when_the_first_is_killed() {
    let home = tempfile::tempdir().unwrap();
    let _server = Up::start(home.path(), &["--controllers=-*"]);
    assert_eq!(run(home.path(), &["plane", "create", "a"]).0, 0);
    let client = client(home.path()).await;
    let mut first = Controllers::start(home.path(), &QUICK);
    until(&client, LEASE, |found| holder(found).is_some()).await;
    let lease = send(&client, "GET", LEASE, &Value::Null).await;
    let leads = holder(&lease).unwrap().to_owned();
    let second = Controllers::start(home.path(), &QUICK);
    see_controllers_work(&client).await;
    first.0.kill().unwrap();
    first.0.wait().unwrap();
    until(&client, LEASE, |found| holder(found).is_some_and(|now| now != leads)).await;
    see_controllers_work(&client).await;
    // One that stops in order gives the lease away.
    assert_eq!(second.stop(), Some(0));
    let lease = send(&client, "GET", LEASE, &Value::Null).await;
    assert_eq!(holder(&lease), None);
}

#[test]
fn leases_that_could_not_be_renewed_in_time_are_refused() {
    let home = tempfile::tempdir().unwrap();
    for (flag, said) in [
        ("--leader-elect-lease-duration=10s", "leader-elect-lease-duration"),
        ("--leader-elect-retry-period=9s", "leader-elect-renew-deadline"),
        ("--leader-elect-retry-period=often", "leader-elect-retry-period"),
    ] {
        let (code, _, error) = run(home.path(), &["run", "controllers", "--kubeconfig", "x", flag]);
        assert_eq!(code, 2, "{error}");
        assert!(error.starts_with(&format!("error: {said}: ")), "{error}");
    }
}

/// What controllers in the process of a server have changed, as its audit log has it, but for who works.
fn changed(home: &Path) -> Vec<String> {
    let audit = std::fs::read_to_string(home.join(".mica/audit/audit.log")).unwrap();
    // The last line may be on its way.
    let events = audit
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let theirs = events.filter(|event| event["user"]["username"] == "system:mica-controllers");
    let writes = theirs.filter(|event| !["get", "list", "watch"].contains(&event["verb"].as_str().unwrap()));
    let writes = writes.filter(|event| event["objectRef"]["resource"] != "leases");
    writes.map(|event| event["requestURI"].to_string()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_servers_on_one_store_one_runs_the_controllers_and_the_other_takes_over_when_it_ends() {
    let (first_home, second_home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let etcd = Etcd::start().await;
    let store = ["--store", &etcd.store()];
    let first = Up::start(first_home.path(), &store);
    assert_eq!(run(first_home.path(), &["plane", "create", "a"]).0, 0);
    let there = client(first_home.path()).await;
    until(&there, SERVERS, |found| holder(found).is_some()).await;
    let lease = send(&there, "GET", SERVERS, &Value::Null).await;
    let leads = holder(&lease).unwrap().to_owned();

    let second = Up::start(second_home.path(), &store);
    // Whichever is asked, the first works.
    let here = client(second_home.path()).await;
    see_controllers_work(&here).await;
    let lease = send(&here, "GET", SERVERS, &Value::Null).await;
    assert_eq!(holder(&lease), Some(leads.as_str()));
    assert_eq!(changed(second_home.path()), Vec::<String>::new());

    first.signal("-TERM");
    assert_eq!(first.wait().0, Some(0));
    assert_ne!(changed(first_home.path()), Vec::<String>::new());
    until(&here, SERVERS, |found| holder(found).is_some_and(|now| now != leads)).await;
    see_controllers_work(&here).await;
    second.signal("-TERM");
    assert_eq!(second.wait().0, Some(0));
    assert_ne!(changed(second_home.path()), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_and_started_again_has_the_lease_under_its_old_name() {
    let home = tempfile::tempdir().unwrap();
    let etcd = Etcd::start().await;
    let store = ["--store", &etcd.store()];
    let server = Up::start(home.path(), &store);
    assert_eq!(run(home.path(), &["plane", "create", "a"]).0, 0);
    let there = client(home.path()).await;
    until(&there, SERVERS, |found| holder(found).is_some()).await;
    let before = send(&there, "GET", SERVERS, &Value::Null).await;
    server.signal("-KILL");
    server.wait();

    let _again = Up::start(home.path(), &store);
    let there = client(home.path()).await;
    let turns = |found: &Result<Value, u16>| found.as_ref().ok()?["spec"]["leaseTransitions"].as_i64();
    until(&there, SERVERS, |found| turns(found) > turns(&before)).await;
    let after = send(&there, "GET", SERVERS, &Value::Null).await;
    // Nobody waits for a lease of one's own name to end.
    assert_eq!(holder(&after), holder(&before));
    see_controllers_work(&there).await;
}
