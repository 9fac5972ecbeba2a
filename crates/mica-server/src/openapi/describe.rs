//! What upstream's types and fields mean: the descriptions of its published schemas, which the `k8s-openapi` crate carries.
//!
//! They are made on demand for the types that are wanted, and are too many to keep: a megabyte of text that documents hold
//! anyway. That crate has no lists, so their descriptions are put together here.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::LazyLock;

use k8s_openapi::schemars::{JsonSchema, SchemaGenerator};
use mica_machinery::facts::facts;
use mica_machinery::openapi::{ApiResource, Describe};
use serde_json::{Map, Value, json};

/// Descriptions by type and field, in the shape of schemas.
pub struct Descriptions {
    schemas: Map<String, Value>,
}

impl Descriptions {
    /// The descriptions of what documents of custom resources have in common.
    pub fn of_custom() -> &'static Self {
        static SHARED: LazyLock<Descriptions> = LazyLock::new(|| {
            // A scale, and one kind that says what every kind has.
            let wanted = ["io.k8s.api.autoscaling.v1.Scale", "io.k8s.api.core.v1.ConfigMap"];
            Descriptions {
                schemas: describe_types(&BTreeSet::from(wanted)),
            }
        });
        &SHARED
    }

    /// The descriptions of everything that the documents of these resources have in them.
    pub fn of<'a>(resources: impl IntoIterator<Item = &'a ApiResource>) -> Self {
        let resources: Vec<&ApiResource> = resources.into_iter().collect();
        let mut wanted: BTreeSet<&str> = BTreeSet::new();
        for resource in &resources {
            wanted.insert(&resource.r#type);
            wanted.extend(resource.subresources.iter().map(|sub| sub.r#type.as_str()));
        }
        let mut schemas = describe_types(&wanted);
        for resource in resources.into_iter().filter(|resource| !resource.list.is_empty()) {
            let list = describe_list(&schemas, resource);
            schemas.entry(resource.list.clone()).or_insert(list);
        }
        Self { schemas }
    }
}

/// Those types, what every document may hold, and what they refer to.
fn describe_types(wanted: &BTreeSet<&str>) -> Map<String, Value> {
    let mut generator = SchemaGenerator::default();
    for (name, add) in KINDS.iter().chain(EVERYWHERE) {
        let name = name();
        if name.starts_with("io.k8s.apimachinery.") || wanted.contains(name.as_ref()) {
            add(&mut generator);
        }
    }
    let mut schemas = generator.take_definitions(true);
    describe_event(&mut schemas);
    describe_metadata(&mut schemas);
    schemas
}

/// The metadata of any object, for which there is no text there: it has the fields that every kind has.
fn describe_metadata(schemas: &mut Map<String, Value>) {
    let status = facts().ty(facts().well_known().status).openapi;
    let text = |field: &str| json!({"description": field_text(schemas, status, field)});
    let metadata = "What every object has: its name, labels, annotations, owners and versions.";
    let described = json!({
        "description": "PartialObjectMetadata is the metadata of an object, whatever kind that is of.",
        "properties": {"apiVersion": text("apiVersion"), "kind": text("kind"), "metadata": {"description": metadata}},
    });
    let partial = facts().ty(facts().well_known().partial_object_metadata).openapi;
    schemas.insert(partial.to_owned(), described);
}

impl Describe for Descriptions {
    fn of_type(&self, name: &str) -> Option<&str> {
        self.schemas.get(name)?.get("description")?.as_str()
    }

    fn of_field(&self, name: &str, field: &str) -> Option<&str> {
        field_text(&self.schemas, name, field)
    }
}

fn field_text<'a>(schemas: &'a Map<String, Value>, name: &str, field: &str) -> Option<&'a str> {
    schemas
        .get(name)?
        .get("properties")?
        .get(field)?
        .get("description")?
        .as_str()
}

/// What an event holds is described with the event itself there, as a second paragraph.
fn describe_event(schemas: &mut Map<String, Value>) {
    let event = facts().ty(facts().well_known().watch_event).openapi;
    let both = schemas
        .get(event)
        .and_then(|event| event["description"].as_str())
        .unwrap_or_default()
        .to_owned();
    if let Some((itself, object)) = both.split_once("\n\n") {
        let described = json!({"description": itself, "properties": {"object": {"description": object.trim_end()}}});
        schemas.insert(event.to_owned(), described);
    }
}

