//! What a project needs next. Pure: everything that was read goes in, writes come out.

use mica_api::tenancy::{
    GROUP, INFRASTRUCTURE_API_VERSION, OWNER_NAME_ANNOTATION, PROJECT_CLASS_ANNOTATION, PROJECT_FINALIZER,
    PROJECT_NAME_LABEL, PROJECT_UID_LABEL, project_plane,
};
use serde_json::{Value, json};

use crate::condition::{self, Change};

const PLANE_API_VERSION: &str = "mica.dev/v1alpha1";

/// Everything that was read about a project.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    pub project: Value,
    pub plane: Option<Value>,
    /// The ProjectControlPlane.
    pub control_plane: Option<Value>,
    /// Suspensions of this project that are in force.
    pub suspensions: Vec<Value>,
    /// Those that are not any more.
    pub lifted: Vec<Value>,
    pub answers: Answers,
    /// Why its plane could not be made, if somebody else has its address.
    pub conflict: Option<String>,
}

/// Whether the plane answers requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Answers {
    #[default]
    No,
    Yes,
}

/// One write.
#[derive(Clone, PartialEq, Debug)]
pub enum Step {
    CreatePlane(Value),
    /// A merge patch.
    PatchPlane(Value),
    DeletePlane,
    CreateControlPlane(Value),
    /// The conditions of the ProjectControlPlane.
    ControlPlaneStatus(Value),
    DeleteControlPlane,
    /// The status of the project.
    Status(Value),
    /// The phase of a suspension.
    Phase {
        suspension: String,
        phase: &'static str,
    },
    /// The project's finalizers.
    Finalizers(Value),
}

/// What is to be written, in order. Nothing: the project is as it should be, or waits.
pub fn plan(observed: &Observed, now: &str) -> Vec<Step> {
    if text(&observed.project, "/metadata/deletionTimestamp").is_empty() {
        keep(observed, now)
    } else {
        take_away(observed, now)
    }
}

fn keep(observed: &Observed, now: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let project = &observed.project;
    match &observed.plane {
        None if observed.conflict.is_none() => return vec![Step::CreatePlane(plane(observed))],
        None => {}
        Some(present) => {
            let (wanted, have) = (spec(observed), &present["spec"]);
            let differs = |field: &&str| wanted[*field] != have[*field];
            let patch: serde_json::Map<String, Value> = ["state", "className"]
                .into_iter()
                .filter(differs)
                .map(|field| (field.to_owned(), wanted[field].clone()))
                .collect();
            if !patch.is_empty() {
                steps.push(Step::PatchPlane(json!({"spec": patch})));
            }
        }
    }
    let ready = ready(observed);
    steps.extend(control_plane(observed, &ready, now));
    let suspended = match observed.suspensions.is_empty() {
        true => Change::new("Suspended", "False", "Active", "the project is not suspended"),
        false => Change::new("Suspended", "True", "Suspended", "the project is suspended"),
    };
    let conditions = conditions(project, &[ready, suspended], now);
    let mut status = json!({"conditions": conditions});
    let shown = suspensions(observed);
    if shown != project["status"]["suspensions"] {
        status["suspensions"] = shown;
    }
    if status["conditions"] != project["status"]["conditions"] || status.get("suspensions").is_some() {
        steps.push(Step::Status(status));
    }
    steps.extend(phases(observed));
    steps
}

/// What suspensions are to say of themselves: what is so, which they say last.
fn phases(observed: &Observed) -> Vec<Step> {
    let state = observed.plane.as_ref().map_or("", |plane| text(plane, "/status/phase"));
    let in_force = observed.suspensions.iter().filter(|_| state == "Suspended");
    // One that another holds the project down beside is lifted all the same.
    let lifted = observed
        .lifted
        .iter()
        .filter(|_| state != "Suspended" || !observed.suspensions.is_empty());
    let wanted = in_force
        .map(|one| (one, "Active"))
        .chain(lifted.map(|one| (one, "Lifted")));
    let differs = wanted.filter(|(suspension, phase)| text(suspension, "/status/phase") != *phase);
    differs
        .map(|(suspension, phase)| Step::Phase {
            suspension: text(suspension, "/metadata/name").to_owned(),
            phase,
        })
        .collect()
}

/// Whether the project can be used.
fn ready(observed: &Observed) -> Change {
    if let Some(why) = &observed.conflict {
        return Change::new("Ready", "False", "ProjectNameConflict", why);
    }
    let phase = observed.plane.as_ref().map_or("", |plane| text(plane, "/status/phase"));
    match (observed.suspensions.is_empty(), phase, observed.answers) {
        (false, ..) => Change::new("Ready", "False", "Suspended", "the project is suspended"),
        (true, "Ready", Answers::Yes) => Change::new("Ready", "True", "Ready", "Project is ready"),
        _ => Change::new(
            "Ready",
            "False",
            "Provisioning",
            "Project control plane is being provisioned",
        ),
    }
}

