//! `mica plane …`: commands over Plane objects and their subresources.

mod credential;
mod file;

use std::time::Duration;

use anyhow::{Context as _, bail};
use http::Method;
use http_body_util::BodyExt as _;
use mica_api::PlaneName;
use mica_machinery::kind;
use serde_json::{Value, json};

pub use file::{Sink, source};

use crate::cli::{Output, PlaneArgs, PlaneCommand, Profile};
use crate::client::{Client, Outgoing, Refused};
use crate::exit::Usage;
use crate::{config, output};

const PLANES: &str = "/apis/mica.dev/v1alpha1/planes";

pub async fn run(arguments: PlaneArgs) -> anyhow::Result<()> {
    check_names(&arguments.command)?;
    let mut client = Client::connect(&arguments.server).await?;
    match arguments.command {
        PlaneCommand::List { output } => list(&mut client, output).await,
        PlaneCommand::Create { names, profile, output } => create(&mut client, &names, profile, output).await,
        PlaneCommand::Delete {
            names,
            no_wait,
            timeout,
        } => {
            let patience = if no_wait {
                None
            } else {
                Some(config::duration("timeout", &timeout)?)
            };
            delete(&mut client, &names, patience).await
        }
        PlaneCommand::Snapshot { name, file } => snapshot(&mut client, &name, Sink::open(&file).await?).await,
        PlaneCommand::Restore { name, file } => {
            let body = Outgoing::File(source(&file).await?);
            let path = format!("{PLANES}/{name}/restore");
            client.send(Method::POST, &path, "application/json", body).await?;
            Ok(output::print(&format!("plane/{name} restored\n"))?)
        }
        PlaneCommand::Fork { name, new } => {
            client
                .json(
                    Method::POST,
                    &format!("{PLANES}/{name}/fork"),
                    Some(json!({"name": new})),
                )
                .await?;
            Ok(output::print(&format!("plane/{new} forked from plane/{name}\n"))?)
        }
        PlaneCommand::Rebase { names } => rebase(&mut client, &names).await,
        PlaneCommand::Kubeconfig { name, expires, file } => {
            let life = config::duration("expires", &expires)?;
            credential::kubeconfig(&mut client, &name, life, file).await
        }
    }
}

/// Names go into paths: a bad one is refused before anything is sent.
fn check_names(command: &PlaneCommand) -> Result<(), Usage> {
    let names: Vec<&String> = match command {
        PlaneCommand::List { .. } => Vec::new(),
        PlaneCommand::Create { names, .. } | PlaneCommand::Delete { names, .. } | PlaneCommand::Rebase { names } => {
            names.iter().collect()
        }
        PlaneCommand::Fork { name, new } => vec![name, new],
        PlaneCommand::Snapshot { name, .. }
        | PlaneCommand::Restore { name, .. }
        | PlaneCommand::Kubeconfig { name, .. } => {
            vec![name]
        }
    };
    for name in names {
        PlaneName::parse(name).map_err(|error| {
            Usage(format!(
                "{error}: at most 63 lowercase letters, digits and dashes, with a letter or digit at each end"
            ))
        })?;
    }
    Ok(())
}

async fn list(client: &mut Client, form: Output) -> anyhow::Result<()> {
    match form {
        Output::Table => {
            let table = client.table(PLANES).await?;
            if output::list(&table, "rows").is_empty() {
                eprintln!("No planes yet: mica plane create NAME makes one.");
                return Ok(());
            }
            Ok(output::print(&output::server_table(&table))?)
        }
        Output::Json => output::print_json(&client.json(Method::GET, PLANES, None).await?),
        Output::Name => {
            let planes = client.json(Method::GET, PLANES, None).await?;
            let lines: String = output::list(&planes, "items")
                .iter()
                .filter_map(|plane| plane["metadata"]["name"].as_str())
                .map(|name| format!("plane/{name}\n"))
                .collect();
            Ok(output::print(&lines)?)
        }
    }
}

