//! What each built-in kind does with objects that decode but were made to hurt.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use mica_machinery::field::Path;
use mica_machinery::kind::{self, Resource, User, WriteContext};
use mica_machinery::{codec, facts, meta, protobuf};
use serde_json::{Value, json};

use crate::{built_in, line, parts};

const NOW: jiff::Timestamp = jiff::Timestamp::UNIX_EPOCH;

/// A kind on the first line, then an object of it, then the object before it.
pub fn kind(data: &[u8]) {
    let (name, rest) = line(data);
    let named = built_in(name);
    let same = |resource: &&Resource| {
        (resource.group, resource.version, resource.kind) == (named.group, named.version, named.kind)
    };
    let resources = kind::resources();
    let Some(resource) = resources.iter().find(same) else {
        return;
    };
    let parts = parts(rest);
    let decode = |part: &&[u8]| codec::decode(named.ty, part).ok().map(|decoded| decoded.value);
    let Some(new) = parts.first().and_then(decode) else {
        return;
    };
    let old = parts.get(1).and_then(decode);
    check(resource, new, old);
}

fn check(resource: &Resource, mut new: Value, old: Option<Value>) {
    if let Some(stored) = resource.stored_as {
        new = (stored.to_stored)(new);
    }
    let strategy = resource.strategy;
    let context = |subresource: &'static str| WriteContext {
        now: NOW,
        subresource,
        group: resource.group,
        version: resource.version,
        user: User::default(),
    };
    strategy.default(&mut new);
    let mut again = new.clone();
    strategy.default(&mut again);
    assert_eq!(again, new, "defaulting is idempotent");
    let create = context("");
    let mut created = new.clone();
    strategy.prepare_create(&create, &mut created);
    let errors = strategy.validate(&create, &created);
    let _ = errors.iter().map(ToString::to_string).collect::<Vec<_>>();
    let _ = strategy.forbidden(&created);
    let _ = strategy.warnings(&create, &created, None);
    if errors.is_empty() {
        strategy.canonicalize(&mut created);
    }
    for object in [&new, &created] {
        let cells = strategy.cells(object, NOW);
        let columns = strategy.columns().len();
        // Upstream prints an age for an IPAddress and has no column for it.
        let odd = columns == 0 || resource.kind == "IPAddress";
        assert!(
            odd || cells.len() == columns,
            "{}: {cells:?} for {columns} columns",
            resource.kind
        );
        let _ = strategy.selectable(object);
    }
    strategy.marked_for_deletion(&mut created.clone(), NOW);
    let mut old = old.unwrap_or_else(|| created.clone());
    if let (Some(stored), true) = (resource.stored_as, old != created) {
        old = (stored.to_stored)(old);
    }
    strategy.default(&mut old);
    for subresource in std::iter::once("").chain(resource.subresources.iter().map(|sub| sub.name)) {
        let context = context(subresource);
        let mut changed = new.clone();
        strategy.prepare_update(&context, &mut changed, &old);
        let errors = strategy.validate_update(&context, &changed, &old);
        let _ = errors.iter().map(ToString::to_string).collect::<Vec<_>>();
        let _ = strategy.warnings(&context, &changed, Some(&old));
        let metadata = Path::new("metadata");
        let _ = meta::update_errors(&changed["metadata"], &old["metadata"], &metadata);
    }
    if let Some(stored) = resource.stored_as {
        let _ = (stored.from_stored)(created.clone());
    } else {
        let ty = facts::facts()
            .kind(resource.group, resource.version, resource.kind)
            .expect("a built-in kind");
        let mut out = Vec::new();
        codec::encode(ty, &created, &mut out);
        codec::decode(ty, &out).expect("what is stored can be read");
        let _ = protobuf::encode(ty, &created);
    }
}

/// PEM where kinds take it: a request to sign, a certificate, a key pair, an authority for webhooks.
pub fn pem(data: &[u8]) {
    let parts = parts(data);
    let first = STANDARD.encode(parts[0]);
    let second = STANDARD.encode(parts.get(1).unwrap_or(&parts[0]));
    let text = String::from_utf8_lossy(parts[0]);
    let meta = json!({"name": "a"});
    let run = |name: &str, mut object: Value| {
        let named = built_in(name);
        object["metadata"] = meta.clone();
        let resources = kind::resources();
        let resource = resources.iter().find(|resource| {
            (resource.group, resource.version, resource.kind) == (named.group, named.version, named.kind)
        });
        let decoded = codec::decode_value(named.ty, &object).expect("these decode").value;
        check(resource.expect("a served kind"), decoded, None);
    };
    run(
        "certificates.k8s.io/v1 CertificateSigningRequest",
        json!({"spec": {"request": first, "signerName": "kubernetes.io/kube-apiserver-client-kubelet", "usages": ["client auth"]},
            "status": {"certificate": second}}),
    );
    run(
        "v1 Secret",
        json!({"type": "kubernetes.io/tls", "data": {"tls.crt": first, "tls.key": second}}),
    );
    run(
        "certificates.k8s.io/v1beta1 ClusterTrustBundle",
        json!({"spec": {"trustBundle": text}}),
    );
    let webhook = json!({"name": "a.b.c", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": "https://a/", "caBundle": first}});
    run(
        "admissionregistration.k8s.io/v1 ValidatingWebhookConfiguration",
        json!({"webhooks": [webhook]}),
    );
}