/// The plane of a project.
fn plane(observed: &Observed) -> Value {
    let project = &observed.project;
    let name = text(project, "/metadata/name");
    let owner = json!({"apiVersion": project["apiVersion"], "kind": "Project", "name": name,
        "uid": project["metadata"]["uid"], "controller": true});
    json!({"apiVersion": PLANE_API_VERSION, "kind": "Plane",
        "metadata": {"name": project_plane(name), "ownerReferences": [owner]}, "spec": spec(observed)})
}

fn spec(observed: &Observed) -> Value {
    let name = text(&observed.project, "/metadata/name");
    let state = if observed.suspensions.is_empty() {
        "Active"
    } else {
        "Suspended"
    };
    let mut spec = json!({
        "state": state,
        "addresses": [{"type": "Project", "value": name}],
        "parent": {"apiGroup": GROUP, "kind": "Project", "name": name},
    });
    let class = observed.project["metadata"]["annotations"][PROJECT_CLASS_ANNOTATION].clone();
    if class.as_str().is_some_and(|class| !class.is_empty()) {
        spec["className"] = class;
    }
    spec
}

/// What tells those who look for planes from inside that this one is there.
fn control_plane(observed: &Observed, ready: &Change, now: &str) -> Vec<Step> {
    let project = &observed.project;
    let name = text(project, "/metadata/name");
    let Some(present) = &observed.control_plane else {
        if observed.plane.is_none() {
            return Vec::new();
        }
        let owner = json!({"apiVersion": project["apiVersion"], "kind": "Project", "name": name,
            "uid": project["metadata"]["uid"]});
        return vec![Step::CreateControlPlane(json!({
            "apiVersion": INFRASTRUCTURE_API_VERSION,
            "kind": "ProjectControlPlane",
            "metadata": {
                "name": name,
                "labels": {PROJECT_NAME_LABEL: name, PROJECT_UID_LABEL: project["metadata"]["uid"]},
                "annotations": {OWNER_NAME_ANNOTATION: project["spec"]["ownerRef"]["name"]},
                "ownerReferences": [owner],
            },
            "spec": {},
        }))];
    };
    let reason = if ready.status == "True" { "Ready" } else { "Creating" };
    let change = Change::new("ControlPlaneReady", &ready.status, reason, &ready.message);
    let conditions = conditions(present, &[change], now);
    if conditions == present["status"]["conditions"] {
        return Vec::new();
    }
    vec![Step::ControlPlaneStatus(json!({"conditions": conditions}))]
}

fn suspensions(observed: &Observed) -> Value {
    if observed.suspensions.is_empty() {
        return Value::Null;
    }
    let shown = observed.suspensions.iter().map(|suspension| {
        json!({"reason": suspension["spec"]["reason"], "suspendedAt": suspension["metadata"]["creationTimestamp"],
            "reinstateAuthority": suspension["spec"]["reinstateAuthority"]})
    });
    shown.collect()
}

