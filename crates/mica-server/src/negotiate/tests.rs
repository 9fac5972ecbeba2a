//! Texts as kube-apiserver 1.36 answered them (recorded), and its library's quirks.

use super::*;

fn asked(accept: &str) -> Asked<'_> {
    Asked {
        accept,
        ..Asked::default()
    }
}

fn check(accept: &str, route: Route, encodings: Encodings) -> String {
    match output(asked(accept), route, encodings) {
        Ok(output) => {
            let conversion = output
                .conversion
                .map(|c| format!(" as {:?} {}", c.target, c.version.api_version()));
            format!("{:?}{}", output.format, conversion.unwrap_or_default())
        }
        Err(refusal) => {
            let status = ApiError::from(refusal).to_status();
            let details = if status.get("details").is_some() {
                "with"
            } else {
                "without"
            };
            format!(
                "{} {} {details} details: {}",
                status["code"],
                status["reason"].as_str().unwrap(),
                status["message"].as_str().unwrap()
            )
        }
    }
}

const TYPES: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";

#[test]
fn an_object_of_a_built_in_kind_is_negotiated_as_recorded() {
    let routed = format!("406 NotAcceptable with details: 406: Not Acceptable\n\nAvailable representations: {TYPES}");
    let handled = format!("406 NotAcceptable without details: only the following media types are accepted: {TYPES}");
    for (accept, expected) in [
        ("", "Json"),
        ("*/*", "Json"),
        ("application/json", "Json"),
        ("application/yaml", "Yaml"),
        ("application/vnd.kubernetes.protobuf", "Protobuf"),
        ("application/vnd.kubernetes.protobuf,application/json", "Protobuf"),
        ("application/json;q=0.5,application/yaml", "Yaml"),
        ("application/xml, application/json;q=0.5", "Json"),
        ("*/*, application/yaml;q=0.1", "Yaml"),
        ("application/*, */*", "Json"),
        ("application/json;charset=utf-8", "Json"),
        (
            "application/json;as=Table;v=v1;g=meta.k8s.io",
            "Json as Table meta.k8s.io/v1",
        ),
        (
            "application/yaml;as=Table;v=v1beta1;g=meta.k8s.io",
            "Yaml as Table meta.k8s.io/v1beta1",
        ),
        (
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
            "Protobuf as PartialObjectMetadata meta.k8s.io/v1",
        ),
        ("application/json;as=Table;v=v9;g=meta.k8s.io,application/json", "Json"),
        (
            "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,application/json",
            "Json",
        ),
        ("application/xml", &routed),
        ("text/html", &routed),
        ("application/*", &routed),
        ("application/cbor", &routed),
        ("application/json;as=Frob;v=v1;g=meta.k8s.io", &handled),
        ("application/json;as=Table;v=v1", &handled),
        (
            "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io",
            &handled,
        ),
        ("application/yaml;stream=watch", &handled),
    ] {
        assert_eq!(check(accept, Route::Object, Encodings::All), expected, "{accept}");
    }
}

#[test]
fn collections_name_their_stream_types() {
    let expected = format!(
        "406 NotAcceptable with details: 406: Not Acceptable\n\nAvailable representations: {TYPES}, \
         application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
    );
    assert_eq!(check("application/xml", Route::Collection, Encodings::All), expected);
    assert_eq!(
        check("application/json;stream=watch", Route::Collection, Encodings::All),
        "Json"
    );
}

#[test]
fn custom_resources_have_no_protobuf_and_no_router() {
    let refused = format!("406 NotAcceptable without details: only the following media types are accepted: {TYPES}");
    for (accept, expected) in [
        ("application/vnd.kubernetes.protobuf", refused.as_str()),
        ("text/html", &refused),
        ("application/*", "Json"),
        ("application/vnd.kubernetes.protobuf,application/json", "Json"),
        (
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
            "Protobuf as PartialObjectMetadataList meta.k8s.io/v1",
        ),
    ] {
        assert_eq!(check(accept, Route::None, Encodings::NoProtobuf), expected, "{accept}");
    }
}

#[test]
fn a_watch_cannot_be_yaml() {
    let watch = |accept| stream(asked(accept), Route::Collection, Encodings::All).map(|output| output.format);
    assert_eq!(watch(""), Ok(Format::Json));
    assert_eq!(
        watch("application/vnd.kubernetes.protobuf;stream=watch"),
        Ok(Format::Protobuf)
    );
    assert_eq!(
        watch("application/yaml").unwrap_err().to_string(),
        "only the following media types are accepted: application/json;stream=watch, \
         application/vnd.kubernetes.protobuf;stream=watch"
    );
    assert_eq!(Format::Json.watch_type(), Some("application/json"));
}

