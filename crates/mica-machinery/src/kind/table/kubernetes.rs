//! Rows of the kinds that only the `kubernetes` profile serves.

use super::super::apps::{daemonset, deployment, replicaset, revision, statefulset};
use super::super::batch::{cronjob, job};
use super::super::network::{address, endpoints, ingress, policy, service, slice};
use super::super::storage::{attachment, claim, class, driver, volume};
use super::super::{
    Profile, Resource, Scope, Stored, Strategy, Subresource, autoscaling, budget, device, node, pod, review,
};
use super::{CORE, CREATE, STATUS, SUB, resource, view};

use Scope::{Cluster, Namespaced};

const ALL: &[&str] = &["all"];
const APPS: [&str; 2] = ["apps", "v1"];
const AUTOSCALING: [&str; 2] = ["autoscaling", "v2"];
const AUTOSCALING_OLD: [&str; 2] = ["autoscaling", "v1"];
const BATCH: [&str; 2] = ["batch", "v1"];
const NETWORKING: [&str; 2] = ["networking.k8s.io", "v1"];
const POLICY: [&str; 2] = ["policy", "v1"];
const STORAGE: [&str; 2] = ["storage.k8s.io", "v1"];
const SCHEDULING: [&str; 2] = ["scheduling.k8s.io", "v1"];
const NODE: [&str; 2] = ["node.k8s.io", "v1"];
const DISCOVERY: [&str; 2] = ["discovery.k8s.io", "v1"];
const DEVICES: [&str; 2] = ["resource.k8s.io", "v1"];

const SCALE: Subresource = Subresource {
    name: "scale",
    verbs: SUB,
    kind: Some(("autoscaling", "v1", "Scale")),
};
const SCALED: &[Subresource] = &[SCALE, view("status")];
const PROXY: &[&str] = &["create", "delete", "get", "patch", "update"];
const CONNECT: &[&str] = &["create", "get"];

