//! Policies: what recorded answers of a real server do not show.

use serde_json::{Value, json};

use super::super::world::{Api, MAPS, World, map};

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies";
const MUTATING_BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings";

fn constraints() -> Value {
    json!({"resourceRules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]})
}

async fn validating(api: &Api, spec: Value) {
    let mut policy = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "p"}, "spec": spec});
    policy["spec"]["matchConstraints"] = constraints();
    api.post(POLICIES, &policy).await.expect(201);
    let binding = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}});
    api.post(BINDINGS, &binding).await.expect(201);
}

async fn mutating(api: &Api, name: &str, reinvocation: &str, mutation: Value) {
    let mut constraints = constraints();
    constraints["resourceRules"][0]["operations"] = json!(["CREATE", "UPDATE"]);
    let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": name}, "spec": {"matchConstraints": constraints, "mutations": [mutation],
            "reinvocationPolicy": reinvocation}});
    api.post(MUTATING, &policy).await.expect(201);
    let binding = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": name}, "spec": {"policyName": name}});
    api.post(MUTATING_BINDINGS, &binding).await.expect(201);
}

fn apply(expression: &str) -> Value {
    json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}})
}

fn json_patch(expression: &str) -> Value {
    json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}})
}

#[tokio::test]
async fn a_policy_acts_in_its_plane_from_its_binding_on() {
    let world = World::start().await;
    let (one, other) = (world.plane("one").await, world.plane("other").await);
    let validations = json!([{"expression": "object == null || object.metadata.name != 'bad'", "message": "no bad"}]);
    validating(&one, json!({"validations": validations})).await;
    assert_eq!(
        one.post(MAPS, &map("bad")).await.message(),
        "configmaps \"bad\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no bad"
    );
    other.post(MAPS, &map("bad")).await.expect(201);
    one.delete(&format!("{BINDINGS}/b")).await.expect(200);
    one.post(MAPS, &map("bad")).await.expect(201);
}

#[tokio::test]
async fn what_costs_too_much_fails() {
    let world = World::start().await;
    let api = world.root().await;
    let long = "[1,2,3,4,5,6,7,8,9,10]";
    let costly =
        format!("{long}.all(a, {long}.all(b, {long}.all(c, {long}.all(d, {long}.all(e, a + b + c + d + e > 0)))))");
    validating(&api, json!({"validations": [{"expression": costly}]})).await;
    let message = api.post(MAPS, &map("a")).await.message();
    assert!(
        message.ends_with("operation cancelled: actual cost limit exceeded"),
        "{message}"
    );
}

#[tokio::test]
async fn a_parameter_kind_that_nobody_serves_fails_the_policy() {
    let world = World::start().await;
    let api = world.root().await;
    let kind = json!({"apiVersion": "nobody.example/v1", "kind": "Nothing"});
    validating(
        &api,
        json!({"paramKind": kind, "validations": [{"expression": "true"}]}),
    )
    .await;
    assert_eq!(
        api.post(MAPS, &map("a")).await.message(),
        "configmaps \"a\" is forbidden: ValidatingAdmissionPolicy 'p' denied request: failed to configure policy: \
         failed to find resource referenced by paramKind: 'nobody.example/v1, Kind=Nothing'"
    );
}

#[tokio::test]
async fn policies_change_objects_in_turn_and_again() {
    let world = World::start().await;
    let api = world.root().await;
    let counted =
        "[JSONPatch{op: 'add', path: '/data/' + jsonpatch.escapeKey('a/' + string(size(object.data))), value: 'x'}]";
    mutating(&api, "a", "IfNeeded", json_patch(counted)).await;
    mutating(
        &api,
        "b",
        "Never",
        apply("Object{metadata: Object.metadata{labels: {'l': 'b'}}}"),
    )
    .await;
    let refused = api.post(MAPS, &map("m")).await;
    // A key with a slash is not one: the patch was applied as it was written.
    assert!(refused.message().contains("data[a/1]"), "{}", refused.message());
    api.delete(&format!("{MUTATING_BINDINGS}/a")).await.expect(200);
    let made = api.post(MAPS, &map("m")).await.expect(201);
    assert_eq!(made["metadata"]["labels"], json!({"l": "b"}));
    let counted = "[JSONPatch{op: 'add', path: '/data/a' + string(size(object.data)), value: 'x'}]";
    mutating(&api, "0", "IfNeeded", json_patch(counted)).await;
    let made = api.post(MAPS, &map("n")).await.expect(201);
    assert_eq!(made["data"], json!({"k": "v", "a1": "x", "a2": "x"}));
}

#[tokio::test]
async fn a_policy_may_not_name_the_wrong_type_or_change_what_is_atomic() {
    let world = World::start().await;
    let api = world.root().await;
    let rule = json!([{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["services"]}]);
    let cases = [
        (
            "Object{spec: Object.metadata{}}",
            "type mismatch: unexpected type name \"Object.metadata\", expected \"Object.spec\", which matches field name path from root Object type",
        ),
        (
            "Object{spec: Object.spec{selector: {'a': 'b'}}}",
            "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.selector",
        ),
    ];
    for (at, (expression, why)) in cases.into_iter().enumerate() {
        let name = format!("p{at}");
        let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy",
            "metadata": {"name": name}, "spec": {"matchConstraints": {"resourceRules": rule}, "mutations": [apply(expression)],
                "reinvocationPolicy": "Never"}});
        api.post(MUTATING, &policy).await.expect(201);
        let binding = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding",
            "metadata": {"name": name}, "spec": {"policyName": name}});
        api.post(MUTATING_BINDINGS, &binding).await.expect(201);
        let service =
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": [{"port": 1}]}});
        let refused = api.post("/api/v1/namespaces/default/services", &service).await;
        let message = format!("policy '{name}' with binding '{name}' denied request: {why}");
        assert_eq!((refused.code(), refused.message()), (403, message));
        api.delete(&format!("{MUTATING_BINDINGS}/{name}")).await.expect(200);
    }
}

#[tokio::test]
async fn a_policy_is_told_what_its_expressions_get_wrong() {
    let world = World::start().await;
    let plane = world.plane("p").await;
    let validations = json!([{"expression": "object.data.k == 'v'"}, {"expression": "object.foo == 'v'"}]);
    validating(&plane, json!({"validations": validations})).await;
    let path = format!("{POLICIES}/p");
    let status = loop {
        let status = plane.get(&path).await.expect(200)["status"].clone();
        if status["observedGeneration"] == 1 {
            break status;
        }
        tokio::task::yield_now().await;
    };
    let warnings = status["typeChecking"]["expressionWarnings"].as_array().unwrap();
    assert_eq!(
        (warnings.len(), &warnings[0]["fieldRef"]),
        (1, &json!("spec.validations[1].expression"))
    );
    let warning = warnings[0]["warning"].as_str().unwrap();
    assert!(
        warning.starts_with("/v1, Kind=ConfigMap: ERROR: <input>:1:7: undefined field 'foo'"),
        "{warning}"
    );
}

#[tokio::test]
async fn audit_is_told_what_policies_say() {
    let world = World::start().await;
    let api = world.root().await;
    // Annotations that fail deny, whatever the binding says.
    let annotations = json!([{"key": "k", "valueExpression": "string(object.data.nothing)"}]);
    validating(&api, json!({"auditAnnotations": annotations})).await;
    let message = api.post(MAPS, &map("a")).await.message();
    assert!(
        message.ends_with("expression 'string(object.data.nothing)' resulted in error: no such key: nothing"),
        "{message}"
    );
}