#[test]
fn errors_are_never_converted() {
    fn error(accept: &str) -> Output {
        error_output(asked(accept))
    }
    assert_eq!(error("application/yaml").format, Format::Yaml);
    assert_eq!(error("application/vnd.kubernetes.protobuf").format, Format::Protobuf);
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    assert_eq!(
        error(table),
        Output {
            pretty: Pretty::Indented,
            ..Output::JSON
        },
        "nothing fits: raw JSON"
    );
    assert_eq!(error(&format!("{table},application/json")), Output::JSON);
    assert_eq!(error("application/xml").pretty, Pretty::Indented);
}

#[test]
fn discovery_is_aggregated_on_request() {
    fn ask(accept: &str) -> Result<Discovery, Refusal> {
        discovery(asked(accept), Route::Object)
    }
    let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    assert_eq!(ask(aggregated), Ok(Discovery::Aggregated(Format::Json)));
    assert_eq!(
        ask(&format!("{aggregated},application/json")),
        Ok(Discovery::Aggregated(Format::Json))
    );
    let newest_first =
        format!("application/json;g=apidiscovery.k8s.io;v=v9;as=APIGroupDiscoveryList,{aggregated},application/json");
    assert_eq!(ask(&newest_first), Ok(Discovery::Aggregated(Format::Json)));
    assert_eq!(ask(""), Ok(Discovery::Plain(Output::JSON)));
    assert_eq!(ask("application/json, */*"), Ok(Discovery::Plain(Output::JSON)));
    assert!(matches!(ask("text/html"), Err(Refusal::NotRouted(_))));
}

#[test]
fn people_get_indentation() {
    for (query, agent, expected) in [
        ("", "curl/8.1", true),
        ("", "Wget/1.2", true),
        ("", "Mozilla/5.0 (X11)", true),
        ("", "kubectl/v1.36", false),
        ("pretty=true", "kubectl", true),
        ("pretty=1", "", true),
        ("pretty=false", "curl/8", false),
        ("pretty=bogus", "curl/8", false),
        ("pretty=", "curl/8", true),
        ("a=b&pretty=t", "", true),
    ] {
        assert_eq!(is_pretty(query, agent), expected, "{query} {agent}");
    }
    let output = output(asked("application/json;pretty=1"), Route::Object, Encodings::All).unwrap();
    assert_eq!(output.pretty, Pretty::Indented);
}

#[test]
fn bodies_are_read_by_their_content_type() {
    let refused = format!("the body of the request was in an unknown format - accepted media types include: {TYPES}");
    for (content_type, expected) in [
        ("", Some(Format::Json)),
        ("application/json", Some(Format::Json)),
        ("Application/JSON", Some(Format::Json)),
        ("application/json; charset=utf-8", Some(Format::Json)),
        ("application/json; charset=\"utf-8\";", Some(Format::Json)),
        ("application/yaml", Some(Format::Yaml)),
        ("application/vnd.kubernetes.protobuf", Some(Format::Protobuf)),
        ("application/json; charset", None),
        ("application/json; a=1; a=2", None),
        ("text/plain", None),
        ("application/xml", None),
        ("application/json-patch+json", None),
        ("application/cbor", None),
        ("nonsense", None),
    ] {
        match (body_format(content_type), expected) {
            (Ok(format), Some(expected)) => assert_eq!(format, expected, "{content_type}"),
            (Err(refusal), None) => assert_eq!(refusal.to_string(), refused, "{content_type}"),
            (got, _) => panic!("{content_type}: {got:?}"),
        }
    }
}

#[test]
fn patches_are_typed_by_their_content_type() {
    let check = |content_type, route| patch_type(content_type, route).map_err(|refusal| refusal.to_string());
    let merge = "application/merge-patch+json; charset=utf-8";
    assert_eq!(check(merge, Route::Object), Ok(PatchType::Merge));
    assert_eq!(check(merge, Route::None), Ok(PatchType::Merge));
    assert_eq!(
        check("application/apply-patch+yaml", Route::Object),
        Ok(PatchType::Apply)
    );
    for bad in [
        "",
        "application/json",
        "text/plain",
        "application/yaml",
        "application/apply-patch+json",
    ] {
        assert_eq!(
            check(bad, Route::Object).unwrap_err(),
            "415: Unsupported Media Type",
            "{bad}"
        );
    }
    assert_eq!(
        check("application/strategic-merge-patch+json", Route::None).unwrap_err(),
        "the body of the request was in an unknown format - accepted media types include: \
         application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
    );
}
