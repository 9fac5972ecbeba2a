//! Who may do what. Makes the [`Grant`] without which nothing reaches the registry.
//!
//! Every identity belongs to a [`Realm`]. In its own plane it may do what that plane's roles and bindings say. Identities of
//! the platform enter other planes by what root's say about `planes/content`; those of a plane are nobody elsewhere.

mod beside;
mod chain;
mod controllers;
mod decision;
mod defaults;
pub mod escalation;
mod metric;
pub mod parent;
mod policies;
mod webhook;

use std::collections::BTreeMap;
use std::sync::Arc;

use compact_str::CompactString;
use mica_api::{GroupResource, PlaneId};
pub use mica_machinery::access::LegacyWebhook;
use mica_machinery::access::Selectors;
use mica_machinery::field::quote;
use mica_machinery::kind::User as KindUser;
pub use mica_machinery::rbac::{Action, Asked};
use mica_machinery::rbac::{Held, RoleRef, Rule};
use mica_store::Store;
use parking_lot::Mutex;

use crate::authn::Trust;
use crate::custom::Definition;
use crate::egress::Egress;
use crate::error::ApiError;
use crate::metrics;
use crate::plane::Plane;
use crate::plane::directory::Directory;
use crate::plane::kind::{GROUP, PLURAL};
use crate::request::{Query, ResourcePath, Verb};
use crate::scheme::Served;
use crate::tenancy::Within;
pub use beside::Beside;
use chain::Kind;
pub use chain::{BadChain, Chain, Source};
pub use decision::{Completeness, Decision, Listed, Verdict};
use decision::{Place, allowed, denied};
use metric::AuthzMetrics;
use policies::Policies;

/// What root's roles are asked about, of the group and resource of planes.
const CONTENT: &str = "content";
/// The name that stands for all planes at once.
const EVERY_PLANE: &str = "*";

/// Where an identity was proven, and therefore counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Realm {
    #[default]
    Platform,
    Plane(PlaneId),
}

impl Realm {
    /// That of identities which a plane itself knows: root's are the platform's.
    pub fn of(plane: PlaneId) -> Self {
        match plane {
            PlaneId::ROOT => Self::Platform,
            id => Self::Plane(id),
        }
    }
}

/// Who asks, proven by authentication.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    pub realm: Realm,
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: Vec<(String, Vec<String>)>,
    pub trust: Trust,
}

/// The name of controllers that run beside the server.
pub const CONTROLLERS: &str = "system:mica-controllers";
pub const ANONYMOUS: &str = "system:anonymous";
const MASTERS: &str = "system:masters";

impl User {
    pub fn anonymous() -> Self {
        Self {
            name: ANONYMOUS.to_owned(),
            groups: vec!["system:unauthenticated".to_owned()],
            ..Self::default()
        }
    }

    /// The server itself, for the loops that run inside it.
    pub fn system() -> Self {
        Self {
            name: "system:apiserver".to_owned(),
            groups: vec![MASTERS.to_owned()],
            ..Self::default()
        }
    }

    /// The controllers that run in this process. What they may do is what root's roles say of this name.
    pub fn controllers() -> Self {
        Self {
            name: CONTROLLERS.to_owned(),
            groups: vec!["system:authenticated".to_owned()],
            ..Self::default()
        }
    }

    pub fn is_anonymous(&self) -> bool {
        self.name == ANONYMOUS
    }

    /// Whether the user may do everything in a plane.
    pub fn administers(&self, plane: PlaneId) -> bool {
        let counts = match self.realm {
            Realm::Platform => true,
            Realm::Plane(home) => home == plane,
        };
        let trusted = self.trust == Trust::Everything || self.groups.iter().any(|group| group == MASTERS);
        counts && trusted
    }

    /// Whether the user may do everything everywhere.
    fn administers_all(&self) -> bool {
        self.realm == Realm::Platform && self.administers(PlaneId::ROOT)
    }

    /// The user as kinds and policies see it.
    pub fn as_kind(&self) -> KindUser<'_> {
        KindUser {
            name: &self.name,
            uid: &self.uid,
            groups: &self.groups,
            extra: &self.extra,
        }
    }
}

