//! Tables of what is decided about control planes.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use mica_api::control_plane::{
    ADOPT_ANNOTATION, DeletionPolicy, KUBECONFIG, KUBECONFIG_EXTERNAL, NAME_LABEL, REGISTER_ANNOTATION, RETAINED_LABEL,
    SecretRef, condition, reason,
};
use serde_json::{Value, json};

use super::plane::{Holder, Step};
use super::status::Report;
use super::*;
use crate::control_plane::plan::endpoint::Endpoints;

const NOW: &str = "2026-01-01T00:00:00Z";
const HOME: &str = "https://mica.example:6443";

fn control_plane(spec: Value) -> Observed {
    let object = json!({"apiVersion": API_VERSION, "kind": "ControlPlane",
        "metadata": {"name": "a", "uid": "u-a", "generation": 3, "resourceVersion": "7"}, "spec": spec});
    Observed {
        spec: serde_json::from_value(object["spec"].clone()).expect("a spec"),
        object,
        ..Observed::default()
    }
}

fn of_class(spec: Value, class: Value) -> Observed {
    Observed {
        class: Class::Found {
            name: "c".to_owned(),
            spec: Box::new(serde_json::from_value(class).expect("a class")),
        },
        ..control_plane(spec)
    }
}

#[test]
fn a_policy_is_its_own_then_its_class_s_then_to_retain() {
    use DeletionPolicy::{Destroy, Retain};
    for (own, class, expected) in [
        (None, None, Retain),
        (None, Some("Destroy"), Destroy),
        (Some("Retain"), Some("Destroy"), Retain),
        (Some("Destroy"), None, Destroy),
    ] {
        let said = |policy: Option<&str>| policy.map_or(json!({}), |policy| json!({"deletionPolicy": policy}));
        assert_eq!(
            of_class(said(own), said(class)).deletion_policy(),
            expected,
            "{own:?} {class:?}"
        );
    }
    let missing = Observed {
        class: Class::Missing("c".to_owned()),
        ..control_plane(json!({}))
    };
    assert_eq!(missing.deletion_policy(), Retain, "what nobody said is not destroyed");
}

#[test]
fn a_class_has_to_be_there_and_to_allow_the_mode() {
    let reason = |at: &Observed| class(at).err().map(|problem| problem.reason);
    assert_eq!(reason(&control_plane(json!({}))), None);
    let missing = Observed {
        class: Class::Missing("c".to_owned()),
        ..control_plane(json!({}))
    };
    assert_eq!(reason(&missing), Some(reason::CLASS_NOT_FOUND));
    let dedicated = json!({"mode": "Dedicated"});
    assert_eq!(reason(&of_class(dedicated.clone(), json!({}))), None);
    let only = |modes: Value| json!({"modesAllowed": modes});
    assert_eq!(reason(&of_class(dedicated.clone(), only(json!(["Dedicated"])))), None);
    let problem = class(&of_class(dedicated, only(json!(["Virtual"])))).expect_err("it is not allowed");
    assert_eq!(problem.reason, reason::MODE_NOT_ALLOWED);
    assert_eq!(
        problem.message,
        "class \"c\" does not allow mode Dedicated: it allows Virtual"
    );
}

#[test]
fn paths_are_labels_outside_of_other_front_doors() {
    let at = |path: &str| control_plane(json!({"virtual": {"clusterPath": path}}));
    for (path, valid) in [
        ("", true),
        ("b-1", true),
        ("-b", false),
        ("B", false),
        ("b.c", false),
        ("project-x", false),
        ("edge-x", false),
        ("projects", true),
        ("root", false),
        (&"x".repeat(63), true),
        (&"x".repeat(64), false),
    ] {
        assert_eq!(super::path(&at(path)).is_ok(), valid, "{path:?}");
    }
    assert_eq!(at("").cluster_path(), "a", "its own name if it says none");
}

fn endpoint_of(mut at: Observed, spec: Value, status: Value) -> Observed {
    at.endpoint = Some(json!({"spec": spec, "status": status}));
    at
}

