//! `mica org`, `mica project` and `mica ctx`: commands over organizations and projects.

pub mod args;
mod context;
mod describe;
mod sight;

use std::time::Duration;

use anyhow::bail;
use http::{Method, StatusCode};
use mica_api::PlaneName;
use mica_api::tenancy::{
    API_VERSION, DISPLAY_NAME_ANNOTATION, GROUP, MAX_ORGANIZATION_NAME, MAX_PROJECT_NAME, ORGANIZATION_LABEL,
    ORGANIZATIONS, PROJECT_CLASS_ANNOTATION, PROJECTS, VERSION, organization_namespace, organization_path,
    project_path,
};
use mica_server::pki::write_private;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::cli::ServerArgs;
use crate::client::{Client, Kubeconfig};
use crate::exit::Usage;
use crate::{config, output};
use args::{FileArgs, Form, OrgArgs, OrgCommand, OrgType, ProjectArgs, ProjectCommand, WaitArgs};
pub use context::run as switch;

/// How often a state that is waited for is looked at.
const LOOK: Duration = Duration::from_millis(20);

fn collection(plural: &str) -> String {
    format!("/apis/{GROUP}/{VERSION}/{plural}")
}

fn one(plural: &str, name: &str) -> String {
    format!("{}/{name}", collection(plural))
}

pub async fn organizations(arguments: OrgArgs) -> anyhow::Result<()> {
    let named: Vec<&String> = match &arguments.command {
        OrgCommand::List { .. } => Vec::new(),
        OrgCommand::Create { names, .. } | OrgCommand::Delete { names, .. } => names.iter().collect(),
        OrgCommand::Describe { name } | OrgCommand::Kubeconfig { name, .. } => vec![name],
    };
    check_names(&named, MAX_ORGANIZATION_NAME)?;
    let mut client = Client::connect_root(&arguments.server).await?;
    match arguments.command {
        OrgCommand::List { output } => list(&mut client, &collection(ORGANIZATIONS), "organization", output).await,
        OrgCommand::Create {
            names,
            r#type,
            display_name,
            output,
        } => {
            let kind = match r#type {
                OrgType::Personal => "Personal",
                OrgType::Standard => "Standard",
            };
            for name in names {
                let mut object = json!({"apiVersion": API_VERSION, "kind": "Organization",
                    "metadata": {"name": name}, "spec": {"type": kind}});
                if let Some(text) = &display_name {
                    object["metadata"]["annotations"] = json!({DISPLAY_NAME_ANNOTATION: text});
                }
                let made = client
                    .json(Method::POST, &collection(ORGANIZATIONS), Some(object))
                    .await?;
                print(&made, "organization", output)?;
            }
            Ok(())
        }
        OrgCommand::Describe { name } => describe::organization(&mut client, &name).await,
        OrgCommand::Delete { names, wait } => {
            delete(&mut client, &collection(ORGANIZATIONS), "organization", &names, &wait).await
        }
        OrgCommand::Kubeconfig { name, file } => {
            sight::organization(&mut client, &name).await?;
            kubeconfig(
                &client,
                &format!("mica-organization-{name}"),
                &organization_path(&name),
                file,
            )
        }
    }
}

