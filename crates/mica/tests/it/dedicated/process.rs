//! Servers with data in their own directories.

use std::process::{Command, Stdio};
use std::sync::Arc;

use mica_api::control_plane::DeletionPolicy;
use mica_controllers::dedicated::{Place, Process, Provider, Provisioned, Refused};
use serde_json::Value;

use super::shop::{Shop, calls, exists, has, kill, put, retired, running, until, wanted};

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_is_started_again_with_its_data_and_address() {
    let shop = Shop::new();
    let provider = shop.provider();
    let wanted = wanted("a", None);
    let (home, version) = running(&provider, &wanted).await;
    assert_eq!(version, "1.0");
    assert!(home.url.starts_with("https://127.0.0.1:2"), "{}", home.url);
    put(&home, "kept").await;
    for _ in 0..2 {
        let pid = shop.pid("a");
        kill(pid);
        let again = until(&provider, "another process", async || {
            let other = shop.record("a")["process"]["pid"].as_u64();
            match provider.provision(&wanted).await {
                Ok(Provisioned::Running { home, .. }) if other.is_some_and(|other| other != u64::from(pid)) => {
                    Some(home)
                }
                _ => None,
            }
        })
        .await;
        assert_eq!(again.url, home.url);
        assert!(has(&again, "kept").await);
    }
    assert!(exists(&shop.servers().join("a/server.log")));
    // It is in a process group of its own: what a terminal sends to the operator is not for it.
    let pid = shop.pid("a");
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let group = stat.rsplit_once(") ").unwrap().1.split(' ').nth(2).unwrap().to_owned();
    assert_eq!(group, pid.to_string());
    retired(&provider, "a", DeletionPolicy::Destroy).await;
    assert_eq!(calls(pid), "");
}

/// Runs an operator on threads of its own, which end when it has done something. Its servers are not asked.
async fn in_an_operator<T: Send + 'static>(shop: &Shop, run: impl AsyncFnOnce(&Process) -> T + Send + 'static) -> T {
    let options = shop.options();
    let operator = move || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let provider = Process::embedded(Arc::new(Place::new(options)));
        runtime.block_on(run(&provider))
    };
    tokio::task::spawn_blocking(operator).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_outlives_its_operator_and_is_found_again_by_its_record_or_its_lock() {
    let shop = Shop::new();
    let url = in_an_operator(&shop, async |provider: &Process| {
        let (home, _) = running(provider, &wanted("a", None)).await;
        put(&home, "kept").await;
        home.url
    })
    .await;
    let pid = shop.pid("a");
    for known in [true, false] {
        if !known {
            // As if the operator was killed before it could write down whom it had started.
            let mut record = shop.record("a");
            record["process"] = Value::Null;
            shop.write_record("a", &record);
        }
        let found = in_an_operator(&shop, async |provider: &Process| {
            assert!(provider.find("b").await.unwrap().is_none());
            let home = until(provider, "the server", async || match provider.find("a").await {
                Ok(Some(Provisioned::Running { home, .. })) => Some(home),
                Ok(Some(_)) => None,
                other => panic!("it is not found: {}", other.is_ok()),
            })
            .await;
            assert!(has(&home, "kept").await);
            home.url
        });
        assert_eq!(found.await, url);
        assert!(calls(pid).contains("--data-dir"), "it is the same process");
    }
    in_an_operator(&shop, async |provider: &Process| {
        retired(provider, "a", DeletionPolicy::Destroy).await;
    })
    .await;
    assert_eq!(calls(pid), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_with_a_servers_old_process_id_is_left_alone() {
    let shop = Shop::new();
    in_an_operator(&shop, async |provider: &Process| {
        running(provider, &wanted("a", None)).await;
        provider.halt().await;
    })
    .await;
    let mut stranger = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
    let mut record = shop.record("a");
    record["process"] = serde_json::json!({"pid": stranger.id(), "began": 1, "boot": "another"});
    shop.write_record("a", &record);
    let provider = shop.provider();
    running(&provider, &wanted("a", None)).await;
    assert_ne!(shop.pid("a"), stranger.id());
    retired(&provider, "a", DeletionPolicy::Destroy).await;
    assert!(stranger.try_wait().unwrap().is_none(), "it goes on");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_retained_is_kept_marked_and_served_again_and_what_is_destroyed_is_gone() {
    let shop = Shop::new();
    let provider = shop.provider();
    let (home, _) = running(&provider, &wanted("a", None)).await;
    put(&home, "kept").await;
    let pid = shop.pid("a");
    retired(&provider, "a", DeletionPolicy::Retain).await;
    assert_eq!(calls(pid), "");
    let marker = std::fs::read(shop.servers().join("a/retained.json")).unwrap();
    let marker: Value = serde_json::from_slice(&marker).unwrap();
    assert_eq!((&marker["name"], &marker["version"]), (&"a".into(), &"1.0".into()));
    assert!(provider.find("a").await.unwrap().is_none(), "nobody starts it unasked");
    retired(&provider, "a", DeletionPolicy::Retain).await;
    let (again, _) = running(&provider, &wanted("a", None)).await;
    assert_eq!(again.url, home.url);
    assert!(has(&again, "kept").await);
    assert!(!exists(&shop.servers().join("a/retained.json")));
    retired(&provider, "a", DeletionPolicy::Destroy).await;
    assert!(!exists(&shop.servers().join("a")));
    retired(&provider, "a", DeletionPolicy::Destroy).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_cannot_start_says_why_and_one_directory_has_one_operator() {
    let shop = Shop::new();
    shop.add_script(
        "broken",
        r#"[ "$1" = version ] && exec "$MICA" "$@"; echo "error: no such luck" >&2; exit 7"#,
    );
    let provider = shop.provider();
    let broken = wanted("a", Some("broken"));
    until(&provider, "the reason", async || {
        match provider.provision(&broken).await {
            Ok(Provisioned::Pending { message }) if message.contains("exit status: 7): no such luck") => Some(()),
            Ok(Provisioned::Pending { .. }) => None,
            _ => panic!("it cannot run"),
        }
    })
    .await;
    // Another name for the program that is well.
    running(&provider, &wanted("a", None)).await;
    let other = shop.provider();
    match other.provision(&wanted("b", None)).await {
        Err(Refused::Failed { message }) => {
            let by = format!("is in use by another operator (process {})", std::process::id());
            assert!(message.ends_with(&by), "{message}");
        }
        _ => panic!("it is refused"),
    }
    for name in ["../a", "A", ""] {
        assert!(matches!(
            provider.provision(&wanted(name, None)).await,
            Err(Refused::Unacceptable { .. })
        ));
    }
}
