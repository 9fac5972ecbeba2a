//! Turns `tracing` spans into span records.
//!
//! A span takes its trace from the field `traceparent` (W3C) if it has one, else from its parent span, else it begins a trace
//! of its own, which is kept for a share of requests.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tokio::sync::mpsc::Sender;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

/// The field that carries the caller's trace.
const PARENT_FIELD: &str = "traceparent";

/// A finished span.
pub struct SpanRecord {
    trace: u128,
    id: u64,
    parent: Option<u64>,
    name: &'static str,
    began: SystemTime,
    ended: SystemTime,
    attributes: Vec<(&'static str, Value)>,
}

/// A span under way; kept with the span.
struct Open {
    trace: u128,
    id: u64,
    parent: Option<u64>,
    began: SystemTime,
    attributes: Vec<(&'static str, Value)>,
}

pub struct SpanLayer {
    pub sender: Sender<SpanRecord>,
    pub sampling: f64,
    /// Spans that found the queue full.
    pub dropped: Arc<AtomicU64>,
}

impl<S> Layer<S> for SpanLayer
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let (trace, parent) = if let Some(above) = span.parent() {
            // Inside a request: kept exactly if the request is.
            match above.extensions().get::<Open>() {
                Some(open) => (open.trace, Some(open.id)),
                None => return,
            }
        } else {
            match fields.parent {
                Some(Parent {
                    trace,
                    span,
                    sampled: true,
                }) => (trace, Some(span)),
                Some(_) => return,
                None if rand::random::<f64>() < self.sampling => (rand::random(), None),
                None => return,
            }
        };
        let open = Open {
            trace,
            id: rand::random(),
            parent,
            began: SystemTime::now(),
            attributes: fields.attributes,
        };
        span.extensions_mut().insert(open);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(open) = span.extensions_mut().get_mut::<Open>() {
            let mut fields = Fields::default();
            values.record(&mut fields);
            open.attributes.extend(fields.attributes);
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        let Some(open) = span.extensions_mut().remove::<Open>() else {
            return;
        };
        let Open {
            trace,
            id,
            parent,
            began,
            attributes,
        } = open;
        let record = SpanRecord {
            trace,
            id,
            parent,
            name: span.name(),
            began,
            ended: SystemTime::now(),
            attributes,
        };
        // A slow collector must not slow requests.
        if self.sender.try_send(record).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[derive(Default)]
struct Fields {
    parent: Option<Parent>,
    attributes: Vec<(&'static str, Value)>,
}

struct Parent {
    trace: u128,
    span: u64,
    sampled: bool,
}

impl Fields {
    fn put(&mut self, field: &Field, value: Value) {
        if field.name() == PARENT_FIELD {
            self.parent = value.as_str().and_then(Parent::parse);
        } else {
            self.attributes.push((field.name(), value));
        }
    }
}

impl Visit for Fields {
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, json!({"intValue": value.to_string()}));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, json!({"intValue": value.to_string()}));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, json!({"boolValue": value}));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == PARENT_FIELD {
            self.put(field, value.into());
        } else {
            self.put(field, json!({"stringValue": value}));
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let mut text = String::new();
        write!(text, "{value:?}").expect("a string takes all");
        self.record_str(field, &text);
    }
}

impl Parent {
    /// `00-<32 hex digits>-<16 hex digits>-<2 hex digits>`.
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim().split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        if version.len() != 2 || version == "ff" || trace.len() != 32 || span.len() != 16 || flags.len() != 2 {
            return None;
        }
        let trace = u128::from_str_radix(trace, 16).ok().filter(|id| *id != 0)?;
        let span = u64::from_str_radix(span, 16).ok().filter(|id| *id != 0)?;
        let sampled = u8::from_str_radix(flags, 16).ok()? & 1 == 1;
        Some(Self { trace, span, sampled })
    }
}

impl SpanRecord {
    /// As OTLP's JSON encoding writes a span.
    pub fn to_json(&self) -> Value {
        const SERVER: u8 = 2;
        let nanos = |at: SystemTime| at.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos().to_string();
        let attributes: Vec<Value> = self
            .attributes
            .iter()
            .map(|(key, value)| json!({"key": key, "value": value}))
            .collect();
        json!({
            "traceId": format!("{:032x}", self.trace),
            "spanId": format!("{:016x}", self.id),
            "parentSpanId": self.parent.map(|id| format!("{id:016x}")).unwrap_or_default(),
            "name": self.name,
            "kind": SERVER,
            "startTimeUnixNano": nanos(self.began),
            "endTimeUnixNano": nanos(self.ended),
            "attributes": attributes,
        })
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[test]
    fn spans_follow_the_callers_trace_and_nest() {
        let (sender, mut records) = tokio::sync::mpsc::channel(8);
        let layer = SpanLayer {
            sender,
            sampling: 0.0,
            dropped: Arc::default(),
        };
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
            let request = tracing::info_span!(
                "request",
                traceparent = parent,
                method = "GET",
                code = tracing::field::Empty
            );
            request.in_scope(|| drop(tracing::info_span!("store")));
            request.record("code", 200);
            drop(request);
            drop(tracing::info_span!(
                "request",
                traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
            ));
            drop(tracing::info_span!("request"));
        });
        let store = records.try_recv().unwrap().to_json();
        let request = records.try_recv().unwrap().to_json();
        assert!(
            records.try_recv().is_err(),
            "neither an unsampled trace nor, at no share, one of our own"
        );
        assert_eq!(request["traceId"], "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(request["parentSpanId"], "b7ad6b7169203331");
        assert_eq!(
            request["attributes"][0],
            json!({"key": "method", "value": {"stringValue": "GET"}})
        );
        assert_eq!(
            request["attributes"][1],
            json!({"key": "code", "value": {"intValue": "200"}})
        );
        assert_eq!(store["parentSpanId"], request["spanId"]);
    }

    #[test]
    fn malformed_parents_are_no_parents() {
        for bad in [
            "",
            "00-x-y-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert!(Parent::parse(bad).is_none(), "{bad}");
        }
    }
}
