//! Control planes as infrastructure: the kinds of `controlplane.kplane.dev`, with the names, keys, conditions and reasons
//! that everybody who meets them must agree on.
//!
//! Group, fields and names are kplane's, so that its objects and consumers work here; what that project marks as future is
//! here too. [`definitions`] can be applied to any cluster: the operator runs against it as it runs in `mica up`.

mod definition;
mod kind;
mod name;

pub use definition::definitions;
pub use kind::{
    AUTH_MODELS, Auth, ControlPlaneClassSpec, ControlPlaneClassStatus, ControlPlaneEndpointSpec,
    ControlPlaneEndpointStatus, ControlPlaneRegistrationSpec, ControlPlaneRegistrationStatus, ControlPlaneSpec,
    ControlPlaneStatus, Dedicated, DeletionPolicy, EndpointPolicy, EndpointTemplates, EndpointType, Gateway, Migration,
    MigrationStep, Mode, ObjectRef, Phase, PublishedEndpoint, RegistrationMode, SecretRef, TypedRef, Virtual,
};
pub use name::{
    gateway_endpoint, kubeconfig_secret, label_value, management_namespace, same_service, service_is_valid,
};

pub const GROUP: &str = "controlplane.kplane.dev";
pub const VERSION: &str = "v1alpha1";
pub const API_VERSION: &str = "controlplane.kplane.dev/v1alpha1";

pub const CONTROL_PLANES: &str = "controlplanes";
pub const CLASSES: &str = "controlplaneclasses";
pub const ENDPOINTS: &str = "controlplaneendpoints";
pub const REGISTRATIONS: &str = "controlplaneregistrations";

/// Holds a ControlPlane until what it made is gone.
pub const FINALIZER: &str = "controlplane.kplane.dev/finalizer";
/// On what belongs to a ControlPlane: its name.
pub const NAME_LABEL: &str = "controlplane.kplane.dev/name";
/// On what the operator keeps inside a control plane.
pub const MANAGED_LABEL: &str = "controlplane.kplane.dev/managed";
/// On a ControlPlane: `"false"` if no registration is to be made by itself.
pub const REGISTER_ANNOTATION: &str = "controlplane.kplane.dev/register";
/// On a ControlPlane: the id of a retained plane that it may take over.
pub const ADOPT_ANNOTATION: &str = "controlplane.kplane.dev/adopt";

/// On a ControlPlane that somebody else runs: who. Nothing is made for it, and its addresses are whole as they stand.
pub const MANAGED_BY_ANNOTATION: &str = "controlplane.kplane.dev/managed-by";

/// On what belongs to a ControlPlane, its plane among it: the ControlPlane's name, however long.
pub const CONTROL_PLANE_ANNOTATION: &str = "controlplane.kplane.dev/control-plane";
/// On a plane: the uid of the ControlPlane whose it is.
pub const UID_ANNOTATION: &str = "controlplane.kplane.dev/uid";
/// On a plane that outlived its ControlPlane: that one's name, as [`label_value`] has it.
pub const RETAINED_LABEL: &str = "controlplane.kplane.dev/retained";
/// On a kubeconfig Secret: the server whose token it holds.
pub const SERVER_ANNOTATION: &str = "controlplane.kplane.dev/server";
/// On a ConfigMap of the management plane's [`ADMIN_NAMESPACE`]: the addon that it holds manifests of.
pub const ADDON_LABEL: &str = "controlplane.kplane.dev/addon";
/// On a ControlPlane: how long its old address passes requests on after a migration, such as `5m`; `0s` ends it.
pub const DRAIN_ANNOTATION: &str = "controlplane.kplane.dev/drain";
/// On a Plane that only says where the plane of its name is: it holds nothing.
pub const DECOMMISSIONED_ANNOTATION: &str = "controlplane.kplane.dev/decommissioned";

/// Keys of the kubeconfig Secret.
pub const KUBECONFIG: &str = "kubeconfig";
pub const KUBECONFIG_EXTERNAL: &str = "kubeconfig-external";

/// What a control plane has inside for its administrator.
pub const ADMIN_NAMESPACE: &str = "kplane-system";
pub const ADMIN: &str = "controlplane-admin";

/// What consumers ask for by name; others may be asked for, too.
pub const WELL_KNOWN_SERVICES: [&str; 3] = ["controllers", "scheduler", "workloads"];

