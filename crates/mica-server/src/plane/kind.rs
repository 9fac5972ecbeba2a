//! The kind `Plane`: how it is validated, defaulted and printed.

use mica_api::tenancy;
use mica_machinery::field::{Error, ErrorList, Path};
use mica_machinery::kind::column::{self, AGE, NAME};
use mica_machinery::kind::webhook::validate_url;
use mica_machinery::kind::{CRUD, Column, NameUse, Profile, Resource, Scope, Strategy, Subresource, WriteContext};
use mica_machinery::{audit, authentication, names, object};
use serde_json::{Value, json};

use super::{limits, moved};
use crate::authz::parent;
use crate::egress::ClientConfig;

pub const GROUP: &str = "mica.dev";
pub const VERSION: &str = "v1alpha1";
pub const PLURAL: &str = "planes";

/// Holds a Plane until its content is drained.
pub const FINALIZER: &str = "mica.dev/drain";

/// Marks a Plane that is being filled from a snapshot or another plane.
pub const RESTORING: &str = "mica.dev/restoring";

/// Names that begin like this belong to other front doors, which make their planes themselves.
const RESERVED_PREFIXES: [&str; 2] = ["project-", "edge-"];

/// What `spec.state` may say.
const STATES: [&str; 6] = ["Active", "Arriving", "Moved", "Moving", "ReadOnly", "Suspended"];

/// What a plane's generation counts changes of.
const GENERATION_FIELDS: &[&str] = &["spec"];

const SUB: &[&str] = &["get", "patch", "update"];

pub static PLANES: Resource = Resource {
    group: GROUP,
    version: VERSION,
    kind: "Plane",
    plural: PLURAL,
    singular: "plane",
    short_names: &[],
    categories: &[],
    scope: Scope::Cluster,
    profile: Profile::Generic,
    verbs: CRUD,
    subresources: &[
        Subresource {
            name: "arrive",
            verbs: &["create", "get"],
            kind: None,
        },
        Subresource {
            name: "digest",
            verbs: &["get"],
            kind: None,
        },
        Subresource {
            name: "fork",
            verbs: &["create"],
            kind: None,
        },
        Subresource {
            name: "open",
            verbs: &["create"],
            kind: None,
        },
        Subresource {
            name: "rebase",
            verbs: &["create"],
            kind: None,
        },
        Subresource {
            name: "restore",
            verbs: &["create"],
            kind: None,
        },
        Subresource {
            name: "snapshot",
            verbs: &["get"],
            kind: None,
        },
        Subresource {
            name: "status",
            verbs: SUB,
            kind: None,
        },
    ],
    stored_as: None,
    strategy: &Planes,
};

/// The rules of Planes.
#[derive(Debug)]
pub struct Planes;

impl Strategy for Planes {
    fn default(&self, plane: &mut Value) {
        if object::string(plane, &["spec", "state"]).is_empty() {
            object::set(plane, &["spec", "state"], "Active");
        }
    }

