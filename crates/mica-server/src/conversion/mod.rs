//! Custom objects from one version of their definition to another, by the definition's webhook.
//!
//! Upstream converts one object a call; here a list's objects go in batches, a few at once, so that a list costs a webhook what
//! it holds. Whatever goes wrong with one object fails the request, in upstream's words
//! (`apiextensions-apiserver/pkg/apiserver/conversion/webhook_converter.go`). What comes back may differ in labels,
//! annotations and everything outside metadata; the rest of the metadata stays what it was.

mod metric;
mod object;
mod review;

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use mica_machinery::admission::ReviewVersion;
use mica_machinery::kind::custom::CustomKind;
use mica_machinery::{codec, object as field};
use serde_json::Value;
use uuid::Uuid;

use crate::egress::{Call, ClientConfig, Egress, MAX_REPLY, Repeat, Tenant};
use crate::error::ApiError;
use crate::metrics::Registry;
use crate::registry::Convert;
use crate::scheme::Served;
use metric::{ConversionMetrics, Failure};

/// As upstream's.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Objects of one review. Clients page by 500, so a page is a handful of calls that run side by side.
const BATCH_OBJECTS: usize = 100;
/// Bytes of objects in one review, unless one object alone has more.
const BATCH_BYTES: usize = 4 << 20;
/// Reviews of one request under way.
const BATCHES_AT_ONCE: usize = 4;

/// Converts by asking webhooks.
pub struct Converter {
    egress: Egress,
    metrics: ConversionMetrics,
    timeout: Duration,
}

/// Marks errors that are a webhook's.
#[derive(Debug, thiserror::Error)]
#[error("a conversion webhook failed")]
pub struct ConversionFailed;

/// Why objects were not converted: the text that clients get, and what is counted.
#[derive(Debug)]
struct Unconverted {
    message: String,
    failure: Failure,
}

impl Converter {
    pub fn new(egress: Egress, metrics: &Registry) -> Self {
        Self {
            egress,
            metrics: ConversionMetrics::new(metrics),
            timeout: TIMEOUT,
        }
    }

    /// Gives webhooks another time than upstream's: tests have no 30 seconds.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The objects in another version, in the same order.
    ///
    /// `conversion` is the definition's `spec.conversion`. Objects that are in that version already are not sent.
    pub async fn convert(
        &self,
        tenant: Tenant,
        conversion: &Value,
        desired_api_version: &str,
        mut objects: Vec<Value>,
    ) -> Result<Vec<Value>, ApiError> {
        if field::string(conversion, &["strategy"]) != "Webhook" {
            for object in &mut objects {
                field::set(object, &["apiVersion"], desired_api_version);
            }
            return Ok(objects);
        }
        let mut stale = Vec::new();
        for (at, object) in objects.iter_mut().enumerate() {
            if field::string(object, &["apiVersion"]) == desired_api_version {
                continue;
            }
            if object::is_bare(object) {
                field::set(object, &["apiVersion"], desired_api_version);
            } else {
                stale.push((at, object.take()));
            }
        }
        if stale.is_empty() {
            return Ok(objects);
        }
        let webhook = Webhook::read(conversion)?;
        let calls = batches(stale).into_iter().map(|batch| {
            let webhook = &webhook;
            async move { self.ask(tenant, webhook, desired_api_version, batch).await }
        });
        let converted: Vec<Vec<(usize, Value)>> = futures::stream::iter(calls)
            .buffered(BATCHES_AT_ONCE)
            .try_collect()
            .await?;
        for (at, object) in converted.into_iter().flatten() {
            objects[at] = object;
        }
        Ok(objects)
    }

    async fn ask(
        &self,
        tenant: Tenant,
        webhook: &Webhook,
        desired: &str,
        batch: Batch,
    ) -> Result<Vec<(usize, Value)>, ApiError> {
        let started = Instant::now();
        let done = self.review(tenant, webhook, desired, batch).await;
        self.metrics
            .observe(started.elapsed(), done.as_ref().err().map(|error| error.failure));
        done.map_err(|error| ApiError::internal_text(error.message).because(ConversionFailed))
    }

