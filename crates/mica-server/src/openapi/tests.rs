//! Claims about answers, and about how much of what is served is described.

mod custom;

use std::sync::Arc;

use expect_test::{Expect, expect};
use http_body_util::BodyExt as _;
use mica_machinery::kind::Profile;
use mica_machinery::openapi::{ApiResource, Describe as _};

use super::describe::Descriptions;
use super::*;

const PLANES_OF: Whose = Whose::Planes(Profile::Generic);

fn openapi() -> OpenApi {
    OpenApi::new(crate::start::schemes(Profile::Generic))
}

const NOTHING: Asked<'_> = Asked {
    accept: "",
    if_none_match: "",
    hash: "",
    prefix: "",
};

async fn answer(openapi: &OpenApi, whose: Whose, path: &str, asked: Asked<'_>) -> Response<Body> {
    let rest: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    openapi
        .respond(whose, &NoDefinitions, &rest, &asked)
        .await
        .expect("an answer")
}

async fn json_of(response: Response<Body>) -> Value {
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    serde_json::from_slice(&bytes).expect("JSON")
}

async fn hash_of(openapi: &OpenApi, name: &str) -> String {
    openapi.documents(PLANES_OF).await.expect("documents")[name]
        .hash
        .clone()
}

/// Status and headers, with hashes and dates replaced by what they are.
fn frame(response: &Response<Body>, hash: &str) -> String {
    let mut lines = vec![response.status().to_string()];
    for (name, value) in response.headers() {
        let value = value.to_str().expect("text").replace(hash, "HASH");
        lines.push(if name == EXPIRES {
            "expires: next year".to_owned()
        } else {
            format!("{name}: {value}")
        });
    }
    lines.sort();
    lines.join("\n")
}

async fn check(path: &str, asked: Asked<'_>, expected: Expect) {
    let openapi = openapi();
    let hash = hash_of(&openapi, "api/v1").await;
    let response = answer(&openapi, PLANES_OF, path, asked).await;
    expected.assert_eq(&frame(&response, &hash));
}

#[tokio::test]
async fn the_index_stays_inside_the_prefix() {
    let openapi = openapi();
    let asked = Asked {
        prefix: "/clusters/p1/control-plane",
        ..NOTHING
    };
    let index = json_of(answer(&openapi, PLANES_OF, "v3", asked).await).await;
    let hash = hash_of(&openapi, "api/v1").await;
    assert_eq!(
        index["paths"]["api/v1"]["serverRelativeURL"],
        format!("/clusters/p1/control-plane/openapi/v3/api/v1?hash={hash}")
    );
    let own = |whose| answer(&openapi, whose, "v3/apis/mica.dev/v1alpha1", NOTHING);
    let schemas = |document: Value| document["components"]["schemas"].as_object().expect("schemas").clone();
    let (root, plane) = (
        json_of(own(Whose::Root).await).await,
        json_of(own(PLANES_OF).await).await,
    );
    assert!(schemas(root).contains_key("dev.mica.v1alpha1.Plane"));
    assert!(
        !schemas(plane).contains_key("dev.mica.v1alpha1.Plane"),
        "planes have no planes"
    );
}

#[tokio::test]
async fn objects_can_be_explained() {
    let document = json_of(answer(&openapi(), PLANES_OF, "v3/apis/mica.dev/v1alpha1", NOTHING).await).await;
    let schema = &document["components"]["schemas"]["io.k8s.apimachinery.pkg.apis.meta.v1.PartialObjectMetadata"];
    assert!(schema["description"].is_string() && schema["properties"]["kind"]["description"].is_string());
    let own = json!({"group": "mica.dev", "version": "v1alpha1", "kind": "PartialObjectMetadata"});
    let kinds = schema["x-kubernetes-group-version-kind"].as_array().expect("kinds");
    assert!(kinds.contains(&own), "{kinds:?}");
    assert!(document["paths"]["/apis/mica.dev/v1alpha1/objects"]["get"].is_object());
}