const fn other(name: &'static str, verbs: &'static [&'static str], kind: &'static str) -> Subresource {
    Subresource {
        name,
        verbs,
        kind: Some(("", "v1", kind)),
    }
}

const POD: &[Subresource] = &[
    other("attach", CONNECT, "PodAttachOptions"),
    other("binding", CREATE, "Binding"),
    view("ephemeralcontainers"),
    Subresource {
        name: "eviction",
        verbs: CREATE,
        kind: Some(("policy", "v1", "Eviction")),
    },
    other("exec", CONNECT, "PodExecOptions"),
    Subresource {
        name: "log",
        verbs: &["get"],
        kind: None,
    },
    other("portforward", CONNECT, "PodPortForwardOptions"),
    other("proxy", PROXY, "PodProxyOptions"),
    view("resize"),
    view("status"),
];

const fn row(
    version: [&'static str; 2],
    names: [&'static str; 3],
    scope: Scope,
    strategy: &'static dyn Strategy,
) -> Resource {
    Resource {
        profile: Profile::Kubernetes,
        ..resource(version, names, scope, strategy)
    }
}

impl Resource {
    const fn short(self, short_names: &'static [&'static str]) -> Self {
        Self { short_names, ..self }
    }

    const fn with(self, subresources: &'static [Subresource]) -> Self {
        Self { subresources, ..self }
    }

    const fn among_all(self) -> Self {
        Self {
            categories: ALL,
            ..self
        }
    }
}

/// Grouped, in no other order: the table is sorted when it is made.
pub(super) const ROWS: &[&[Resource]] = &[CORE_ROWS, WORKLOADS, NETWORK, STORAGES, REST];

const CORE_ROWS: &[Resource] = &[
    Resource {
        verbs: CREATE,
        ..row(
            CORE,
            ["bindings", "binding", "Binding"],
            Namespaced,
            &review::PlainReview,
        )
    },
    Resource {
        verbs: &["get", "list"],
        ..row(
            CORE,
            ["componentstatuses", "componentstatus", "ComponentStatus"],
            Cluster,
            &node::COMPONENT_STATUS,
        )
        .short(&["cs"])
    },
    row(
        CORE,
        ["endpoints", "endpoints", "Endpoints"],
        Namespaced,
        &endpoints::ENDPOINTS,
    )
    .short(&["ep"]),
    row(CORE, ["nodes", "node", "Node"], Cluster, &node::NODE)
        .short(&["no"])
        .with(&[other("proxy", PROXY, "NodeProxyOptions"), view("status")]),
    row(
        CORE,
        [
            "persistentvolumeclaims",
            "persistentvolumeclaim",
            "PersistentVolumeClaim",
        ],
        Namespaced,
        &claim::CLAIM,
    )
    .short(&["pvc"])
    .with(STATUS),
    row(
        CORE,
        ["persistentvolumes", "persistentvolume", "PersistentVolume"],
        Cluster,
        &volume::VOLUME,
    )
    .short(&["pv"])
    .with(STATUS),
    row(CORE, ["pods", "pod", "Pod"], Namespaced, &pod::Pod)
        .short(&["po"])
        .among_all()
        .with(POD),
    row(
        CORE,
        [
            "replicationcontrollers",
            "replicationcontroller",
            "ReplicationController",
        ],
        Namespaced,
        &replicaset::REPLICATION_CONTROLLER,
    )
    .short(&["rc"])
    .among_all()
    .with(SCALED),
    row(CORE, ["services", "service", "Service"], Namespaced, &service::SERVICE)
        .short(&["svc"])
        .among_all()
        .with(&[other("proxy", PROXY, "ServiceProxyOptions"), view("status")]),
];

const WORKLOADS: &[Resource] = &[
    row(
        APPS,
        ["controllerrevisions", "controllerrevision", "ControllerRevision"],
        Namespaced,
        &revision::CONTROLLER_REVISION,
    ),
    row(
        APPS,
        ["daemonsets", "daemonset", "DaemonSet"],
        Namespaced,
        &daemonset::DAEMON_SET,
    )
    .short(&["ds"])
    .among_all()
    .with(STATUS),
    row(
        APPS,
        ["deployments", "deployment", "Deployment"],
        Namespaced,
        &deployment::DEPLOYMENT,
    )
    .short(&["deploy"])
    .among_all()
    .with(SCALED),
    row(
        APPS,
        ["replicasets", "replicaset", "ReplicaSet"],
        Namespaced,
        &replicaset::REPLICA_SET,
    )
    .short(&["rs"])
    .among_all()
    .with(SCALED),
    row(
        APPS,
        ["statefulsets", "statefulset", "StatefulSet"],
        Namespaced,
        &statefulset::STATEFUL_SET,
    )
    .short(&["sts"])
    .among_all()
    .with(SCALED),
    row(
        AUTOSCALING,
        [
            "horizontalpodautoscalers",
            "horizontalpodautoscaler",
            "HorizontalPodAutoscaler",
        ],
        Namespaced,
        &autoscaling::AUTOSCALER,
    )
    .short(&["hpa"])
    .among_all()
    .with(STATUS),
    Resource {
        stored_as: Some(Stored {
            group: "autoscaling",
            version: "v2",
            kind: "HorizontalPodAutoscaler",
            to_stored: autoscaling::to_stored,
            from_stored: autoscaling::from_stored,
        }),
        ..row(
            AUTOSCALING_OLD,
            [
                "horizontalpodautoscalers",
                "horizontalpodautoscaler",
                "HorizontalPodAutoscaler",
            ],
            Namespaced,
            &autoscaling::OLD_AUTOSCALER,
        )
        .short(&["hpa"])
        .among_all()
        .with(STATUS)
    },
    row(
        BATCH,
        ["cronjobs", "cronjob", "CronJob"],
        Namespaced,
        &cronjob::CRON_JOB,
    )
    .short(&["cj"])
    .among_all()
    .with(STATUS),
    row(BATCH, ["jobs", "job", "Job"], Namespaced, &job::JOB)
        .among_all()
        .with(STATUS),
];

const NETWORK: &[Resource] = &[
    row(
        NETWORKING,
        ["ingressclasses", "ingressclass", "IngressClass"],
        Cluster,
        &ingress::INGRESS_CLASS,
    ),
    row(
        NETWORKING,
        ["ingresses", "ingress", "Ingress"],
        Namespaced,
        &ingress::INGRESS,
    )
    .short(&["ing"])
    .with(STATUS),
    row(
        NETWORKING,
        ["ipaddresses", "ipaddress", "IPAddress"],
        Cluster,
        &address::IP_ADDRESS,
    )
    .short(&["ip"]),
    row(
        NETWORKING,
        ["networkpolicies", "networkpolicy", "NetworkPolicy"],
        Namespaced,
        &policy::NETWORK_POLICY,
    )
    .short(&["netpol"]),
    row(
        NETWORKING,
        ["servicecidrs", "servicecidr", "ServiceCIDR"],
        Cluster,
        &address::SERVICE_CIDR,
    )
    .with(STATUS),
    row(
        DISCOVERY,
        ["endpointslices", "endpointslice", "EndpointSlice"],
        Namespaced,
        &slice::ENDPOINT_SLICE,
    ),
];

const STORAGES: &[Resource] = &[
    row(
        STORAGE,
        ["csidrivers", "csidriver", "CSIDriver"],
        Cluster,
        &driver::DRIVER,
    ),
    row(STORAGE, ["csinodes", "csinode", "CSINode"], Cluster, &driver::NODE),
    row(
        STORAGE,
        ["csistoragecapacities", "csistoragecapacity", "CSIStorageCapacity"],
        Namespaced,
        &driver::CAPACITY,
    ),
    row(
        STORAGE,
        ["storageclasses", "storageclass", "StorageClass"],
        Cluster,
        &class::STORAGE_CLASS,
    )
    .short(&["sc"]),
    row(
        STORAGE,
        ["volumeattachments", "volumeattachment", "VolumeAttachment"],
        Cluster,
        &attachment::ATTACHMENT,
    )
    .with(STATUS),
    row(
        STORAGE,
        [
            "volumeattributesclasses",
            "volumeattributesclass",
            "VolumeAttributesClass",
        ],
        Cluster,
        &class::ATTRIBUTES_CLASS,
    )
    .short(&["vac"]),
];

const REST: &[Resource] = &[
    row(
        POLICY,
        ["poddisruptionbudgets", "poddisruptionbudget", "PodDisruptionBudget"],
        Namespaced,
        &budget::DISRUPTION_BUDGET,
    )
    .short(&["pdb"])
    .with(STATUS),
    row(
        SCHEDULING,
        ["priorityclasses", "priorityclass", "PriorityClass"],
        Cluster,
        &budget::PRIORITY_CLASS,
    )
    .short(&["pc"]),
    row(
        NODE,
        ["runtimeclasses", "runtimeclass", "RuntimeClass"],
        Cluster,
        &node::RUNTIME_CLASS,
    ),
    row(
        DEVICES,
        ["deviceclasses", "deviceclass", "DeviceClass"],
        Cluster,
        &device::DEVICE_CLASS,
    ),
    row(
        DEVICES,
        ["resourceclaims", "resourceclaim", "ResourceClaim"],
        Namespaced,
        &device::CLAIM,
    )
    .with(STATUS),
    row(
        DEVICES,
        [
            "resourceclaimtemplates",
            "resourceclaimtemplate",
            "ResourceClaimTemplate",
        ],
        Namespaced,
        &device::CLAIM_TEMPLATE,
    ),
    row(
        DEVICES,
        ["resourceslices", "resourceslice", "ResourceSlice"],
        Cluster,
        &device::SLICE,
    ),
];