/// What a request is about: a resource of a plane, and perhaps one object and one of its subresources.
#[derive(Clone, Debug)]
pub struct Target {
    pub plane: Arc<Plane>,
    pub served: Arc<Served>,
    /// The namespace asked for; `None` for cluster-scoped resources and for all namespaces.
    pub namespace: Option<CompactString>,
    pub name: Option<CompactString>,
    /// Empty for the object itself.
    pub subresource: CompactString,
    /// What defines the resource, if it is a custom one.
    pub definition: Option<Definition>,
    /// What objects must be for a request by way of a view to be about them.
    pub within: Option<Arc<Within>>,
}

impl Target {
    pub fn object(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }
}

/// Permission to do one thing to one target. Only this module makes one.
#[derive(Clone, Debug)]
pub struct Grant {
    pub target: Target,
    pub verb: Verb,
    pub user: Arc<User>,
    /// Whether a change of what is not there may make it, or why not. Private, so that only this module makes a grant.
    may_create: Result<(), String>,
    by: By,
    /// Why it was given.
    reason: String,
    annotations: Annotations,
}

/// What admission wants audit to know of a request, by key. Clones of a grant share it.
#[derive(Clone, Debug, Default)]
pub struct Annotations(Arc<Mutex<BTreeMap<String, String>>>);

impl Annotations {
    /// Adds what was told to what is known; that stays where both speak.
    pub fn add_to(&self, known: &mut BTreeMap<String, String>) {
        for (key, value) in self.0.lock().iter() {
            known.entry(key.clone()).or_insert_with(|| value.clone());
        }
    }
}

/// A request that authorization refused, and why. It goes with the error to audit, and no further.
#[derive(Debug, thiserror::Error)]
#[error("not authorized: {reason}")]
pub struct Denied {
    reason: String,
}

impl Denied {
    fn by(reason: &str) -> Self {
        Self {
            reason: reason.to_owned(),
        }
    }

    pub fn reason(&self) -> &str {
        &self.reason
    }
}

/// Who gave a permission.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum By {
    Authorization,
    /// The server gave it to itself.
    Server,
}

impl Grant {
    /// Whether the server acts on its own account: nobody's request is behind it.
    pub fn is_internal(&self) -> bool {
        self.by == By::Server
    }

    /// Tells audit something about the request. What is told again under the same key replaces what was told.
    pub fn annotate(&self, key: String, value: String) {
        self.annotations.0.lock().insert(key, value);
    }

    /// What audit is told, now and later.
    pub fn annotations(&self) -> &Annotations {
        &self.annotations
    }

    /// Why it was given.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// The same permission for another object of the same collection: what deletecollection does to each.
    #[must_use]
    pub fn for_object(&self, namespace: Option<&str>, name: &str) -> Self {
        let mut grant = self.clone();
        grant.target.namespace = namespace.map(CompactString::from);
        grant.target.name = Some(name.into());
        grant
    }

    /// Refuses a change that would create, if that is not allowed.
    pub fn check_create(&self) -> Result<(), ApiError> {
        let Err(reason) = &self.may_create else {
            return Ok(());
        };
        let target = &self.target;
        let action = Action {
            verb: Verb::Create.as_str(),
            group: target.served.group(),
            resource: target.served.plural(),
            subresource: &target.subresource,
            namespace: target.namespace.as_deref().unwrap_or_default(),
            name: target.object(),
            ..Action::default()
        };
        Err(forbidden(&self.user, &action, reason))
    }
}

/// A decision in favour of a request, before it is known whether what it asks for exists.
pub struct Permit {
    user: Arc<User>,
    verb: Verb,
    may_create: Result<(), String>,
    reason: String,
}

impl Permit {
    /// Why it was given.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// The grant for what the request turned out to be about.
    pub fn grant(self, target: Target) -> Grant {
        Grant {
            target,
            verb: self.verb,
            user: self.user,
            may_create: self.may_create,
            by: By::Authorization,
            reason: self.reason,
            annotations: Annotations::default(),
        }
    }
}

/// Decides, by a chain of which the roles and bindings of planes are mostly all.
pub struct Authorizer {
    directory: Arc<Directory>,
    policies: Policies,
    chain: Chain,
    egress: Egress,
    metrics: AuthzMetrics,
}