/// A list has the same fields everywhere: those about itself are described at its items and at Status, which is a list to
/// its metadata.
fn describe_list(schemas: &Map<String, Value>, resource: &ApiResource) -> Value {
    let status = facts().ty(facts().well_known().status).openapi;
    let text = |name: &str, field: &str| json!({"description": field_text(schemas, name, field)});
    json!({
        "description": format!("{kind}List is a list of {kind} objects.", kind = resource.kind),
        "properties": {
            "apiVersion": text(&resource.r#type, "apiVersion"),
            "kind": text(&resource.r#type, "kind"),
            "metadata": text(status, "metadata"),
            "items": {"description": format!("Items are the {} objects.", resource.kind)},
        },
    })
}

/// A type: its OpenAPI name, and what adds its schema and those below it to a generator.
type Described = (fn() -> Cow<'static, str>, fn(&mut SchemaGenerator));

fn add<T: JsonSchema>(generator: &mut SchemaGenerator) {
    // The reference that it returns is of no use: the definition stays in the generator.
    let _reference = generator.subschema_for::<T>();
}

macro_rules! described {
    ($($module:path => [$($name:ident),* $(,)?],)*) => {
        &[$($({
            use $module as module;
            (<module::$name as JsonSchema>::schema_name as fn() -> _, add::<module::$name> as fn(&mut _))
        },)*)*]
    };
}

/// What every document may hold.
static EVERYWHERE: &[Described] = described![
    k8s_openapi::apimachinery::pkg::apis::meta::v1 => [APIGroup, APIGroupList, APIResourceList, APIVersions, DeleteOptions, Patch, Status],
    k8s_openapi::apimachinery::pkg::version => [Info],
    self => [AnyEvent],
];

/// An event of a watch, of whatever kind.
type AnyEvent =
    k8s_openapi::apimachinery::pkg::apis::meta::v1::WatchEvent<k8s_openapi::apimachinery::pkg::runtime::RawExtension>;

/// The kinds that are or will be served, with what their subresources read and write.
static KINDS: &[Described] = described![
    k8s_openapi::api::admissionregistration::v1 => [
        MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding, MutatingWebhookConfiguration,
        ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, ValidatingWebhookConfiguration,
    ],
    k8s_openapi::api::apiserverinternal::v1alpha1 => [StorageVersion],
    k8s_openapi::api::apps::v1 => [ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet],
    k8s_openapi::api::authentication::v1 => [SelfSubjectReview, TokenRequest, TokenReview],
    k8s_openapi::api::authorization::v1 => [
        LocalSubjectAccessReview, SelfSubjectAccessReview, SelfSubjectRulesReview, SubjectAccessReview,
    ],
    k8s_openapi::api::autoscaling::v1 => [HorizontalPodAutoscaler, Scale],
    k8s_openapi::api::autoscaling::v2 => [HorizontalPodAutoscaler],
    k8s_openapi::api::batch::v1 => [CronJob, Job],
    k8s_openapi::api::certificates::v1 => [CertificateSigningRequest],
    k8s_openapi::api::certificates::v1beta1 => [ClusterTrustBundle],
    k8s_openapi::api::coordination::v1 => [Lease],
    k8s_openapi::api::coordination::v1beta1 => [LeaseCandidate],
    k8s_openapi::api::core::v1 => [
        Binding, ComponentStatus, ConfigMap, Endpoints, Event, LimitRange, Namespace, Node, PersistentVolume,
        PersistentVolumeClaim, Pod, PodTemplate, ReplicationController, ResourceQuota, Secret, Service, ServiceAccount,
    ],
    k8s_openapi::api::discovery::v1 => [EndpointSlice],
    k8s_openapi::api::events::v1 => [Event],
    k8s_openapi::api::flowcontrol::v1 => [FlowSchema, PriorityLevelConfiguration],
    k8s_openapi::api::networking::v1 => [IPAddress, Ingress, IngressClass, NetworkPolicy, ServiceCIDR],
    k8s_openapi::api::node::v1 => [RuntimeClass],
    k8s_openapi::api::policy::v1 => [Eviction, PodDisruptionBudget],
    k8s_openapi::api::rbac::v1 => [ClusterRole, ClusterRoleBinding, Role, RoleBinding],
    k8s_openapi::api::resource::v1 => [DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice],
    k8s_openapi::api::scheduling::v1 => [PriorityClass],
    k8s_openapi::api::storage::v1 => [
        CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment, VolumeAttributesClass,
    ],
    k8s_openapi::api::storagemigration::v1beta1 => [StorageVersionMigration],
    k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 => [CustomResourceDefinition],
    k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1 => [APIService],
];
