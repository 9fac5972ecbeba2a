//! `mica control-plane …`: commands over ControlPlanes.

pub mod args;
mod delete;
mod describe;
mod migrate;
mod progress;

use std::time::Duration;

use anyhow::{Context as _, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use mica_api::PlaneName;
use mica_api::control_plane::{
    ADOPT_ANNOTATION, API_VERSION, CONTROL_PLANES, GROUP, KUBECONFIG, KUBECONFIG_EXTERNAL, VERSION,
};
use mica_server::pki::write_private;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::client::{Client, Refused};
use crate::exit::Usage;
use crate::tenant::args::{FileArgs, Form};
use crate::{config, output};
use args::{ControlPlaneArgs, ControlPlaneCommand, DedicatedArgs, WantedArgs};
use progress::Progress;

/// How often a state that is waited for is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// The name that a reference to a provider has where only its kind matters.
const PROVIDER: &str = "default";

fn collection(plural: &str) -> String {
    format!("/apis/{GROUP}/{VERSION}/{plural}")
}

fn one(name: &str) -> String {
    format!("{}/{name}", collection(CONTROL_PLANES))
}

pub async fn run(arguments: ControlPlaneArgs) -> anyhow::Result<()> {
    check_names(&arguments.command)?;
    let mut client = Client::connect_root(&arguments.server).await?;
    match arguments.command {
        ControlPlaneCommand::List { output } => list(&mut client, output).await,
        ControlPlaneCommand::Create {
            names,
            wanted,
            wait,
            output,
        } => {
            let patience = patience(wait.no_wait, &wait.timeout)?;
            for name in &names {
                let object = object(name, &wanted);
                client
                    .json(Method::POST, &collection(CONTROL_PLANES), Some(object))
                    .await?;
            }
            for name in &names {
                let made = match patience {
                    Some(patience) => ready(&mut client, name, patience).await?,
                    None => client.json(Method::GET, &one(name), None).await?,
                };
                print(&made, output)?;
            }
            Ok(())
        }
        ControlPlaneCommand::Describe { name } => describe::run(&mut client, &name).await,
        ControlPlaneCommand::Kubeconfig { name, internal, file } => {
            let key = if internal { KUBECONFIG } else { KUBECONFIG_EXTERNAL };
            kubeconfig(&mut client, &name, key, file).await
        }
        ControlPlaneCommand::Migrate {
            name,
            to,
            dedicated,
            wait,
        } => {
            let patience = patience(wait.no_wait, &wait.timeout)?;
            migrate::run(&mut client, &name, to, &dedicated, patience).await
        }
        ControlPlaneCommand::Delete {
            names,
            yes,
            deletion_policy,
            wait,
        } => {
            let patience = patience(wait.no_wait, &wait.timeout)?;
            let asking = if yes { delete::Asking::No } else { delete::Asking::Yes };
            delete::run(&mut client, &names, asking, deletion_policy, patience).await
        }
    }
}

/// Names go into paths: a bad one is refused before anything is sent.
fn check_names(command: &ControlPlaneCommand) -> Result<(), Usage> {
    let names: &[String] = match command {
        ControlPlaneCommand::List { .. } => &[],
        ControlPlaneCommand::Create { names, .. } | ControlPlaneCommand::Delete { names, .. } => names,
        ControlPlaneCommand::Describe { name }
        | ControlPlaneCommand::Kubeconfig { name, .. }
        | ControlPlaneCommand::Migrate { name, .. } => std::slice::from_ref(name),
    };
    match names.iter().find(|name| PlaneName::parse(name).is_err()) {
        None => Ok(()),
        Some(name) => Err(Usage(format!(
            "{name:?} is not a name: at most 63 lowercase letters, digits and dashes, with a letter or digit at each end"
        ))),
    }
}

/// How long is waited; `None` for not at all.
fn patience(no_wait: bool, timeout: &str) -> anyhow::Result<Option<Duration>> {
    if no_wait {
        return Ok(None);
    }
    Ok(Some(config::duration("timeout", timeout)?))
}

fn object(name: &str, wanted: &WantedArgs) -> Value {
    let mut spec = json!({});
    for (field, value) in [("classRef", &wanted.class), ("endpointRef", &wanted.endpoint)] {
        if let Some(value) = value {
            spec[field] = json!({"name": value});
        }
    }
    if let Some(mode) = wanted.mode {
        spec["mode"] = mode.as_str().into();
    }
    if let Some(path) = &wanted.cluster_path {
        spec["virtual"] = json!({"clusterPath": path});
    }
    if let Some(policy) = wanted.deletion_policy {
        spec["deletionPolicy"] = policy.as_str().into();
    }
    set_dedicated(&mut spec, &wanted.dedicated);
    let mut object =
        json!({"apiVersion": API_VERSION, "kind": "ControlPlane", "metadata": {"name": name}, "spec": spec});
    if let Some(id) = &wanted.adopt {
        object["metadata"]["annotations"] = json!({ADOPT_ANNOTATION: id});
    }
    object
}

/// What is asked of the server of a dedicated control plane; the rest of its spec stays.
fn set_dedicated(spec: &mut Value, dedicated: &DedicatedArgs) {
    if let Some(kind) = &dedicated.provider {
        spec["dedicated"]["providerRef"] = json!({"kind": kind, "name": PROVIDER});
    }
    if let Some(version) = &dedicated.version {
        spec["dedicated"]["version"] = version.as_str().into();
    }
}

async fn list(client: &mut Client, form: Form) -> anyhow::Result<()> {
    let path = collection(CONTROL_PLANES);
    match form {
        Form::Table => {
            let table = client.table(&path).await?;
            if output::list(&table, "rows").is_empty() {
                eprintln!("No control planes found.");
                return Ok(());
            }
            Ok(output::print(&output::server_table(&table))?)
        }
        Form::Json => output::print_json(&client.json(Method::GET, &path, None).await?),
        Form::Yaml => Ok(output::print(&mica_machinery::yaml::from_json(
            &client.json(Method::GET, &path, None).await?,
        ))?),
        Form::Name => {
            let all = client.json(Method::GET, &path, None).await?;
            let names = output::list(&all, "items").iter().map(name_of);
            Ok(output::print(
                &names.map(|name| format!("controlplane/{name}\n")).collect::<String>(),
            )?)
        }
    }
}

fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn print(object: &Value, form: Form) -> anyhow::Result<()> {
    let name = name_of(object);
    match form {
        Form::Json => output::print_json(object),
        Form::Yaml => Ok(output::print(&mica_machinery::yaml::from_json(object))?),
        Form::Name => Ok(output::print(&format!("controlplane/{name}\n"))?),
        Form::Table => match object["status"]["endpoint"].as_str() {
            Some(endpoint) => Ok(output::print(&format!("controlplane/{name} is ready at {endpoint}\n"))?),
            None => Ok(output::print(&format!("controlplane/{name} created\n"))?),
        },
    }
}

fn condition<'a>(object: &'a Value, r#type: &str) -> Option<&'a Value> {
    let mut all = output::list(&object["status"], "conditions").iter();
    all.find(|condition| condition["type"] == r#type)
}

/// What an object waits for, in the words of its conditions.
fn waits_for(object: &Value) -> String {
    let open = output::list(&object["status"], "conditions")
        .iter()
        .filter(|condition| condition["status"] != "True" && condition["type"] != "Ready");
    let open: Vec<String> = open
        .map(|condition| {
            let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
            format!("{}: {}", text("type"), text("message"))
        })
        .collect();
    let ready = condition(object, "Ready").and_then(|ready| ready["message"].as_str());
    match (open.is_empty(), ready) {
        (false, _) => open.join("; "),
        (true, Some(message)) => message.to_owned(),
        (true, None) => "nobody has looked at it yet. Does this server run the control-plane controllers?".to_owned(),
    }
}

/// Waits until a control plane can be used.
async fn ready(client: &mut Client, name: &str, patience: Duration) -> anyhow::Result<Value> {
    let end = Instant::now() + patience;
    let mut progress = Progress::new();
    loop {
        let object = client.json(Method::GET, &one(name), None).await?;
        if condition(&object, "Ready").is_some_and(|ready| ready["status"] == "True") {
            progress.clear();
            return Ok(object);
        }
        if Instant::now() >= end {
            progress.clear();
            let seconds = patience.as_secs();
            bail!(
                "control plane {name:?} is not ready after {seconds} s: {}",
                waits_for(&object)
            );
        }
        progress.show(&format!("{name}: {}", waits_for(&object)));
        tokio::time::sleep(LOOK).await;
    }
}

/// Prints or writes a kubeconfig from a control plane's Secret.
async fn kubeconfig(client: &mut Client, name: &str, key: &str, file: FileArgs) -> anyhow::Result<()> {
    let object = client.json(Method::GET, &one(name), None).await?;
    let reference = &object["status"]["kubeconfigSecretRef"];
    let (Some(secret), Some(namespace)) = (reference["name"].as_str(), reference["namespace"].as_str()) else {
        bail!("control plane {name:?} has no kubeconfig yet: {}", waits_for(&object));
    };
    let path = format!("/api/v1/namespaces/{namespace}/secrets/{secret}");
    let found = client.json(Method::GET, &path, None).await?;
    let data = found["data"][key]
        .as_str()
        .or_else(|| found["data"][KUBECONFIG].as_str());
    let data = data.with_context(|| format!("Secret {namespace}/{secret} has no key {key:?}"))?;
    let text = STANDARD.decode(data).context("the Secret's content")?;
    match file.file {
        None => Ok(output::print(&String::from_utf8_lossy(&text))?),
        Some(path) => {
            write_private(&path, &text)?;
            eprintln!("kubeconfig of controlplane/{name} written to {}", path.display());
            Ok(())
        }
    }
}

fn is_not_found(error: &anyhow::Error) -> bool {
    let refused = error.downcast_ref::<Refused>();
    refused.is_some_and(|refused| refused.code == http::StatusCode::NOT_FOUND)
}

fn is_conflict(error: &anyhow::Error) -> bool {
    let refused = error.downcast_ref::<Refused>();
    refused.is_some_and(|refused| refused.code == http::StatusCode::CONFLICT)
}

/// Changes an object as it is now, again if somebody else does so too.
async fn change(client: &mut Client, name: &str, change: impl Fn(&mut Value)) -> anyhow::Result<Value> {
    const TRIES: usize = 10;
    let mut tries = 0;
    loop {
        tries += 1;
        let mut object = client.json(Method::GET, &one(name), None).await?;
        change(&mut object);
        match client.json(Method::PUT, &one(name), Some(object)).await {
            Err(error) if is_conflict(&error) && tries < TRIES => {}
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::args::{Mode, Policy};
    use super::*;

    #[test]
    fn what_flags_say_is_in_the_object_and_nothing_else() {
        let mut wanted = WantedArgs {
            class: None,
            mode: None,
            endpoint: None,
            cluster_path: None,
            deletion_policy: None,
            adopt: None,
            dedicated: DedicatedArgs::default(),
        };
        assert_eq!(object("a", &wanted)["spec"], json!({}));
        wanted.class = Some("starter".to_owned());
        wanted.mode = Some(Mode::Dedicated);
        wanted.deletion_policy = Some(Policy::Destroy);
        wanted.adopt = Some("id".to_owned());
        wanted.dedicated = DedicatedArgs {
            provider: Some("Etcd".to_owned()),
            version: Some("v2".to_owned()),
        };
        let made = object("a", &wanted);
        assert_eq!(
            made["spec"],
            json!({"classRef": {"name": "starter"}, "mode": "Dedicated", "deletionPolicy": "Destroy",
                "dedicated": {"providerRef": {"kind": "Etcd", "name": "default"}, "version": "v2"}})
        );
        assert_eq!(made["metadata"]["annotations"][ADOPT_ANNOTATION], "id");
    }

    #[test]
    fn what_is_waited_for_is_told_in_the_words_of_conditions() {
        assert!(waits_for(&json!({})).contains("nobody has looked at it yet"));
        let object = json!({"status": {"conditions": [
            {"type": "Ready", "status": "False", "message": "m"},
            {"type": "ClassResolved", "status": "False", "message": "there is no class"},
            {"type": "Provisioned", "status": "True", "message": "x"}]}});
        assert_eq!(waits_for(&object), "ClassResolved: there is no class");
    }
}
