//! What root says of the server itself: the endpoints of `default/kubernetes` and the port behind that service.
//!
//! The base layer has an address that nothing has, because it is the same for every server. One that knows where it can be
//! reached writes that over it, as upstream's does when it starts. Planes keep what they were born with.

use std::net::SocketAddr;

use mica_store::{CommitError, Txn, Write};
use serde_json::{Value, json};

use super::{Registry, served_value};
use crate::error::ApiError;
use crate::plane::Plane;

const NAMESPACE: &str = "default";
const NAME: &str = "kubernetes";

/// The kinds that say it, and how each does.
const SAYING: [(&str, &str, Say); 3] = [
    ("", "services", |service, at| {
        service["spec"]["ports"][0]["targetPort"] = at.port().into();
    }),
    ("", "endpoints", |endpoints, at| {
        let port = json!({"name": "https", "port": at.port(), "protocol": "TCP"});
        endpoints["subsets"] = json!([{"addresses": [{"ip": at.ip().to_string()}], "ports": [port]}]);
    }),
    ("discovery.k8s.io", "endpointslices", |slice, at| {
        let ready = json!({"addresses": [at.ip().to_string()], "conditions": {"ready": true}});
        slice["endpoints"] = json!([ready]);
        slice["ports"][0]["port"] = at.port().into();
        slice["addressType"] = if at.is_ipv4() { "IPv4" } else { "IPv6" }.into();
    }),
];

type Say = fn(&mut Value, SocketAddr);

impl Registry {
    /// Writes down where this server is, where that is not what is there. What somebody deleted stays deleted.
    pub async fn tell_address(&self, root: &Plane, at: SocketAddr) -> Result<(), ApiError> {
        let mut txn = Txn::default();
        for (group, plural, say) in SAYING {
            let Some(served) = root.scheme.find(group, "v1", plural) else {
                continue;
            };
            let entry = self.entry(root, served, Some(NAMESPACE), NAME).await?;
            let Some(stored) = &entry.stored else { continue };
            let before = served_value(served, stored)?;
            let mut now = before.clone();
            say(&mut now, at);
            if now == before {
                continue;
            }
            let packed = self.packed(root, served, None, &mut now).await?;
            for compare in entry.unchanged(root) {
                if !txn.compares.contains(&compare) {
                    txn.compares.push(compare);
                }
            }
            txn.writes.push(Write::Put {
                key: entry.key,
                value: packed.value,
                ttl: None,
            });
        }
        if txn.writes.is_empty() {
            return Ok(());
        }
        match self.store.commit(txn).await {
            // Another server that starts on the same store says where it is: one address is as good as another.
            Ok(_) | Err(CommitError::Conflict { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
