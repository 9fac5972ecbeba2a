//! What organizations and projects must satisfy beyond their schemas: whose they are, what they are called, who owns them.
//!
//! Everything is decided on what is stored. Nothing is written here: what goes along with these writes is [`super::along`]'s.

use mica_api::tenancy::{
    API_VERSION, GROUP, MAX_ORGANIZATION_NAME, MAX_PROJECT_NAME, ORGANIZATION_LABEL, ORGANIZATIONS, PROJECT_FINALIZER,
    PROJECTS, organization_namespace, project_of_plane,
};
use mica_machinery::field::{Error, ErrorList, Path};
use mica_machinery::select::text_at;
use mica_machinery::{names, object};
use serde_json::{Value, json};

use super::Registry;
use crate::authz::parent::Parent;
use crate::authz::{Grant, Target};
use crate::error::ApiError;
use crate::plane::kind as plane;
use crate::tenancy::{Kind, is_leaving, key, look, resource};

impl Registry {
    /// The rules that a target is under, where this server has any.
    pub(super) fn rules(&self, target: &Target) -> Option<Kind> {
        let ruled = self.tenancy.is_some() && target.plane.is_root();
        ruled.then(|| Kind::of(&target.served)).flatten()
    }

    /// Gives a new object what makes it belong: to the view that it is made in, and a project to its organization.
    pub(super) async fn give_belonging(&self, grant: &Grant, object: &mut Value) -> Result<(), ApiError> {
        let target = &grant.target;
        if let Some(within) = &target.within {
            within.give(object);
        }
        match self.rules(target) {
            Some(Kind::Project) => {}
            Some(Kind::Suspension) => return self.give_project(object).await,
            _ => return Ok(()),
        }
        let organization = self.parent_organization(grant, object).await?;
        object::set(
            object,
            &["metadata", "labels", ORGANIZATION_LABEL],
            organization.name.as_str(),
        );
        let owner = json!({"kind": "Organization", "name": organization.name});
        object::set(object, &["spec", "ownerRef"], owner);
        own(object, &organization);
        let mut finalizers = object::list(object, &["metadata", "finalizers"]).to_vec();
        if !finalizers.iter().any(|one| one == PROJECT_FINALIZER) {
            finalizers.push(PROJECT_FINALIZER.into());
            object::set(object, &["metadata", "finalizers"], finalizers);
        }
        Ok(())
    }

    /// A suspension goes with its project.
    async fn give_project(&self, suspension: &mut Value) -> Result<(), ApiError> {
        let name = object::string(suspension, &["spec", "projectRef", "name"]).to_owned();
        let Some((_, stored)) = look(&*self.store, &key(PROJECTS, None, &name)).await? else {
            return Ok(());
        };
        let uid = text_at(stored.json(), &["metadata", "uid"]).unwrap_or_default();
        let owner = json!({"apiVersion": API_VERSION, "kind": "Project", "name": name, "uid": uid});
        let mut owners = object::list(suspension, &["metadata", "ownerReferences"]).to_vec();
        owners.retain(|other| other["uid"] != owner["uid"]);
        owners.push(owner);
        object::set(suspension, &["metadata", "ownerReferences"], owners);
        Ok(())
    }

    /// The organization in whose view a project is made. There is no other way to make one.
    async fn parent_organization(&self, grant: &Grant, object: &Value) -> Result<Organization, ApiError> {
        let served = &grant.target.served;
        let refuse = |why: &str| ApiError::forbidden(&served.name, object::name(object), why);
        let parent = Parent::carried_by(&grant.user).filter(|parent| parent.kind == "Organization");
        let Some(parent) = parent else {
            return Err(refuse(
                "projects are created through the control plane of their organization",
            ));
        };
        let found = look(&*self.store, &key(ORGANIZATIONS, None, &parent.name)).await?;
        let Some((_, stored)) = found else {
            return Err(ApiError::not_found(&resource(ORGANIZATIONS), &parent.name));
        };
        if is_leaving(&stored) {
            return Err(refuse("its organization is being deleted"));
        }
        let uid = text_at(stored.json(), &["metadata", "uid"]).unwrap_or_default();
        Ok(Organization {
            name: parent.name,
            uid: uid.into_owned(),
        })
    }

    /// Leaves a project with its organization, also where a client replaces it with what names none.
    pub(super) fn keep_belonging(&self, target: &Target, new: &mut Value, old: &Value) {
        if self.rules(target) != Some(Kind::Project) {
            return;
        }
        let owners = object::list(old, &["metadata", "ownerReferences"]);
        if let Some(owner) = owners.iter().find(|owner| is_organization(owner)) {
            let organization = Organization {
                name: object::string(owner, &["name"]).to_owned(),
                uid: object::string(owner, &["uid"]).to_owned(),
            };
            own(new, &organization);
        }
    }