impl Authorizer {
    pub fn new(
        store: Arc<dyn Store>,
        directory: Arc<Directory>,
        chain: Chain,
        egress: Egress,
        metrics: &metrics::Registry,
    ) -> Self {
        Self {
            directory,
            policies: Policies::new(store),
            chain,
            egress,
            metrics: AuthzMetrics::new(metrics),
        }
    }

    /// The plane whose administrators are the platform's.
    pub(crate) fn root(&self) -> Arc<Plane> {
        self.directory.root()
    }

    /// Keeps what is known of roles, bindings and the chain true. Ends when the store closes.
    pub async fn follow(&self) {
        let reloading = async {
            self.chain.follow(&self.metrics).await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = self.policies.follow() => {}
            () = reloading => {}
        }
    }

    /// Whether a user may do something in a plane.
    pub async fn decide(&self, user: &User, plane: &Plane, asked: &Asked<'_>) -> Result<Decision, ApiError> {
        if user.administers(plane.id) {
            return Ok(allowed());
        }
        if matches!(user.realm, Realm::Plane(home) if home != plane.id) {
            return Ok(denied(String::new()));
        }
        self.ask_chain(user, Place::Plane(plane), asked).await
    }

    /// Asks one after the other until somebody has an opinion.
    async fn ask_chain(&self, user: &User, place: Place<'_>, asked: &Asked<'_>) -> Result<Decision, ApiError> {
        let links = self.chain.links();
        let (mut reasons, mut errors) = (Vec::new(), Vec::new());
        for link in links.iter() {
            let decision = match &link.kind {
                Kind::Roles => self.ask_roles(user, place, asked).await?,
                // Who is nobody in particular must not be allowed everything.
                Kind::AlwaysAllow if user.is_anonymous() => Decision::default(),
                Kind::AlwaysAllow => allowed(),
                Kind::AlwaysDeny => denied("Everything is forbidden.".to_owned()),
                Kind::Webhook(webhook) => {
                    let asking = webhook.decide(&self.egress, &self.metrics, user, place, asked);
                    Box::pin(asking).await
                }
            };
            let counted = match decision.verdict {
                Verdict::Allowed => "allowed",
                Verdict::Denied => "denied",
                Verdict::NoOpinion => {
                    reasons.extend(Some(decision.reason).filter(|reason| !reason.is_empty()));
                    errors.extend(decision.error);
                    continue;
                }
            };
            self.metrics.decided(link.kind.as_str(), &link.name, counted);
            return Ok(decision);
        }
        Ok(Decision {
            verdict: Verdict::NoOpinion,
            reason: reasons.join("\n"),
            error: match &errors[..] {
                [] => None,
                [one] => Some(one.clone()),
                all => Some(format!("[{}]", all.join(", "))),
            },
        })
    }

    /// What roles and bindings say.
    async fn ask_roles(&self, user: &User, place: Place<'_>, asked: &Asked<'_>) -> Result<Decision, ApiError> {
        match (place, user.realm) {
            (Place::Everywhere, _) => self.ask_roles_everywhere(user, asked).await,
            (Place::Plane(plane), Realm::Platform) if !plane.is_root() => self.decide_guest(user, plane, asked).await,
            (Place::Plane(plane), _) => Ok(self.policies.of(plane).await?.decide(&user.as_kind(), asked).into()),
        }
    }

    /// Whether a user may read all planes at once.
    pub async fn decide_everywhere(&self, user: &User, asked: &Asked<'_>) -> Result<Decision, ApiError> {
        if user.administers_all() {
            return Ok(allowed());
        }
        if user.realm != Realm::Platform {
            return Ok(denied(String::new()));
        }
        self.ask_chain(user, Place::Everywhere, asked).await
    }

    async fn ask_roles_everywhere(&self, user: &User, asked: &Asked<'_>) -> Result<Decision, ApiError> {
        let root = self.directory.root();
        for entry in self.entries(user, EVERY_PLANE).await? {
            let allows = match entry.role {
                None => true,
                // No plane's own roles count here: tenants would be saying what is read of others.
                Some(role) => self.role(&root, role).await?.iter().any(|rule| rule.allows(asked)),
            };
            if allows {
                return Ok(entry.decision);
            }
        }
        Ok(denied(cannot_enter(EVERY_PLANE)))
    }