/// Types of conditions. `Ready` sums the others up.
pub mod condition {
    pub const READY: &str = "Ready";
    pub const CLASS_RESOLVED: &str = "ClassResolved";
    pub const PROVISIONED: &str = "Provisioned";
    pub const ENDPOINT_READY: &str = "EndpointReady";
    pub const BOOTSTRAPPED: &str = "Bootstrapped";
    pub const ADDONS_APPLIED: &str = "AddonsApplied";
    pub const CREDENTIALS_READY: &str = "CredentialsReady";
    pub const REGISTERED: &str = "Registered";
    pub const MIGRATED: &str = "Migrated";
    /// Of classes and registrations.
    pub const ACCEPTED: &str = "Accepted";
    /// Of endpoints: the host is this plane's here.
    pub const ROUTED: &str = "Routed";
}

/// Reasons, kplane's where it has them.
pub mod reason {
    pub const RECONCILED: &str = "Reconciled";
    pub const INVALID_CLUSTER_PATH: &str = "InvalidClusterPath";
    pub const CLUSTER_PATH_TAKEN: &str = "ClusterPathTaken";
    pub const CLASS_NOT_FOUND: &str = "ClassNotFound";
    pub const MODE_NOT_SUPPORTED: &str = "ModeNotSupported";
    pub const MODE_NOT_ALLOWED: &str = "ModeNotAllowed";
    /// A class says a way to let administrators in that there is not.
    pub const AUTH_MODEL_NOT_SUPPORTED: &str = "AuthModelNotSupported";
    pub const ENDPOINT_PENDING: &str = "EndpointPending";
    pub const ENDPOINT_NOT_FOUND: &str = "EndpointNotFound";
    pub const INVALID_ENDPOINT: &str = "InvalidEndpoint";
    pub const HOST_TAKEN: &str = "HostTaken";
    pub const BOOTSTRAPPING: &str = "Bootstrapping";
    pub const ADDON_NOT_FOUND: &str = "AddonNotFound";
    pub const ADDON_FAILED: &str = "AddonFailed";
    pub const PROVIDER_NOT_FOUND: &str = "ProviderNotFound";
    /// The provider runs no such version, or it may not follow the one that runs.
    pub const VERSION_NOT_POSSIBLE: &str = "VersionNotPossible";
    pub const INVALID_PARAMETERS: &str = "InvalidParameters";
    /// A server stays with the provider that made it.
    pub const PROVIDER_CHANGED: &str = "ProviderChanged";
    pub const PROVISIONING: &str = "Provisioning";
    pub const PLANE_NOT_ACTIVE: &str = "PlaneNotActive";
    pub const NAMESPACE_TAKEN: &str = "NamespaceTaken";
    pub const REGISTRATION_TAKEN: &str = "RegistrationTaken";
    pub const NOT_REGISTERED: &str = "NotRegistered";
    pub const FAILED: &str = "Failed";
    pub const RETAINED: &str = "Retained";
    pub const DELETING: &str = "Deleting";
    pub const MIGRATING: &str = "Migrating";
    pub const MIGRATION_CANCELLED: &str = "Cancelled";
    /// What arrived is not what was sent: the migration starts over.
    pub const DIGESTS_DIFFER: &str = "DigestsDiffer";
    /// The server that it is to go to has another plane of its name.
    pub const PLANE_OCCUPIED: &str = "PlaneOccupied";
    /// Planes that are suspended or read-only stay where they are.
    pub const PLANE_STOPPED: &str = "PlaneStopped";
    /// What the servers say of the plane cannot be: somebody has to look.
    pub const PLANE_UNCLEAR: &str = "PlaneUnclear";
    pub const CONTROL_PLANE_REF_MISSING: &str = "ControlPlaneRefMissing";
    pub const CONTROL_PLANE_NOT_FOUND: &str = "ControlPlaneNotFound";
    pub const KUBECONFIG_PENDING: &str = "KubeconfigPending";
    pub const RESOLVED: &str = "Resolved";
    pub const ACCEPTED: &str = "Accepted";
    pub const INVALID_SERVICE: &str = "InvalidService";
    pub const ROUTED: &str = "Routed";
    pub const HOST_REFUSED: &str = "HostRefused";
    /// Only of events.
    pub const HOST_RELEASED: &str = "HostReleased";
    pub const MOVED: &str = "Moved";
    pub const ROUTE_NOT_SERVED: &str = "RouteNotServed";
    pub const ROUTE_REFUSED: &str = "RouteRefused";
    pub const NAME_TAKEN: &str = "NameTaken";
}
