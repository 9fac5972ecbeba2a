//! Sends span records in batches: OTLP over HTTP, JSON encoding. Small on purpose; a collector beside us does the rest.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use serde_json::json;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::layer::{SpanLayer, SpanRecord};
use crate::client::plain_post;
use crate::config::Otlp;

/// Spans that wait for the collector; more are dropped and counted.
const QUEUE: usize = 4096;
/// Spans sent at once.
const BATCH: usize = 512;
/// How long the first span of a batch waits for others.
const LINGER: Duration = Duration::from_secs(1);
/// How long shutdown waits for the last spans.
const FLUSH: Duration = Duration::from_secs(2);

pub struct Exporter {
    task: JoinHandle<()>,
    stop: CancellationToken,
}

pub fn start(otlp: &Otlp) -> anyhow::Result<(SpanLayer, Exporter)> {
    let url: http::Uri = format!("{}/v1/traces", otlp.endpoint)
        .parse()
        .context("otlp-endpoint")?;
    let (sender, receiver) = channel(QUEUE);
    let dropped = Arc::new(AtomicU64::new(0));
    let stop = CancellationToken::new();
    let layer = SpanLayer {
        sender,
        sampling: otlp.sampling,
        dropped: dropped.clone(),
    };
    let task = tokio::spawn(run(receiver, url, dropped, stop.clone()));
    Ok((layer, Exporter { task, stop }))
}

impl Exporter {
    /// Sends what waits, for a moment.
    pub async fn flush(self) {
        self.stop.cancel();
        let _ = tokio::time::timeout(FLUSH, self.task).await;
    }
}

async fn run(mut receiver: Receiver<SpanRecord>, url: http::Uri, dropped: Arc<AtomicU64>, stop: CancellationToken) {
    let mut failing = false;
    loop {
        let mut batch = Vec::new();
        tokio::select! {
            received = receiver.recv_many(&mut batch, BATCH) => if received == 0 { return },
            () = stop.cancelled() => {}
        }
        let full = async {
            while batch.len() < BATCH {
                let room = BATCH - batch.len();
                if receiver.recv_many(&mut batch, room).await == 0 {
                    return;
                }
            }
        };
        tokio::select! {
            _ = tokio::time::timeout(LINGER, full) => {}
            () = stop.cancelled() => {}
        }
        let stopping = stop.is_cancelled();
        if stopping {
            while let Ok(record) = receiver.try_recv() {
                batch.push(record);
            }
        }
        if !batch.is_empty() {
            failing = !send(&url, &batch, failing).await;
        }
        let lost = dropped.swap(0, Ordering::Relaxed);
        if lost > 0 {
            tracing::warn!(lost, "spans were dropped: the collector is too slow");
        }
        if stopping {
            return;
        }
    }
}

/// Whether the collector took the batch. A batch that fails is lost: traces are samples. Only the first failure is logged.
async fn send(url: &http::Uri, batch: &[SpanRecord], failing: bool) -> bool {
    let spans: Vec<_> = batch.iter().map(SpanRecord::to_json).collect();
    let version = env!("CARGO_PKG_VERSION");
    let message = json!({"resourceSpans": [{
        "resource": {"attributes": [
            {"key": "service.name", "value": {"stringValue": "mica"}},
            {"key": "service.version", "value": {"stringValue": version}},
        ]},
        "scopeSpans": [{"scope": {"name": "mica", "version": version}, "spans": spans}],
    }]});
    let problem = match plain_post(url, message.to_string().into()).await {
        Ok(status) if status.is_success() => return true,
        Ok(status) => format!("it answered {status}"),
        Err(error) => format!("{error:#}"),
    };
    if !failing {
        tracing::warn!(%url, problem, "the trace collector does not take spans");
    }
    false
}
