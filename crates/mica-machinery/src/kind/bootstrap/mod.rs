//! What every plane is born with: namespaces, service accounts, roles and bindings, flow control, API services.
//!
//! Pure data, as kube-apiserver 1.36 and the controllers beside it make it in their first seconds. Objects carry no uid, resourceVersion or
//! creationTimestamp: who makes a base layer of them adds those. `created` stands where an object's own status holds a time.

pub mod administrator;
pub mod flow;
pub mod rbac;
pub mod workload;

use serde_json::{Value, json};

use super::core::namespace::NAME_LABEL;
use super::extension::service::local_status;
use super::network::range::ServiceRange;
use super::{PRIORITIES, Profile, resources};

/// The namespaces of a new plane; none of them can be deleted but `kube-node-lease`.
pub const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// Whether a plane is born with what the controllers beside a kube-apiserver make in its first seconds: each namespace's service
/// account and its copy of the CA.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Companions {
    /// There are none, as beside the kube-apiserver of a test environment.
    Absent,
    /// Their work is done; the text is the CA, in PEM.
    Done { root_ca: String },
}

/// Every object of a new plane.
pub fn objects(profile: Profile, services: ServiceRange, companions: &Companions, created: &str) -> Vec<Value> {
    let mut objects = namespaces();
    if *companions != Companions::Absent {
        objects.extend(service_accounts());
    }
    objects.extend(rbac::objects());
    if *companions != Companions::Absent {
        objects.push(rbac::plane_admins());
    }
    objects.extend(flow::objects(created));
    objects.extend(api_services(profile, created));
    if profile == Profile::Kubernetes {
        objects.extend(workload::objects(services, created));
    }
    if let Companions::Done { root_ca: certificates } = companions {
        objects.extend(root_ca(certificates));
    }
    objects
}

pub fn namespaces() -> Vec<Value> {
    NAMESPACES.into_iter().map(namespace).collect()
}

/// A namespace as a plane is born with it.
pub fn namespace(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {NAME_LABEL: name}},
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    })
}

/// What a namespace has that a plane is born with.
pub fn companions_of(namespace: &str, companions: &Companions) -> Vec<Value> {
    match companions {
        Companions::Absent => Vec::new(),
        Companions::Done { root_ca } => vec![service_account(namespace), root_ca_of(namespace, root_ca)],
    }
}

/// The `default` service account of each namespace.
pub fn service_accounts() -> Vec<Value> {
    NAMESPACES.into_iter().map(service_account).collect()
}

fn service_account(namespace: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "default", "namespace": namespace},
    })
}

/// The configmap of each namespace that holds the plane's CA.
pub fn root_ca(certificates: &str) -> Vec<Value> {
    let configmap = |namespace| root_ca_of(namespace, certificates);
    NAMESPACES.into_iter().map(configmap).collect()
}

/// That of one namespace.
pub fn root_ca_of(namespace: &str, certificates: &str) -> Value {
    let description = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters.";
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "kube-root-ca.crt",
            "namespace": namespace,
            "annotations": {"kubernetes.io/description": description},
        },
        "data": {"ca.crt": certificates},
    })
}

/// An APIService for each group and version that the server answers for itself.
pub fn api_services(profile: Profile, created: &str) -> Vec<Value> {
    let is_served = |group: &str, version: &str| {
        resources()
            .iter()
            .any(|one| one.group == group && one.version == version && one.profile <= profile)
    };
    let mut services = Vec::new();
    for (group, version, group_priority, version_priority) in PRIORITIES.iter().copied() {
        // The aggregation layer does not register itself.
        if group == "apiregistration.k8s.io" || !is_served(group, version) {
            continue;
        }
        let mut spec = json!({
            "version": version,
            "groupPriorityMinimum": group_priority,
            "versionPriority": version_priority,
        });
        if !group.is_empty() {
            spec["group"] = group.into();
        }
        services.push(json!({
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {
                "name": format!("{version}.{group}"),
                "labels": {"kube-aggregator.kubernetes.io/automanaged": "onstart"},
            },
            "spec": spec,
            "status": local_status(created),
        }));
    }
    services
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::kind::{Resource, Strategy, User, WriteContext};
    use crate::object;

    fn resource(object: &Value) -> &'static Resource {
        let (api_version, kind) = (
            object::string(object, &["apiVersion"]),
            object::string(object, &["kind"]),
        );
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let found = resources()
            .iter()
            .find(|one| one.group == group && one.version == version && one.kind == kind);
        found.unwrap_or_else(|| panic!("{api_version} {kind} is not served"))
    }

    fn all() -> Vec<Value> {
        let companions = Companions::Done {
            root_ca: "a certificate".to_owned(),
        };
        objects(
            Profile::Kubernetes,
            ServiceRange::default(),
            &companions,
            "1970-01-01T00:00:00Z",
        )
    }

    #[test]
    fn every_object_is_valid_and_as_defaulting_would_leave_it() {
        let ctx = WriteContext {
            now: jiff::Timestamp::UNIX_EPOCH,
            subresource: "",
            group: "",
            version: "",
            user: User::default(),
        };
        for object in all() {
            let strategy: &dyn Strategy = resource(&object).strategy;
            let mut defaulted = object.clone();
            strategy.default(&mut defaulted);
            assert_eq!(defaulted, object);
            assert_eq!(strategy.validate(&ctx, &object), [], "{object}");
            assert_eq!(
                strategy.name_errors(object::name(&object), crate::kind::NameUse::Name),
                Vec::<String>::new()
            );
        }
    }

    #[test]
    fn no_object_is_there_twice() {
        let mut seen = BTreeSet::new();
        for object in all() {
            let id = ["apiVersion", "kind"].map(|field| object::string(&object, &[field]).to_owned());
            let name = [object::namespace(&object).to_owned(), object::name(&object).to_owned()];
            assert!(seen.insert((id, name)), "{object}");
        }
    }
}