pub async fn projects(arguments: ProjectArgs) -> anyhow::Result<()> {
    let named: Vec<&String> = match &arguments.command {
        ProjectCommand::List { .. } => Vec::new(),
        ProjectCommand::Create { names, .. } | ProjectCommand::Delete { names, .. } => names.iter().collect(),
        ProjectCommand::Describe { name } | ProjectCommand::Kubeconfig { name, .. } => vec![name],
    };
    check_names(&named, MAX_PROJECT_NAME)?;
    let org = belonging(&arguments.server, arguments.org.as_deref())?;
    let mut client = Client::connect_root(&arguments.server).await?;
    match arguments.command {
        ProjectCommand::List { output } => list(&mut client, &all(org.as_deref()), "project", output).await,
        ProjectCommand::Create {
            names,
            class,
            wait,
            output,
        } => {
            let Some(org) = org else {
                bail!(Usage(
                    "projects belong to an organization: say --org NAME, or go to one with `mica ctx NAME`".to_owned()
                ));
            };
            let patience = patience(&wait)?;
            for name in &names {
                create(&mut client, name, &org, class.as_deref()).await?;
            }
            for name in &names {
                let path = at(Some(&org), name);
                let made = match patience {
                    Some(patience) => ready(&mut client, &path, name, patience).await?,
                    None => client.json(Method::GET, &path, None).await?,
                };
                print(&made, "project", output)?;
            }
            Ok(())
        }
        ProjectCommand::Describe { name } => describe::project(&mut client, &at(org.as_deref(), &name)).await,
        ProjectCommand::Delete { names, wait } => {
            delete(&mut client, &all(org.as_deref()), "project", &names, &wait).await
        }
        ProjectCommand::Kubeconfig { name, file } => {
            client.json(Method::GET, &at(org.as_deref(), &name), None).await?;
            kubeconfig(&client, &format!("mica-project-{name}"), &project_path(&name), file)
        }
    }
}

/// The organization that is meant: the one that is named, or else the one that the kubeconfig is at.
fn belonging(server: &ServerArgs, named: Option<&str>) -> anyhow::Result<Option<String>> {
    if let Some(name) = named {
        let name = name.to_owned();
        check_names(&[&name], MAX_ORGANIZATION_NAME)?;
        return Ok(Some(name));
    }
    let here = Kubeconfig::load(server.kubeconfig.as_deref(), server.context.as_deref())?;
    Ok(context::organization(&here))
}

/// Where projects are: in the view of their organization, or at the platform's root.
fn all(organization: Option<&str>) -> String {
    let view = organization.map(organization_path).unwrap_or_default();
    format!("{view}{}", collection(PROJECTS))
}

fn at(organization: Option<&str>, project: &str) -> String {
    format!("{}/{project}", all(organization))
}

/// Names go into paths: a bad one is refused before anything is sent.
fn check_names(names: &[&String], longest: usize) -> Result<(), Usage> {
    for name in names {
        if PlaneName::parse(name).is_err() || name.len() > longest {
            return Err(Usage(format!(
                "{name:?} is not a name: at most {longest} lowercase letters, digits and dashes, with a letter or digit at each end"
            )));
        }
    }
    Ok(())
}

async fn list(client: &mut Client, path: &str, kind: &str, form: Form) -> anyhow::Result<()> {
    match form {
        Form::Table => {
            let table = client.table(path).await?;
            if output::list(&table, "rows").is_empty() {
                eprintln!("No {kind}s found.");
                return Ok(());
            }
            Ok(output::print(&output::server_table(&table))?)
        }
        Form::Json => output::print_json(&client.json(Method::GET, path, None).await?),
        Form::Yaml => Ok(output::print(&mica_machinery::yaml::from_json(
            &client.json(Method::GET, path, None).await?,
        ))?),
        Form::Name => {
            let all = client.json(Method::GET, path, None).await?;
            let names = output::list(&all, "items").iter().filter_map(name_of);
            Ok(output::print(
                &names.map(|name| format!("{kind}/{name}\n")).collect::<String>(),
            )?)
        }
    }
}

fn name_of(object: &Value) -> Option<&str> {
    object["metadata"]["name"].as_str()
}

fn print(object: &Value, kind: &str, form: Form) -> anyhow::Result<()> {
    let name = name_of(object).unwrap_or_default();
    match form {
        Form::Json => output::print_json(object),
        Form::Yaml => Ok(output::print(&mica_machinery::yaml::from_json(object))?),
        Form::Name => Ok(output::print(&format!("{kind}/{name}\n"))?),
        Form::Table => Ok(output::print(&format!("{kind}/{name} created\n"))?),
    }
}

async fn create(client: &mut Client, name: &str, organization: &str, class: Option<&str>) -> anyhow::Result<()> {
    let mut object = json!({"apiVersion": API_VERSION, "kind": "Project", "metadata": {"name": name}});
    if let Some(class) = class {
        object["metadata"]["annotations"] = json!({PROJECT_CLASS_ANNOTATION: class});
    }
    client
        .json(Method::POST, &all(Some(organization)), Some(object))
        .await
        .map(drop)
}

