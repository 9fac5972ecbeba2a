//! What is written, or compared, together with organizations, memberships and projects, and with names of definitions.
//!
//! An organization comes with its namespace and its first owner in one transaction: either all of it is there or nothing
//! is, and a failed creation leaves nothing behind that would be in the way of the next. That an organization keeps an
//! owner is compared, not only looked up: two owners who remove each other at once cannot both succeed.

use mica_api::tenancy::{
    API_VERSION, MEMBERSHIPS, NAMESPACE_ORGANIZATION_LABEL, NAMESPACE_TYPE_LABEL, ORGANIZATIONS, OWNER_ROLE,
    SYSTEM_NAMESPACE, VERSION, organization_namespace,
};
use mica_machinery::kind::WriteContext;
use mica_machinery::{meta, names, object};
use mica_store::{Compare, Key, Record, Revision, Write};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::form::Packed;
use super::rules::metadata_mut;
use super::step::Step;
use super::{Registry, owner};
use crate::authz::{Grant, Target, User};
use crate::custom::{Definition, rival};
use crate::error::ApiError;
use crate::pages::Pages;
use crate::plane::claim;
use crate::plane::side::Side;
use crate::stored::Content;
use crate::tenancy::{Kind, index, is_leaving, key, look, namespace_key, resource};

/// Memberships read at once when another owner is looked for.
const PAGE: usize = 100;

/// The annotation of an organization's first owner: an organization without one can only be the platform's.
const NOT_FOR_MASTERS: &str = "system:masters";

impl Registry {
    /// What a new object is written with.
    pub(super) async fn along_create(&self, step: &Step<'_>, object: &Value) -> Result<Side, ApiError> {
        match self.rules(step.target()) {
            Some(Kind::Organization) => self.organization_along(step, object).await,
            Some(Kind::Project) => {
                let name = object::string(object, &["spec", "ownerRef", "name"]);
                let at = key(ORGANIZATIONS, None, name);
                let found = look(&*self.store, &at).await?;
                let (record, stored) = found.ok_or_else(|| ApiError::not_found(&resource(ORGANIZATIONS), name))?;
                if is_leaving(&stored) {
                    // It began to go after the project was found to be its: the request starts over, and is refused.
                    return Err(ApiError::stale_plane());
                }
                Ok(compares([Compare::Unchanged(at, record.revision)]))
            }
            _ => Ok(Side::default()),
        }
    }

    /// What a change is compared with.
    pub(super) async fn along_update(&self, grant: &Grant, new: &Value, old: &Value) -> Result<Side, ApiError> {
        let target = &grant.target;
        if target.served.is_definitions() && grant.is_internal() {
            return Box::pin(rival::taking(&*self.store, &target.plane, new, old)).await;
        }
        if self.rules(target) == Some(Kind::Membership) && is_owner(old) && !is_owner(new) {
            return self.another_owner(target, old).await;
        }
        Ok(Side::default())
    }

    /// What a deletion is compared with. The last owner stays, unless the organization goes too.
    pub(super) async fn along_delete(&self, target: &Target, old: &Value) -> Result<Side, ApiError> {
        let leaving = object::get(old, &["metadata", "deletionTimestamp"]).is_some();
        if self.rules(target) == Some(Kind::Membership) && is_owner(old) && !leaving {
            return self.another_owner(target, old).await;
        }
        Ok(Side::default())
    }

    /// A comparison that holds while an organization has another owner than this one.
    async fn another_owner(&self, target: &Target, this: &Value) -> Result<Side, ApiError> {
        let namespace = target.namespace.as_deref().unwrap_or_default();
        let organization = object::string(this, &["spec", "organizationRef", "name"]);
        for place in [namespace_key(namespace), key(ORGANIZATIONS, None, organization)] {
            match look(&*self.store, &place).await? {
                Some((_, stored)) if !is_leaving(&stored) => {}
                _ => return Ok(Side::default()),
            }
        }
        let range = target.plane.keys().namespace(&resource(MEMBERSHIPS), namespace);
        let mut pages = Pages::new(&*self.store, &range, PAGE);
        while let Some(page) = pages.next().await? {
            for (at, record) in page {
                if at.name() != object::name(this) && self.owns(&record)? {
                    return Ok(compares([Compare::Unchanged(at, record.revision)]));
                }
            }
        }
        let why = format!("organization {organization:?} would be left without an owner");
        Err(ApiError::forbidden(&target.served.name, object::name(this), &why))
    }

    /// Whether a stored membership makes somebody an owner, and stays.
    fn owns(&self, record: &Record) -> Result<bool, ApiError> {
        let Some(stored) = Content::read(record)?.object() else {
            return Ok(false);
        };
        let membership: Value = serde_json::from_slice(stored.json())
            .map_err(|error| ApiError::internal("stored data is damaged").because(error))?;
        Ok(is_owner(&membership) && !is_leaving(&stored))
    }