/// A project that is deleted: its plane drains, then everything of it is gone, then it goes itself.
fn take_away(observed: &Observed, now: &str) -> Vec<Step> {
    let project = &observed.project;
    let finalizers = project["metadata"]["finalizers"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    if !finalizers.iter().any(|one| one == PROJECT_FINALIZER) {
        return Vec::new();
    }
    let mut steps = Vec::new();
    let change = match &observed.plane {
        None => Change::new(
            "ResourceCleanup",
            "False",
            "CleanupComplete",
            "all resources of the project are gone",
        ),
        Some(plane) if text(plane, "/metadata/deletionTimestamp").is_empty() => {
            steps.push(Step::DeletePlane);
            let message = "deletion of the project's resources has begun";
            Change::new("ResourceCleanup", "True", "CleanupStarted", message)
        }
        Some(plane) => {
            let blocking = condition::find(&plane["status"]["conditions"], "Drained")
                .filter(|drained| drained["status"] == "False")
                .and_then(|drained| drained["message"].as_str());
            let message = blocking.unwrap_or("waiting for the project's resources to be deleted");
            Change::new("ResourceCleanup", "True", "CleanupAwaitingCompletion", message)
        }
    };
    let mut changes = vec![change];
    if drains(observed) && observed.answers == Answers::Yes {
        // Also one that was suspended: controllers must find it, to take their finalizers away.
        let ready = Change::new("Ready", "True", "Ready", "Project is ready");
        if observed.control_plane.is_some() {
            steps.extend(control_plane(observed, &ready, now));
        }
        changes.push(ready);
    }
    let conditions = conditions(project, &changes, now);
    if conditions != project["status"]["conditions"] {
        steps.push(Step::Status(json!({"conditions": conditions})));
    }
    if observed.plane.is_none() {
        // Not before: who finds planes by it would not have seen this one drain.
        let told = observed.control_plane.as_ref();
        if told.is_some_and(|told| text(told, "/metadata/deletionTimestamp").is_empty()) {
            steps.push(Step::DeleteControlPlane);
        }
        let left: Vec<Value> = finalizers.into_iter().filter(|one| one != PROJECT_FINALIZER).collect();
        steps.push(Step::Finalizers(left.into()));
    }
    steps
}

fn drains(observed: &Observed) -> bool {
    let plane = observed.plane.as_ref();
    plane.is_some_and(|plane| text(plane, "/status/phase") == "Draining")
}

/// The conditions of an object, with changes that are about it as it is now.
fn conditions(object: &Value, changes: &[Change], now: &str) -> Value {
    let generation = &object["metadata"]["generation"];
    condition::with(&object["status"]["conditions"], changes, generation, now)
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-01-01T00:00:00Z";

    fn project() -> Value {
        json!({"apiVersion": "resourcemanager.miloapis.com/v1alpha1", "kind": "Project",
            "metadata": {"name": "p", "uid": "u", "finalizers": [PROJECT_FINALIZER],
                "annotations": {PROJECT_CLASS_ANNOTATION: "small"}},
            "spec": {"ownerRef": {"kind": "Organization", "name": "acme"}}})
    }

    fn new() -> Observed {
        Observed {
            project: project(),
            ..Observed::default()
        }
    }

    /// Does what a plan says, as a server would, until there is nothing left to do. Returns every step's name.
    fn settle(observed: &mut Observed) -> Vec<String> {
        let mut done = Vec::new();
        loop {
            let steps = plan(observed, NOW);
            if steps.is_empty() {
                return done;
            }
            for step in steps {
                done.push(
                    format!("{step:?}")
                        .split(['(', ' '])
                        .next()
                        .unwrap_or_default()
                        .to_owned(),
                );
                match step {
                    Step::CreatePlane(mut plane) => {
                        plane["status"] = json!({"phase": "Ready"});
                        observed.plane = Some(plane);
                        observed.answers = Answers::Yes;
                    }
                    Step::PatchPlane(patch) => {
                        let plane = observed.plane.as_mut().expect("it is there");
                        for (field, value) in patch["spec"].as_object().expect("a map") {
                            plane["spec"][field] = value.clone();
                        }
                        let suspended = plane["spec"]["state"] == "Suspended";
                        plane["status"]["phase"] = if suspended { "Suspended" } else { "Ready" }.into();
                        observed.answers = if suspended { Answers::No } else { Answers::Yes };
                    }
                    Step::DeletePlane => {
                        let plane = observed.plane.as_mut().expect("it is there");
                        plane["metadata"]["deletionTimestamp"] = NOW.into();
                        plane["status"]["phase"] = "Draining".into();
                        observed.answers = Answers::Yes;
                    }
                    Step::CreateControlPlane(made) => observed.control_plane = Some(made),
                    Step::ControlPlaneStatus(status) => {
                        observed.control_plane.as_mut().expect("it is there")["status"] = status;
                    }
                    Step::DeleteControlPlane => observed.control_plane = None,
                    Step::Status(status) => {
                        for (field, value) in status.as_object().expect("a map") {
                            observed.project["status"][field] = value.clone();
                        }
                    }
                    Step::Phase { suspension, phase } => {
                        let all = observed.suspensions.iter_mut().chain(&mut observed.lifted);
                        for one in all.filter(|one| one["metadata"]["name"] == *suspension) {
                            one["status"]["phase"] = phase.into();
                        }
                    }
                    Step::Finalizers(left) => observed.project["metadata"]["finalizers"] = left,
                }
            }
            assert!(done.len() < 20, "it does not end: {done:?}");
        }
    }

    fn brief(observed: &Observed, r#type: &str) -> String {
        let found = condition::find(&observed.project["status"]["conditions"], r#type);
        found.map_or_else(String::new, |one| {
            format!("{} {}", text(one, "/status"), text(one, "/reason"))
        })
    }

    #[test]
    fn a_new_project_gets_its_plane_is_told_of_and_is_ready() {
        let mut observed = new();
        let done = settle(&mut observed);
        assert_eq!(
            done,
            ["CreatePlane", "CreateControlPlane", "Status", "ControlPlaneStatus"]
        );
        assert_eq!(brief(&observed, "Ready"), "True Ready");
        let plane = observed.plane.as_ref().expect("it was made");
        assert_eq!(text(plane, "/metadata/name"), "project-p");
        assert_eq!(text(plane, "/spec/className"), "small");
        assert_eq!(plane["spec"]["addresses"], json!([{"type": "Project", "value": "p"}]));
        let told = observed.control_plane.as_ref().expect("it was made");
        assert_eq!(told["status"]["conditions"][0]["status"], "True");
        assert_eq!(told["metadata"]["labels"][PROJECT_UID_LABEL], "u");
    }

    #[test]
    fn a_plane_that_does_not_answer_yet_is_provisioning() {
        let mut observed = new();
        settle(&mut observed);
        observed.answers = Answers::No;
        settle(&mut observed);
        assert_eq!(brief(&observed, "Ready"), "False Provisioning");
    }

    #[test]
    fn an_address_that_somebody_has_is_a_conflict_of_names() {
        let mut observed = new();
        observed.conflict = Some("taken".to_owned());
        assert_eq!(settle(&mut observed), ["Status"]);
        assert_eq!(brief(&observed, "Ready"), "False ProjectNameConflict");
    }

    #[test]
    fn a_suspension_reaches_the_plane_and_is_lifted_again() {
        let mut observed = new();
        settle(&mut observed);
        let suspension = json!({"metadata": {"name": "s", "creationTimestamp": NOW},
            "spec": {"reason": "Billing", "reinstateAuthority": "Operator"}});
        observed.suspensions = vec![suspension];
        let done = settle(&mut observed);
        assert_eq!(
            done,
            ["PatchPlane", "ControlPlaneStatus", "Status", "Phase"],
            "it says so when it is so"
        );
        assert_eq!(text(&observed.suspensions[0], "/status/phase"), "Active");
        assert_eq!(brief(&observed, "Suspended"), "True Suspended");
        assert_eq!(brief(&observed, "Ready"), "False Suspended");
        let plane = observed.plane.as_ref().expect("it stays");
        assert_eq!(text(plane, "/spec/state"), "Suspended");
        let shown = json!([{"reason": "Billing", "suspendedAt": NOW, "reinstateAuthority": "Operator"}]);
        assert_eq!(observed.project["status"]["suspensions"], shown);
        observed.lifted = std::mem::take(&mut observed.suspensions);
        settle(&mut observed);
        assert_eq!(text(&observed.lifted[0], "/status/phase"), "Lifted");
        assert_eq!(brief(&observed, "Suspended"), "False Active");
        assert_eq!(brief(&observed, "Ready"), "True Ready");
        assert!(observed.project["status"]["suspensions"].is_null());
    }

    #[test]
    fn a_deleted_project_waits_for_its_plane_and_names_what_blocks() {
        let mut observed = new();
        settle(&mut observed);
        observed.project["metadata"]["deletionTimestamp"] = NOW.into();
        let done = settle(&mut observed);
        assert_eq!(done, ["DeletePlane", "Status", "Status"]);
        assert!(observed.control_plane.is_some(), "it is found while it drains");
        assert_eq!(brief(&observed, "ResourceCleanup"), "True CleanupAwaitingCompletion");
        let blocked = json!([{"type": "Drained", "status": "False", "message": "configmaps \"a\" waits"}]);
        observed.plane.as_mut().expect("it drains")["status"]["conditions"] = blocked;
        settle(&mut observed);
        let cleanup = condition::find(&observed.project["status"]["conditions"], "ResourceCleanup");
        assert_eq!(cleanup.map(|one| text(one, "/message")), Some("configmaps \"a\" waits"));
        observed.plane = None;
        assert_eq!(settle(&mut observed), ["Status", "DeleteControlPlane", "Finalizers"]);
        assert_eq!(brief(&observed, "ResourceCleanup"), "False CleanupComplete");
        assert_eq!(observed.project["metadata"]["finalizers"], json!([]));
    }

    #[test]
    fn a_suspended_project_that_is_deleted_is_found_until_it_is_drained() {
        let mut observed = new();
        settle(&mut observed);
        observed.suspensions = vec![json!({"metadata": {"name": "s", "creationTimestamp": NOW}})];
        settle(&mut observed);
        assert_eq!(brief(&observed, "Ready"), "False Suspended");
        observed.project["metadata"]["deletionTimestamp"] = NOW.into();
        settle(&mut observed);
        assert_eq!(brief(&observed, "Ready"), "True Ready");
        let told = observed.control_plane.as_ref().expect("it is found while it drains");
        assert_eq!(told["status"]["conditions"][0]["status"], "True");
    }
}