async fn create(client: &mut Client, names: &[String], profile: Option<Profile>, form: Output) -> anyhow::Result<()> {
    for name in names {
        let mut plane = json!({"apiVersion": "mica.dev/v1alpha1", "kind": "Plane", "metadata": {"name": name}});
        if let Some(profile) = profile {
            plane["spec"] = json!({"profile": kind::Profile::from(profile).as_str()});
        }
        let created = client.json(Method::POST, PLANES, Some(plane)).await?;
        match form {
            Output::Json => output::print_json(&created)?,
            Output::Name => output::print(&format!("plane/{name}\n"))?,
            Output::Table => output::print(&format!("plane/{name} created\n"))?,
        }
    }
    Ok(())
}

async fn rebase(client: &mut Client, names: &[String]) -> anyhow::Result<()> {
    for name in names {
        let path = format!("{PLANES}/{name}/rebase");
        client.json(Method::POST, &path, None).await?;
        output::print(&format!("plane/{name} rebased\n"))?;
    }
    Ok(())
}

async fn delete(client: &mut Client, names: &[String], patience: Option<Duration>) -> anyhow::Result<()> {
    // All deletions begin before the first is waited for.
    for name in names {
        client.json(Method::DELETE, &format!("{PLANES}/{name}"), None).await?;
    }
    for name in names {
        let Some(patience) = patience else {
            output::print(&format!("plane/{name} deletion has begun\n"))?;
            continue;
        };
        match tokio::time::timeout(patience, gone(client, name)).await {
            Ok(ended) => ended?,
            Err(_elapsed) => bail!("{}", still_there(client, name, patience).await),
        }
        output::print(&format!("plane/{name} deleted\n"))?;
    }
    Ok(())
}

/// Waits until a plane is not there any more. A watch that ends early is begun again.
async fn gone(client: &mut Client, name: &str) -> anyhow::Result<()> {
    loop {
        let plane = match client.json(Method::GET, &format!("{PLANES}/{name}"), None).await {
            Ok(plane) => plane,
            Err(error) if is_not_found(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        let version = plane["metadata"]["resourceVersion"].as_str().unwrap_or("0");
        let path = format!("{PLANES}?watch=1&fieldSelector=metadata.name%3D{name}&resourceVersion={version}");
        let mut body = client
            .send(Method::GET, &path, "application/json", Outgoing::Empty)
            .await?
            .into_body();
        let mut line = Vec::new();
        while let Some(frame) = body.frame().await {
            let Ok(piece) = frame.context("the watch broke off")?.into_data() else {
                continue;
            };
            for byte in piece {
                if byte != b'\n' {
                    line.push(byte);
                    continue;
                }
                let event: Value = serde_json::from_slice(&line).context("the watch sent no JSON")?;
                line.clear();
                if event["type"] == "DELETED" {
                    // The rest of the watch is not read: this connection is of no more use.
                    client.reconnect().await?;
                    return Ok(());
                }
            }
        }
        tokio::time::sleep(WATCH_PAUSE).await;
    }
}

/// Between two watches that ended early.
const WATCH_PAUSE: Duration = Duration::from_millis(50);

/// Says what holds a plane, if the server tells.
async fn still_there(client: &mut Client, name: &str, patience: Duration) -> String {
    let seconds = patience.as_secs();
    let said = match client.reconnect().await {
        Ok(()) => client.json(Method::GET, &format!("{PLANES}/{name}"), None).await.ok(),
        Err(_) => None,
    };
    let held = said
        .iter()
        .flat_map(|plane| output::list(&plane["status"], "conditions"))
        .find_map(|condition| {
            let message = condition["message"].as_str().filter(|message| !message.is_empty())?;
            (condition["status"] == "False").then(|| message.to_owned())
        });
    let why = held.map(|held| format!(": {held}")).unwrap_or_default();
    format!("plane {name:?} is still being deleted after {seconds} s{why}")
}

fn is_not_found(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<Refused>()
        .is_some_and(|refused| refused.code == http::StatusCode::NOT_FOUND)
}

async fn snapshot(client: &mut Client, name: &str, mut sink: Sink) -> anyhow::Result<()> {
    let bytes = client
        .download(&format!("{PLANES}/{name}/snapshot"), sink.writer())
        .await?;
    if let Some(path) = sink.keep().await? {
        eprintln!("plane/{name} saved to {} ({bytes} bytes)", path.display());
    }
    Ok(())
}
