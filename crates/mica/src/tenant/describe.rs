//! What there is to know of one organization or project, for people.

use http::Method;
use mica_api::tenancy::{DISPLAY_NAME_ANNOTATION, MEMBERSHIPS, PROJECTS, organization_path, project_path};
use serde_json::Value;

use super::{collection, name_of, sight};
use crate::client::Client;
use crate::output;

pub async fn organization(client: &mut Client, name: &str) -> anyhow::Result<()> {
    let object = sight::organization(client, name).await?;
    let view = organization_path(name);
    let members = client
        .json(Method::GET, &format!("{view}{}", collection(MEMBERSHIPS)), None)
        .await?;
    let projects = client
        .json(Method::GET, &format!("{view}{}", collection(PROJECTS)), None)
        .await?;
    let mut text = head(&object);
    text.push_str(&line("Type", text_of(&object["spec"]["type"])));
    text.push_str(&line("Address", &format!("{}{view}", client.config().server)));
    text.push_str(&conditions(&object));
    text.push_str("Members:\n");
    for member in output::list(&members, "items") {
        let roles: Vec<&str> = output::list(&member["spec"], "roles")
            .iter()
            .filter_map(|role| role["name"].as_str())
            .collect();
        let user = text_of(&member["spec"]["userRef"]["name"]);
        text.push_str(format!("  {user}   {}", roles.join(", ")).trim_end());
        text.push('\n');
    }
    text.push_str("Projects:\n");
    for project in output::list(&projects, "items").iter().filter_map(name_of) {
        text.push_str(&format!("  {project}\n"));
    }
    Ok(output::print(&text)?)
}

/// A project, at a path.
pub async fn project(client: &mut Client, path: &str) -> anyhow::Result<()> {
    let object = client.json(Method::GET, path, None).await?;
    let name = name_of(&object).unwrap_or_default();
    let mut text = head(&object);
    text.push_str(&line("Organization", text_of(&object["spec"]["ownerRef"]["name"])));
    text.push_str(&line(
        "Address",
        &format!("{}{}", client.config().server, project_path(name)),
    ));
    for suspension in output::list(&object["status"], "suspensions") {
        let since = text_of(&suspension["suspendedAt"]);
        let what = format!("{} since {since}", text_of(&suspension["reason"]));
        text.push_str(&line("Suspended", &what));
    }
    text.push_str(&conditions(&object));
    Ok(output::print(&text)?)
}

fn head(object: &Value) -> String {
    let mut text = line("Name", name_of(object).unwrap_or_default());
    if let Some(name) = object["metadata"]["annotations"][DISPLAY_NAME_ANNOTATION].as_str() {
        text.push_str(&line("Display Name", name));
    }
    text.push_str(&line("Created", text_of(&object["metadata"]["creationTimestamp"])));
    text
}

fn conditions(object: &Value) -> String {
    let rows: Vec<Vec<String>> = output::list(&object["status"], "conditions")
        .iter()
        .map(|condition| {
            let fields = ["type", "status", "reason", "message"];
            fields.map(|field| text_of(&condition[field]).to_owned()).to_vec()
        })
        .collect();
    let table = output::table(&["TYPE", "STATUS", "REASON", "MESSAGE"], &rows);
    let indented: String = table.lines().map(|line| format!("  {line}\n")).collect();
    format!("Conditions:\n{indented}")
}

fn line(name: &str, value: &str) -> String {
    format!("{:<15}{value}\n", format!("{name}:"))
}

fn text_of(value: &Value) -> &str {
    value.as_str().unwrap_or("<none>")
}
