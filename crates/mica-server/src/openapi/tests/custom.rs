//! Claims about planes with definitions of their own.

use std::sync::atomic::{AtomicUsize, Ordering};

use sha2::{Digest, Sha256};

use super::*;

/// Definitions at hand, and how often they were read.
struct Given {
    definitions: Vec<Value>,
    reads: AtomicUsize,
}

impl Given {
    fn new(definitions: impl IntoIterator<Item = Value>) -> Self {
        Self {
            definitions: definitions.into_iter().collect(),
            reads: AtomicUsize::new(0),
        }
    }
}

#[async_trait]
impl Source for Given {
    fn hash(&self) -> Option<[u8; 32]> {
        let text = Value::from(self.definitions.clone()).to_string();
        (!self.definitions.is_empty()).then(|| Sha256::digest(text).into())
    }

    async fn read(&self) -> Result<Vec<Value>, ApiError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        Ok(self.definitions.clone())
    }
}

fn definition(group: &str, kind: &str, description: &str) -> Value {
    let plural = format!("{}s", kind.to_lowercase());
    let schema = json!({"type": "object", "description": description, "properties": {"spec": {"type": "object"}}});
    json!({"spec": {
        "group": group,
        "scope": "Namespaced",
        "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural},
        "versions": [{"name": "v1", "served": true, "schema": {"openAPIV3Schema": schema}}],
    }})
}

fn widgets() -> Given {
    Given::new([definition("example.com", "Widget", "first")])
}

async fn ask(openapi: &OpenApi, definitions: &Given, path: &str, asked: Asked<'_>) -> Response<Body> {
    let rest: Vec<&str> = path.split('/').collect();
    let answer = openapi.respond(PLANES_OF, definitions, &rest, &asked).await;
    answer.expect("an answer")
}

async fn address(openapi: &OpenApi, definitions: &Given, name: &str) -> String {
    let asked = Asked {
        prefix: "/clusters/p1/control-plane",
        ..NOTHING
    };
    let index = json_of(ask(openapi, definitions, "v3", asked).await).await;
    let address = index["paths"][name]["serverRelativeURL"].as_str();
    address.unwrap_or_else(|| panic!("the index has {name}")).to_owned()
}

