//! Servers with data in etcd.

use std::sync::Arc;
use std::time::SystemTime;

use mica_api::control_plane::{DeletionPolicy, reason};
use mica_controllers::dedicated::{EtcdOptions, Process, Provider, Provisioned, Ranges, Refused, Wanted};
use mica_server::pki::{Authority, Identity};
use mica_store::etcd::{EtcdConfig, range};

use super::super::etcd::Etcd;
use super::shop::{Shop, has, put, retired, running, until, wanted};

struct Client;

#[async_trait::async_trait]
impl Ranges for Client {
    async fn is_empty(&self, store: &str) -> Result<bool, String> {
        let config = EtcdConfig::from_url(store).unwrap();
        range::is_empty(&config).await.map_err(|error| error.to_string())
    }

    async fn clear(&self, store: &str) -> Result<(), String> {
        let config = EtcdConfig::from_url(store).unwrap();
        range::clear(&config).await.map_err(|error| error.to_string())
    }
}

fn provider(shop: &Shop, shared: Option<String>) -> Process {
    let options = EtcdOptions {
        shared,
        reserved: Some("/mica".to_owned()),
        ranges: Arc::new(Client),
    };
    Process::etcd(shop.place(), options)
}

fn with(mut wanted: Wanted, parameters: &[(&str, &str)]) -> Wanted {
    let parameters = parameters
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    wanted.parameters.extend(parameters);
    wanted
}

/// Why something is not acceptable.
async fn refusal(provider: &Process, wanted: &Wanted) -> String {
    until(provider, "the refusal", async || {
        match provider.provision(wanted).await {
            Err(Refused::Unacceptable { reason, message }) => {
                assert_eq!(reason, reason::INVALID_PARAMETERS, "{message}");
                Some(message)
            }
            Ok(Provisioned::Pending { .. }) => None,
            Ok(Provisioned::Running { .. }) => panic!("it runs"),
            Err(Refused::Failed { message }) => panic!("{message}"),
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_share_an_etcd_each_below_its_prefix_which_goes_with_it() {
    let (shop, etcd) = (Shop::new(), Etcd::start().await);
    let provider = provider(&shop, Some(etcd.store()));
    assert_eq!(provider.kind(), "Etcd");
    let (one, _) = running(&provider, &wanted("one", None)).await;
    let parameters = [("endpoints", etcd.endpoint.as_str()), ("prefix", "/mine")];
    let other = with(wanted("two", None), &parameters);
    let (two, _) = running(&provider, &other).await;
    put(&one, "of-one").await;
    put(&two, "of-two").await;
    assert!(!has(&one, "of-two").await && !has(&two, "of-one").await);
    let empty = async |prefix: &str| range::is_empty(&etcd.config(prefix)).await.unwrap();
    assert!(!empty("/mica-dedicated/one").await && !empty("/mine").await);
    // What is another's is not given away, nor what surrounds it, nor what somebody else filled.
    for (prefix, said) in [
        (
            "/mica",
            "the prefix \"/mica\" and \"/mica\" of the shared server lie in one another: choose another",
        ),
        (
            "/mine/too",
            "the prefix \"/mine/too\" and \"/mine\" of two lie in one another: choose another",
        ),
        (
            "/mica-dedicated",
            "the prefix \"/mica-dedicated\" and \"/mica-dedicated/one\" of one lie in one another: choose another",
        ),
    ] {
        let wanted = with(wanted("three", None), &[("prefix", prefix)]);
        assert_eq!(refusal(&provider, &wanted).await, said);
    }
    retired(&provider, "one", DeletionPolicy::Destroy).await;
    assert!(empty("/mica-dedicated/one").await && !empty("/mine").await);
    assert!(has(&two, "of-two").await);
    retired(&provider, "two", DeletionPolicy::Retain).await;
    assert!(!empty("/mine").await);
    let (two, _) = running(&provider, &other).await;
    assert!(has(&two, "of-two").await);
    retired(&provider, "two", DeletionPolicy::Destroy).await;
    assert!(empty("/mine").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_etcd_that_asks_for_certificates_is_reached_with_those_of_the_parameters() {
    let authority = |name: &str| Authority::generate(name, SystemTime::now()).unwrap();
    let (ours, other) = (authority("etcd-ca"), authority("another-ca"));
    let (shop, etcd) = (Shop::new(), Etcd::start_with_tls(&ours));
    let provider = provider(&shop, None);
    let asking = |by: &Authority| {
        let identity = Identity {
            name: "mica".to_owned(),
            group: None,
        };
        let shown = by.issue_client(&identity, SystemTime::now()).unwrap();
        let parameters = [
            ("endpoints", etcd.endpoint.as_str()),
            ("ca.crt", ours.certificate_pem()),
            ("tls.crt", &shown.certificate_pem),
            ("tls.key", &shown.key_pem),
        ];
        with(wanted("safe", None), &parameters)
    };
    // Who shows what another signed does not get in, and no server is started for it.
    let stranger = asking(&other);
    until(&provider, "the failure", async || {
        match provider.provision(&stranger).await {
            Err(Refused::Failed { .. }) => Some(()),
            Ok(Provisioned::Pending { .. }) => None,
            Ok(Provisioned::Running { .. }) => panic!("it got in"),
            Err(refused) => panic!("{refused}"),
        }
    })
    .await;
    let first = asking(&ours);
    let (home, _) = running(&provider, &first).await;
    put(&home, "kept").await;
    let before = shop.pid("safe");
    // A certificate that is renewed is taken up by a new start, on the same data.
    let second = asking(&ours);
    assert_ne!(first, second);
    let again = until(&provider, "another process", async || {
        match provider.provision(&second).await {
            Ok(Provisioned::Running { home, .. }) if shop.record("safe")["process"]["pid"] != before => Some(home),
            Ok(_) => None,
            Err(refused) => panic!("{refused}"),
        }
    })
    .await;
    assert_eq!(again.url, home.url);
    assert!(has(&again, "kept").await);
    retired(&provider, "safe", DeletionPolicy::Destroy).await;
    // What was there is gone: a new server of the name finds its prefix empty.
    let (anew, _) = running(&provider, &first).await;
    assert!(!has(&anew, "kept").await);
    retired(&provider, "safe", DeletionPolicy::Destroy).await;
}