    async fn review(
        &self,
        tenant: Tenant,
        webhook: &Webhook,
        desired: &str,
        batch: Batch,
    ) -> Result<Vec<(usize, Value)>, Unconverted> {
        let uid = Uuid::new_v4().to_string();
        let about = object::group_version_kind(&batch.objects[0].1);
        let failed = |failure: Failure, why: &dyn std::fmt::Display| Unconverted {
            message: format!("conversion webhook for {about} failed: {why}"),
            failure,
        };
        let call = Call {
            tenant,
            to: &webhook.config,
            timeout: self.timeout,
            max_reply: MAX_REPLY,
            repeat: Repeat::Safe,
        };
        let body = review::request(webhook.version, &uid, desired, &batch.encoded);
        let reply = self.egress.post(&call, Bytes::from(body)).await;
        let reply = reply.map_err(|error| failed(Failure::Call, &error))?;
        let converted = review::converted(webhook.version, &uid, &reply).map_err(|error| match error {
            review::Refused::Undecodable(why) => failed(Failure::Call, &why),
            review::Refused::Malformed(why) => failed(Failure::MalformedResponse, &why),
        })?;
        let sent = batch.objects.len();
        if converted.len() != sent {
            return Err(Unconverted {
                message: format!(
                    "conversion webhook for {about} returned {} objects, expected {sent}",
                    converted.len()
                ),
                failure: Failure::PartialResponse,
            });
        }
        let pairs = batch.objects.into_iter().zip(converted).enumerate();
        let accepted = pairs.map(|(index, ((at, original), raw))| {
            let object = object::accept(original, &raw, desired, index).map_err(|message| Unconverted {
                message,
                failure: Failure::InvalidConvertedObject,
            })?;
            Ok((at, object))
        });
        accepted.collect()
    }
}

#[async_trait::async_trait]
impl Convert for Converter {
    async fn convert(&self, tenant: Tenant, kind: &CustomKind, objects: Vec<Value>) -> Result<Vec<Value>, ApiError> {
        self.convert(tenant, &kind.conversion, &kind.api_version(), objects)
            .await
    }
}

/// A failure to list, or to begin to watch, as upstream tells it. There, what is listed and watched comes from a cache of the
/// version, which is not ready while its objects cannot be converted; only pages are read past it.
pub fn not_ready(error: ApiError, served: &Served) -> ApiError {
    let marked = error
        .cause()
        .map(<dyn std::error::Error + Send + Sync>::is::<ConversionFailed>);
    if marked != Some(true) {
        return error;
    }
    let (version, kind) = (&served.api_version, served.kind());
    let message = format!(
        "storage is (re)initializing: failed to list {version}, Kind={kind}: {}",
        error.message()
    );
    ApiError::too_many_requests(message, 1).because(ConversionFailed)
}

/// A definition's webhook.
struct Webhook {
    config: ClientConfig,
    version: ReviewVersion,
}

impl Webhook {
    fn read(conversion: &Value) -> Result<Self, ApiError> {
        let listed = field::list(conversion, &["webhook", "conversionReviewVersions"]);
        let version = ReviewVersion::first_of(listed)
            .ok_or_else(|| ApiError::internal_text("no supported conversion review versions"))?;
        let config = field::get(conversion, &["webhook", "clientConfig"]).unwrap_or(&Value::Null);
        let config = ClientConfig::from_value(config).map_err(|error| ApiError::internal_text(error.to_string()))?;
        Ok(Self { config, version })
    }
}

/// Objects that go in one review, each with its place in the list, and their JSON separated by commas.
#[derive(Default)]
struct Batch {
    objects: Vec<(usize, Value)>,
    encoded: Vec<u8>,
}

fn batches(objects: Vec<(usize, Value)>) -> Vec<Batch> {
    let mut all = Vec::new();
    let mut batch = Batch::default();
    for (at, object) in objects {
        if batch.objects.len() >= BATCH_OBJECTS || batch.encoded.len() >= BATCH_BYTES {
            all.push(std::mem::take(&mut batch));
        }
        if !batch.objects.is_empty() {
            batch.encoded.push(b',');
        }
        codec::encode_untyped(&object, &mut batch.encoded);
        batch.objects.push((at, object));
    }
    if !batch.objects.is_empty() {
        all.push(batch);
    }
    all
}