    /// What a user may do in a namespace of a plane, as far as those who decide can list it.
    pub async fn list(&self, user: &User, plane: &Plane, namespace: &str) -> Result<Listed, ApiError> {
        let mut listed = Listed::default();
        if user.administers(plane.id) {
            listed.held = self.held(user, plane, namespace).await?;
            return Ok(listed);
        }
        for link in self.chain.links().iter() {
            match &link.kind {
                Kind::Roles => {
                    let held = self.held(user, plane, namespace).await?;
                    listed.held.rules.extend(held.rules);
                    listed.held.errors.extend(held.errors);
                }
                Kind::AlwaysAllow => listed.held.rules.extend([everything(), every_path()]),
                Kind::AlwaysDeny => {}
                Kind::Webhook(webhook) if !webhook.sees(user, Place::Plane(plane)) => {}
                Kind::Webhook(_) => {
                    let why = "webhook authorizer does not support user rule resolution";
                    listed.held.errors.push(why.to_owned());
                    listed.completeness = Completeness::Incomplete;
                }
            }
        }
        Ok(listed)
    }

    /// What roles give a user in a namespace of a plane, or in the whole plane where that is empty.
    pub async fn held(&self, user: &User, plane: &Plane, namespace: &str) -> Result<Held, ApiError> {
        let everything = || Held {
            rules: vec![everything(), every_path()],
            errors: Vec::new(),
        };
        if user.administers(plane.id) {
            return Ok(everything());
        }
        let policy = self.policies.of(plane).await?;
        match user.realm {
            Realm::Plane(home) if home != plane.id => Ok(Held::default()),
            Realm::Platform if !plane.is_root() => {
                let mut rules = Vec::new();
                for entry in self.entries(user, &plane.name).await? {
                    match entry.role {
                        None => return Ok(everything()),
                        Some(role) => rules.extend(self.role(plane, role).await?),
                    }
                }
                if rules.is_empty() {
                    return Ok(Held::default());
                }
                let guest = guest(user);
                let mut held = policy.held(&guest.as_kind(), namespace);
                held.rules.extend(rules);
                Ok(held)
            }
            _ => Ok(policy.held(&user.as_kind(), namespace)),
        }
    }

    /// The rules of a role that a binding in a namespace of a plane names.
    pub async fn rules_of(
        &self,
        plane: &Plane,
        role: RoleRef<'_>,
        namespace: &str,
    ) -> Result<Result<Arc<[Rule]>, mica_machinery::rbac::Missing>, ApiError> {
        Ok(self.policies.of(plane).await?.rules_of(role, namespace))
    }

    /// Refuses who may not do something in a plane.
    pub async fn require(&self, user: &User, plane: &Plane, action: Action<'_>) -> Result<(), ApiError> {
        let decision = self.decide(user, plane, &Asked::Resource(action)).await?;
        if decision.is_allowed() {
            Ok(())
        } else {
            Err(decision.refusal(|reason| forbidden(user, &action, reason)))
        }
    }

    /// A platform's identity in a plane that is not root: what root lets it do there, and what the plane itself does.
    async fn decide_guest(&self, user: &User, plane: &Plane, asked: &Asked<'_>) -> Result<Decision, ApiError> {
        if user.is_anonymous() {
            // Nobody in particular is nobody's guest.
            return Ok(self.policies.of(plane).await?.decide(&user.as_kind(), asked).into());
        }
        let entries = self.entries(user, &plane.name).await?;
        if entries.is_empty() {
            return Ok(denied(cannot_enter(&plane.name)));
        }
        for entry in entries {
            let allows = match entry.role {
                None => true,
                Some(role) => self.role(plane, role).await?.iter().any(|rule| rule.allows(asked)),
            };
            if allows {
                return Ok(entry.decision);
            }
        }
        let guest = guest(user);
        Ok(self.policies.of(plane).await?.decide(&guest.as_kind(), asked).into())
    }

    /// The ways in which root lets a user into a plane.
    async fn entries(&self, user: &User, plane: &str) -> Result<Vec<Entry>, ApiError> {
        let policy = self.policies.of(&self.directory.root()).await?;
        let entry = |(verb, role)| {
            let asked = Asked::Resource(Action {
                verb,
                group: GROUP,
                resource: PLURAL,
                subresource: CONTENT,
                name: plane,
                ..Action::default()
            });
            let decision = Decision::from(policy.decide(&user.as_kind(), &asked));
            decision.is_allowed().then_some(Entry { role, decision })
        };
        let ways = [("admin", None), ("edit", Some("edit")), ("view", Some("view"))];
        Ok(ways.into_iter().filter_map(entry).collect())
    }

