//! One request at its plane's admission.
//!
//! A gate is made for every write and costs a look into a cache where nothing is configured. Mutation sees the object as the
//! client wants it, validation as it will be stored; both may run again when a write loses a race.

use std::sync::Arc;

use mica_machinery::admission::{Attributes, Criteria, Face, Kind, Objects, Operation, Problem, Resource};
use mica_machinery::facts::facts;
use mica_machinery::meta::DeleteOptions;
use mica_machinery::{admission, object};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::permit::Permits;
pub(crate) use super::view::Subject;
use super::view::tree;
use super::{Admissions, Home, Set};
use crate::authz::Grant;
use crate::error::ApiError;
use crate::options::{DryRun, WriteOptions};
use crate::plane::{Plane, State};
use crate::registry::{Registry, stored_value};
use crate::scheme::Served;

/// The options of the request that is at the gate.
#[derive(Clone, Copy)]
pub(crate) enum Doing<'a> {
    Create(&'a WriteOptions),
    Update(&'a WriteOptions),
    Delete(&'a DeleteOptions),
    /// The options of a connection, which are an object of a kind of their own.
    Connect,
}

pub(crate) struct Gate<'a> {
    pub(super) registry: &'a Registry,
    pub(super) grant: &'a Grant,
    pub(super) subject: Subject<'a>,
    /// Who is asked, in order.
    pub(super) sets: Vec<(Home, Arc<Set>)>,
    pub(super) operation: Operation,
    pub(super) dry_run: bool,
    pub(super) permits: Permits,
    options: Value,
    /// The same objects under other names.
    others: Vec<Arc<Served>>,
    /// Of the request; known once somebody asks.
    namespace: OnceCell<Option<Value>>,
    /// What clients are to be told beside the answer.
    warnings: Mutex<Vec<String>>,
}

impl<'a> Gate<'a> {
    pub(crate) async fn new(
        registry: &'a Registry,
        grant: &'a Grant,
        asked: Doing<'_>,
        subject: Subject<'a>,
    ) -> Result<Self, ApiError> {
        let sets = match registry.admission() {
            Some(admission) if meets(grant) => admission.of(&grant.target.plane).await?,
            _ => Vec::new(),
        };
        let configured = !sets.is_empty();
        let (operation, dry_run) = match asked {
            Doing::Create(options) => (Operation::Create, options.dry_run == DryRun::All),
            Doing::Update(options) => (Operation::Update, options.dry_run == DryRun::All),
            Doing::Delete(options) => (Operation::Delete, !options.dry_run.is_empty()),
            Doing::Connect => (Operation::Connect, false),
        };
        Ok(Self {
            registry,
            grant,
            subject,
            sets,
            operation,
            dry_run,
            permits: Permits::default(),
            options: if configured { options_value(asked) } else { Value::Null },
            others: if configured { equivalents(grant) } else { Vec::new() },
            namespace: OnceCell::new(),
            warnings: Mutex::default(),
        })
    }

    /// What clients are to be warned of, since this was asked last.
    pub(crate) fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut *self.warnings.lock())
    }

    /// Whether anything is configured that may be asked.
    pub(crate) fn is_open(&self) -> bool {
        self.sets.is_empty()
    }

    pub(super) fn warn(&self, text: String) {
        self.warnings.lock().push(text);
    }

    pub(super) fn annotate(&self, key: String, value: String) {
        self.grant.annotate(key, value);
    }

    /// The object with what mutation makes of it; there is none when something is deleted.
    pub(crate) async fn mutate(&self, object: Option<Value>, old: Option<&Value>) -> Result<Option<Value>, ApiError> {
        let mut object = object;
        if let Some(object) = &mut object {
            self.plug_in(object).await?;
        }
        if self.sets.is_empty() {
            return Ok(object);
        }
        let mutated = Box::pin(self.run_mutation(object, old)).await;
        mutated.map_err(|error| error.warned(&self.take_warnings()))
    }

    /// Refuses what may not be stored.
    pub(crate) async fn validate(&self, object: Option<&Value>, old: Option<&Value>) -> Result<(), ApiError> {
        let checked = self.check_plugins(object, old).await;
        checked.map_err(|error| error.warned(&self.take_warnings()))?;
        let objects = Objects { object, old };
        // The platform's no is the one to be told.
        for (home, set) in self.sets.iter().rev() {
            let validated = async {
                Box::pin(self.judge(*home, set, objects)).await?;
                Box::pin(self.ask_validating(*home, set, objects)).await
            };
            validated
                .await
                .map_err(|error: ApiError| error.warned(&self.take_warnings()))?;
        }
        Ok(())
    }

    /// The name that the request is about.
    pub(super) fn name<'n>(&'n self, objects: Objects<'n>) -> &'n str {
        match self.grant.target.object() {
            "" => objects.object.or(objects.old).map(object::name).unwrap_or_default(),
            name => name,
        }
    }

    /// The namespace that the request is about; empty for what has none.
    pub(super) fn namespace_name(&self) -> &str {
        self.grant.target.namespace.as_deref().unwrap_or_default()
    }

    /// Calls `with` with what admission knows of the request.
    pub(super) fn with_attributes<T>(&self, objects: Objects<'_>, with: impl FnOnce(&Attributes<'_>) -> T) -> T {
        let (target, user) = (&self.grant.target, &self.grant.user);
        let faces: Vec<Face<'_>> = self.others.iter().map(|served| self.face(served)).collect();
        let name = self.name(objects);
        // A namespace is in itself.
        let namespace = if target.served.is_namespaces() {
            name
        } else {
            self.namespace_name()
        };
        with(&Attributes {
            face: self.face(&target.served),
            equivalents: &faces,
            subresource: &target.subresource,
            name,
            namespace,
            operation: self.operation,
            user: user.as_kind(),
            dry_run: self.dry_run,
            options: &self.options,
        })
    }

    fn face<'s>(&'s self, served: &'s Served) -> Face<'s> {
        let part = self.grant.target.subresource.as_str();
        let own = served.subresource(part).and_then(|part| part.kind);
        let kind = match (own, self.subject) {
            (_, Subject::Part(_, [group, version, kind])) => Kind { group, version, kind },
            (Some((group, version, kind)), _) => Kind { group, version, kind },
            (None, _) => Kind {
                group: served.group(),
                version: served.version(),
                kind: served.kind(),
            },
        };
        Face {
            resource: Resource {
                group: served.group(),
                version: served.version(),
                resource: served.plural(),
            },
            kind,
        }
    }

    /// The resource that a face is of.
    fn served(&self, face: Face<'_>) -> Arc<Served> {
        let same =
            |served: &&Arc<Served>| served.group() == face.resource.group && served.version() == face.resource.version;
        let other = self.others.iter().find(same);
        other.unwrap_or(&self.grant.target.served).clone()
    }

    /// The resource as which the object meets these criteria.
    pub(super) async fn matches(
        &self,
        criteria: &Criteria,
        objects: Objects<'_>,
    ) -> Result<Result<Option<Arc<Served>>, Problem>, ApiError> {
        if !self.with_attributes(objects, |attributes| criteria.may_match(attributes)) {
            return Ok(Ok(None));
        }
        let namespace = if criteria.wants_namespace() {
            self.namespace(objects).await?
        } else {
            None
        };
        Ok(self.with_attributes(objects, |attributes| {
            let face = criteria.matches(attributes, objects, namespace)?;
            Ok(face.map(|face| self.served(face)))
        }))
    }

    /// The namespace that the request is in, as expressions see it; `None` if there is none.
    pub(super) async fn namespace(&self, objects: Objects<'_>) -> Result<Option<&Value>, ApiError> {
        let target = &self.grant.target;
        let name = if target.served.is_namespaces() {
            self.name(objects)
        } else {
            self.namespace_name()
        };
        let reading = self.namespace.get_or_try_init(|| async {
            let namespaces = target.plane.scheme.find("", "v1", "namespaces");
            let Some(namespaces) = namespaces.filter(|_| !name.is_empty()) else {
                return Ok::<_, ApiError>(None);
            };
            let Some(stored) = self.registry.stored(&target.plane, namespaces, name).await? else {
                return Ok(None);
            };
            let mut json = Vec::new();
            namespaces.encode(&stored_value(namespaces, &stored)?, &mut json);
            let mut namespace = tree(&json)?;
            for hidden in [
                &["kind"][..],
                &["apiVersion"],
                &["metadata", "managedFields"],
                &["metadata", "ownerReferences"],
            ] {
                object::remove(&mut namespace, hidden);
            }
            Ok(Some(namespace))
        });
        Ok(reading.await?.as_ref())
    }

    /// A problem with matching as an answer.
    pub(super) fn unmatched(&self, problem: Problem) -> ApiError {
        match problem {
            Problem::NoNamespace(name) => {
                let namespaces = mica_api::GroupResource::new("", "namespaces");
                ApiError::not_found(&namespaces, &name)
            }
            Problem::Selector(why) => ApiError::internal(&why),
        }
    }

    /// The plane that a configuration is of.
    pub(super) fn home(&self, home: Home) -> Arc<Plane> {
        match home {
            Home::Plane => self.grant.target.plane.clone(),
            Home::Platform => self.registry.authorizer().root(),
        }
    }

    pub(super) fn admissions(&self) -> &'a Admissions {
        self.registry.admission().expect("a gate with a set has admissions")
    }
}

