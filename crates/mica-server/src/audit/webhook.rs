//! Events in batches to a webhook, as an `EventList`, with upstream's patience.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mica_machinery::audit::LINE_HEAD;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::outbox::{Batch, Outbox, Taken};
use crate::egress::{Call, CallError, ClientConfig, Egress, Repeat, Tenant};

/// How often a batch is offered before it is given up, and how much longer each pause is. As upstream's client.
const TRIES: u32 = 5;
const FACTOR: f64 = 1.5;
const JITTER: f64 = 0.2;
/// For one call. Upstream's client waits as long.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The answer says nothing that matters.
const MAX_REPLY: usize = 64 << 10;
/// Batches on their way at once: one that hangs does not hold up the others.
const AT_ONCE: u32 = 4;

/// How a webhook is called. Numbers are upstream's flags'.
#[derive(Clone, Debug)]
pub struct WebhookOptions {
    pub to: ClientConfig,
    pub batch: Batch,
    /// Events that may wait.
    pub buffer: usize,
    /// Batches in a second, and at once after a pause; `None` for as many as there are.
    pub throttle: Option<Throttle>,
    pub initial_backoff: Duration,
    pub truncate: Option<Truncate>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Throttle {
    pub per_second: f64,
    pub burst: u32,
}

/// What is done about large events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncate {
    /// An event above this loses its bodies; one that is still above it is lost.
    pub max_event: usize,
}

impl WebhookOptions {
    /// Upstream's defaults.
    pub fn to(to: ClientConfig) -> Self {
        Self {
            to,
            batch: Batch {
                max_events: 400,
                max_bytes: 10 << 20,
                max_wait: Duration::from_secs(30),
            },
            buffer: 10_000,
            throttle: Some(Throttle {
                per_second: 10.0,
                burst: 15,
            }),
            initial_backoff: Duration::from_secs(10),
            truncate: None,
        }
    }
}

/// The events as the document that webhooks take.
fn list(events: &[Bytes]) -> Bytes {
    const HEAD: &[u8] = b"{\"kind\":\"EventList\",\"apiVersion\":\"audit.k8s.io/v1\",\"metadata\":{},\"items\":[";
    let len: usize = events.iter().map(Bytes::len).sum();
    let mut list = Vec::with_capacity(HEAD.len() + len + 2);
    list.extend_from_slice(HEAD);
    for (i, event) in events.iter().enumerate() {
        if i > 0 {
            list.push(b',');
        }
        // Items of a list do not say what they are.
        list.push(b'{');
        list.extend_from_slice(event.get(LINE_HEAD.len()..).unwrap_or_default().trim_ascii_end());
    }
    list.extend_from_slice(b"]}");
    list.into()
}

/// Whom batches go to.
pub(super) struct Receiver<'a> {
    pub egress: &'a Egress,
    pub tenant: Tenant,
    pub to: &'a ClientConfig,
    pub initial_backoff: Duration,
}

impl Receiver<'_> {
    /// Delivers a batch, or gives it up after some tries. When the server ends there is one.
    pub(super) async fn deliver(&self, outbox: &Outbox, taken: Taken) {
        let body = list(&taken.events);
        let mut pause = self.initial_backoff;
        for tried in 1..=TRIES {
            let Err(error) = self.offer(body.clone()).await else {
                return;
            };
            if tried == TRIES || outbox.is_closed() {
                taken.lose(&error);
                return;
            }
            tokio::time::sleep(pause.mul_f64(1.0 + rand::random::<f64>() * JITTER)).await;
            pause = pause.mul_f64(FACTOR);
        }
    }

    async fn offer(&self, body: Bytes) -> Result<(), CallError> {
        let call = Call {
            tenant: self.tenant,
            to: self.to,
            timeout: TIMEOUT,
            max_reply: MAX_REPLY,
            // The far side knows events by their audit ids and stages.
            repeat: Repeat::Safe,
        };
        self.egress.tell(&call, body).await
    }
}

/// Sends what comes, for as long as something does.
pub(super) async fn run(outbox: Arc<Outbox>, egress: Egress, options: WebhookOptions) {
    let options = Arc::new(options);
    let turns = Arc::new(Semaphore::new(AT_ONCE as usize));
    let open = "the semaphore is never closed";
    let mut bucket = options.throttle.map(Bucket::new);
    while let Some(taken) = outbox.next(&options.batch).await {
        if let Some(bucket) = &mut bucket
            && !outbox.is_closed()
        {
            bucket.take().await;
        }
        let turn = turns.clone().acquire_owned().await.expect(open);
        let (outbox, egress, options) = (outbox.clone(), egress.clone(), options.clone());
        tokio::spawn(async move {
            let receiver = Receiver {
                egress: &egress,
                tenant: Tenant::Platform,
                to: &options.to,
                initial_backoff: options.initial_backoff,
            };
            receiver.deliver(&outbox, taken).await;
            drop(turn);
        });
    }
    drop(turns.acquire_many(AT_ONCE).await.expect(open));
}

/// So many in a second, and some at once after a pause.
struct Bucket {
    throttle: Throttle,
    left: f64,
    at: Instant,
}

impl Bucket {
    fn new(throttle: Throttle) -> Self {
        Self {
            throttle,
            left: f64::from(throttle.burst),
            at: Instant::now(),
        }
    }

    async fn take(&mut self) {
        let now = Instant::now();
        let earned = now.duration_since(self.at).as_secs_f64() * self.throttle.per_second;
        self.left = (self.left + earned).min(f64::from(self.throttle.burst)) - 1.0;
        self.at = now;
        if self.left < 0.0 {
            tokio::time::sleep(Duration::from_secs_f64(-self.left / self.throttle.per_second)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_holds_events_without_their_kind() {
        let events = [
            Bytes::from(format!("{LINE_HEAD}\"a\":1}}\n")),
            Bytes::from(format!("{LINE_HEAD}\"a\":2}}\n")),
        ];
        let list: serde_json::Value = serde_json::from_slice(&list(&events)).unwrap();
        assert_eq!(list["kind"], "EventList");
        assert_eq!(list["items"], serde_json::json!([{"a": 1}, {"a": 2}]));
    }

    #[tokio::test(start_paused = true)]
    async fn batches_are_throttled() {
        let mut bucket = Bucket::new(Throttle {
            per_second: 2.0,
            burst: 3,
        });
        let begun = Instant::now();
        for _ in 0..7 {
            bucket.take().await;
        }
        let millis = begun.elapsed().as_millis();
        assert!((2000..2010).contains(&millis), "{millis}");
    }
}