    fn prepare_create(&self, ctx: &WriteContext<'_>, plane: &mut Value) {
        // The id survives: the server put it there, after taking out what the client sent.
        let id = object::string(plane, &["status", "id"]).to_owned();
        object::set(plane, &["status"], json!({"id": id}));
        let finalizers = object::list(plane, &["metadata", "finalizers"]);
        if !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
            let mut all = finalizers.to_vec();
            all.push(FINALIZER.into());
            object::set(plane, &["metadata", "finalizers"], all);
        }
        number(plane, None);
        set_phase(plane, &ctx.now);
    }

    fn prepare_update(&self, ctx: &WriteContext<'_>, new: &mut Value, old: &Value) {
        if ctx.subresource == "status" {
            object::copy(old, new, &["spec"]);
            let id = object::string(old, &["status", "id"]).to_owned();
            object::set(new, &["status", "id"], id);
        } else {
            object::copy(old, new, &["status"]);
            // A client that knows nothing of profiles does not mean to change one.
            if object::string(new, &["spec", "profile"]).is_empty() {
                object::copy(old, new, &["spec", "profile"]);
            }
            // Nor one that knows nothing of parents, and which writes what it read.
            if object::get(new, &["spec", "parent"]).is_none() {
                object::copy(old, new, &["spec", "parent"]);
            }
            number(new, Some(old));
            set_phase(new, &ctx.now);
        }
        object::remove(new, &["status", "usage"]);
    }

    fn validate(&self, _ctx: &WriteContext<'_>, plane: &Value) -> ErrorList {
        let mut errors = reserved_name(plane);
        errors.extend(validate_spec(plane));
        // One that only says where the plane of its name is may be made: it has nothing to pass on.
        let refuses = object::string(plane, &["spec", "movedTo", "requests"]) == "Refuse";
        match object::string(plane, &["spec", "state"]) {
            "Moved" if refuses => {}
            "Moving" | "Moved" => {
                let path = Path::new("spec").child("state");
                errors.push(Error::forbidden(&path, "a new plane is not on its way elsewhere"));
            }
            _ => {}
        }
        errors
    }

    fn validate_update(&self, ctx: &WriteContext<'_>, new: &Value, old: &Value) -> ErrorList {
        let mut errors = validate_spec(new);
        let state = Path::new("spec").child("state");
        errors.extend(moved::validate_step(new, old, ctx.subresource, &state));
        let (now, before) = [new, old]
            .map(|plane| object::string(plane, &["spec", "profile"]))
            .into();
        if now != before {
            let path = Path::new("spec").child("profile");
            errors.push(Error::invalid(&path, now, "field is immutable"));
        }
        let [now, before] = [new, old].map(|plane| object::get(plane, &["spec", "parent"]).unwrap_or(&Value::Null));
        if now != before {
            let path = Path::new("spec").child("parent");
            errors.push(Error::invalid(&path, now.clone(), "field is immutable"));
        }
        errors
    }

    fn name_errors(&self, name: &str, name_use: NameUse) -> Vec<String> {
        names::name_is_dns_label(name, name_use)
    }

    fn columns(&self) -> &'static [Column] {
        const COLUMNS: &[Column] = &[
            NAME,
            column::text(
                "State",
                "Whether the plane takes requests: Active, ReadOnly or Suspended, or where it is in a move.",
            ),
            column::text(
                "Phase",
                "What the plane is doing: Ready, ReadOnly, Suspended, Arriving, Moving, Moved or Draining.",
            ),
            column::wide(column::text("Class", "The PlaneClass that the plane names.")),
            column::wide(column::text(
                "ID",
                "The plane's identity in the store. It is never used again.",
            )),
            AGE,
        ];
        COLUMNS
    }

    fn cells(&self, plane: &Value, now: jiff::Timestamp) -> Vec<Value> {
        let text = |path: &[&str]| Value::from(object::string(plane, path));
        vec![
            object::name(plane).into(),
            text(&["spec", "state"]),
            text(&["status", "phase"]),
            text(&["spec", "className"]),
            text(&["status", "id"]),
            column::age(plane, now),
        ]
    }

    fn marked_for_deletion(&self, plane: &mut Value, now: jiff::Timestamp) {
        set_phase(plane, &now);
    }

    fn returns_deleted(&self) -> bool {
        true
    }

    fn generation_fields(&self) -> &'static [&'static str] {
        GENERATION_FIELDS
    }

    fn reset_fields(&self, subresource: &str) -> &'static [&'static [&'static str]] {
        if subresource == "status" {
            &[&["spec"]]
        } else {
            &[&["status"]]
        }
    }
}

/// What the plane is doing, as its spec and deletion say.
pub fn phase(plane: &Value) -> &'static str {
    if object::get(plane, &["metadata", "deletionTimestamp"]).is_some() {
        return "Draining";
    }
    if object::get(plane, &["metadata", "annotations", RESTORING]).is_some() {
        return "Restoring";
    }
    match object::string(plane, &["spec", "state"]) {
        "ReadOnly" => "ReadOnly",
        "Suspended" => "Suspended",
        "Arriving" => "Arriving",
        "Moving" => "Moving",
        "Moved" => "Moved",
        _ => "Ready",
    }
}

/// Gives a plane the generation that it will have: its conditions say it.
fn number(plane: &mut Value, old: Option<&Value>) {
    let generation = mica_machinery::meta::next_generation(plane, old, GENERATION_FIELDS);
    object::set(plane, &["metadata", "generation"], generation);
}

/// Sets phase and the Ready condition to what the rest of the object says.
fn set_phase(plane: &mut Value, now: &jiff::Timestamp) {
    let phase = phase(plane);
    object::set(plane, &["status", "phase"], phase);
    let (status, message) = match phase {
        "Ready" => ("True", "the plane takes requests"),
        "ReadOnly" => ("True", "the plane takes reads only"),
        "Suspended" => ("False", "the plane is suspended"),
        "Restoring" => ("False", "the plane is being filled"),
        "Arriving" => ("False", "the plane is being filled from the server that it comes from"),
        "Moving" => ("True", "the plane takes reads only until it is on another server"),
        "Moved" => ("False", "the plane is on another server"),
        _ => ("False", "the plane is being deleted"),
    };
    set_condition(plane, "Ready", status, phase, message, now);
}