impl Registry {
    /// Asks admission about a body that is stored nowhere, and returns it as mutation left it, with what clients are to be
    /// warned of.
    pub(crate) async fn admit_part(
        &self,
        grant: &Grant,
        asked: Doing<'_>,
        kind: (&'static str, &'static str, &'static str),
        body: Value,
    ) -> Result<(Value, Vec<String>), ApiError> {
        let (group, version, name) = kind;
        let ty = facts()
            .kind(group, version, name)
            .ok_or_else(|| ApiError::internal("a kind of the table is unknown"))?;
        let gate = Gate::new(self, grant, asked, Subject::Part(ty, [group, version, name])).await?;
        let mutated = gate.mutate(Some(body), None).await?;
        let body = mutated.expect("mutation leaves an object");
        let mut warnings = gate.take_warnings();
        let validated = gate.validate(Some(&body), None).await;
        validated.map_err(|error| error.warned(&warnings))?;
        warnings.extend(gate.take_warnings());
        Ok((body, warnings))
    }
}

/// Whether what is configured is asked about a request at all. The server's own loops are not held up by tenants, nor is the
/// deletion of a plane by what is deleted with it.
fn meets(grant: &Grant) -> bool {
    let (plane, served) = (&grant.target.plane, &grant.target.served);
    !grant.is_internal() && plane.state != State::Draining && !admission::is_exempt(served.group(), served.kind())
}

/// Other resources that the same object is served as.
fn equivalents(grant: &Grant) -> Vec<Arc<Served>> {
    let (target, served) = (&grant.target, &grant.target.served);
    let part = target.subresource.as_str();
    let fits = |other: &&Arc<Served>| {
        other.api_version != served.api_version && (part.is_empty() || other.subresource(part).is_some())
    };
    if let Some(definition) = &target.definition {
        let offered = |other: &&Arc<Served>| {
            let kind = other.custom_kind();
            kind.is_some_and(|kind| kind.offered == mica_machinery::kind::custom::Offered::Yes)
        };
        return definition.versions().filter(fits).filter(offered).cloned().collect();
    }
    let shared = |other: &&Arc<Served>| other.storage == served.storage && other.plural() == served.plural();
    target
        .plane
        .scheme
        .iter()
        .filter(shared)
        .filter(fits)
        .cloned()
        .collect()
}

fn options_value(asked: Doing<'_>) -> Value {
    let mut options = match asked {
        Doing::Create(options) => write_options("CreateOptions", options),
        Doing::Update(options) => write_options("UpdateOptions", options),
        Doing::Delete(options) => delete_options(options),
        Doing::Connect => return Value::Null,
    };
    options["apiVersion"] = "meta.k8s.io/v1".into();
    options
}

fn write_options(kind: &str, options: &WriteOptions) -> Value {
    let mut value = json!({"kind": kind});
    if options.dry_run == DryRun::All {
        value["dryRun"] = json!(["All"]);
    }
    for (field, text) in [
        ("fieldManager", options.field_manager.as_str()),
        ("fieldValidation", options.asked_validation.as_str()),
    ] {
        if !text.is_empty() {
            value[field] = text.into();
        }
    }
    value
}

fn delete_options(options: &DeleteOptions) -> Value {
    let mut value = json!({"kind": "DeleteOptions"});
    if let Some(seconds) = options.grace_period_seconds {
        value["gracePeriodSeconds"] = seconds.into();
    }
    if options.has_preconditions || options.uid.is_some() || options.resource_version.is_some() {
        value["preconditions"] = json!({});
    }
    for (field, text) in [("uid", &options.uid), ("resourceVersion", &options.resource_version)] {
        if let Some(text) = text {
            value["preconditions"][field] = text.as_str().into();
        }
    }
    if let Some(orphan) = options.orphan_dependents {
        value["orphanDependents"] = orphan.into();
    }
    if let Some(policy) = &options.propagation_policy {
        value["propagationPolicy"] = policy.as_str().into();
    }
    if !options.dry_run.is_empty() {
        value["dryRun"] = json!(options.dry_run);
    }
    value
}