    async fn role(&self, plane: &Plane, name: &str) -> Result<Vec<Rule>, ApiError> {
        let role = RoleRef {
            kind: "ClusterRole",
            name,
        };
        let found = self.rules_of(plane, role, "").await?;
        Ok(found.map(|rules| rules.to_vec()).unwrap_or_default())
    }

    /// Decides about a request for a resource of a plane, whether that exists or not: strangers must not learn which.
    pub async fn authorize(
        &self,
        user: &Arc<User>,
        verb: Verb,
        plane: &Plane,
        path: &ResourcePath,
        query: &Query,
        beside: &Beside,
    ) -> Result<Permit, ApiError> {
        let permit = |may_create, reason| Permit {
            user: user.clone(),
            verb,
            may_create,
            reason,
        };
        if user.administers(plane.id) {
            return Ok(permit(Ok(()), String::new()));
        }
        let about = path.about(query).unwrap_or_default();
        let selectors = self.selectors(verb, path, query);
        let action = Action {
            selectors: selectors.as_ref(),
            ..action(verb, path, &about)
        };
        let decided = self.decide_beside(user, plane, action, beside).await?;
        if !decided.is_allowed() {
            return Err(decided.refusal(|reason| forbidden(user, &action, reason).because(Denied::by(reason))));
        }
        let may_create = match verb {
            Verb::Update | Verb::Patch => {
                let creating = Action {
                    verb: Verb::Create.as_str(),
                    ..action
                };
                let decision = self.decide_beside(user, plane, creating, beside).await?;
                if decision.is_allowed() {
                    Ok(())
                } else {
                    Err(decision.reason)
                }
            }
            _ => Ok(()),
        };
        Ok(permit(may_create, decided.reason))
    }

    /// What narrows a request, where somebody who decides looks at it. The old paths of watches have none, as upstream has it.
    fn selectors(&self, verb: Verb, path: &ResourcePath, query: &Query) -> Option<Selectors> {
        let narrows = matches!(verb, Verb::List | Verb::Watch | Verb::DeleteCollection) && !path.legacy_watch;
        let selectors = || Selectors::of_query(query.text("fieldSelector"), query.text("labelSelector"));
        (narrows && self.chain.has_webhooks())
            .then(selectors)
            .filter(|selectors| !selectors.is_empty())
    }

    /// The same for a read of all planes.
    pub async fn authorize_everywhere(
        &self,
        user: &Arc<User>,
        verb: Verb,
        path: &ResourcePath,
        query: &Query,
    ) -> Result<Permit, ApiError> {
        let about = path.about(query).unwrap_or_default();
        let selectors = self.selectors(verb, path, query);
        let action = Action {
            selectors: selectors.as_ref(),
            ..action(verb, path, &about)
        };
        let decision = self.decide_everywhere(user, &Asked::Resource(action)).await?;
        if !decision.is_allowed() {
            return Err(decision.refusal(|reason| forbidden(user, &action, reason).because(Denied::by(reason))));
        }
        Ok(Permit {
            user: user.clone(),
            verb,
            may_create: Ok(()),
            reason: decision.reason,
        })
    }

    /// Decides about a request for a path that is no resource. Returns why it is allowed.
    pub async fn authorize_path(&self, user: &User, plane: &Plane, verb: &str, path: &str) -> Result<String, ApiError> {
        let decision = self.decide(user, plane, &Asked::Path { verb, path }).await?;
        judged_path(user, verb, path, decision)
    }

    /// The same at the address of all planes.
    pub async fn authorize_path_everywhere(&self, user: &User, verb: &str, path: &str) -> Result<String, ApiError> {
        let decision = self.decide_everywhere(user, &Asked::Path { verb, path }).await?;
        judged_path(user, verb, path, decision)
    }

