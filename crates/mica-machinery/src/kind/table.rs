//! The table of served resources, in the order of discovery: groups by priority, resources by name.

mod kubernetes;

use std::sync::LazyLock;

use super::admission::{binding, policy, webhook};
use super::certificates::{request, trust};
use super::core::{configmap, event, limitrange, namespace, podtemplate, quota, secret, serviceaccount};
use super::extension::{definition, service};
use super::flowcontrol::{level, schema};
use super::review::{AccessReview, PlainReview};
use super::{CRUD, Profile, Resource, Scope, Stored, Strategy, Subresource, coordination, migration, rbac};

const CREATE: &[&str] = &["create"];
const SUB: &[&str] = &["get", "patch", "update"];
const API_EXTENSIONS: &[&str] = &["api-extensions"];

/// Group, version, the group's priority and the version's within it, in the order of discovery.
pub const PRIORITIES: &[(&str, &str, i32, i32)] = &[
    ("", "v1", 18_000, 1),
    ("apiregistration.k8s.io", "v1", 17_900, 15),
    ("apps", "v1", 17_800, 15),
    ("events.k8s.io", "v1", 17_750, 15),
    ("authentication.k8s.io", "v1", 17_700, 15),
    ("authorization.k8s.io", "v1", 17_600, 15),
    ("autoscaling", "v2", 17_500, 30),
    ("autoscaling", "v1", 17_500, 15),
    ("batch", "v1", 17_400, 15),
    ("certificates.k8s.io", "v1", 17_300, 15),
    ("certificates.k8s.io", "v1beta1", 17_300, 9),
    ("networking.k8s.io", "v1", 17_200, 15),
    ("policy", "v1", 17_100, 15),
    ("rbac.authorization.k8s.io", "v1", 17_000, 15),
    ("storage.k8s.io", "v1", 16_800, 15),
    ("admissionregistration.k8s.io", "v1", 16_700, 15),
    ("apiextensions.k8s.io", "v1", 16_700, 15),
    ("scheduling.k8s.io", "v1", 16_600, 15),
    ("coordination.k8s.io", "v1", 16_500, 15),
    ("node.k8s.io", "v1", 16_300, 15),
    ("discovery.k8s.io", "v1", 16_200, 15),
    ("resource.k8s.io", "v1", 16_200, 21),
    ("flowcontrol.apiserver.k8s.io", "v1", 16_100, 21),
    ("storagemigration.k8s.io", "v1beta1", 15_800, 9),
];

/// Every resource that a server may serve.
pub fn resources() -> &'static [Resource] {
    &SORTED
}

static SORTED: LazyLock<Vec<Resource>> = LazyLock::new(|| {
    let place = |one: &Resource| {
        let mut groups = PRIORITIES.iter();
        let at = groups.position(|(group, version, ..)| (*group, *version) == (one.group, one.version));
        (at.expect("every group has a priority"), one.plural)
    };
    let more = kubernetes::ROWS.iter().flat_map(|rows| rows.iter());
    let mut all: Vec<Resource> = RESOURCES.iter().chain(more).copied().collect();
    all.sort_by_key(place);
    all
});

