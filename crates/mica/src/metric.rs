//! What controllers count, as the server's `/metrics` shows it and as a process of controllers does.

use std::fmt;

use mica_controllers::census::{Census, Family, Kind};
use mica_runtime::metrics::prometheus_client::collector::Collector;
use mica_runtime::metrics::prometheus_client::encoding::DescriptorEncoder;
use mica_runtime::metrics::prometheus_client::metrics::MetricType;
use mica_server::metrics::{Collect, Text};

/// How the control planes of one or several servers stand, all together.
pub struct Counted(Vec<Census>);

impl Counted {
    pub fn new(all: impl IntoIterator<Item = Census>) -> Self {
        Self(all.into_iter().collect())
    }

    fn families(&self) -> Vec<Family> {
        let mut all = self.0.iter().map(Census::families);
        let mut sum = all.next().unwrap_or_default();
        for more in all {
            // Every census has the same numbers in the same order.
            for (sum, more) in sum.iter_mut().zip(more) {
                for (sum, more) in sum.samples.iter_mut().zip(more.samples) {
                    sum.value += more.value;
                }
            }
        }
        sum
    }
}

/// Prometheus' text, version 0.0.4.
impl Collect for Counted {
    fn collect(&self, text: &mut Text) {
        for family in self.families() {
            let (name, kind) = match family.kind {
                Kind::Gauge => (family.name.to_owned(), "gauge"),
                Kind::Counter => (format!("{}_total", family.name), "counter"),
            };
            text.family(&name, family.help, kind);
            for sample in &family.samples {
                let labels: Vec<(&str, &str)> = sample
                    .labels
                    .iter()
                    .map(|(name, value)| (*name, value.as_str()))
                    .collect();
                text.sample(&name, &labels, sample.value as f64);
            }
        }
    }
}

/// OpenMetrics.
impl Collector for Counted {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for family in self.families() {
            let kind = match family.kind {
                Kind::Gauge => MetricType::Gauge,
                Kind::Counter => MetricType::Counter,
            };
            let mut metric = encoder.encode_descriptor(family.name, family.help, None, kind)?;
            for sample in &family.samples {
                let mut one = metric.encode_family(&sample.labels)?;
                match family.kind {
                    Kind::Gauge => one.encode_gauge(&i64::try_from(sample.value).unwrap_or(i64::MAX))?,
                    Kind::Counter => one.encode_counter::<[(&str, &str); 0], _, u64>(&sample.value, None)?,
                }
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Counted")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mica_runtime::metrics::Metrics;
    use mica_server::metrics::Registry;

    use super::*;

    #[test]
    fn both_texts_have_the_same_names() {
        let registry = Registry::new();
        registry.register(Arc::new(Counted::new([Census::default(), Census::default()])));
        let metrics = Metrics::new();
        metrics.register(|registry| {
            registry.register_collector(Box::new(Counted::new([Census::default(), Census::default()])));
        });
        for text in [registry.encode(), metrics.text()] {
            for line in [
                "mica_control_planes{phase=\"Ready\"} 0",
                "mica_control_plane_migrations_under_way{step=\"Copying\"} 0",
                "mica_control_plane_migrations_total{to=\"Dedicated\",event=\"Completed\"} 0",
            ] {
                assert!(text.lines().any(|one| one == line), "{line} is not in {text}");
            }
        }
    }
}