#[tokio::test]
async fn a_document_has_an_entity_tag() {
    check(
        "v3/api/v1",
        NOTHING,
        expect![[r#"
        200 OK
        content-type: application/json
        etag: "HASH"
        vary: Accept"#]],
    )
    .await;
}

#[tokio::test]
async fn a_document_asked_for_by_its_hash_may_be_kept_for_ever() {
    let hash = hash_of(&openapi(), "api/v1").await;
    check(
        "v3/api/v1",
        Asked { hash: &hash, ..NOTHING },
        expect![[r#"
        200 OK
        cache-control: public, immutable
        content-type: application/json
        etag: "HASH"
        expires: next year
        vary: Accept"#]],
    )
    .await;
}

#[tokio::test]
async fn an_old_hash_is_redirected_inside_the_prefix() {
    let asked = Asked {
        hash: "ABC",
        prefix: "/clusters/p1/control-plane",
        ..NOTHING
    };
    check(
        "v3/api/v1",
        asked,
        expect![[r#"
        301 Moved Permanently
        content-type: application/json
        etag: "HASH"
        location: /clusters/p1/control-plane/openapi/v3/api/v1?hash=HASH
        vary: Accept"#]],
    )
    .await;
}

#[tokio::test]
async fn what_the_client_has_is_not_sent_again() {
    let hash = hash_of(&openapi(), "api/v1").await;
    let tags = format!("\"other\", W/\"{hash}\"");
    check(
        "v3/api/v1",
        Asked {
            if_none_match: &tags,
            ..NOTHING
        },
        expect![[r#"
        304 Not Modified
        etag: "HASH"
        vary: Accept"#]],
    )
    .await;
}

#[tokio::test]
async fn an_encoding_that_there_is_not_is_refused_without_a_word() {
    check(
        "v3/api/v1",
        Asked {
            accept: "text/plain",
            ..NOTHING
        },
        expect![[r#"
        406 Not Acceptable
        vary: Accept"#]],
    )
    .await;
    check("v3/api/v7", NOTHING, expect!["404 Not Found"]).await;
}

#[tokio::test]
async fn other_pages_are_not_found() {
    for path in ["", "v1", "v2/api"] {
        let rest: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
        let error = openapi()
            .respond(Whose::Root, &NoDefinitions, &rest, &NOTHING)
            .await
            .err()
            .expect("refused");
        assert_eq!(error.code(), StatusCode::NOT_FOUND, "{path}");
    }
}

#[test]
fn clients_get_the_encoding_that_they_name_best() {
    for (accept, expected) in [
        ("", Some(Encoding::Json)),
        ("*/*", Some(Encoding::Json)),
        ("application/*", Some(Encoding::Json)),
        (
            "application/com.github.proto-openapi.spec.v3@v1.0+protobuf",
            Some(Encoding::Protobuf),
        ),
        (
            "application/com.github.proto-openapi.spec.v3.v1.0+protobuf",
            Some(Encoding::Protobuf),
        ),
        (
            "application/json;q=0.5, application/com.github.proto-openapi.spec.v3@v1.0+protobuf",
            Some(Encoding::Protobuf),
        ),
        (
            "*/*, application/com.github.proto-openapi.spec.v3@v1.0+protobuf",
            Some(Encoding::Protobuf),
        ),
        ("application/com.github.proto-openapi.spec.v2@v1.0+protobuf", None),
        ("application/yaml", None),
        ("nonsense", None),
    ] {
        assert_eq!(negotiate(accept, &OPENAPI3), expected, "{accept}");
    }
}

#[tokio::test]
async fn protobuf_has_its_own_type_and_the_same_tag() {
    let accept = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf";
    check(
        "v3/api/v1",
        Asked { accept, ..NOTHING },
        expect![[r#"
        200 OK
        content-type: application/com.github.proto-openapi.spec.v3.v1.0+protobuf
        etag: "HASH"
        vary: Accept"#]],
    )
    .await;
}

#[tokio::test]
async fn root_and_planes_share_what_is_the_same() {
    let openapi = openapi();
    let [root, plane] = [Whose::Root, PLANES_OF].map(|whose| openapi.documents(whose));
    let (root, plane) = (root.await.expect("documents"), plane.await.expect("documents"));
    for (name, document) in plane {
        let same = Arc::ptr_eq(document, &root[name]);
        assert_eq!(same, name != "apis/mica.dev/v1alpha1", "{name}");
    }
    assert_eq!(root.len(), plane.len());
}

#[tokio::test]
async fn swagger_describes_every_group() {
    let openapi = openapi();
    let response = answer(&openapi, Whose::Root, "v2", NOTHING).await;
    assert!(response.headers().contains_key(ETAG));
    let swagger = json_of(response).await;
    assert_eq!(swagger["swagger"], "2.0");
    for kind in [
        "io.k8s.api.core.v1.ConfigMap",
        "io.k8s.api.rbac.v1.Role",
        "dev.mica.v1alpha1.Plane",
    ] {
        assert!(swagger["definitions"][kind]["description"].is_string(), "{kind}");
    }
    let plane = json_of(answer(&openapi, PLANES_OF, "v2", NOTHING).await).await;
    assert!(plane["definitions"]["dev.mica.v1alpha1.Plane"].is_null());
}

#[test]
fn kubectl_explain_has_something_to_say() {
    let resources: Vec<ApiResource> = mica_machinery::kind::resources()
        .iter()
        .map(ApiResource::built_in)
        .collect();
    let descriptions = Descriptions::of(&resources);
    let text = |field| {
        descriptions
            .of_field("io.k8s.api.core.v1.ConfigMap", field)
            .unwrap_or_default()
    };
    assert!(text("data").starts_with("Data contains the configuration data."));
    let undescribed: Vec<&str> = resources
        .iter()
        .flat_map(|resource| [&resource.r#type, &resource.list])
        .filter(|name| !name.is_empty() && descriptions.of_type(name).is_none())
        .map(String::as_str)
        .collect();
    expect![[r#"
        []
    "#]]
    .assert_debug_eq(&undescribed);
}
