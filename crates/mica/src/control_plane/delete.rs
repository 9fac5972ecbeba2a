//! `mica control-plane delete`: says what becomes of the data, asks, and waits for the end.

use std::io::{BufRead as _, IsTerminal as _};
use std::time::Duration;

use anyhow::bail;
use http::Method;
use mica_api::control_plane::{CLASSES, management_namespace};
use serde_json::Value;
use tokio::time::Instant;

use super::args::Policy;
use super::progress::Progress;
use super::{LOOK, change, collection, is_not_found, one, waits_for};
use crate::client::Client;
use crate::exit::Usage;
use crate::output;

/// Whether somebody is asked first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Asking {
    Yes,
    No,
}

pub async fn run(
    client: &mut Client,
    names: &[String],
    asking: Asking,
    policy: Option<Policy>,
    patience: Option<Duration>,
) -> anyhow::Result<()> {
    for name in names {
        let object = client.json(Method::GET, &one(name), None).await?;
        let effective = match policy {
            Some(policy) => policy,
            None => effective(client, &object).await?,
        };
        eprintln!("{}", meaning(name, &object, effective));
    }
    if asking == Asking::Yes && !confirmed(names)? {
        bail!("nothing was deleted");
    }
    for name in names {
        if let Some(policy) = policy {
            change(client, name, |object| {
                object["spec"]["deletionPolicy"] = policy.as_str().into();
            })
            .await?;
        }
        client.json(Method::DELETE, &one(name), None).await?;
    }
    for name in names {
        let Some(patience) = patience else {
            output::print(&format!("controlplane/{name} deletion has begun\n"))?;
            continue;
        };
        gone(client, name, patience).await?;
        output::print(&format!("controlplane/{name} deleted\n"))?;
    }
    Ok(())
}

/// The policy that counts: the control plane's own, then that of its class, then Retain.
async fn effective(client: &mut Client, object: &Value) -> anyhow::Result<Policy> {
    let said = |object: &Value| match object["spec"]["deletionPolicy"].as_str() {
        Some("Destroy") => Some(Policy::Destroy),
        Some("Retain") => Some(Policy::Retain),
        _ => None,
    };
    if let Some(policy) = said(object) {
        return Ok(policy);
    }
    let class = object["spec"]["classRef"]["name"].as_str().unwrap_or_default();
    if class.is_empty() {
        return Ok(Policy::Retain);
    }
    match client
        .json(Method::GET, &format!("{}/{class}", collection(CLASSES)), None)
        .await
    {
        Ok(class) => Ok(said(&class).unwrap_or(Policy::Retain)),
        Err(error) if is_not_found(&error) => Ok(Policy::Retain),
        Err(error) => Err(error),
    }
}

/// What is about to happen.
fn meaning(name: &str, object: &Value, policy: Policy) -> String {
    let path = object["spec"]["virtual"]["clusterPath"].as_str();
    let path = path.filter(|path| !path.is_empty()).unwrap_or(name);
    let namespace = management_namespace(name);
    match policy {
        Policy::Retain => format!(
            "controlplane/{name} (Retain): its kubeconfigs and namespace {namespace} go; the data of plane {path} stays, and a new control plane can adopt it"
        ),
        Policy::Destroy => format!(
            "controlplane/{name} (Destroy): its kubeconfigs, namespace {namespace} and all data of plane {path} go, for ever"
        ),
    }
}

fn confirmed(names: &[String]) -> anyhow::Result<bool> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        bail!(Usage("nobody can be asked here: say --yes".to_owned()));
    }
    eprint!("Delete {}? [y/N] ", names.join(", "));
    let mut answer = String::new();
    stdin.lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

async fn gone(client: &mut Client, name: &str, patience: Duration) -> anyhow::Result<()> {
    let end = Instant::now() + patience;
    let mut progress = Progress::new();
    loop {
        let object = match client.json(Method::GET, &one(name), None).await {
            Ok(object) => object,
            Err(error) if is_not_found(&error) => {
                progress.clear();
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        if Instant::now() >= end {
            progress.clear();
            let seconds = patience.as_secs();
            bail!(
                "control plane {name:?} is still being deleted after {seconds} s: {}",
                waits_for(&object)
            );
        }
        progress.show(&format!("{name}: {}", waits_for(&object)));
        tokio::time::sleep(LOOK).await;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_becomes_of_the_data_is_said() {
        let object = json!({"spec": {"virtual": {"clusterPath": "p"}}});
        assert!(meaning("a", &object, Policy::Retain).contains("the data of plane p stays"));
        assert!(meaning("a", &json!({}), Policy::Destroy).contains("all data of plane a go, for ever"));
    }
}
