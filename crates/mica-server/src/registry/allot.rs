//! The addresses and node ports that services are given: no two services of a plane have the same.
//!
//! What is taken is a key: an address is an IPAddress object, as upstream keeps it, a node port a record of our own. A service and
//! what it takes change in one transaction, so there is nothing to repair and nothing to remember.

use mica_api::GroupResource;
use mica_machinery::kind::bootstrap::workload;
use mica_machinery::kind::network::range::ServiceRange;
use mica_machinery::kind::network::service::{self, Want};
use mica_machinery::names::parse_ip_sloppy;
use mica_machinery::{field, meta, object};
use mica_store::{Compare, Key, Write};
use serde_json::Value;

use super::owner::INTERNAL_GROUP;
use super::{Entry, Registry};
use crate::authz::Target;
use crate::error::ApiError;
use crate::plane::side::Side;
use crate::stored;

/// How often a free address or port is looked for at random before the range is gone through.
const TRIES: usize = 64;
/// How much of a range is gone through before it counts as full.
const MAX_SCAN: u32 = 4096;

/// What services are given.
#[derive(Clone, Copy, Debug)]
pub struct ServiceOptions {
    pub range: ServiceRange,
    /// Both ends included.
    pub node_ports: (u16, u16),
}

impl Default for ServiceOptions {
    fn default() -> Self {
        Self {
            range: ServiceRange::default(),
            node_ports: workload::NODE_PORTS,
        }
    }
}

fn node_ports() -> GroupResource {
    GroupResource::new(INTERNAL_GROUP, "nodeports")
}

fn is_services(target: &Target) -> bool {
    (target.served.group(), target.served.plural()) == ("", "services")
}

impl Registry {
    /// Gives a service what it wants, and returns what must be written with it: what it takes, and what it lets go.
    pub(super) async fn allot(
        &self,
        target: &Target,
        new: &mut Value,
        old: Option<&Value>,
        now: jiff::Timestamp,
    ) -> Result<Side, ApiError> {
        let mut side = Side::default();
        if !is_services(target) || !target.subresource.is_empty() {
            return Ok(side);
        }
        let errors = service::settle_families(new, old);
        if !errors.is_empty() {
            return Err(ApiError::invalid("", "Service", object::name(new), &errors));
        }
        let (had, had_ports) = (
            old.and_then(service::address),
            old.map(service::node_ports).unwrap_or_default(),
        );
        for want in service::wants(new) {
            match want {
                Want::Address => {
                    let address = self.free_address(target).await?;
                    service::give_address(new, &address);
                }
                want => {
                    let port = match twin(new, want) {
                        Some(port) => port,
                        None => self.free_port(target, &service::node_ports(new)).await?,
                    };
                    service::give_port(new, want, port);
                }
            }
        }
        if let Some(address) = service::address(new).filter(|address| Some(*address) != had) {
            let address = address.to_owned();
            self.take_address(target, new, &address, now, &mut side).await?;
        }
        for port in service::node_ports(new) {
            if !had_ports.contains(&port) {
                self.take_port(target, new, port, &mut side).await?;
            }
        }
        if let Some(address) = had.filter(|address| Some(*address) != service::address(new)) {
            self.let_address_go(target, address, &mut side).await?;
        }
        let has = service::node_ports(new);
        for port in had_ports.into_iter().filter(|port| !has.contains(port)) {
            let key = port_key(target, port);
            side.writes.push(Write::Delete { key });
        }
        Ok(side)
    }

    /// What goes with a service that goes.
    pub(super) async fn release(&self, target: &Target, old: &Value) -> Result<Side, ApiError> {
        let mut side = Side::default();
        if !is_services(target) {
            return Ok(side);
        }
        if let Some(address) = service::address(old) {
            self.let_address_go(target, address, &mut side).await?;
        }
        for port in service::node_ports(old) {
            let key = port_key(target, port);
            side.writes.push(Write::Delete { key });
        }
        Ok(side)
    }

    async fn address_entry(&self, target: &Target, address: &str) -> Result<Option<Entry>, ApiError> {
        match target.plane.scheme.find("networking.k8s.io", "v1", "ipaddresses") {
            Some(addresses) => self.entry(&target.plane, addresses, None, address).await.map(Some),
            None => Ok(None),
        }
    }

    async fn free_address(&self, target: &Target) -> Result<String, ApiError> {
        let range = self.services.range;
        // Neither the network's own address nor the last one.
        let (first, last) = (range.dynamic_from(), range.size() - 2);
        let random = (0..TRIES).map(|_| first + rand::random::<u32>() % (last - first + 1));
        // Then what is left of the upper part, and last the part that is kept for who names an address.
        let rest = (first..=last).chain(1..first).take(MAX_SCAN as usize);
        for offset in random.chain(rest) {
            let found = range.at(offset).to_string();
            let entry = self.address_entry(target, &found).await?;
            if entry.is_none_or(|entry| entry.stored.is_none()) {
                return Ok(found);
            }
        }
        let name = target.name.as_deref().unwrap_or_default();
        Err(ApiError::internal_text(format!(
            "failed to allocate a serviceIP for Service {}: range is full",
            field::quote(name)
        )))
    }