/// Sets a condition; its transition time moves only with its status.
pub fn set_condition(
    plane: &mut Value,
    r#type: &str,
    status: &str,
    reason: &str,
    message: &str,
    now: &jiff::Timestamp,
) {
    let mut conditions = object::list(plane, &["status", "conditions"]).to_vec();
    let old = conditions.iter().position(|condition| condition["type"] == r#type);
    let since = match old {
        Some(at) if conditions[at]["status"] == status => conditions[at]["lastTransitionTime"].clone(),
        _ => now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into(),
    };
    let mut condition =
        json!({"type": r#type, "status": status, "reason": reason, "message": message, "lastTransitionTime": since});
    if let Some(generation) = object::int(plane, &["metadata", "generation"]) {
        condition["observedGeneration"] = generation.into();
    }
    match old {
        Some(at) => conditions[at] = condition,
        None => conditions.push(condition),
    }
    object::set(plane, &["status", "conditions"], conditions);
}

fn reserved_name(plane: &Value) -> ErrorList {
    let (path, name) = (Path::new("metadata").child("name"), object::name(plane));
    if is_project_door(plane) {
        return ErrorList::new();
    }
    let reserved = RESERVED_PREFIXES.iter().find(|prefix| name.starts_with(**prefix));
    let reason = match reserved {
        Some(prefix) => format!("names that begin with \"{prefix}\" are reserved"),
        None if name == "root" => "\"root\" is the plane at path /".to_owned(),
        None => return ErrorList::new(),
    };
    vec![Error::invalid(&path, name, reason)]
}

/// Whether a plane is what the door of its name makes: the project's that its parent and its address say.
fn is_project_door(plane: &Value) -> bool {
    let Some(project) = tenancy::project_of_plane(object::name(plane)) else {
        return false;
    };
    let parent = |field| object::string(plane, &["spec", "parent", field]);
    let addressed = |address: &Value| address["type"] == "Project" && address["value"] == project;
    (parent("apiGroup"), parent("kind"), parent("name")) == (tenancy::GROUP, "Project", project)
        && object::list(plane, &["spec", "addresses"]).iter().any(addressed)
}

fn audit_errors(audit: &Value, path: &Path) -> ErrorList {
    if audit.is_null() {
        return ErrorList::new();
    }
    let (policy, webhook) = (path.child("policy"), path.child("webhook"));
    let mut errors = audit::validate(&audit["policy"], Some(&policy));
    if object::list(audit, &["policy", "rules"]).is_empty() {
        errors.push(Error::required(
            &policy.child("rules"),
            "a policy without rules writes nothing down",
        ));
    }
    match object::string(audit, &["webhook", "url"]) {
        "" => errors.push(Error::required(&webhook.child("url"), "events go there")),
        url => errors.extend(validate_url(url, &webhook.child("url"))),
    }
    if let Err(error) = ClientConfig::from_value(&audit["webhook"]) {
        errors.push(Error::invalid(&webhook.child("caBundle"), "", error.to_string()));
    }
    errors
}

/// Refuses a profile that there is none of, in the spec of a plane or of a class.
pub(super) fn profile_errors(object: &Value, spec: &Path) -> Option<Error> {
    let profile = object::string(object, &["spec", "profile"]);
    let known = Profile::ALL.map(Profile::as_str);
    (!profile.is_empty() && Profile::parse(profile).is_none())
        .then(|| Error::not_supported(&spec.child("profile"), profile, &known))
}

fn validate_spec(plane: &Value) -> ErrorList {
    let spec = Path::new("spec");
    let mut errors = ErrorList::new();
    let state = object::string(plane, &["spec", "state"]);
    if !STATES.contains(&state) {
        errors.push(Error::not_supported(&spec.child("state"), state, &STATES));
    }
    errors.extend(moved::validate(plane, &spec.child("movedTo")));
    errors.extend(moved::validate_from(plane, &spec.child("movedFrom")));
    errors.extend(profile_errors(plane, &spec));
    let class = object::string(plane, &["spec", "className"]);
    if !class.is_empty() {
        let problems = names::dns1123_subdomain(class);
        let path = spec.child("className");
        errors.extend(
            problems
                .into_iter()
                .map(|problem| Error::invalid(&path, class, problem)),
        );
    }
    errors.extend(parent::validate(plane, &spec.child("parent")));
    errors.extend(limits::validate(&plane["spec"]["limits"], &spec.child("limits")));
    errors.extend(audit_errors(&plane["spec"]["audit"], &spec.child("audit")));
    let jwt = object::list(plane, &["spec", "authentication", "jwt"]);
    let path = spec.child("authentication").child("jwt");
    errors.extend(authentication::compile(jwt, &path, &[]).err().unwrap_or_default());
    let mut seen = Vec::new();
    for (i, address) in object::list(plane, &["spec", "addresses"]).iter().enumerate() {
        let path = spec.child("addresses").index(i);
        let (r#type, value) = (object::string(address, &["type"]), object::string(address, &["value"]));
        let problems = match r#type {
            "Project" => names::dns1123_label(value),
            "Host" => names::dns1123_subdomain(value),
            _ => {
                errors.push(Error::not_supported(&path.child("type"), r#type, &["Host", "Project"]));
                continue;
            }
        };
        errors.extend(
            problems
                .into_iter()
                .map(|problem| Error::invalid(&path.child("value"), value, problem)),
        );
        if seen.contains(&(r#type, value)) {
            errors.push(Error::duplicate(&path, format!("{type}/{value}")));
        }
        seen.push((r#type, value));
    }
    errors
}