    /// The answer to a request for a plane that does not exist: who could not enter it must not learn that, so it is what
    /// they would be told of one that does.
    pub async fn hide_missing(&self, user: &User, plane: &str, missing: ApiError, attempt: &Attempt<'_>) -> ApiError {
        let entries = match self.entries(user, plane).await {
            Ok(entries) => entries,
            Err(error) => return error,
        };
        if user.administers_all() || (!entries.is_empty() && user.realm == Realm::Platform) {
            return missing;
        }
        // Nobody in particular is nobody's guest: a plane's own roles refuse them, without a reason.
        let reason = match user.is_anonymous() || user.realm != Realm::Platform {
            true => String::new(),
            false => cannot_enter(plane),
        };
        let refusal = match attempt {
            Attempt::Resource(verb, path, query) => {
                let about = path.about(query).unwrap_or_default();
                forbidden(user, &action(*verb, path, &about), &reason)
            }
            Attempt::Path(verb, path) => forbidden_path(user, verb, path, &reason),
            Attempt::Act(action) => return forbidden(user, action, &reason),
        };
        refusal.because(Denied { reason })
    }
}

/// What somebody tries to do in a plane.
pub enum Attempt<'a> {
    Resource(Verb, &'a ResourcePath, &'a Query),
    /// A verb on a path that is no resource.
    Path(&'a str, &'a str),
    /// To act as somebody else.
    Act(Action<'a>),
}

/// One way into a plane.
struct Entry {
    /// The role that it gives there; none for everything.
    role: Option<&'static str>,
    decision: Decision,
}

/// A platform's user as a plane's own bindings may name it. What begins with `system:` or `mica:` would be taken for the
/// plane's own.
fn guest(user: &User) -> User {
    let own = |name: &str| name.starts_with("system:") || name.starts_with("mica:");
    let foreign = |name: &str| !own(name) || name == "system:authenticated";
    User {
        name: if foreign(&user.name) {
            user.name.clone()
        } else {
            String::new()
        },
        groups: user.groups.iter().filter(|group| foreign(group)).cloned().collect(),
        ..User::default()
    }
}

fn action<'a>(verb: Verb, path: &'a ResourcePath, name: &'a str) -> Action<'a> {
    let subresource = path.subresource.as_deref().unwrap_or_default();
    Action {
        verb: verb.as_str(),
        group: &path.group,
        version: &path.version,
        resource: &path.resource,
        // What follows is the subresource's own path.
        subresource: subresource.split_once('/').map_or(subresource, |(first, _)| first),
        namespace: path.namespace.as_deref().unwrap_or_default(),
        name,
        selectors: None,
    }
}

fn cannot_enter(plane: &str) -> String {
    format!(
        "nothing in root lets this user into it: bind a role with verb admin, edit or view on {PLURAL}/{CONTENT} {} in API group {}",
        quote(plane),
        quote(GROUP)
    )
}

fn everything() -> Rule {
    let all = || -> Box<[Box<str>]> { Box::new(["*".into()]) };
    Rule {
        verbs: all(),
        groups: all(),
        resources: all(),
        ..Rule::default()
    }
}

fn every_path() -> Rule {
    let all = || -> Box<[Box<str>]> { Box::new(["*".into()]) };
    Rule {
        verbs: all(),
        urls: all(),
        ..Rule::default()
    }
}

/// 403 in upstream's words.
fn forbidden(user: &User, action: &Action<'_>, reason: &str) -> ApiError {
    let mut why = format!("User {} cannot {}", quote(&user.name), action.describe());
    if !reason.is_empty() {
        why.push_str(": ");
        why.push_str(reason);
    }
    ApiError::forbidden(&GroupResource::new(action.group, action.resource), action.name, &why)
}

fn judged_path(user: &User, verb: &str, path: &str, decision: Decision) -> Result<String, ApiError> {
    if decision.is_allowed() {
        return Ok(decision.reason);
    }
    Err(decision.refusal(|reason| forbidden_path(user, verb, path, reason).because(Denied::by(reason))))
}

fn forbidden_path(user: &User, verb: &str, path: &str, reason: &str) -> ApiError {
    let mut why = format!("User {} cannot {verb} path {}", quote(&user.name), quote(path));
    if !reason.is_empty() {
        why.push_str(": ");
        why.push_str(reason);
    }
    ApiError::forbidden_path(&why)
}

/// Permission that the server gives its own loops.
pub(crate) fn system(verb: Verb, target: Target) -> Grant {
    Grant {
        target,
        verb,
        user: Arc::new(User::system()),
        may_create: Ok(()),
        by: By::Server,
        reason: String::new(),
        annotations: Annotations::default(),
    }
}
