//! Versions of dedicated servers.

use mica_api::control_plane::{DeletionPolicy, reason};
use mica_controllers::dedicated::{Provider, Provisioned, Refused};

use super::shop::{Shop, has, put, retired, running, until, wanted};

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_version_keeps_data_and_address_and_too_large_a_step_is_held_back() {
    let shop = Shop::new();
    for version in ["1.1", "1.3"] {
        shop.add_version(version);
    }
    // It knows an older format of stores only.
    shop.add_script(
        "1.2",
        r#"[ "$1" = version ] && echo '{"store": {"embedded": 0, "etcd": 0}}' && exit; exec "$MICA" "$@""#,
    );
    let provider = shop.provider();
    let (home, version) = running(&provider, &wanted("a", None)).await;
    assert_eq!(version, "1.0");
    put(&home, "kept").await;
    let first = shop.pid("a");
    let (home, version) = running(&provider, &wanted("a", Some("1.1"))).await;
    assert_eq!(version, "1.1");
    assert_ne!(shop.pid("a"), first);
    assert!(has(&home, "kept").await);
    let (second, url) = (shop.pid("a"), home.url);
    for (version, said) in [
        (
            "1.3",
            "from version 1.1 to 1.3 is more than one minor step: go to 1.2 first",
        ),
        (
            "1.2",
            "version 1.2 reads stores up to format 0, and version 1.1 has made this one format 1: data does not go back",
        ),
        ("4.0", "there is no version \"4.0\" here: there is 1.0, 1.1, 1.2, 1.3"),
    ] {
        let wanted = wanted("a", Some(version));
        let held = until(&provider, "the refusal", async || {
            let Ok(Provisioned::Running { home, version }) = provider.provision(&wanted).await else {
                panic!("it goes on");
            };
            assert_eq!((home.url.as_str(), version.as_str()), (url.as_str(), "1.1"));
            provider.held("a").filter(|held| held.to_string() == said)
        })
        .await;
        let Refused::Unacceptable { reason, .. } = held else {
            panic!("{held}");
        };
        assert_eq!(reason, reason::VERSION_NOT_POSSIBLE);
    }
    assert_eq!(shop.pid("a"), second, "nothing was exchanged");
    // Back by one is as good as forth by one.
    let (home, version) = running(&provider, &wanted("a", Some("1.0"))).await;
    assert_eq!((home.url.as_str(), version.as_str()), (url.as_str(), "1.0"));
    assert!(has(&home, "kept").await && provider.held("a").is_none());
    retired(&provider, "a", DeletionPolicy::Destroy).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_server_of_a_version_that_is_not_there_is_refused_until_it_is() {
    let shop = Shop::new();
    let provider = shop.provider();
    let wanted = wanted("a", Some("2.5"));
    let said = until(&provider, "the refusal", async || {
        match provider.provision(&wanted).await {
            Err(Refused::Unacceptable { reason, message }) => Some((reason, message)),
            Ok(Provisioned::Pending { .. }) => None,
            _ => panic!("there is no such version"),
        }
    })
    .await;
    assert_eq!(
        said,
        (
            reason::VERSION_NOT_POSSIBLE,
            "there is no version \"2.5\" here: there is 1.0".to_owned()
        )
    );
    shop.add_version("2.5");
    let found = until(&provider, "the version", async || {
        match provider.provision(&wanted).await {
            Ok(Provisioned::Running { version, .. }) => Some(version),
            _ => None,
        }
    })
    .await;
    assert_eq!(found, "2.5");
    retired(&provider, "a", DeletionPolicy::Destroy).await;
}
