//! Metrics: a registry, the values in it, and their text form (Prometheus 0.0.4).
//!
//! Names and buckets are upstream's, so that existing dashboards work. No label holds a plane: 100,000 of them would drown
//! any scraper. Every family has a bound on its series, because groups and resources are the tenants' to invent.

mod family;
mod process;
mod request;
mod text;
mod value;

use std::sync::Arc;

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};
use parking_lot::RwLock;

pub use family::{Family, Label, Series};
pub use request::{Answered, HttpMetrics, Pending, RequestLabels};
pub use text::Text;
pub use value::{Counter, Gauge, Histogram, SpreadGauge, exponential_buckets};

use crate::http::Body;

const CONTENT: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

/// Something that can write its current numbers.
pub trait Collect: Send + Sync {
    fn collect(&self, text: &mut Text);
}

/// Everything that `/metrics` shows, in order of registration.
#[derive(Default)]
pub struct Registry {
    collectors: RwLock<Vec<Arc<dyn Collect>>>,
}

impl Registry {
    /// A registry with the numbers of the process itself.
    pub fn new() -> Self {
        let registry = Self::default();
        registry.register(Arc::new(process::Process::new()));
        registry
    }

    /// Adds a collector and hands it back.
    pub fn register<C: Collect + 'static>(&self, collector: Arc<C>) -> Arc<C> {
        self.collectors.write().push(collector.clone());
        collector
    }

    /// Adds a gauge that is computed when it is read.
    pub fn gauge_fn(&self, name: &'static str, help: &'static str, read: impl Fn() -> f64 + Send + Sync + 'static) {
        struct Computed<F>(&'static str, &'static str, F);
        impl<F: Fn() -> f64 + Send + Sync> Collect for Computed<F> {
            fn collect(&self, text: &mut Text) {
                text.family(self.0, self.1, "gauge");
                text.sample(self.0, &[], (self.2)());
            }
        }
        self.register(Arc::new(Computed(name, help, read)));
    }

    pub fn encode(&self) -> String {
        let mut text = Text::default();
        for collector in self.collectors.read().iter() {
            collector.collect(&mut text);
        }
        text.finish()
    }

    /// The answer to `/metrics`.
    pub fn respond(&self) -> Response<Body> {
        respond(self.encode())
    }
}

/// The answer that consists of metrics.
pub fn respond(text: String) -> Response<Body> {
    let mut response = Response::new(Body::full(text));
    response.headers_mut().insert(CONTENT_TYPE, CONTENT);
    response
}
