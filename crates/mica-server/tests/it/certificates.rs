//! Signing requests and what their certificates are worth: everything in the plane that signed, nothing elsewhere.

use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mica_server::pki::{For, Identity, Issued};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::world::{Api, MAPS, World, text};

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const WHO: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const CLIENT: &str = "kubernetes.io/kube-apiserver-client";

pub struct Asking<'a> {
    signer: &'a str,
    subject: &'a [(DnType, &'a str)],
    names: Vec<SanType>,
    usages: &'a [&'a str],
    seconds: Option<i64>,
}

impl<'a> Asking<'a> {
    pub fn client(subject: &'a [(DnType, &'a str)]) -> Self {
        Self {
            signer: CLIENT,
            subject,
            names: Vec::new(),
            usages: &["client auth"],
            seconds: None,
        }
    }

    fn object(&self, name: &str) -> (KeyPair, Value) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        for (kind, value) in self.subject {
            params.distinguished_name.push(kind.clone(), *value);
        }
        params.subject_alt_names = self.names.clone();
        let pem = params.serialize_request(&key).unwrap().pem().unwrap();
        let mut spec = json!({"request": STANDARD.encode(pem), "signerName": self.signer, "usages": self.usages});
        if let Some(seconds) = self.seconds {
            spec["expirationSeconds"] = seconds.into();
        }
        (key, json!({"metadata": {"name": name}, "spec": spec}))
    }

    /// Asks and approves, and waits for what comes of it.
    async fn answered(&self, api: &Api, name: &str) -> (KeyPair, Value) {
        let (key, object) = self.object(name);
        let mut request = api.post(REQUESTS, &object).await.expect(201);
        request["status"]["conditions"] =
            json!([{"type": "Approved", "status": "True", "reason": "Test", "message": "it may"}]);
        api.put(&format!("{REQUESTS}/{name}/approval"), &request)
            .await
            .expect(200);
        let answered = |request: &Value| {
            let conditions = request["status"]["conditions"].as_array().map_or(0, Vec::len);
            request["status"]["certificate"].is_string() || conditions > 1
        };
        let selector = format!("{REQUESTS}/{name}");
        let answer = api.until_it(&selector, answered).await;
        (key, answer)
    }

    pub async fn issued(&self, api: &Api, name: &str) -> Issued {
        let (key, answer) = self.answered(api, name).await;
        let encoded = text(&answer, "/status/certificate");
        Issued {
            certificate_pem: String::from_utf8(STANDARD.decode(encoded).unwrap()).unwrap(),
            key_pem: key.serialize_pem(),
            renew_at: SystemTime::now(),
        }
    }
}

#[tokio::test]
async fn who_signs_for_itself_in_a_plane_is_somebody_there_and_nobody_elsewhere() {
    let world = World::start().await;
    let (root, one) = (world.root().await, world.plane("one").await);
    world.plane("two").await;
    // Upstream's rule holds in planes too.
    let masters = [
        (DnType::OrganizationName, "system:masters"),
        (DnType::CommonName, "mallory"),
    ];
    let (_, refused) = Asking::client(&masters).object("masters");
    let refused = one.post(REQUESTS, &refused).await;
    assert_eq!(refused.code(), 403);
    assert!(
        refused
            .message()
            .ends_with("use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed"),
        "{}",
        refused.message()
    );
    let admins = [
        (DnType::OrganizationName, "mica:plane-admins"),
        (DnType::CommonName, "mallory"),
    ];
    let by_request = Asking::client(&admins).issued(&one, "mine").await;
    // And however one gets the group of masters signed.
    let plane = world.server.directory.by_name("one").await.unwrap();
    let authorities = world.server.authorities.as_ref().unwrap();
    let signer = authorities.of(plane.id, For::Clients).unwrap();
    let identity = Identity {
        name: "mallory".to_owned(),
        group: Some("system:masters".to_owned()),
    };
    let mut by_force = signer.issue_client(&identity, SystemTime::now()).unwrap();
    by_force.certificate_pem.push_str(signer.certificate_pem());
    for mine in [&by_request, &by_force] {
        let mallory = world.as_user(Some(mine)).await;
        let there = mallory.at_plane("one");
        let me = there.post(WHO, &json!({})).await.expect(201);
        assert_eq!(text(&me, "/status/userInfo/username"), "mallory");
        for (path, code) in [("/api/v1/secrets", 200), ("/api/v1/nodes", 200), (MAPS, 200)] {
            assert_eq!(there.get(path).await.code(), code, "{path}");
        }
        for elsewhere in [
            mallory.clone(),
            mallory.at_plane("two"),
            mallory.at_plane("none"),
            mallory.at("/clusters/*/control-plane"),
        ] {
            assert_eq!(elsewhere.get(MAPS).await.code(), 401);
            assert_eq!(elsewhere.get("/version").await.code(), 401);
        }
        assert_eq!(
            there.get("/api/v1/secrets").await.code(),
            200,
            "being refused changes nothing"
        );
    }
    // A plane that is made again under the name is another.
    root.delete("/apis/mica.dev/v1alpha1/planes/one").await;
    root.until("/apis/mica.dev/v1alpha1/planes/one", 404).await;
    root.create_plane("one").await;
    let mallory = world.as_user(Some(&by_force)).await.at_plane("one");
    assert_eq!(mallory.get(MAPS).await.code(), 401);
}

