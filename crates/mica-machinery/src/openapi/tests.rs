//! Claims about single schemas and operations, and about whole documents.

use std::collections::BTreeSet;

use expect_test::{Expect, expect};
use serde_json::Value;

use super::{Api, ApiResource, Describe, Dialect, Undescribed, gnostic, schema};
use crate::facts::facts;
use crate::kind;

const CORE: &str = "io.k8s.api.core.v1";
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

fn resources() -> Vec<ApiResource> {
    kind::resources().iter().map(ApiResource::built_in).collect()
}

fn with_documents<T>(check: impl Fn(&Api<'_>) -> T) -> T {
    check(&Api {
        resources: &resources(),
        describe: &Undescribed,
        version: "1.36",
    })
}

fn swagger() -> Value {
    let resources = resources();
    let api = Api {
        resources: &resources,
        describe: &Undescribed,
        version: "1.36",
    };
    api.swagger()
}

fn document(name: &str) -> Value {
    with_documents(|api| api.document(name)).expect("a document of that name")
}

fn check_schema(name: &str, dialect: Dialect, expected: Expect) {
    let schema: Value = schema::definition(name, dialect, &Undescribed).into();
    let mut text = String::new();
    for (key, value) in schema.as_object().expect("an object") {
        match (key.as_str(), value) {
            ("properties", Value::Object(properties)) => {
                for (name, property) in properties {
                    text.push_str(&format!(".{name} {property}\n"));
                }
            }
            _ => text.push_str(&format!("{key} {value}\n")),
        }
    }
    expected.assert_eq(&text);
}

#[test]
fn elements_have_zero_defaults_and_references_with_siblings_are_wrapped() {
    check_schema(
        &format!("{CORE}.ConfigMap"),
        Dialect::OpenApi3,
        expect![[r##"
        .apiVersion {"type":"string"}
        .binaryData {"additionalProperties":{"format":"byte","type":"string"},"type":"object"}
        .data {"additionalProperties":{"default":"","type":"string"},"type":"object"}
        .immutable {"type":"boolean"}
        .kind {"type":"string"}
        .metadata {"allOf":[{"$ref":"#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}],"default":{}}
        type "object"
    "##]],
    );
}

#[test]
fn swagger_has_no_defaults_and_siblings_beside_references() {
    check_schema(
        &format!("{CORE}.ConfigMap"),
        Dialect::Swagger,
        expect![[r##"
        .apiVersion {"type":"string"}
        .binaryData {"additionalProperties":{"format":"byte","type":"string"},"type":"object"}
        .data {"additionalProperties":{"type":"string"},"type":"object"}
        .immutable {"type":"boolean"}
        .kind {"type":"string"}
        .metadata {"$ref":"#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}
        type "object"
    "##]],
    );
}

#[test]
fn lists_and_patches_are_annotated_as_marked() {
    check_schema(
        &format!("{META}.ObjectMeta"),
        Dialect::OpenApi3,
        expect![[r##"
        .annotations {"additionalProperties":{"default":"","type":"string"},"type":"object"}
        .creationTimestamp {"$ref":"#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.Time"}
        .deletionGracePeriodSeconds {"format":"int64","type":"integer"}
        .deletionTimestamp {"$ref":"#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.Time"}
        .finalizers {"items":{"default":"","type":"string"},"type":"array","x-kubernetes-list-type":"set","x-kubernetes-patch-strategy":"merge"}
        .generateName {"type":"string"}
        .generation {"format":"int64","type":"integer"}
        .labels {"additionalProperties":{"default":"","type":"string"},"type":"object"}
        .managedFields {"items":{"allOf":[{"$ref":"#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ManagedFieldsEntry"}],"default":{}},"type":"array","x-kubernetes-list-type":"atomic"}
        .name {"type":"string"}
        .namespace {"type":"string"}
        .ownerReferences {"items":{"allOf":[{"$ref":"#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference"}],"default":{}},"type":"array","x-kubernetes-list-map-keys":["uid"],"x-kubernetes-list-type":"map","x-kubernetes-patch-merge-key":"uid","x-kubernetes-patch-strategy":"merge"}
        .resourceVersion {"type":"string"}
        .selfLink {"type":"string"}
        .uid {"type":"string"}
        type "object"
    "##]],
    );
}

#[test]
fn types_that_print_themselves_have_two_schemas() {
    check_schema(
        "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
        Dialect::OpenApi3,
        expect![[r#"
            format "int-or-string"
            oneOf [{"type":"integer"},{"type":"string"}]
        "#]],
    );
    check_schema(
        "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
        Dialect::Swagger,
        expect![[r#"
            format "int-or-string"
            type "string"
        "#]],
    );
}

#[test]
fn our_own_kind_is_described_from_its_facts() {
    check_schema(
        "dev.mica.v1alpha1.PlaneSpec",
        Dialect::OpenApi3,
        expect![[r##"
            description "PlaneSpec is what a plane should be."
            .addresses {"description":"Addresses are further addresses at which the plane is served, beside /clusters/{name}/control-plane.","items":{"allOf":[{"$ref":"#/components/schemas/dev.mica.v1alpha1.PlaneAddress"}],"default":{}},"type":"array","x-kubernetes-list-map-keys":["type","value"],"x-kubernetes-list-type":"map"}
            .audit {"allOf":[{"$ref":"#/components/schemas/dev.mica.v1alpha1.PlaneAudit"}],"description":"Audit is what is written down of the plane's requests beside what the platform writes down."}
            .authentication {"allOf":[{"$ref":"#/components/schemas/dev.mica.v1alpha1.PlaneAuthentication"}],"description":"Authentication says whose tokens the plane accepts beside its own. Those users are the plane's, and nobody elsewhere."}
            .className {"description":"ClassName names the PlaneClass of the plane. A plane that names none is of the class \"default\". A class that does not exist limits nothing.","type":"string"}
            .limits {"allOf":[{"$ref":"#/components/schemas/dev.mica.v1alpha1.PlaneLimits"}],"description":"Limits are the plane's own limits. They stand before those of its class."}
            .movedFrom {"allOf":[{"$ref":"#/components/schemas/dev.mica.v1alpha1.PlaneMovedFrom"}],"description":"MovedFrom says whose word counts for requests that the plane's old server passes on."}
            .movedTo {"allOf":[{"$ref":"#/components/schemas/dev.mica.v1alpha1.PlaneMovedTo"}],"description":"MovedTo is where a plane is that has moved to another server."}
            .parent {"allOf":[{"$ref":"#/components/schemas/dev.mica.v1alpha1.PlaneParent"}],"description":"Parent is what the plane belongs to, a project for example. Whoever decides about requests in the plane is told it with the user. It is stated when the plane is created, and stays."}
            .profile {"description":"Profile says which built-in kinds the plane serves: those of a generic control plane, or all of Kubernetes. It is chosen when the plane is created (that of its class, or else the server's own, if nothing is said), and stays.\n\nPossible enum values:\n - `\"Generic\"`\n - `\"Kubernetes\"`","enum":["Generic","Kubernetes"],"type":"string"}
            .state {"default":"Active","description":"State says which requests the plane takes: all of them (Active, the default), only those that read (ReadOnly), or none (Suspended). A plane that comes from another server is Arriving until it is opened; one that goes to another is Moving, which lets writes wait, and then Moved.\n\nPossible enum values:\n - `\"Active\"`\n - `\"Arriving\"`\n - `\"Moved\"`\n - `\"Moving\"`\n - `\"ReadOnly\"`\n - `\"Suspended\"`","enum":["Active","Arriving","Moved","Moving","ReadOnly","Suspended"],"type":"string"}
            type "object"
        "##]],
    );
}

#[test]
fn unions_are_printed() {
    check_schema(
        "io.k8s.api.flowcontrol.v1.LimitResponse",
        Dialect::OpenApi3,
        expect![[r##"
            .queuing {"$ref":"#/components/schemas/io.k8s.api.flowcontrol.v1.QueuingConfiguration"}
            .type {"default":"","type":"string"}
            required ["type"]
            type "object"
            x-kubernetes-unions [{"discriminator":"type","fields-to-discriminateBy":{"queuing":"Queuing"}}]
        "##]],
    );
}

fn check_paths(document: &str, wanted: impl Fn(&str) -> bool, expected: Expect) {
    let document = self::document(document);
    let mut text = String::new();
    for (path, item) in document["paths"]
        .as_object()
        .expect("paths")
        .iter()
        .filter(|(path, _)| wanted(path))
    {
        text.push_str(&format!("{path} {}\n", names(&item["parameters"])));
        for (method, operation) in item
            .as_object()
            .expect("an object")
            .iter()
            .filter(|(key, _)| *key != "parameters")
        {
            let codes: Vec<&str> = operation["responses"]
                .as_object()
                .expect("responses")
                .keys()
                .map(String::as_str)
                .collect();
            let [id, action, description] =
                ["operationId", "x-kubernetes-action", "description"].map(|key| &operation[key]);
            text.push_str(&format!(
                "  {method} {id} {action} {description} {} {}\n",
                codes.join(","),
                names(&operation["parameters"]),
            ));
        }
    }
    expected.assert_eq(&text);
}

fn names(parameters: &Value) -> String {
    let names: Vec<&str> = parameters
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|p| p["name"].as_str())
        .collect();
    format!("[{}]", names.join(" "))
}

#[test]
fn a_namespaced_resource_has_upstreams_paths_and_operations() {
    check_paths(
        "api/v1",
        |path| path.contains("configmaps"),
        expect![[r#"
        /api/v1/configmaps [allowWatchBookmarks continue fieldSelector labelSelector limit pretty resourceVersion resourceVersionMatch sendInitialEvents shardSelector timeoutSeconds watch]
          get "listCoreV1ConfigMapForAllNamespaces" "list" "list or watch objects of kind ConfigMap" 200,401 []
        /api/v1/namespaces/{namespace}/configmaps [namespace pretty]
          delete "deleteCoreV1CollectionNamespacedConfigMap" "deletecollection" "delete collection of ConfigMap" 200,401 [continue dryRun fieldSelector gracePeriodSeconds ignoreStoreReadErrorWithClusterBreakingPotential labelSelector limit orphanDependents propagationPolicy resourceVersion resourceVersionMatch sendInitialEvents shardSelector timeoutSeconds]
          get "listCoreV1NamespacedConfigMap" "list" "list or watch objects of kind ConfigMap" 200,401 [allowWatchBookmarks continue fieldSelector labelSelector limit resourceVersion resourceVersionMatch sendInitialEvents shardSelector timeoutSeconds watch]
          post "createCoreV1NamespacedConfigMap" "post" "create a ConfigMap" 200,201,202,401 [dryRun fieldManager fieldValidation]
        /api/v1/namespaces/{namespace}/configmaps/{name} [name namespace pretty]
          delete "deleteCoreV1NamespacedConfigMap" "delete" "delete a ConfigMap" 200,202,401 [dryRun gracePeriodSeconds ignoreStoreReadErrorWithClusterBreakingPotential orphanDependents propagationPolicy]
          get "readCoreV1NamespacedConfigMap" "get" "read the specified ConfigMap" 200,401 []
          patch "patchCoreV1NamespacedConfigMap" "patch" "partially update the specified ConfigMap" 200,201,401 [dryRun fieldManager fieldValidation force]
          put "replaceCoreV1NamespacedConfigMap" "put" "replace the specified ConfigMap" 200,201,401 [dryRun fieldManager fieldValidation]
        /api/v1/watch/configmaps [allowWatchBookmarks continue fieldSelector labelSelector limit pretty resourceVersion resourceVersionMatch sendInitialEvents shardSelector timeoutSeconds watch]
          get "watchCoreV1ConfigMapListForAllNamespaces" "watchlist" "watch individual changes to a list of ConfigMap. deprecated: use the 'watch' parameter with a list operation instead." 200,401 []
        /api/v1/watch/namespaces/{namespace}/configmaps [allowWatchBookmarks continue fieldSelector labelSelector limit namespace pretty resourceVersion resourceVersionMatch sendInitialEvents shardSelector timeoutSeconds watch]
          get "watchCoreV1NamespacedConfigMapList" "watchlist" "watch individual changes to a list of ConfigMap. deprecated: use the 'watch' parameter with a list operation instead." 200,401 []
        /api/v1/watch/namespaces/{namespace}/configmaps/{name} [allowWatchBookmarks continue fieldSelector labelSelector limit name namespace pretty resourceVersion resourceVersionMatch sendInitialEvents shardSelector timeoutSeconds watch]
          get "watchCoreV1NamespacedConfigMap" "watch" "watch changes to an object of kind ConfigMap. deprecated: use the 'watch' parameter with a list operation instead, filtered to a single item with the 'fieldSelector' parameter." 200,401 []
    "#]],
    );
}

#[test]
fn connections_and_logs_answer_text_and_are_told_by_the_query() {
    let sub = |path: &str| path.ends_with("/pods/{name}/exec") || path.contains("/nodes/{name}/proxy");
    check_paths(
        "api/v1",
        sub,
        expect![[r#"
        /api/v1/namespaces/{namespace}/pods/{name}/exec [command container name namespace stderr stdin stdout tty]
          get "connectCoreV1GetNamespacedPodExec" "connect" "connect GET requests to exec of Pod" 200,401 []
          post "connectCoreV1PostNamespacedPodExec" "connect" "connect POST requests to exec of Pod" 200,401 []
        /api/v1/nodes/{name}/proxy [name path]
          delete "connectCoreV1DeleteNodeProxy" "connect" "connect DELETE requests to proxy of Node" 200,401 []
          get "connectCoreV1GetNodeProxy" "connect" "connect GET requests to proxy of Node" 200,401 []
          head "connectCoreV1HeadNodeProxy" "connect" "connect HEAD requests to proxy of Node" 200,401 []
          options "connectCoreV1OptionsNodeProxy" "connect" "connect OPTIONS requests to proxy of Node" 200,401 []
          patch "connectCoreV1PatchNodeProxy" "connect" "connect PATCH requests to proxy of Node" 200,401 []
          post "connectCoreV1PostNodeProxy" "connect" "connect POST requests to proxy of Node" 200,401 []
          put "connectCoreV1PutNodeProxy" "connect" "connect PUT requests to proxy of Node" 200,401 []
        /api/v1/nodes/{name}/proxy/{path} [name path path]
          delete "connectCoreV1DeleteNodeProxyWithPath" "connect" "connect DELETE requests to proxy of Node" 200,401 []
          get "connectCoreV1GetNodeProxyWithPath" "connect" "connect GET requests to proxy of Node" 200,401 []
          head "connectCoreV1HeadNodeProxyWithPath" "connect" "connect HEAD requests to proxy of Node" 200,401 []
          options "connectCoreV1OptionsNodeProxyWithPath" "connect" "connect OPTIONS requests to proxy of Node" 200,401 []
          patch "connectCoreV1PatchNodeProxyWithPath" "connect" "connect PATCH requests to proxy of Node" 200,401 []
          post "connectCoreV1PostNodeProxyWithPath" "connect" "connect POST requests to proxy of Node" 200,401 []
          put "connectCoreV1PutNodeProxyWithPath" "connect" "connect PUT requests to proxy of Node" 200,401 []
    "#]],
    );
    let document = document("api/v1");
    let content = |path: &str| document["paths"][path]["get"]["responses"]["200"]["content"].to_string();
    expect![[r#"{"*/*":{"schema":{"type":"string"}}}"#]].assert_eq(&content("/api/v1/nodes/{name}/proxy"));
    expect![[r#"{"application/json":{"schema":{"type":"string"}},"application/vnd.kubernetes.protobuf":{"schema":{"type":"string"}},"application/yaml":{"schema":{"type":"string"}},"text/plain":{"schema":{"type":"string"}}}"#]].assert_eq(&content("/api/v1/namespaces/{namespace}/pods/{name}/log"));
    let log = &document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}/log"];
    expect!["[container follow insecureSkipTLSVerifyBackend limitBytes name namespace pretty previous sinceSeconds stream tailLines timestamps]"].assert_eq(&names(&log["parameters"]));
    // Options are no objects that anybody reads or writes.
    let schemas = document["components"]["schemas"].as_object().expect("schemas");
    assert!(!schemas.keys().any(|name| name.contains("PodExecOptions")));
}

#[test]
fn subresources_have_their_own_verbs_and_kinds() {
    let sub = |path: &str| {
        path.ends_with("/token") || path.ends_with("/finalize") || path.ends_with("namespaces/{name}/status")
    };
    check_paths(
        "api/v1",
        sub,
        expect![[r#"
        /api/v1/namespaces/{namespace}/serviceaccounts/{name}/token [dryRun fieldManager fieldValidation name namespace pretty]
          post "createCoreV1NamespacedServiceAccountToken" "post" "create token of a ServiceAccount" 200,201,202,401 []
        /api/v1/namespaces/{name}/finalize [dryRun fieldManager fieldValidation name pretty]
          put "replaceCoreV1NamespaceFinalize" "put" "replace finalize of the specified Namespace" 200,201,401 []
        /api/v1/namespaces/{name}/status [name pretty]
          get "readCoreV1NamespaceStatus" "get" "read status of the specified Namespace" 200,401 []
          patch "patchCoreV1NamespaceStatus" "patch" "partially update status of the specified Namespace" 200,201,401 [dryRun fieldManager fieldValidation force]
          put "replaceCoreV1NamespaceStatus" "put" "replace status of the specified Namespace" 200,201,401 [dryRun fieldManager fieldValidation]
    "#]],
    );
}

#[test]
fn reviews_can_only_be_created() {
    check_paths(
        "apis/authorization.k8s.io/v1",
        |path| path.contains("reviews"),
        expect![[r#"
            /apis/authorization.k8s.io/v1/namespaces/{namespace}/localsubjectaccessreviews [dryRun fieldManager fieldValidation namespace pretty]
              post "createAuthorizationV1NamespacedLocalSubjectAccessReview" "post" "create a LocalSubjectAccessReview" 200,201,202,401 []
            /apis/authorization.k8s.io/v1/selfsubjectaccessreviews [dryRun fieldManager fieldValidation pretty]
              post "createAuthorizationV1SelfSubjectAccessReview" "post" "create a SelfSubjectAccessReview" 200,201,202,401 []
            /apis/authorization.k8s.io/v1/selfsubjectrulesreviews [dryRun fieldManager fieldValidation pretty]
              post "createAuthorizationV1SelfSubjectRulesReview" "post" "create a SelfSubjectRulesReview" 200,201,202,401 []
            /apis/authorization.k8s.io/v1/subjectaccessreviews [dryRun fieldManager fieldValidation pretty]
              post "createAuthorizationV1SubjectAccessReview" "post" "create a SubjectAccessReview" 200,201,202,401 []
        "#]],
    );
}

#[test]
fn kubectl_finds_the_parameters_of_a_kinds_patch() {
    let document = document("apis/rbac.authorization.k8s.io/v1");
    let patch = &document["paths"]["/apis/rbac.authorization.k8s.io/v1/clusterroles/{name}"]["patch"];
    expect![[r#"{"group":"rbac.authorization.k8s.io","kind":"ClusterRole","version":"v1"}"#]]
        .assert_eq(&patch["x-kubernetes-group-version-kind"].to_string());
    expect!["[dryRun fieldManager fieldValidation force]"].assert_eq(&names(&patch["parameters"]));
    expect![[r#"["rbacAuthorization_v1"]"#]].assert_eq(&patch["tags"].to_string());
}

#[test]
fn kinds_of_every_version_name_the_documents_version_only() {
    let document = document("apis/events.k8s.io/v1");
    let kinds = |name: &str| document["components"]["schemas"][name]["x-kubernetes-group-version-kind"].to_string();
    expect![[r#"[{"group":"","kind":"DeleteOptions","version":"v1"},{"group":"events.k8s.io","kind":"DeleteOptions","version":"v1"}]"#]].assert_eq(&kinds(&format!("{META}.DeleteOptions")));
    expect![[r#"[{"group":"","kind":"Status","version":"v1"}]"#]].assert_eq(&kinds(&format!("{META}.Status")));
    expect![[r#"[{"group":"events.k8s.io","kind":"EventList","version":"v1"}]"#]]
        .assert_eq(&kinds("io.k8s.api.events.v1.EventList"));
}

pub(super) fn references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            if let Some(Value::String(target)) = object.get("$ref") {
                found.insert(target.clone());
            }
            object.values().for_each(|inner| references(inner, found));
        }
        Value::Array(list) => list.iter().for_each(|inner| references(inner, found)),
        _ => {}
    }
}

#[test]
fn every_reference_resolves_and_every_schema_is_used() {
    let check = |name: &str, document: &Value, place: &str| {
        let mut targets = BTreeSet::new();
        references(document, &mut targets);
        for target in &targets {
            let pointer = target.strip_prefix('#').expect("a reference is local");
            assert!(document.pointer(pointer).is_some(), "{name}: {target}");
        }
        // Documents about texts have none.
        let schemas = document.pointer(place).and_then(Value::as_object);
        for schema in schemas.into_iter().flat_map(|schemas| schemas.keys()) {
            assert!(
                targets.contains(&format!("#{place}/{schema}")),
                "{name}: nothing refers to {schema}"
            );
        }
    };
    with_documents(|api| {
        for name in api.names() {
            let document = api.document(&name).expect("a document of each name");
            check(&name, &document, "/components/schemas");
        }
        check("swagger", &api.swagger(), "/definitions");
    });
}

#[test]
fn operation_ids_are_unique() {
    let mut seen = BTreeSet::new();
    swagger()["paths"]
        .as_object()
        .expect("paths")
        .values()
        .flat_map(|item| item.as_object().expect("an object").values())
        .filter_map(|operation| operation["operationId"].as_str().map(str::to_owned))
        .for_each(|id| assert!(seen.insert(id.clone()), "{id} is there twice"));
}

pub(super) fn first_difference(left: &Value, right: &Value, path: &str) -> Option<String> {
    match (left, right) {
        (Value::Object(left), Value::Object(right)) => {
            let keys: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
            keys.into_iter().find_map(|key| {
                let path = format!("{path} {key}");
                match (left.get(key), right.get(key)) {
                    (Some(left), Some(right)) => first_difference(left, right, &path),
                    (left, right) => Some(format!("{path}: {left:?} against {right:?}")),
                }
            })
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            let mut pairs = left.iter().zip(right).enumerate();
            pairs.find_map(|(i, (left, right))| first_difference(left, right, &format!("{path} {i}")))
        }
        _ => (left != right).then(|| format!("{path}: {left} against {right}")),
    }
}

#[test]
fn protobuf_and_json_describe_the_same_document() {
    with_documents(|api| {
        for name in api.names() {
            let document = api.document(&name).expect("a document of each name");
            let read = gnostic::read::read_openapi3(&gnostic::openapi3(&document));
            assert_eq!(first_difference(&read, &document, &name), None);
        }
        let swagger = api.swagger();
        let read = gnostic::read::read_swagger(&gnostic::swagger(&swagger));
        assert_eq!(first_difference(&read, &swagger, "swagger"), None);
    });
}

#[test]
fn documents_are_the_same_each_time() {
    with_documents(|api| {
        for name in api.names() {
            assert_eq!(api.document(&name), api.document(&name));
        }
        assert_eq!(api.swagger(), api.swagger());
    });
}

#[test]
fn documents_go_by_the_names_of_the_index_only() {
    with_documents(|api| {
        assert!(
            api.names()
                .iter()
                .any(|name| name == "apis/rbac.authorization.k8s.io/v1")
        );
        for name in [
            "",
            "api/v2",
            "apis/nope",
            "apis/rbac.authorization.k8s.io/v7",
            "apis//v1",
            "version/",
            "api/v1/x",
        ] {
            assert_eq!(api.document(name), None, "{name}");
        }
        assert!(
            api.resources_of("api/v1")
                .iter()
                .any(|resource| resource.kind == "ConfigMap")
        );
        assert!(api.resources_of("apis").is_empty());
    });
}

#[test]
fn shared_parameters_stand_once() {
    let swagger = self::swagger();
    let names: BTreeSet<&str> = swagger["parameters"]
        .as_object()
        .expect("parameters")
        .values()
        .filter_map(|parameter| parameter["name"].as_str())
        .collect();
    let names: Vec<&str> = names.into_iter().collect();
    expect!["allowWatchBookmarks body command container continue fieldManager fieldSelector follow force gracePeriodSeconds ignoreStoreReadErrorWithClusterBreakingPotential insecureSkipTLSVerifyBackend labelSelector limit limitBytes namespace orphanDependents path ports pretty previous propagationPolicy resourceVersion resourceVersionMatch sendInitialEvents shardSelector sinceSeconds stderr stdin stdout stream tailLines timeoutSeconds timestamps tty watch"].assert_eq(&names.join(" "));
}

/// Describes everything with one word.
struct Terse;

impl Describe for Terse {
    fn of_type(&self, _name: &str) -> Option<&str> {
        None
    }

    fn of_field(&self, _name: &str, _field: &str) -> Option<&str> {
        Some("x")
    }
}

#[test]
fn values_follow_after_the_blank_lines_of_the_text_and_with_what_is_said_of_them() {
    let cases = [
        // Nothing is said of these, and their constants are conversions.
        (
            "resource.v1.ExactDeviceRequest",
            "allocationMode",
            "x\n\n\nPossible enum values:\n - `\"All\"`\n - `\"ExactCount\"`",
        ),
        // These are constants of another package.
        (
            "discovery.v1.EndpointSlice",
            "addressType",
            "x\n\nPossible enum values:\n - `\"FQDN\"` represents a FQDN.\n - `\"IPv4\"` represents an IPv4 Address.\n - `\"IPv6\"` represents an IPv6 Address.",
        ),
    ];
    for (name, field, expected) in cases {
        let schema = schema::definition(&format!("io.k8s.api.{name}"), Dialect::Swagger, &Terse);
        assert_eq!(schema["properties"][field]["description"], expected, "{name} {field}");
    }
}

struct Loud;

impl Describe for Loud {
    fn of_type(&self, name: &str) -> Option<&str> {
        Some(if name.ends_with("Subject") { "who" } else { "what" })
    }

    fn of_field(&self, _name: &str, field: &str) -> Option<&str> {
        (field == "kind").then_some("which")
    }
}

#[test]
fn values_of_enumerations_follow_the_description() {
    let name = "io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicySpec";
    let ty = facts().openapi(name).expect("a type");
    assert!(
        facts()
            .ty(ty)
            .fields
            .iter()
            .any(|field| field.printed.enumeration().next().is_some())
    );
    let schema = schema::definition(name, Dialect::OpenApi3, &Loud);
    expect![[r#"{"description":"Possible enum values:\n - `\"Fail\"` means that an error calling the webhook causes the admission to fail.\n - `\"Ignore\"` means that an error calling the webhook is ignored.","enum":["Fail","Ignore"],"type":"string"}"#]].assert_eq(&schema["properties"]["failurePolicy"].to_string());
    expect![[r#"{"description":"who"}"#]].assert_eq(
        &serde_json::json!({"description": schema::definition("x.Subject", Dialect::OpenApi3, &Loud)["description"]})
            .to_string(),
    );
}