fn urls(at: &Observed) -> Result<(String, String, Option<String>), &'static str> {
    let Endpoints {
        internal,
        external,
        join,
        ..
    } = endpoint::resolve(at, HOME).map_err(|problem| problem.reason)?;
    Ok((internal, external, join))
}

#[test]
fn endpoints_are_those_of_home_unless_something_else_is_said() {
    let home = format!("{HOME}/clusters/a/control-plane");
    assert_eq!(urls(&control_plane(json!({}))), Ok((home.clone(), home, None)));
}

#[test]
fn what_was_observed_stands_before_what_was_asked_for() {
    let named = || control_plane(json!({"endpointRef": {"name": "e"}}));
    let suffix = "/clusters/a/control-plane";
    let url = |host: &str| format!("https://{host}{suffix}");
    assert_eq!(urls(&named()), Err(reason::ENDPOINT_NOT_FOUND));
    assert_eq!(
        urls(&endpoint_of(named(), json!({}), json!({}))),
        Err(reason::ENDPOINT_PENDING)
    );
    let asked = json!({"endpoint": "https://i.example", "joinEndpoint": "https://j.example/"});
    let expected = (url("i.example"), url("i.example"), Some(url("j.example")));
    assert_eq!(urls(&endpoint_of(named(), asked.clone(), json!({}))), Ok(expected));
    let observed = json!({"endpoint": "https://o.example:1", "externalEndpoint": "https://x.example/base"});
    let expected = (url("o.example:1"), url("x.example/base"), Some(url("j.example")));
    assert_eq!(urls(&endpoint_of(named(), asked, observed)), Ok(expected));
}

#[test]
fn addresses_that_lead_nowhere_or_elsewhere_are_refused() {
    let named = || control_plane(json!({"endpointRef": {"name": "e"}}));
    for (url, expected) in [
        ("https://h", Ok("https://h/clusters/a/control-plane")),
        (
            "https://h/clusters/a/control-plane",
            Ok("https://h/clusters/a/control-plane"),
        ),
        ("https://h/clusters/b/control-plane", Err(reason::INVALID_ENDPOINT)),
        ("h", Err(reason::INVALID_ENDPOINT)),
        ("ftp://h", Err(reason::INVALID_ENDPOINT)),
        ("https://u:p@h", Err(reason::INVALID_ENDPOINT)),
        ("https://h/?q", Err(reason::INVALID_ENDPOINT)),
        ("https://h/#f", Err(reason::INVALID_ENDPOINT)),
        ("https://h h", Err(reason::INVALID_ENDPOINT)),
        ("https://", Err(reason::INVALID_ENDPOINT)),
    ] {
        let at = endpoint_of(named(), json!({"endpoint": url}), json!({}));
        let found = urls(&at).map(|(internal, ..)| internal);
        assert_eq!(found, expected.map(str::to_owned), "{url:?}");
    }
}

#[test]
fn templates_are_filled_in_and_chosen_by_policy() {
    let templates = json!({"endpoints": {"internal": "{server}", "external": "https://{name}.example", "join": "https://join.example"}});
    let expected = (
        format!("{HOME}/clusters/p/control-plane"),
        "https://a.example/clusters/p/control-plane".to_owned(),
        Some("https://join.example/clusters/p/control-plane".to_owned()),
    );
    let spec = json!({"virtual": {"clusterPath": "p"}});
    assert_eq!(urls(&of_class(spec, templates.clone())), Ok(expected));
    for (spec, class, expected) in [
        (
            json!({"endpointPolicy": "Template"}),
            json!({}),
            Some(reason::ENDPOINT_PENDING),
        ),
        (
            json!({"endpointPolicy": "Reference"}),
            templates.clone(),
            Some(reason::ENDPOINT_PENDING),
        ),
        (
            json!({"endpointPolicy": "Template", "endpointRef": {"name": "e"}}),
            templates.clone(),
            None,
        ),
        (
            json!({"endpointRef": {"name": "e"}}),
            templates.clone(),
            Some(reason::ENDPOINT_NOT_FOUND),
        ),
        (
            json!({}),
            json!({"gateway": {"parentRef": {"name": "g"}, "hostnameTemplate": "h"}}),
            Some(reason::ENDPOINT_NOT_FOUND),
        ),
        (
            json!({}),
            json!({"endpoints": {"external": "no url"}}),
            Some(reason::INVALID_ENDPOINT),
        ),
    ] {
        assert_eq!(urls(&of_class(spec.clone(), class)).err(), expected, "{spec}");
    }
}

