//! `mica plane kubeconfig`: credentials of a plane's own administrator.
//!
//! Made over the plane's API like anybody's: a signing request, approved, and signed by the plane's authority. So they are
//! worth nothing in root and in other planes, and whoever administers the plane can take their rights away.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use mica_machinery::kind::bootstrap::rbac::PLANE_ADMINS;
use mica_server::pki::{Identity, ask, write_private};
use serde_json::json;
use tokio::time::Instant;

use super::PLANES;
use crate::client::Client;
use crate::exit::Usage;
use crate::output;

const REQUESTS: &str = "apis/certificates.k8s.io/v1/certificatesigningrequests";
const SIGNER: &str = "kubernetes.io/kube-apiserver-client";
const USER: &str = "plane-admin";
/// What signers sign at least.
const SHORTEST: Duration = Duration::from_secs(600);
/// How long a signature is waited for, and how often it is looked for.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(20);

pub async fn kubeconfig(client: &mut Client, name: &str, life: Duration, file: Option<PathBuf>) -> anyhow::Result<()> {
    if life < SHORTEST {
        bail!(Usage(format!("expires: {life:?} is less than 10m")));
    }
    // A kubeconfig for a plane that is not there would only fail later, somewhere else.
    client.json(Method::GET, &format!("{PLANES}/{name}"), None).await?;
    let path = format!("/clusters/{name}/control-plane");
    let identity = Identity {
        name: USER.to_owned(),
        group: Some(PLANE_ADMINS.to_owned()),
    };
    let (key, certificate) = issue(client, &path, &identity, life).await?;
    let server = format!("{}{path}", client.config().server);
    let config = client.config().for_user(name, &server, USER, &certificate, &key);
    let text = format!("{}\n", serde_json::to_string_pretty(&config)?);
    match file {
        None => Ok(output::print(&text)?),
        Some(path) => {
            write_private(&path, text.as_bytes())?;
            eprintln!("kubeconfig of plane/{name} written to {}", path.display());
            Ok(())
        }
    }
}

/// A key, and a certificate for it that the plane at a path signs; both in PEM.
async fn issue(
    client: &mut Client,
    plane: &str,
    identity: &Identity,
    life: Duration,
) -> anyhow::Result<(Vec<u8>, Vec<u8>)> {
    let (key, request) = ask(identity)?;
    let requests = format!("{plane}/{REQUESTS}");
    let object = json!({
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"generateName": "mica-plane-admin-"},
        "spec": {
            "request": STANDARD.encode(request),
            "signerName": SIGNER,
            "usages": ["digital signature", "client auth"],
            "expirationSeconds": i32::try_from(life.as_secs()).unwrap_or(i32::MAX),
        },
    });
    let mut made = client.json(Method::POST, &requests, Some(object)).await?;
    let one = format!("{requests}/{}", made["metadata"]["name"].as_str().unwrap_or_default());
    made["status"]["conditions"] = json!([{"type": "Approved", "status": "True", "reason": "MicaPlaneKubeconfig",
        "message": "asked for and approved by mica plane kubeconfig"}]);
    let signed = async {
        client.json(Method::PUT, &format!("{one}/approval"), Some(made)).await?;
        certificate(client, &one).await
    };
    let signed = signed.await;
    // It holds no secret, but nobody needs it any more.
    let removed = client.json(Method::DELETE, &one, None).await;
    let signed = signed?;
    removed?;
    Ok((key.into_bytes(), signed))
}

async fn certificate(client: &mut Client, request: &str) -> anyhow::Result<Vec<u8>> {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        let found = client.json(Method::GET, request, None).await?;
        if let Some(certificate) = found["status"]["certificate"].as_str() {
            return STANDARD.decode(certificate).context("the certificate is not base64");
        }
        let conditions = output::list(&found["status"], "conditions");
        if let Some(failed) = conditions.iter().find(|one| one["type"] == "Failed") {
            bail!(
                "the plane does not sign: {}",
                failed["message"].as_str().unwrap_or_default()
            );
        }
        tokio::time::sleep(LOOK).await;
    }
    bail!(
        "the plane has not signed within {} s: does this server sign for planes?",
        PATIENCE.as_secs()
    )
}