    async fn take_address(
        &self,
        target: &Target,
        new: &Value,
        address: &str,
        now: jiff::Timestamp,
        side: &mut Side,
    ) -> Result<(), ApiError> {
        let refuse =
            |why: &str| ApiError::invalid("", "Service", object::name(new), &service::refused_address(new, why));
        // What is no address validation refuses, in its own words.
        let Some(parsed) = parse_ip_sloppy(address) else {
            return Ok(());
        };
        if !self.services.range.contains(parsed) {
            let valid = self.services.range;
            return Err(refuse(&format!(
                "the provided IP ({address}) is not in the valid range. The range of valid IPs is {valid}"
            )));
        }
        let Some(addresses) = target.plane.scheme.find("networking.k8s.io", "v1", "ipaddresses") else {
            return Ok(());
        };
        let entry = self.entry(&target.plane, addresses, None, address).await?;
        if entry.stored.is_some() {
            return Err(refuse("provided IP is already allocated"));
        }
        let namespace = target.namespace.as_deref().unwrap_or_default();
        let mut object = workload::address(namespace, object::name(new), address);
        meta::fill_system_fields(&mut object["metadata"], &uuid::Uuid::new_v4().to_string(), now);
        let packed = self.packed(&target.plane, addresses, None, &mut object).await?;
        side.compares.push(match entry.own {
            Some(revision) => Compare::Unchanged(entry.key.clone(), revision),
            None => Compare::Absent(entry.key.clone()),
        });
        side.writes.push(Write::Put {
            key: entry.key,
            value: packed.value,
            ttl: None,
        });
        Ok(())
    }

    async fn let_address_go(&self, target: &Target, address: &str, side: &mut Side) -> Result<(), ApiError> {
        let Some(addresses) = target.plane.scheme.find("networking.k8s.io", "v1", "ipaddresses") else {
            return Ok(());
        };
        let entry = self.entry(&target.plane, addresses, None, address).await?;
        if entry.stored.is_none() {
            return Ok(());
        }
        // An address of the base layer stays there, so a mark hides it.
        let in_base = target.plane.layers.contain(&addresses.storage, entry.key.rest());
        side.writes.push(if in_base {
            Write::Put {
                key: entry.key,
                value: stored::hidden(),
                ttl: None,
            }
        } else {
            Write::Delete { key: entry.key }
        });
        Ok(())
    }

    async fn free_port(&self, target: &Target, taken: &[u16]) -> Result<u16, ApiError> {
        let (first, last) = self.services.node_ports;
        let random = (0..TRIES).map(|_| first + rand::random::<u16>() % (last - first + 1));
        for port in random.chain(first..=last) {
            if !taken.contains(&port) && self.store.get(&port_key(target, port)).await?.is_none() {
                return Ok(port);
            }
        }
        Err(ApiError::internal_text("failed to allocate a nodePort: range is full"))
    }

    async fn take_port(&self, target: &Target, new: &Value, port: u16, side: &mut Side) -> Result<(), ApiError> {
        let (first, last) = self.services.node_ports;
        let refuse =
            |why: &str| ApiError::invalid("", "Service", object::name(new), &service::refused_port(new, port, why));
        if !(first..=last).contains(&port) {
            return Err(refuse(&format!(
                "provided port is not in the valid range. The range of valid ports is {first}-{last}"
            )));
        }
        let key = port_key(target, port);
        if self.store.get(&key).await?.is_some() {
            return Err(refuse("provided port is already allocated"));
        }
        side.compares.push(Compare::Absent(key.clone()));
        side.writes.push(Write::Put {
            key,
            value: bytes::Bytes::new(),
            ttl: None,
        });
        Ok(())
    }
}

fn port_key(target: &Target, port: u16) -> Key {
    target.plane.keys().object(&node_ports(), None, &port.to_string())
}

/// The node port of the same service port in another protocol, which both share.
fn twin(service: &Value, want: Want) -> Option<u16> {
    let Want::NodePort(at) = want else { return None };
    let ports = object::list(service, &["spec", "ports"]);
    let asking = ports.get(at)?;
    let shared = |port: &&Value| {
        port.get("port") == asking.get("port")
            && object::string(port, &["protocol"]) != object::string(asking, &["protocol"])
    };
    let port = ports
        .iter()
        .filter(shared)
        .find_map(|port| object::int(port, &["nodePort"]))?;
    u16::try_from(port).ok().filter(|port| *port > 0)
}