#[test]
fn behind_a_gateway_the_outer_address_is_the_gateway_s_alone() {
    let class = json!({"gateway": {"parentRef": {"name": "g"}, "hostnameTemplate": "h"}});
    let spec = json!({"endpoint": "https://i.example", "externalEndpoint": "https://a.example"});
    let at = endpoint_of(of_class(json!({}), class), spec, json!({}));
    let expected = (
        "https://i.example/clusters/a/control-plane".to_owned(),
        "https://a.example".to_owned(),
        None,
    );
    assert_eq!(urls(&at), Ok(expected));
    let endpoints = endpoint::resolve(&at, HOME).expect("it is there");
    assert_eq!(endpoints.external_trust, endpoint::Trust::Everybody);
}

/// A plane as the server has it after a step.
fn made(step: Step, before: Option<&Value>) -> Value {
    match (step, before) {
        (Step::Create(mut plane), _) => {
            plane["status"] = json!({"phase": "Ready", "id": "0123"});
            plane["metadata"]["resourceVersion"] = "1".into();
            plane
        }
        (Step::Patch(patch), Some(before)) => {
            let mut plane = before.clone();
            merge(&mut plane, &patch);
            plane
        }
        (step, _) => panic!("{step:?}"),
    }
}

fn merge(target: &mut Value, patch: &Value) {
    match patch {
        Value::Object(fields) => {
            if !target.is_object() {
                *target = json!({});
            }
            for (field, value) in fields {
                if value.is_null() {
                    target.as_object_mut().expect("a map").remove(field);
                } else {
                    merge(&mut target[field], value);
                }
            }
        }
        other => *target = other.clone(),
    }
}

#[test]
fn a_plane_is_made_as_the_class_says_and_follows_it() {
    let class = json!({"planeClass": "small", "profile": "Generic", "limits": {"objects": 5, "watches": 2}});
    let at = of_class(json!({}), class);
    let plane = made(plane::plan(&at, None, Holder::Gone).expect("it is free"), None);
    assert_eq!(
        plane["spec"],
        json!({"className": "small", "profile": "Generic", "limits": {"objects": 5, "watches": 2}})
    );
    assert_eq!(plane["metadata"]["labels"][NAME_LABEL], "a");
    assert!(plane::is_of(&plane, "u-a") && !plane::is_of(&plane, "u-b"));
    assert_eq!(plane::plan(&at, Some(&plane), Holder::Gone), Ok(Step::Nothing));
    let changed = of_class(json!({}), json!({"profile": "Kubernetes", "limits": {"objects": 9}}));
    let step = plane::plan(&changed, Some(&plane), Holder::Gone).expect("it is ours");
    let plane = made(step, Some(&plane));
    assert_eq!(plane["spec"], json!({"profile": "Generic", "limits": {"objects": 9}}));
    assert_eq!(plane::plan(&changed, Some(&plane), Holder::Gone), Ok(Step::Nothing));
    assert!(plane::remark(&changed, &plane).is_some_and(|said| said.contains("stays Generic")));
}

