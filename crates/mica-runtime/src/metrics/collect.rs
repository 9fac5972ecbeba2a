//! Numbers that are computed when they are read: the depth of queues, work under way, and the state of the fleet.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;

use super::{Live, MOST_NAMED};

pub(super) struct Computed(pub(super) Arc<Live>);

impl fmt::Debug for Computed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Computed")
    }
}

impl Collector for Computed {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        self.queues(&mut encoder)?;
        self.fleet(&mut encoder)
    }
}

impl Computed {
    fn queues(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let controllers: Vec<_> = self.0.controllers.lock().values().cloned().collect();
        let labels: Vec<_> = controllers
            .iter()
            .map(|controller| [("controller", controller.name()), ("name", controller.name())])
            .collect();
        let mut depth =
            encoder.encode_descriptor("workqueue_depth", "Current depth of workqueue", None, MetricType::Gauge)?;
        for (controller, labels) in controllers.iter().zip(&labels) {
            let items = i64::try_from(controller.depth()).unwrap_or(i64::MAX);
            depth.encode_family(labels)?.encode_gauge(&items)?;
        }
        let running: Vec<_> = controllers.iter().map(super::ControllerMetrics::running).collect();
        let mut unfinished = encoder.encode_descriptor(
            "workqueue_unfinished_work_seconds",
            "How many seconds of work is in progress and has not been observed by work_duration",
            None,
            MetricType::Gauge,
        )?;
        for (running, labels) in running.iter().zip(&labels) {
            unfinished.encode_family(labels)?.encode_gauge(&running.total)?;
        }
        let mut longest = encoder.encode_descriptor(
            "workqueue_longest_running_processor_seconds",
            "How many seconds has the longest running processor for workqueue been running",
            None,
            MetricType::Gauge,
        )?;
        for (running, labels) in running.iter().zip(&labels) {
            longest.encode_family(labels)?.encode_gauge(&running.longest)?;
        }
        Ok(())
    }

    fn fleet(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(state) = self.0.fleet.read().as_ref().map(|read| read()) else {
            return Ok(());
        };
        let mut clusters = encoder.encode_descriptor(
            "mica_runtime_clusters",
            "Clusters by their state",
            None,
            MetricType::Gauge,
        )?;
        for (state, count) in &state.states {
            let count = i64::try_from(*count).unwrap_or(i64::MAX);
            clusters.encode_family(&[("state", *state)])?.encode_gauge(&count)?;
        }
        let mut named = encoder.encode_descriptor(
            "mica_runtime_cluster_unreachable",
            "Clusters that do not answer; not all are named where there are many",
            None,
            MetricType::Gauge,
        )?;
        for cluster in state.unreachable.iter().take(MOST_NAMED) {
            named
                .encode_family(&[("cluster", cluster.as_str())])?
                .encode_gauge(&1i64)?;
        }
        Ok(())
    }
}