fn patience(wait: &WaitArgs) -> anyhow::Result<Option<Duration>> {
    if wait.no_wait {
        return Ok(None);
    }
    Ok(Some(config::duration("timeout", &wait.timeout)?))
}

/// Waits until a project can be used.
async fn ready(client: &mut Client, path: &str, name: &str, patience: Duration) -> anyhow::Result<Value> {
    let end = Instant::now() + patience;
    loop {
        let project = client.json(Method::GET, path, None).await?;
        let ready = condition(&project, "Ready");
        if ready.is_some_and(|ready| ready["status"] == "True") {
            return Ok(project);
        }
        if Instant::now() >= end {
            let seconds = patience.as_secs();
            let why = ready.and_then(|ready| ready["message"].as_str()).unwrap_or_default();
            bail!("project {name:?} is not ready after {seconds} s: {why}. Does this server run controllers?");
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn condition<'a>(object: &'a Value, r#type: &str) -> Option<&'a Value> {
    let mut all = output::list(&object["status"], "conditions").iter();
    all.find(|condition| condition["type"] == r#type)
}

async fn delete(client: &mut Client, all: &str, kind: &str, names: &[String], wait: &WaitArgs) -> anyhow::Result<()> {
    let patience = patience(wait)?;
    // All deletions begin before the first is waited for.
    for name in names {
        client.json(Method::DELETE, &format!("{all}/{name}"), None).await?;
    }
    for name in names {
        let Some(patience) = patience else {
            output::print(&format!("{kind}/{name} deletion has begun\n"))?;
            continue;
        };
        let end = Instant::now() + patience;
        while let Some(what) = left(client, all, kind, name).await? {
            if Instant::now() >= end {
                bail!(
                    "{kind} {name:?} is still being deleted after {} s{what}",
                    patience.as_secs()
                );
            }
            tokio::time::sleep(LOOK).await;
        }
        output::print(&format!("{kind}/{name} deleted\n"))?;
    }
    Ok(())
}

/// What is left of something that is deleted, in words, if anything is known of it; `None` when all of it is gone.
async fn left(client: &mut Client, all: &str, kind: &str, name: &str) -> anyhow::Result<Option<String>> {
    let found = match client.json(Method::GET, &format!("{all}/{name}"), None).await {
        Ok(found) => return Ok(Some(cleanup(&found))),
        Err(error) if sight::is(&error, StatusCode::NOT_FOUND) => None,
        Err(error) => return Err(error),
    };
    if kind != "organization" {
        return Ok(found);
    }
    // What is an organization's goes after it.
    let of_it = format!("{}?labelSelector={ORGANIZATION_LABEL}%3D{name}", collection(PROJECTS));
    let projects = client.json(Method::GET, &of_it, None).await?;
    if let Some(project) = output::list(&projects, "items").first() {
        let (name, why) = (name_of(project).unwrap_or_default(), cleanup(project));
        return Ok(Some(format!(": its project {name:?} is still there{why}")));
    }
    let namespace = format!("/api/v1/namespaces/{}", organization_namespace(name));
    match client.json(Method::GET, &namespace, None).await {
        Ok(_) => Ok(Some(": its namespace is still there".to_owned())),
        Err(error) if sight::is(&error, StatusCode::NOT_FOUND) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What holds up the end of a project.
fn cleanup(object: &Value) -> String {
    let message = condition(object, "ResourceCleanup").and_then(|one| one["message"].as_str());
    message.map(|message| format!(": {message}")).unwrap_or_default()
}

/// Prints or writes a kubeconfig for an address of the server.
fn kubeconfig(client: &Client, context: &str, path: &str, file: FileArgs) -> anyhow::Result<()> {
    let server = format!("{}{path}", client.config().server);
    let config = client.config().at(context, &server);
    let text = format!("{}\n", serde_json::to_string_pretty(&config)?);
    match file.file {
        None => Ok(output::print(&text)?),
        Some(path) => {
            write_private(&path, text.as_bytes())?;
            eprintln!("kubeconfig written to {}", path.display());
            Ok(())
        }
    }
}