#[test]
fn a_plane_of_somebody_else_is_taken_only_if_nobody_has_it_and_its_id_is_said() {
    let holder = Observed {
        object: json!({"metadata": {"name": "b", "uid": "u-b"}}),
        ..control_plane(json!({"virtual": {"clusterPath": "a"}}))
    };
    let plane = made(plane::plan(&holder, None, Holder::Gone).expect("it is free"), None);
    let at = control_plane(json!({}));
    let mut adopting = at.clone();
    adopting.object["metadata"]["annotations"] = json!({ADOPT_ANNOTATION: "0123"});
    let taken = |at: &Observed, plane: &Value, holder: Holder| {
        let problem = plane::plan(at, Some(plane), holder).expect_err("it is taken");
        assert_eq!(problem.reason, reason::CLUSTER_PATH_TAKEN);
        problem.message
    };
    for one in [&at, &adopting] {
        assert!(taken(one, &plane, Holder::There).contains("ControlPlane \"b\"'s"));
    }
    let mut retained = plane.clone();
    merge(&mut retained, &plane::detach(&holder));
    assert!(plane::claimed_by(&retained).is_none());
    assert_eq!(retained["metadata"]["labels"], json!({RETAINED_LABEL: "b"}));
    assert!(taken(&at, &retained, Holder::Gone).contains("adopt=0123"));
    adopting.object["metadata"]["annotations"] = json!({ADOPT_ANNOTATION: "9999"});
    taken(&adopting, &retained, Holder::Gone);
    adopting.object["metadata"]["annotations"] = json!({ADOPT_ANNOTATION: "0123"});
    let adopted = made(
        plane::plan(&adopting, Some(&retained), Holder::Gone).expect("it is free"),
        Some(&retained),
    );
    assert!(plane::is_of(&adopted, "u-a"));
    assert_eq!(adopted["metadata"]["labels"], json!({NAME_LABEL: "a"}));
    // One whose ControlPlane vanished without letting it go is as good as retained.
    assert!(plane::plan(&adopting, Some(&plane), Holder::Gone).is_ok());
    let mut going = plane.clone();
    going["metadata"]["deletionTimestamp"] = NOW.into();
    assert!(taken(&adopting, &going, Holder::Gone).contains("being deleted"));
    let by_hand = json!({"metadata": {"name": "a"}, "status": {"id": "0123"}});
    assert!(taken(&at, &by_hand, Holder::Gone).contains("was not made for a ControlPlane"));
}

/// A token as a server makes them.
fn token(account: &str, issued: i64, expires: i64) -> String {
    let claims = json!({"iat": issued, "exp": expires, "kubernetes.io": {"serviceaccount": {"name": "controlplane-admin", "uid": account}}});
    format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims.to_string()))
}

fn at_second(second: i64) -> jiff::Timestamp {
    jiff::Timestamp::from_second(second).expect("a time")
}