#[tokio::test]
async fn certificates_hold_what_was_approved() {
    let world = World::start().await;
    let (root, api) = (world.root().await, world.plane("p").await);
    let subject = [(DnType::OrganizationName, "team"), (DnType::CommonName, "jane")];
    let short = Asking {
        seconds: Some(3600),
        ..Asking::client(&subject)
    };
    let issued = short.issued(&api, "short").await;
    let chain: Vec<_> = CertificateDer::pem_slice_iter(issued.certificate_pem.as_bytes())
        .collect::<Result<_, _>>()
        .unwrap();
    assert_eq!(chain.len(), 1, "the leaf alone, as upstream's signers give it");
    let (_, leaf) = X509Certificate::from_der(&chain[0]).unwrap();
    let (_, ca) = X509Certificate::from_der(world.authority.certificate()).unwrap();
    assert!(
        leaf.verify_signature(Some(ca.public_key())).is_err(),
        "the plane signs, not the store"
    );
    let plane = world.server.directory.by_name("p").await.unwrap();
    assert_eq!(leaf.issuer().to_string(), format!("CN=mica plane {}", plane.id));
    let left = leaf.validity().not_after.timestamp() - jiff::Timestamp::now().as_second();
    assert!((3500..=3600).contains(&left), "{left}");
    assert_eq!(leaf.subject().to_string(), "O=team, CN=jane");
    let jane = world.as_user(Some(&issued)).await.at_plane("p");
    let refused = jane.get(MAPS).await;
    assert_eq!(refused.code(), 403, "known, and allowed nothing");
    assert!(refused.message().contains("User \"jane\""), "{}", refused.message());
    // Root's are the platform's.
    let issued = Asking::client(&subject).issued(&root, "short").await;
    let chain = CertificateDer::pem_slice_iter(issued.certificate_pem.as_bytes()).count();
    assert_eq!(chain, 1);
    let jane = world.as_user(Some(&issued)).await;
    assert_eq!(jane.post(WHO, &json!({})).await.code(), 201);
    let node = [
        (DnType::OrganizationName, "system:nodes"),
        (DnType::CommonName, "system:node:n"),
    ];
    let serving = Asking {
        signer: "kubernetes.io/kubelet-serving",
        names: vec![SanType::DnsName("localhost".try_into().unwrap())],
        usages: &["digital signature", "server auth"],
        ..Asking::client(&node)
    };
    let issued = serving.issued(&api, "serving").await;
    let chain: Vec<_> = CertificateDer::pem_slice_iter(issued.certificate_pem.as_bytes())
        .collect::<Result<_, _>>()
        .unwrap();
    let (_, authority) = X509Certificate::from_der(&chain[1]).unwrap();
    assert!(
        authority.verify_signature(Some(ca.public_key())).is_err(),
        "a tenant's server is nobody to those who trust the platform"
    );
    authority.verify_signature(None).unwrap();
}

#[tokio::test]
async fn what_a_signer_does_not_sign_fails_in_upstreams_words() {
    let world = World::start().await;
    let api = world.plane("p").await;
    let node = [
        (DnType::OrganizationName, "system:nodes"),
        (DnType::CommonName, "system:node:n"),
    ];
    let plain = [(DnType::CommonName, "jane")];
    let odd = [(DnType::OrganizationName, "system:nodes"), (DnType::CommonName, "n")];
    let kubelet = ["digital signature", "client auth"];
    let (client, serving) = (
        "kubernetes.io/kube-apiserver-client-kubelet",
        "kubernetes.io/kubelet-serving",
    );
    let name = || vec![SanType::DnsName("a.example".try_into().unwrap())];
    /// Signer, subject, further names, usages, and what is wrong.
    type Case<'a> = (&'a str, &'a [(DnType, &'a str)], Vec<SanType>, &'a [&'a str], &'a str);
    let cases: [Case<'_>; 9] = [
        (
            CLIENT,
            &plain,
            vec![],
            &["server auth"],
            "invalid usage for client certificate: server auth",
        ),
        (
            CLIENT,
            &plain,
            vec![],
            &["digital signature"],
            "missing required usage for client certificate: client auth",
        ),
        (
            client,
            &plain,
            vec![],
            &kubelet,
            "subject organization is not system:nodes",
        ),
        (
            client,
            &odd,
            vec![],
            &kubelet,
            "subject common name does not begin with system:node:",
        ),
        (client, &node, name(), &kubelet, "DNS subjectAltNames are not allowed"),
        (
            client,
            &node,
            vec![],
            &["client auth"],
            "usages did not match [client auth digital signature key encipherment]",
        ),
        (serving, &node, vec![], &kubelet, "DNS or IP subjectAltName is required"),
        (
            serving,
            &node,
            name(),
            &kubelet,
            "usages did not match [digital signature key encipherment server auth]",
        ),
        (
            serving,
            &node,
            vec![name().remove(0), SanType::URI("urn:x".try_into().unwrap())],
            &kubelet,
            "URI subjectAltNames are not allowed",
        ),
    ];
    for (at, (signer, subject, names, usages, words)) in cases.into_iter().enumerate() {
        let asking = Asking {
            signer,
            subject,
            names,
            usages,
            seconds: None,
        };
        let (_, answer) = asking.answered(&api, &format!("r{at}")).await;
        let failed = &answer["status"]["conditions"][1];
        assert_eq!(
            (text(failed, "/type"), text(failed, "/reason"), text(failed, "/message")),
            ("Failed", "SignerValidationFailure", words)
        );
    }
}