    /// The namespace of a new organization, and the membership of who makes it.
    async fn organization_along(&self, step: &Step<'_>, organization: &Value) -> Result<Side, ApiError> {
        let name = object::name(organization);
        let mut side = self.namespace_along(step, organization).await?;
        let user = &step.grant.user;
        if user.groups.iter().any(|group| group == NOT_FOR_MASTERS) || step.grant.is_internal() {
            return Ok(side);
        }
        let (served, definition) = self.membership_kind(step.grant).await?;
        let mut membership = json!({
            "apiVersion": API_VERSION,
            "kind": "OrganizationMembership",
            "metadata": {"name": member_name(user), "namespace": organization_namespace(name), "generation": 1},
            "spec": {
                "organizationRef": {"name": name},
                "userRef": {"name": identity(user)},
                "roles": [{"name": OWNER_ROLE, "namespace": SYSTEM_NAMESPACE}],
            },
        });
        meta::fill_system_fields(
            metadata_mut(&mut membership),
            &uuid::Uuid::new_v4().to_string(),
            step.now,
        );
        if let Some(kind) = served.custom_kind() {
            kind.schema.default(&mut membership);
        }
        let plane = &step.target().plane;
        let at = key(MEMBERSHIPS, Some(&organization_namespace(name)), &member_name(user));
        let packed = self.packed(plane, &served, Some(&definition), &mut membership).await?;
        side.compares.push(definition.fence());
        Ok(side.and(put(at, packed)?))
    }

    async fn namespace_along(&self, step: &Step<'_>, organization: &Value) -> Result<Side, ApiError> {
        let plane = &step.target().plane;
        let name = object::name(organization);
        let namespaces = plane.scheme.find("", "v1", "namespaces");
        let namespaces = namespaces.ok_or_else(|| ApiError::internal("root does not serve namespaces"))?;
        let owner = json!({"apiVersion": API_VERSION, "kind": "Organization", "name": name,
            "uid": object::string(organization, &["metadata", "uid"]), "controller": true, "blockOwnerDeletion": true});
        let mut namespace = json!({"metadata": {
            "name": organization_namespace(name),
            "labels": {NAMESPACE_ORGANIZATION_LABEL: name, NAMESPACE_TYPE_LABEL: "organization"},
            "ownerReferences": [owner],
        }});
        let uid = uuid::Uuid::new_v4().to_string();
        meta::fill_system_fields(metadata_mut(&mut namespace), &uid, step.now);
        let strategy = namespaces.strategy();
        strategy.default(&mut namespace);
        let context = WriteContext {
            group: "",
            version: "v1",
            ..step.context()
        };
        strategy.prepare_create(&context, &mut namespace);
        strategy.canonicalize(&mut namespace);
        let packed = self.packed(plane, namespaces, None, &mut namespace).await?;
        put(namespace_key(&organization_namespace(name)), packed)
    }

    async fn membership_kind(
        &self,
        grant: &Grant,
    ) -> Result<(std::sync::Arc<crate::scheme::Served>, Definition), ApiError> {
        let definitions = self.tenancy.as_ref().expect("rules are of servers with tenancy");
        let customs = definitions.of(&grant.target.plane).await?;
        customs
            .find(mica_api::tenancy::GROUP, VERSION, MEMBERSHIPS)
            .ok_or_else(|| ApiError::unavailable("memberships are not served").with_retry_after(1))
    }

    /// What it means that a comparison of what goes along did not hold.
    pub(super) async fn lost_along(
        &self,
        target: &Target,
        lost: Option<&Compare>,
    ) -> Result<Option<Revision>, ApiError> {
        let at = lost.map(Compare::key);
        match self.rules(target) {
            // The other owner has changed: perhaps there is a third.
            Some(Kind::Membership) => Ok(None),
            Some(Kind::Organization) if at.is_some_and(|key| key.resource() == "/namespaces") => {
                let namespace = at.map_or("", Key::name);
                let why = format!("its namespace {namespace:?} is there already");
                Err(ApiError::conflict(&target.served.name, target.object(), &why))
            }
            Some(_) => Err(ApiError::stale_plane()),
            // Somebody else wants its names, and changed.
            None if target.served.is_definitions() => Err(ApiError::stale_plane()),
            None => {
                let why = match at {
                    Some(key) => claim::taken(&*self.store, key).await?,
                    None => None,
                };
                let why = why
                    .as_deref()
                    .unwrap_or("one of its addresses is taken by another plane");
                Err(ApiError::conflict(&target.served.name, target.object(), why))
            }
        }
    }
}

fn compares(compares: impl IntoIterator<Item = Compare>) -> Side {
    Side {
        compares: compares.into_iter().collect(),
        ..Side::default()
    }
}

/// The writes of an object that must not be there, its places in indexes included.
fn put(at: Key, packed: Packed) -> Result<Side, ApiError> {
    let record = Record {
        value: packed.value.clone(),
        revision: Revision::default(),
    };
    let stored = Content::read(&record)?.object();
    let json = stored.as_ref().map(|stored| &stored.json()[..]);
    let mut writes = vec![Write::Put {
        key: at.clone(),
        value: packed.value,
        ttl: None,
    }];
    writes.extend(owner::index_writes(&at, None, json, None)?);
    writes.extend(index::writes(&at, None, json));
    Ok(Side {
        compares: vec![Compare::Absent(at)],
        writes,
        ..Side::default()
    })
}

fn is_owner(membership: &Value) -> bool {
    let roles = object::list(membership, &["spec", "roles"]);
    roles.iter().any(|role| role["name"] == OWNER_ROLE)
}

/// What a user is known by: the uid, and where there is none the name.
fn identity(user: &User) -> &str {
    if user.uid.is_empty() { &user.name } else { &user.uid }
}

/// How a user's membership is called. Identities are anything; names are not.
fn member_name(user: &User) -> String {
    let name = format!("member-{}", identity(user));
    if names::dns1123_subdomain(&name).is_empty() {
        return name;
    }
    let hash = Sha256::digest(identity(user));
    let hex: String = hash.iter().take(10).map(|byte| format!("{byte:02x}")).collect();
    format!("member-{hex}")
}
