//! The part of the file that says how much there is, and how much of it a plane may have.

use mica_machinery::quantity::Quantity;
use mica_server::budget;
use mica_server::fairness::FairnessOptions;
use mica_server::http::limit::MAX_CONNECTIONS;
use mica_server::plane::limits::Limits;
use serde::Deserialize;

use crate::config::duration;
use crate::exit::Usage;

/// What bounds the server and, where neither they nor their classes say, planes.
#[derive(Deserialize, Default, Debug)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct LimitsFile {
    /// Requests that are served at once, of all planes together.
    requests_in_flight: Option<u32>,
    /// How long a request may wait for its turn.
    queue_wait: Option<String>,
    /// Open connections.
    connections: Option<usize>,
    /// Open connections of one address.
    connections_per_address: Option<usize>,
    planes: PlanesFile,
}

/// What bounds each plane.
#[derive(Deserialize, Default, Debug)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
struct PlanesFile {
    objects: Option<u64>,
    stored_bytes: Option<String>,
    requests_per_second: Option<u64>,
    requests_in_flight: Option<u64>,
    watches: Option<u64>,
}

/// What the file comes to.
#[derive(Clone, Debug)]
pub struct LimitSettings {
    pub fairness: FairnessOptions,
    pub planes: Limits,
    pub connections: usize,
    pub connections_per_address: Option<usize>,
}

impl LimitsFile {
    pub fn settings(&self) -> Result<LimitSettings, Usage> {
        let mut fairness = FairnessOptions::default();
        if let Some(seats) = self.requests_in_flight {
            fairness.seats = at_least_one("requests-in-flight", seats)?;
        }
        if let Some(wait) = &self.queue_wait {
            fairness.patience = duration("limits.queue-wait", wait)?;
        }
        let connections = self.connections.unwrap_or(MAX_CONNECTIONS);
        let per_address = self.connections_per_address;
        Ok(LimitSettings {
            fairness,
            planes: self.planes.limits()?.or(budget::DEFAULT),
            connections: at_least_one("connections", connections)?,
            connections_per_address: per_address
                .map(|most| at_least_one("connections-per-address", most))
                .transpose()?,
        })
    }
}

impl PlanesFile {
    fn limits(&self) -> Result<Limits, Usage> {
        let count = |name: &str, count: Option<u64>| {
            let named = format!("planes.{name}");
            count.map(|count| at_least_one(&named, count)).transpose()
        };
        Ok(Limits {
            objects: count("objects", self.objects)?,
            stored_bytes: self.stored_bytes.as_deref().map(bytes).transpose()?,
            requests_per_second: count("requests-per-second", self.requests_per_second)?,
            requests_in_flight: count("requests-in-flight", self.requests_in_flight)?,
            watches: count("watches", self.watches)?,
        })
    }
}

fn bytes(text: &str) -> Result<u64, Usage> {
    let bytes = Quantity::parse(text)
        .ok()
        .and_then(|bytes| u64::try_from(bytes.value()).ok());
    bytes.filter(|bytes| *bytes > 0).ok_or_else(|| {
        Usage(format!(
            "limits.planes.stored-bytes: {text:?} is not a size such as 10Gi"
        ))
    })
}

fn at_least_one<N: PartialOrd + From<u8> + std::fmt::Display>(name: &str, number: N) -> Result<N, Usage> {
    if number < N::from(1) {
        return Err(Usage(format!(
            "limits.{name}: {number} lets nothing through: it must be greater than zero"
        )));
    }
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(yaml: &str) -> Result<LimitSettings, String> {
        let file: LimitsFile = serde_saphyr::from_str(yaml).map_err(|error| error.to_string())?;
        file.settings().map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_not_said_is_the_default() {
        let settings = read("planes: {objects: 5, stored-bytes: 1Mi}").unwrap();
        assert_eq!(settings.fairness.seats, 600);
        assert_eq!(settings.planes.objects, Some(5));
        assert_eq!(settings.planes.stored_bytes, Some(1 << 20));
        assert_eq!(settings.planes.watches, budget::DEFAULT.watches);
        assert_eq!(settings.connections_per_address, None);
    }

    #[test]
    fn what_lets_nothing_through_is_refused() {
        let refused = |yaml: &str| read(yaml).unwrap_err();
        assert_eq!(
            refused("requests-in-flight: 0"),
            "limits.requests-in-flight: 0 lets nothing through: it must be greater than zero"
        );
        assert_eq!(
            refused("planes: {watches: 0}"),
            "limits.planes.watches: 0 lets nothing through: it must be greater than zero"
        );
        assert_eq!(
            refused("planes: {stored-bytes: much}"),
            "limits.planes.stored-bytes: \"much\" is not a size such as 10Gi"
        );
        assert!(refused("seats: 3").contains("seats"));
    }
}
