//! Organizations, their members, and projects: the kinds of `resourcemanager.miloapis.com` and
//! `infrastructure.miloapis.com`, with the names, labels and conditions that everybody who meets them must agree on.
//!
//! Groups, fields, labels and reasons are Milo's, so that its clients work here. [`definitions`] are what root serves them by.

mod definition;
mod kind;

pub use definition::definitions;
pub use kind::{
    AppliedRole, Condition, ContactInfo, MemberOrganization, MemberUser, NameRef, OrganizationMembershipSpec,
    OrganizationMembershipStatus, OrganizationSpec, OrganizationStatus, OrganizationType, OwnerRef,
    ProjectControlPlaneStatus, ProjectSpec, ProjectStatus, ProjectSuspensionSpec, ProjectSuspensionStatus,
    ReinstateAuthority, RoleRef, Suspension, SuspensionPhase, SuspensionReason,
};

/// The group of organizations, memberships, projects and suspensions.
pub const GROUP: &str = "resourcemanager.miloapis.com";
/// The group of what only the platform looks at.
pub const INFRASTRUCTURE_GROUP: &str = "infrastructure.miloapis.com";
/// The group of users, whose kinds are not served yet; their views are.
pub const IAM_GROUP: &str = "iam.miloapis.com";
pub const VERSION: &str = "v1alpha1";
pub const API_VERSION: &str = "resourcemanager.miloapis.com/v1alpha1";
pub const INFRASTRUCTURE_API_VERSION: &str = "infrastructure.miloapis.com/v1alpha1";

pub const ORGANIZATIONS: &str = "organizations";
pub const MEMBERSHIPS: &str = "organizationmemberships";
pub const PROJECTS: &str = "projects";
pub const SUSPENSIONS: &str = "projectsuspensions";
pub const PROJECT_CONTROL_PLANES: &str = "projectcontrolplanes";

/// On what belongs to an organization: its name. Set by the server and never changed.
pub const ORGANIZATION_LABEL: &str = "resourcemanager.miloapis.com/organization-name";
/// On the namespace of an organization.
pub const NAMESPACE_ORGANIZATION_LABEL: &str = "resourcemanager.miloapis.com/organization";
pub const NAMESPACE_TYPE_LABEL: &str = "resourcemanager.miloapis.com/type";
/// On a ProjectControlPlane.
pub const PROJECT_NAME_LABEL: &str = "resourcemanager.miloapis.com/project-name";
pub const PROJECT_UID_LABEL: &str = "resourcemanager.miloapis.com/project-uid";
pub const OWNER_NAME_ANNOTATION: &str = "resourcemanager.miloapis.com/owner-name";
/// On definitions of root: in which contexts they are served.
pub const CONTEXTS_ANNOTATION: &str = "discovery.miloapis.com/parent-contexts";
pub const DISPLAY_NAME_ANNOTATION: &str = "kubernetes.io/display-name";
/// On a Project: the PlaneClass of its plane.
pub const PROJECT_CLASS_ANNOTATION: &str = "mica.dev/project-class";
/// Holds a Project until its plane is drained and gone.
pub const PROJECT_FINALIZER: &str = "resourcemanager.miloapis.com/project-controller";

/// Of organizations: `organization-` and the name must be a namespace's.
pub const MAX_ORGANIZATION_NAME: usize = 50;
/// Of projects: `project-` and the name must be a plane's.
pub const MAX_PROJECT_NAME: usize = 55;

/// The role that makes a member an owner of its organization.
pub const OWNER_ROLE: &str = "owner";
/// Where the platform's own roles are.
pub const SYSTEM_NAMESPACE: &str = "milo-system";

const NAMESPACE_PREFIX: &str = "organization-";
const PLANE_PREFIX: &str = "project-";

/// The namespace of root that holds what is an organization's.
pub fn organization_namespace(organization: &str) -> String {
    format!("{NAMESPACE_PREFIX}{organization}")
}

/// The organization whose namespace this is.
pub fn organization_of_namespace(namespace: &str) -> Option<&str> {
    namespace.strip_prefix(NAMESPACE_PREFIX).filter(|name| !name.is_empty())
}

/// The name of a project's plane.
pub fn project_plane(project: &str) -> String {
    format!("{PLANE_PREFIX}{project}")
}

/// The project whose plane this is.
pub fn project_of_plane(plane: &str) -> Option<&str> {
    plane.strip_prefix(PLANE_PREFIX).filter(|name| !name.is_empty())
}

/// Where an organization's view of root is.
pub fn organization_path(organization: &str) -> String {
    format!("/apis/{GROUP}/{VERSION}/{ORGANIZATIONS}/{organization}/control-plane")
}

/// Where a project's plane is.
pub fn project_path(project: &str) -> String {
    format!("/apis/{GROUP}/{VERSION}/{PROJECTS}/{project}/control-plane")
}

/// Where a user's view of root is.
pub fn user_path(user: &str) -> String {
    format!("/apis/{IAM_GROUP}/{VERSION}/users/{user}/control-plane")
}
