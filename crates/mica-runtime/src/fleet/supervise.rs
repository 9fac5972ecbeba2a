//! Runs providers: again after errors, and tells them how their clusters are.

use std::any::Any;
use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::cluster::chain;
use crate::provider::{Provider, ProviderError};
use crate::request::ClusterName;

/// The pause after a provider's first failure, and the longest: each is twice the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A provider that ran so long begins with the first pause again.
const STEADY: Duration = Duration::from_secs(120);
/// The pause after a report that was not taken.
const REPORT_PAUSE: Duration = Duration::from_secs(5);

/// Runs something until it has nothing more to say, again after errors and panics, ever later.
pub(crate) async fn again_after_errors<F>(name: &str, mut run: impl FnMut() -> F, mut failed: impl FnMut(&str))
where
    F: Future<Output = Result<(), ProviderError>>,
{
    let mut pause = FIRST_PAUSE;
    loop {
        let began = Instant::now();
        let message = match AssertUnwindSafe(run()).catch_unwind().await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => chain(&error),
            Err(panic) => format!("panicked: {}", said(&*panic)),
        };
        tracing::warn!(provider = name, error = message, again_in = ?pause, "the provider failed");
        failed(&message);
        if began.elapsed() >= STEADY {
            pause = FIRST_PAUSE;
        }
        // Not all at once, where many failed together.
        tokio::time::sleep(pause.mul_f64(0.75 + rand::random::<f64>() / 2.0)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

fn said(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("without a word")
}

/// The clusters of one provider whose health it has not been told.
#[derive(Default)]
pub(super) struct Reports {
    due: Mutex<BTreeSet<ClusterName>>,
    wake: Notify,
}

impl Reports {
    pub(super) fn add(&self, cluster: &ClusterName) {
        self.due.lock().insert(cluster.clone());
        self.wake.notify_one();
    }

    fn take(&self) -> Option<ClusterName> {
        self.due.lock().pop_first()
    }
}

/// Tells a provider what is due, until stopped. `health` says how a cluster is now, if that is for us to tell.
pub(super) async fn report(
    provider: Arc<dyn Provider>,
    reports: Arc<Reports>,
    health: impl Fn(&ClusterName) -> Option<crate::cluster::Health>,
    stop: CancellationToken,
) {
    let telling = async {
        loop {
            let Some(cluster) = reports.take() else {
                reports.wake.notified().await;
                continue;
            };
            let Some(health) = health(&cluster) else { continue };
            let told = AssertUnwindSafe(provider.report(&cluster, &health))
                .catch_unwind()
                .await;
            let message = match told {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => chain(&error),
                Err(panic) => format!("panicked: {}", said(&*panic)),
            };
            tracing::warn!(provider = provider.name(), %cluster, error = message, "the cluster's health was not written");
            reports.due.lock().insert(cluster);
            tokio::time::sleep(REPORT_PAUSE).await;
        }
    };
    stop.run_until_cancelled(telling).await;
}
