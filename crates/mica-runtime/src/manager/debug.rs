//! How the fleet stands, in numbers and as JSON for people.

use std::collections::BTreeMap;

use serde_json::json;

use crate::cluster::{Cluster, Health};
use crate::fleet::Fleet;
use crate::metrics::{FleetState, MOST_NAMED};

/// How many clusters are shown if nothing is said, and at most.
const SHOWN: usize = 1000;
const MOST_SHOWN: usize = 100_000;

/// Clusters by state, and some of those that do not answer.
pub(super) fn state(fleet: &Fleet) -> FleetState {
    let clusters = fleet.clusters();
    let mut states: BTreeMap<&'static str, u64> = BTreeMap::new();
    // All are there from the start: a series that comes and goes draws no line.
    for state in ["engaged", "owned", "unauthorized", "unreachable"] {
        states.insert(state, 0);
    }
    let mut count = |state| *states.entry(state).or_default() += 1;
    let mut unreachable = Vec::new();
    for cluster in clusters.iter().filter(|cluster| !cluster.name().is_local()) {
        count("engaged");
        if cluster.owned().is_some() {
            count("owned");
        }
        match cluster.health() {
            Health::Unauthorized { .. } => count("unauthorized"),
            Health::Unreachable { .. } => {
                count("unreachable");
                if unreachable.len() < MOST_NAMED {
                    unreachable.push(cluster.name().clone());
                }
            }
            _ => {}
        }
    }
    FleetState {
        states: states.into_iter().collect(),
        unreachable,
    }
}

/// The clusters, as many as `limit=` says, of those whose names begin with `prefix=`; and the providers.
pub(super) fn clusters(fleet: &Fleet, query: &str) -> String {
    let parameter = |name: &str| {
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
    };
    let limit = parameter("limit").and_then(|limit| limit.parse().ok()).unwrap_or(SHOWN);
    let prefix = parameter("prefix").unwrap_or_default();
    let all = fleet.clusters();
    let matching: Vec<&Cluster> = all
        .iter()
        .filter(|cluster| cluster.name().as_str().starts_with(&prefix))
        .collect();
    let shown: Vec<_> = matching
        .iter()
        .take(limit.min(MOST_SHOWN))
        .map(|cluster| {
            json!({
                "name": cluster.name().as_str(),
                "epoch": cluster.owned(),
                "health": cluster.health().reason(),
                "message": cluster.health().to_string(),
                "labels": *cluster.labels(),
                "wildcard": cluster.wildcard().is_some(),
            })
        })
        .collect();
    let providers: Vec<_> = fleet
        .providers()
        .into_iter()
        .map(|provider| json!({"name": provider.name, "synced": provider.synced, "trouble": provider.trouble}))
        .collect();
    let document = json!({
        "total": matching.len(),
        "clusters": shown,
        "providers": providers,
    });
    format!("{document:#}\n")
}