    /// Refuses what the rules refuse.
    pub(super) async fn check_belonging(
        &self,
        grant: &Grant,
        new: &Value,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        let (target, served) = (&grant.target, &grant.target.served);
        if let Some(within) = &target.within {
            within.check(served, new)?;
        }
        if self.tenancy.is_some() && target.plane.is_root() && served.group() == plane::GROUP && old.is_none() {
            return self.check_front_door(target, new).await;
        }
        let Some(kind) = self.rules(target) else {
            return Ok(());
        };
        let errors = match (kind, old) {
            (Kind::Organization, None) => name_errors(new, MAX_ORGANIZATION_NAME),
            (Kind::Project, None) => name_errors(new, MAX_PROJECT_NAME),
            (Kind::Project, Some(old)) => label_errors(new, old),
            (Kind::Membership, None) => self.membership_errors(target, new).await?,
            (Kind::Suspension, None) => self.suspension_errors(new).await?,
            _ => ErrorList::new(),
        };
        if errors.is_empty() {
            return Ok(());
        }
        Err(ApiError::invalid(
            served.group(),
            served.kind(),
            object::name(new),
            &errors,
        ))
    }

    /// A membership lies in the namespace of its organization, which is there.
    async fn membership_errors(&self, target: &Target, new: &Value) -> Result<ErrorList, ApiError> {
        let path = Path::new("spec").child("organizationRef").child("name");
        let name = object::string(new, &["spec", "organizationRef", "name"]);
        if target.namespace.as_deref() != Some(organization_namespace(name).as_str()) {
            let why = format!("must be the organization of namespace {:?}", object::namespace(new));
            return Ok(vec![Error::invalid(&path, name, why)]);
        }
        let found = look(&*self.store, &key(ORGANIZATIONS, None, name)).await?;
        Ok(match found {
            Some(_) => ErrorList::new(),
            None => vec![Error::not_found(&path, name)],
        })
    }

    async fn suspension_errors(&self, new: &Value) -> Result<ErrorList, ApiError> {
        let path = Path::new("spec").child("projectRef").child("name");
        let name = object::string(new, &["spec", "projectRef", "name"]);
        let found = look(&*self.store, &key(PROJECTS, None, name)).await?;
        Ok(match found {
            Some(_) => ErrorList::new(),
            None => vec![Error::not_found(&path, name)],
        })
    }

    /// The plane of a project is made for a project that is there.
    async fn check_front_door(&self, target: &Target, plane: &Value) -> Result<(), ApiError> {
        let Some(project) = project_of_plane(object::name(plane)).filter(|_| target.served.plural() == plane::PLURAL)
        else {
            return Ok(());
        };
        let found = look(&*self.store, &key(PROJECTS, None, project)).await?;
        if found.is_some_and(|(_, stored)| !is_leaving(&stored)) {
            return Ok(());
        }
        let why = format!("there is no project {project:?} that it could be the plane of");
        Err(ApiError::forbidden(&target.served.name, object::name(plane), &why))
    }
}

/// An organization that owns something.
struct Organization {
    name: String,
    uid: String,
}

fn is_organization(owner: &Value) -> bool {
    let group = object::string(owner, &["apiVersion"])
        .split_once('/')
        .map_or("", |(group, _)| group);
    group == GROUP && owner["kind"] == "Organization"
}

/// Makes an organization the one that owns an object, beside owners of other kinds.
fn own(object: &mut Value, organization: &Organization) {
    let mut owners = object::list(object, &["metadata", "ownerReferences"]).to_vec();
    if owners
        .iter()
        .any(|owner| is_organization(owner) && owner["uid"] == organization.uid)
    {
        return;
    }
    owners.retain(|owner| !is_organization(owner));
    owners.push(
        json!({"apiVersion": API_VERSION, "kind": "Organization", "name": organization.name,
        "uid": organization.uid}),
    );
    object::set(object, &["metadata", "ownerReferences"], owners);
}

/// Names become parts of names of namespaces and planes: labels, and not too long.
fn name_errors(object: &Value, longest: usize) -> ErrorList {
    let (path, name) = (Path::new("metadata").child("name"), object::name(object));
    let mut problems = names::dns1123_label(name);
    if name.len() > longest && problems.is_empty() {
        problems.push(names::max_length_error(longest));
    }
    problems
        .into_iter()
        .map(|problem| Error::invalid(&path, name, problem))
        .collect()
}

/// The label of a project's organization stays.
fn label_errors(new: &Value, old: &Value) -> ErrorList {
    let label = |object| object::string(object, &["metadata", "labels", ORGANIZATION_LABEL]);
    if label(new) == label(old) {
        return ErrorList::new();
    }
    let path = Path::new("metadata").child("labels").key(ORGANIZATION_LABEL);
    vec![Error::invalid(&path, label(new), "field is immutable")]
}