#[test]
fn a_token_is_used_for_two_thirds_of_its_life_by_whom_it_is_for() {
    let at = control_plane(json!({}));
    let endpoints = endpoint::resolve(&at, HOME).expect("home");
    let contents = credential::Contents {
        endpoints: &endpoints,
        server: HOME,
        ca: Some("PEM"),
        token: &token("u-sa", 0, 900),
    };
    let secret = credential::secret(&at, &contents).expect("there is none yet");
    let usable = |account: &str, server: &str, second: i64| {
        credential::usable(Some(&secret), account, server, at_second(second)).is_some()
    };
    assert!(usable("u-sa", HOME, 0) && usable("u-sa", HOME, 599));
    assert!(!usable("u-sa", HOME, 600), "two thirds are over");
    assert!(!usable("u-other", HOME, 0), "the account is another");
    assert!(!usable("u-sa", "https://elsewhere", 0), "the server is another");
    assert!(credential::usable(None, "u-sa", HOME, at_second(0)).is_none());
    let known = Observed {
        secret: Some(secret.clone()),
        ..at.clone()
    };
    assert_eq!(
        credential::secret(&known, &contents),
        None,
        "what is so already is not written"
    );
    let mut drifted = known.clone();
    drifted.secret.as_mut().expect("it is there")["data"][KUBECONFIG_EXTERNAL] = "".into();
    assert_eq!(credential::secret(&drifted, &contents), Some(secret.clone()));
    let mut more = known;
    more.secret.as_mut().expect("it is there")["data"]["mine"] = "eA==".into();
    assert_eq!(credential::secret(&more, &contents), None, "what others add is theirs");
    let kubeconfig = STANDARD
        .decode(secret["data"][KUBECONFIG].as_str().expect("a text"))
        .expect("base64");
    let kubeconfig = String::from_utf8(kubeconfig).expect("a text");
    expect_test::expect![[r#"
        apiVersion: v1
        clusters:
        - cluster:
            certificate-authority-data: UEVN
            server: https://mica.example:6443/clusters/a/control-plane
          name: controlplane
        contexts:
        - context:
            cluster: controlplane
            user: admin
          name: controlplane
        current-context: controlplane
        kind: Config
        users:
        - name: admin
          user:
            token: TOKEN
    "#]]
    .assert_eq(&kubeconfig.replace(&token("u-sa", 0, 900), "TOKEN"));
}

#[test]
fn tokens_of_nodes_expire_and_sign_where_nodes_look() {
    let made = join::mint(|_| 0, at_second(100));
    assert_eq!((made.id.as_str(), made.secret.len()), ("aaaaaa", 16));
    let mut secret = join::token_secret(&made);
    let plain = secret["stringData"].take();
    let data: serde_json::Map<String, Value> = plain
        .as_object()
        .expect("a map")
        .iter()
        .map(|(key, value)| (key.clone(), STANDARD.encode(value.as_str().expect("a text")).into()))
        .collect();
    secret["data"] = data.into();
    let strangers = json!({"metadata": {"name": "bootstrap-token-zzzzzz"}});
    let found = |second: i64| join::tokens(&[secret.clone(), strangers.clone()], at_second(second));
    assert_eq!(found(99).good, std::slice::from_ref(&made));
    assert_eq!(found(100).expired, ["bootstrap-token-aaaaaa"]);
    let objects = join::objects("https://j.example/clusters/a/control-plane", Some("PEM"), &[made]);
    let info = objects
        .iter()
        .find(|one| one["metadata"]["name"] == "cluster-info")
        .expect("it is there");
    let signature = info["data"]["jws-kubeconfig-aaaaaa"].as_str().expect("a signature");
    assert_eq!(
        signature.split('.').map(str::len).collect::<Vec<_>>()[1],
        0,
        "what it signs is beside it: {signature}"
    );
    let kinds: Vec<&str> = objects.iter().map(|one| text(one, "/metadata/name")).collect();
    assert_eq!(
        kinds,
        [
            "kubeadm-config",
            "kubelet-config",
            "cluster-info",
            "kubeadm-bootstrapper",
            "kubeadm-bootstrapper",
            "bootstrap-token-cluster-info"
        ]
    );
}

#[test]
fn registrations_are_made_for_the_services_of_the_class_unless_switched_off() {
    use registration::Step;
    let plan = |at: &Observed| registration::plan(at).map(|(step, _)| step);
    assert_eq!(plan(&control_plane(json!({}))), Ok(Step::Nothing));
    let mut at = of_class(json!({}), json!({"services": ["controllers"]}));
    let Ok(Step::Apply(made)) = plan(&at) else {
        panic!("it is to be made")
    };
    assert_eq!(
        made["spec"],
        json!({"controlPlaneRef": {"name": "a"}, "services": ["controllers"], "mode": "Shared"})
    );
    at.registration = Some(made.clone());
    assert_eq!(plan(&at), Ok(Step::Nothing));
    let without = Observed {
        registration: Some(made.clone()),
        ..control_plane(json!({}))
    };
    assert_eq!(plan(&without), Ok(Step::Delete));
    let mut off = at.clone();
    off.object["metadata"]["annotations"] = json!({REGISTER_ANNOTATION: "false"});
    assert_eq!(plan(&off), Ok(Step::Delete));
    at.registration.as_mut().expect("it is there")["metadata"]["ownerReferences"] = json!([]);
    assert_eq!(
        plan(&at).map_err(|problem| problem.reason),
        Err(reason::REGISTRATION_TAKEN)
    );
}

#[test]
fn a_namespace_of_somebody_else_is_not_taken() {
    let mut at = control_plane(json!({}));
    let Ok(NamespaceStep::Apply(made)) = namespace(&at) else {
        panic!("it is to be made")
    };
    at.novelty = Novelty::New;
    assert_eq!(
        namespace(&at),
        Ok(NamespaceStep::Create(made.clone())),
        "there may be one of somebody else, which was not looked for"
    );
    at.novelty = Novelty::Known;
    at.namespace = Some(made.clone());
    assert_eq!(namespace(&at), Ok(NamespaceStep::Nothing));
    at.namespace = Some(json!({"metadata": {"name": "kplane-cp-a", "labels": {NAME_LABEL: "a"}}}));
    assert_eq!(
        namespace(&at),
        Ok(NamespaceStep::Apply(made)),
        "another operator of the group made it"
    );
    at.namespace = Some(json!({"metadata": {"name": "kplane-cp-a"}}));
    assert_eq!(
        namespace(&at).map_err(|problem| problem.reason),
        Err(reason::NAMESPACE_TAKEN)
    );
}

#[test]
fn what_was_held_is_deleted_or_takes_over_a_plane_is_not_new() {
    let new = control_plane(json!({}));
    assert_eq!(new.novelty(), Novelty::New);
    for metadata in [
        json!({"name": "a", "finalizers": [FINALIZER]}),
        json!({"name": "a", "deletionTimestamp": NOW}),
        json!({"name": "a", "annotations": {ADOPT_ANNOTATION: "id"}}),
    ] {
        let mut at = new.clone();
        at.object["metadata"] = metadata;
        assert_eq!(at.novelty(), Novelty::Known, "{}", at.object);
    }
}

fn good() -> Report {
    let mut report = Report::default();
    report.done(condition::PROVISIONED, "made");
    report.done(condition::CREDENTIALS_READY, "given");
    report.endpoints = endpoint::resolve(&control_plane(json!({})), HOME).ok();
    report.secret = Some(SecretRef {
        name: "s".to_owned(),
        namespace: "n".to_owned(),
    });
    report
}

/// Writes a report as a server would. Returns what was told.
fn settle(at: &mut Observed, report: &Report, now: &str) -> Vec<String> {
    let (patch, told) = status::plan(at, report, now);
    if let Some(patch) = patch {
        merge(&mut at.object["status"], &patch["status"]);
    }
    told.into_iter()
        .map(|told| format!("{:?} {}", told.kind, told.reason))
        .collect()
}

#[test]
fn what_was_published_stays_whatever_fails_later_and_transitions_are_told() {
    let mut at = control_plane(json!({}));
    assert_eq!(settle(&mut at, &good(), NOW), ["Normal Ready"]);
    assert_eq!(text(&at.object, "/status/phase"), "Ready");
    assert_eq!(at.object["status"]["observedGeneration"], 3);
    let ready = find(&at.object["status"]["conditions"], condition::READY)
        .expect("it is said")
        .clone();
    assert_eq!(
        (&ready["status"], &ready["observedGeneration"]),
        (&json!("True"), &json!(3))
    );
    assert_eq!(
        status::plan(&at, &good(), "later").0,
        None,
        "what is so already is not written"
    );

    let mut bad = Report::default();
    bad.fail(condition::ENDPOINT_READY, &Problem::new(reason::INVALID_ENDPOINT, "no"));
    assert_eq!(settle(&mut at, &bad, NOW), ["Warning InvalidEndpoint"]);
    assert_eq!(text(&at.object, "/status/phase"), "Failed");
    assert_eq!(
        text(&at.object, "/status/endpoint"),
        format!("{HOME}/clusters/a/control-plane")
    );
    assert_eq!(at.object["status"]["kubeconfigSecretRef"]["name"], "s");
    assert!(!at.was_ready());

    let mut again = good();
    again.done(condition::ENDPOINT_READY, "fine");
    assert_eq!(settle(&mut at, &again, NOW), ["Normal EndpointReady", "Normal Ready"]);
    again.dropped.push(condition::ENDPOINT_READY);
    settle(&mut at, &again, NOW);
    assert!(find(&at.object["status"]["conditions"], condition::ENDPOINT_READY).is_none());
}
