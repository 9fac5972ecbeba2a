//! What planes of the `kubernetes` profile are born with beside the rest: the service that stands for the server itself, the
//! range that services' addresses come from, and the priorities of the system.

use serde_json::{Value, json};

use crate::kind::budget::SYSTEM_CLASSES;
use crate::kind::network::range::ServiceRange;

/// The range of ports that services are given on every node, both ends included.
pub const NODE_PORTS: (u16, u16) = (30_000, 32_767);

/// Stands for the server's own address, which differs from reader to reader. It is one that documents use and nothing has.
const ENDPOINT: &str = "192.0.2.1";
const PORT: u16 = 6443;

pub fn objects(services: ServiceRange, created: &str) -> Vec<Value> {
    let own = services.server().to_string();
    let mut objects = server(&own);
    objects.push(range(services, created));
    objects.push(address("default", "kubernetes", &own));
    objects.extend(SYSTEM_CLASSES.iter().map(|(name, value, description)| {
        json!({
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name, "generation": 1},
            "value": value,
            "description": description,
            "preemptionPolicy": "PreemptLowerPriority",
        })
    }));
    objects
}

fn server(own: &str) -> Vec<Value> {
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "kubernetes",
            "namespace": "default",
            "labels": {"component": "apiserver", "provider": "kubernetes"},
        },
        "spec": {
            "ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": PORT}],
            "clusterIP": own,
            "clusterIPs": [own],
            "type": "ClusterIP",
            "sessionAffinity": "None",
            "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack",
            "internalTrafficPolicy": "Cluster",
        },
        "status": {"loadBalancer": {}},
    });
    let endpoints = json!({
        "apiVersion": "v1",
        "kind": "Endpoints",
        "metadata": {
            "name": "kubernetes",
            "namespace": "default",
            "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"},
        },
        "subsets": [{
            "addresses": [{"ip": ENDPOINT}],
            "ports": [{"name": "https", "port": PORT, "protocol": "TCP"}],
        }],
    });
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "kubernetes",
            "namespace": "default",
            "generation": 1,
            "labels": {"kubernetes.io/service-name": "kubernetes"},
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": [ENDPOINT], "conditions": {"ready": true}}],
        "ports": [{"name": "https", "protocol": "TCP", "port": PORT}],
    });
    vec![service, endpoints, slice]
}

fn range(services: ServiceRange, created: &str) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "ServiceCIDR",
        "metadata": {"name": "kubernetes"},
        "spec": {"cidrs": [services.to_string()]},
        "status": {"conditions": [{
            "type": "Ready",
            "status": "True",
            "lastTransitionTime": created,
            "reason": "",
            "message": "Kubernetes default Service CIDR is ready",
        }]},
    })
}

/// The object that says which service has an address.
pub fn address(namespace: &str, service: &str, address: &str) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "IPAddress",
        "metadata": {
            "name": address,
            "labels": {
                "ipaddress.kubernetes.io/ip-family": "IPv4",
                "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
            },
        },
        "spec": {"parentRef": {"resource": "services", "namespace": namespace, "name": service}},
    })
}