#[tokio::test]
async fn the_index_leads_to_the_documents_of_definitions() {
    let (openapi, widgets) = (openapi(), widgets());
    let address = address(&openapi, &widgets, "apis/example.com/v1").await;
    let (path, hash) = address.split_once("?hash=").expect("a hash");
    assert_eq!(path, "/clusters/p1/control-plane/openapi/v3/apis/example.com/v1");
    let asked = Asked { hash, ..NOTHING };
    let response = ask(&openapi, &widgets, "v3/apis/example.com/v1", asked).await;
    expect![[r#"
        200 OK
        cache-control: public, immutable
        content-type: application/json
        etag: "HASH"
        expires: next year
        vary: Accept"#]]
    .assert_eq(&frame(&response, hash));
    let document = json_of(response).await;
    let schemas = &document["components"]["schemas"];
    let field = &schemas["com.example.v1.Widget"]["properties"]["metadata"]["description"];
    expect![[r#""Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata""#]].assert_eq(&field.to_string());
    let lists = &schemas["com.example.v1.WidgetList"]["properties"]["metadata"]["description"];
    expect![[r#""Standard list metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds""#]].assert_eq(&lists.to_string());
    assert_eq!(widgets.reads.load(Ordering::Relaxed), 1, "read once for both");
}

#[tokio::test]
async fn planes_without_the_definition_have_no_document_of_it() {
    let (openapi, widgets) = (openapi(), widgets());
    address(&openapi, &widgets, "apis/example.com/v1").await;
    let response = answer(&openapi, PLANES_OF, "v3/apis/example.com/v1", NOTHING).await;
    assert_eq!(response.status(), StatusCode::NOT_FOUND);
    let swagger = json_of(answer(&openapi, PLANES_OF, "v2", NOTHING).await).await;
    assert!(swagger["definitions"]["com.example.v1.Widget"].is_null());
}

#[tokio::test]
async fn a_changed_definition_has_another_address() {
    let (openapi, widgets) = (openapi(), widgets());
    let changed = Given::new([definition("example.com", "Widget", "second")]);
    let before = address(&openapi, &widgets, "apis/example.com/v1").await;
    let after = address(&openapi, &changed, "apis/example.com/v1").await;
    assert_ne!(before, after);
    let hash = before.split_once('=').expect("a hash").1;
    let asked = Asked {
        hash,
        prefix: "/clusters/p1/control-plane",
        ..NOTHING
    };
    let response = ask(&openapi, &changed, "v3/apis/example.com/v1", asked).await;
    assert_eq!(response.status(), StatusCode::MOVED_PERMANENTLY);
    assert_eq!(response.headers()[LOCATION], after);
}

#[tokio::test]
async fn a_document_is_shared_by_all_sets_that_have_what_it_is_about() {
    let (openapi, one) = (openapi(), widgets());
    let more = Given::new([
        definition("example.com", "Widget", "first"),
        definition("example.org", "Gadget", "other"),
    ]);
    let document = |definitions| openapi.custom.document("apis/example.com/v1", definitions);
    let (first, second) = (document(&one).await, document(&more).await);
    let same = |document: Result<Option<Arc<Document>>, ApiError>| document.expect("documents").expect("one of them");
    assert!(Arc::ptr_eq(&same(first), &same(second)));
}

#[tokio::test]
async fn several_definitions_of_a_version_share_its_document() {
    let openapi = openapi();
    let [widget, gadget] = ["Widget", "Gadget"].map(|kind| definition("example.com", kind, ""));
    let both = Given::new([widget.clone(), gadget.clone()]);
    let turned = Given::new([gadget, widget]);
    let document = json_of(ask(&openapi, &both, "v3/apis/example.com/v1", NOTHING).await).await;
    let schemas = document["components"]["schemas"].as_object().expect("schemas");
    let own: Vec<&str> = schemas.keys().filter_map(|name| name.strip_prefix("com.")).collect();
    expect!["example.v1.Gadget example.v1.GadgetList example.v1.Widget example.v1.WidgetList"]
        .assert_eq(&own.join(" "));
    let [one, other] = [&both, &turned].map(|given| address(&openapi, given, "apis/example.com/v1"));
    assert_eq!(one.await, other.await, "whatever order they come in");
}

#[tokio::test]
async fn a_document_that_was_let_go_is_built_again() {
    let (openapi, widgets) = (openapi(), widgets());
    let before = address(&openapi, &widgets, "apis/example.com/v1").await;
    openapi.custom.let_documents_go();
    let hash = before.split_once('=').expect("a hash").1;
    let asked = Asked { hash, ..NOTHING };
    let response = ask(&openapi, &widgets, "v3/apis/example.com/v1", asked).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(widgets.reads.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn swagger_has_what_is_built_in_and_what_is_defined() {
    let (openapi, widgets) = (openapi(), widgets());
    let plain = answer(&openapi, PLANES_OF, "v2", NOTHING).await;
    let response = ask(&openapi, &widgets, "v2", NOTHING).await;
    assert_ne!(plain.headers()[ETAG], response.headers()[ETAG]);
    let tag = response.headers()[ETAG].to_str().expect("text").to_owned();
    let (mut plain, swagger) = (json_of(plain).await, json_of(response).await);
    assert!(swagger["definitions"]["com.example.v1.Widget"].is_object());
    let path = "/apis/example.com/v1/namespaces/{namespace}/widgets/{name}";
    let parameter = swagger["paths"][path]["parameters"][1]["$ref"]
        .as_str()
        .expect("shared");
    assert!(swagger.pointer(parameter.strip_prefix('#').expect("local")).is_some());
    for (section, left) in swagger.as_object().expect("an object") {
        for (name, value) in left.as_object().into_iter().flatten() {
            if !name.contains("example") {
                assert_eq!(plain[section][name].take(), *value, "{section} {name}");
            }
        }
    }
    let asked = Asked {
        if_none_match: &tag,
        ..NOTHING
    };
    let again = ask(&openapi, &widgets, "v2", asked).await;
    assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
    assert_eq!(widgets.reads.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn swagger_in_protobuf_goes_on_after_what_is_built_in() {
    let (openapi, widgets) = (openapi(), widgets());
    let asked = || Asked {
        accept: "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
        ..NOTHING
    };
    let bytes = async |response: Response<Body>| response.into_body().collect().await.expect("a body").to_bytes();
    let plain = bytes(answer(&openapi, PLANES_OF, "v2", asked()).await).await;
    let more = bytes(ask(&openapi, &widgets, "v2", asked()).await).await;
    let added = more.strip_prefix(plain.as_ref()).expect("the same beginning");
    let name = b"com.example.v1.Widget";
    assert!(added.windows(name.len()).any(|window| window == name));
}

#[tokio::test]
async fn built_in_documents_are_not_taken_over() {
    let openapi = openapi();
    let given = Given::new([definition("rbac.authorization.k8s.io", "Part", "")]);
    let name = "apis/rbac.authorization.k8s.io/v1";
    let hash = openapi.documents(PLANES_OF).await.expect("documents")[name]
        .hash
        .clone();
    assert!(address(&openapi, &given, name).await.ends_with(&hash));
    let document = json_of(ask(&openapi, &given, &format!("v3/{name}"), NOTHING).await).await;
    assert!(document["components"]["schemas"]["io.k8s.api.rbac.v1.Role"].is_object());
}