#[tokio::test]
async fn a_kubelets_request_is_approved_by_itself_where_roles_allow_that() {
    let world = World::start().await;
    let api = world.plane("p").await;
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let makes = json!({"metadata": {"name": "asks"}, "rules": [{"apiGroups": ["certificates.k8s.io"],
        "resources": ["certificatesigningrequests"], "verbs": ["create", "get"]}]});
    api.post(&format!("{rbac}/clusterroles"), &makes).await.expect(201);
    let bind = async |role: &str, user: &str| {
        let name = format!("{}-{}", role.replace(':', "-"), user.replace(':', "-"));
        let binding = json!({"metadata": {"name": name}, "roleRef": {"kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "User", "name": user}]});
        api.post(&format!("{rbac}/clusterrolebindings"), &binding)
            .await
            .expect(201);
    };
    let node = "system:node:n";
    let role = |what: &str| format!("system:certificates.k8s.io:certificatesigningrequests:{what}");
    bind(&role("nodeclient"), "bootstrap").await;
    bind(&role("selfnodeclient"), node).await;
    bind(&role("selfnodeclient"), "stranger").await;
    let subject = [(DnType::OrganizationName, "system:nodes"), (DnType::CommonName, node)];
    let asking = Asking {
        signer: "kubernetes.io/kube-apiserver-client-kubelet",
        usages: &["digital signature", "client auth"],
        ..Asking::client(&subject)
    };
    for (user, says) in [
        ("stranger", ""),
        (
            "bootstrap",
            "Auto approving kubelet client certificate after SubjectAccessReview.",
        ),
        (
            node,
            "Auto approving self kubelet client certificate after SubjectAccessReview.",
        ),
    ] {
        bind("asks", user).await;
        let (known, name) = ([(DnType::CommonName, user)], user.replace(':', "-"));
        let own = Asking::client(&known).issued(&api, &format!("{name}-is")).await;
        let there = world.as_user(Some(&own)).await.at_plane("p");
        there.until(&format!("{REQUESTS}/{name}"), 404).await;
        there.post(REQUESTS, &asking.object(&name).1).await.expect(201);
        if says.is_empty() {
            continue;
        }
        let signed = |request: &Value| request["status"]["certificate"].is_string();
        let answer = api.until_it(&format!("{REQUESTS}/{name}"), signed).await;
        let approved = &answer["status"]["conditions"][0];
        assert_eq!(
            (
                text(approved, "/type"),
                text(approved, "/reason"),
                text(approved, "/message")
            ),
            ("Approved", "AutoApproved", says)
        );
    }
    // Who may not ask for others waits for somebody who says so.
    let waiting = api.get(&format!("{REQUESTS}/stranger")).await.expect(200);
    assert!(waiting["status"]["conditions"].is_null(), "{waiting}");
}

#[tokio::test]
async fn the_admins_of_a_plane_can_be_taken_their_rights() {
    let world = World::start().await;
    let api = world.plane("p").await;
    let admins = [
        (DnType::OrganizationName, "mica:plane-admins"),
        (DnType::CommonName, "admin"),
    ];
    let issued = Asking::client(&admins).issued(&api, "a").await;
    let admin = world.as_user(Some(&issued)).await.at_plane("p");
    assert_eq!(admin.get("/api/v1/secrets").await.code(), 200);
    let binding = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/mica:plane-admins";
    api.delete(binding).await;
    api.until(binding, 404).await;
    admin.until("/api/v1/secrets", 403).await;
    // The group is the plane's to give: whom the platform calls so is no admin there.
    let platform = super::fixture::certificate_in(&world.authority, "eve", Some("mica:plane-admins"));
    world.plane("q").await;
    let eve = world.as_user(Some(&platform)).await.at_plane("q");
    assert_eq!(eve.get(MAPS).await.code(), 403);
}