/// A resource with the usual verbs, no short names and no subresources.
const fn resource(
    [group, version]: [&'static str; 2],
    [plural, singular, kind]: [&'static str; 3],
    scope: Scope,
    strategy: &'static dyn Strategy,
) -> Resource {
    Resource {
        group,
        version,
        kind,
        plural,
        singular,
        short_names: &[],
        categories: &[],
        scope,
        profile: Profile::Generic,
        verbs: CRUD,
        subresources: &[],
        stored_as: None,
        strategy,
    }
}

/// A kind that can only be created.
const fn review(
    group: &'static str,
    names: [&'static str; 3],
    scope: Scope,
    strategy: &'static dyn Strategy,
) -> Resource {
    Resource {
        verbs: CREATE,
        ..resource([group, "v1"], names, scope, strategy)
    }
}

/// A subresource that is read and written as the object itself.
const fn view(name: &'static str) -> Subresource {
    Subresource {
        name,
        verbs: SUB,
        kind: None,
    }
}

const STATUS: &[Subresource] = &[view("status")];
const FINALIZE: Subresource = Subresource {
    name: "finalize",
    verbs: &["update"],
    kind: None,
};
const TOKEN: Subresource = Subresource {
    name: "token",
    verbs: CREATE,
    kind: Some(("authentication.k8s.io", "v1", "TokenRequest")),
};

const CORE: [&str; 2] = ["", "v1"];
const REGISTRATION: [&str; 2] = ["apiregistration.k8s.io", "v1"];
const EVENTS: [&str; 2] = ["events.k8s.io", "v1"];
const CERTIFICATES: [&str; 2] = ["certificates.k8s.io", "v1"];
const CERTIFICATES_BETA: [&str; 2] = ["certificates.k8s.io", "v1beta1"];
const RBAC: [&str; 2] = [rbac::GROUP, "v1"];
const ADMISSION: [&str; 2] = ["admissionregistration.k8s.io", "v1"];
const EXTENSIONS: [&str; 2] = ["apiextensions.k8s.io", "v1"];
const COORDINATION: [&str; 2] = ["coordination.k8s.io", "v1"];
const FLOW_CONTROL: [&str; 2] = ["flowcontrol.apiserver.k8s.io", "v1"];
const MIGRATION: [&str; 2] = ["storagemigration.k8s.io", "v1beta1"];
const AUTHENTICATION: &str = "authentication.k8s.io";
const AUTHORIZATION: &str = "authorization.k8s.io";

use Scope::{Cluster, Namespaced};

static RESOURCES: &[Resource] = &[
    Resource {
        short_names: &["cm"],
        ..resource(
            CORE,
            ["configmaps", "configmap", "ConfigMap"],
            Namespaced,
            &configmap::ConfigMap,
        )
    },
    Resource {
        short_names: &["ev"],
        ..resource(CORE, ["events", "event", "Event"], Namespaced, &event::CoreEvent)
    },
    Resource {
        short_names: &["limits"],
        ..resource(
            CORE,
            ["limitranges", "limitrange", "LimitRange"],
            Namespaced,
            &limitrange::LimitRange,
        )
    },
    Resource {
        short_names: &["ns"],
        verbs: &["create", "delete", "get", "list", "patch", "update", "watch"],
        subresources: &[FINALIZE, view("status")],
        ..resource(
            CORE,
            ["namespaces", "namespace", "Namespace"],
            Cluster,
            &namespace::Namespace,
        )
    },
    Resource {
        profile: Profile::Kubernetes,
        ..resource(
            CORE,
            ["podtemplates", "podtemplate", "PodTemplate"],
            Namespaced,
            &podtemplate::PodTemplate,
        )
    },
    Resource {
        short_names: &["quota"],
        subresources: STATUS,
        ..resource(
            CORE,
            ["resourcequotas", "resourcequota", "ResourceQuota"],
            Namespaced,
            &quota::ResourceQuota,
        )
    },
    resource(CORE, ["secrets", "secret", "Secret"], Namespaced, &secret::Secret),
    Resource {
        short_names: &["sa"],
        subresources: &[TOKEN],
        ..resource(
            CORE,
            ["serviceaccounts", "serviceaccount", "ServiceAccount"],
            Namespaced,
            &serviceaccount::ServiceAccount,
        )
    },
    Resource {
        categories: API_EXTENSIONS,
        subresources: STATUS,
        ..resource(
            REGISTRATION,
            ["apiservices", "apiservice", "APIService"],
            Cluster,
            &service::ApiService,
        )
    },
    Resource {
        short_names: &["ev"],
        stored_as: Some(Stored {
            group: "",
            version: "v1",
            kind: "Event",
            to_stored: event::to_core,
            from_stored: event::to_events,
        }),
        ..resource(EVENTS, ["events", "event", "Event"], Namespaced, &event::NewEvent)
    },
    review(
        AUTHENTICATION,
        ["selfsubjectreviews", "selfsubjectreview", "SelfSubjectReview"],
        Cluster,
        &PlainReview,
    ),
    review(
        AUTHENTICATION,
        ["tokenreviews", "tokenreview", "TokenReview"],
        Cluster,
        &PlainReview,
    ),
    review(
        AUTHORIZATION,
        [
            "localsubjectaccessreviews",
            "localsubjectaccessreview",
            "LocalSubjectAccessReview",
        ],
        Namespaced,
        &AccessReview::Local,
    ),
    review(
        AUTHORIZATION,
        [
            "selfsubjectaccessreviews",
            "selfsubjectaccessreview",
            "SelfSubjectAccessReview",
        ],
        Cluster,
        &AccessReview::Myself,
    ),
    review(
        AUTHORIZATION,
        [
            "selfsubjectrulesreviews",
            "selfsubjectrulesreview",
            "SelfSubjectRulesReview",
        ],
        Cluster,
        &PlainReview,
    ),
    review(
        AUTHORIZATION,
        ["subjectaccessreviews", "subjectaccessreview", "SubjectAccessReview"],
        Cluster,
        &AccessReview::Subject,
    ),
    Resource {
        short_names: &["csr"],
        subresources: &[view("approval"), view("status")],
        ..resource(
            CERTIFICATES,
            [
                "certificatesigningrequests",
                "certificatesigningrequest",
                "CertificateSigningRequest",
            ],
            Cluster,
            &request::SigningRequest,
        )
    },
    // Version 1.36 has these only in beta.
    resource(
        CERTIFICATES_BETA,
        ["clustertrustbundles", "clustertrustbundle", "ClusterTrustBundle"],
        Cluster,
        &trust::TrustBundle,
    ),
    resource(
        RBAC,
        ["clusterrolebindings", "clusterrolebinding", "ClusterRoleBinding"],
        Cluster,
        &rbac::Binding(Cluster),
    ),
    resource(
        RBAC,
        ["clusterroles", "clusterrole", "ClusterRole"],
        Cluster,
        &rbac::Role(Cluster),
    ),
    resource(
        RBAC,
        ["rolebindings", "rolebinding", "RoleBinding"],
        Namespaced,
        &rbac::Binding(Namespaced),
    ),
    resource(RBAC, ["roles", "role", "Role"], Namespaced, &rbac::Role(Namespaced)),
    Resource {
        categories: API_EXTENSIONS,
        ..resource(
            ADMISSION,
            [
                "mutatingadmissionpolicies",
                "mutatingadmissionpolicy",
                "MutatingAdmissionPolicy",
            ],
            Cluster,
            &policy::Policy::Mutating,
        )
    },
    Resource {
        categories: API_EXTENSIONS,
        ..resource(
            ADMISSION,
            [
                "mutatingadmissionpolicybindings",
                "mutatingadmissionpolicybinding",
                "MutatingAdmissionPolicyBinding",
            ],
            Cluster,
            &binding::Binding::Mutating,
        )
    },
    Resource {
        categories: API_EXTENSIONS,
        ..resource(
            ADMISSION,
            [
                "mutatingwebhookconfigurations",
                "mutatingwebhookconfiguration",
                "MutatingWebhookConfiguration",
            ],
            Cluster,
            &webhook::Webhooks::Mutating,
        )
    },
    Resource {
        categories: API_EXTENSIONS,
        subresources: STATUS,
        ..resource(
            ADMISSION,
            [
                "validatingadmissionpolicies",
                "validatingadmissionpolicy",
                "ValidatingAdmissionPolicy",
            ],
            Cluster,
            &policy::Policy::Validating,
        )
    },
    Resource {
        categories: API_EXTENSIONS,
        ..resource(
            ADMISSION,
            [
                "validatingadmissionpolicybindings",
                "validatingadmissionpolicybinding",
                "ValidatingAdmissionPolicyBinding",
            ],
            Cluster,
            &binding::Binding::Validating,
        )
    },
    Resource {
        categories: API_EXTENSIONS,
        ..resource(
            ADMISSION,
            [
                "validatingwebhookconfigurations",
                "validatingwebhookconfiguration",
                "ValidatingWebhookConfiguration",
            ],
            Cluster,
            &webhook::Webhooks::Validating,
        )
    },
    Resource {
        short_names: &["crd", "crds"],
        categories: API_EXTENSIONS,
        subresources: STATUS,
        ..resource(
            EXTENSIONS,
            [
                "customresourcedefinitions",
                "customresourcedefinition",
                "CustomResourceDefinition",
            ],
            Cluster,
            &definition::Definition,
        )
    },
    resource(
        COORDINATION,
        ["leases", "lease", "Lease"],
        Namespaced,
        &coordination::Lease,
    ),
    Resource {
        subresources: STATUS,
        ..resource(
            FLOW_CONTROL,
            ["flowschemas", "flowschema", "FlowSchema"],
            Cluster,
            &schema::FlowSchema,
        )
    },
    Resource {
        subresources: STATUS,
        ..resource(
            FLOW_CONTROL,
            [
                "prioritylevelconfigurations",
                "prioritylevelconfiguration",
                "PriorityLevelConfiguration",
            ],
            Cluster,
            &level::PriorityLevel,
        )
    },
    Resource {
        subresources: STATUS,
        ..resource(
            MIGRATION,
            [
                "storageversionmigrations",
                "storageversionmigration",
                "StorageVersionMigration",
            ],
            Cluster,
            &migration::StorageVersionMigration,
        )
    },
];
