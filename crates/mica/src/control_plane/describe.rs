//! What there is to know of one control plane, for people.

use http::Method;
use mica_api::control_plane::{REGISTRATIONS, management_namespace};
use serde_json::Value;

use super::{collection, name_of, one};
use crate::client::Client;
use crate::output;

/// Events that are shown, the newest.
const EVENTS: usize = 20;

pub async fn run(client: &mut Client, name: &str) -> anyhow::Result<()> {
    let object = client.json(Method::GET, &one(name), None).await?;
    let selector = format!("?fieldSelector=spec.controlPlaneRef.name%3D{name}");
    let path = format!("{}{selector}", collection(REGISTRATIONS));
    let registrations = client.json(Method::GET, &path, None).await?;
    let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
    let path = format!("/api/v1/events?fieldSelector=involvedObject.uid%3D{uid}");
    let events = client.json(Method::GET, &path, None).await?;
    Ok(output::print(&shown(&object, &registrations, &events))?)
}

fn shown(object: &Value, registrations: &Value, events: &Value) -> String {
    let name = name_of(object);
    let (spec, status) = (&object["spec"], &object["status"]);
    let path = spec["virtual"]["clusterPath"].as_str().unwrap_or(name);
    let mut all = String::new();
    all.push_str(&line("Name", name));
    all.push_str(&line("Created", text(&object["metadata"]["creationTimestamp"])));
    all.push_str(&line("Class", text(&spec["classRef"]["name"])));
    all.push_str(&line("Mode", text(&spec["mode"])));
    all.push_str(&line("Phase", text(&status["phase"])));
    all.push_str(&line("Plane", path));
    if status["version"].is_string() {
        all.push_str(&line("Version", text(&status["version"])));
    }
    all.push_str(&line("Deletion", text(&spec["deletionPolicy"])));
    all.push_str(&line("Namespace", &management_namespace(name)));
    all.push_str(&line("Kubeconfig", text(&status["kubeconfigSecretRef"]["name"])));
    all.push_str("Endpoints:\n");
    for endpoint in output::list(status, "endpoints") {
        all.push_str(&format!(
            "  {:<10}{}\n",
            text(&endpoint["type"]),
            text(&endpoint["url"])
        ));
    }
    all.push_str(&migration(&status["migration"]));
    all.push_str("Conditions:\n");
    all.push_str(&table(
        &["TYPE", "STATUS", "REASON", "MESSAGE"],
        output::list(status, "conditions"),
        &["type", "status", "reason", "message"],
    ));
    all.push_str("Registrations:\n");
    for registration in output::list(registrations, "items") {
        let services: Vec<&str> = output::list(&registration["spec"], "services")
            .iter()
            .filter_map(Value::as_str)
            .collect();
        let ready = if registration["status"]["ready"] == true {
            "ready"
        } else {
            "not ready"
        };
        let mode = registration["spec"]["mode"].as_str().unwrap_or("Shared");
        all.push_str(&format!(
            "  {}   {}   {mode}   {ready}\n",
            name_of(registration),
            services.join(", ")
        ));
    }
    let events = output::list(events, "items");
    let newest = &events[events.len().saturating_sub(EVENTS)..];
    all.push_str("Events:\n");
    all.push_str(&table(
        &["TYPE", "REASON", "LAST SEEN", "MESSAGE"],
        newest,
        &["type", "reason", "lastTimestamp", "message"],
    ));
    all
}

fn migration(migration: &Value) -> String {
    if migration.is_null() {
        return String::new();
    }
    let route = format!("{} to {}", text(&migration["from"]), text(&migration["to"]));
    let mut all = line("Migration", &format!("{}, {route}", text(&migration["step"])));
    all.push_str(&line("  Started", text(&migration["startedAt"])));
    if migration["completedAt"].is_string() {
        all.push_str(&line("  Completed", text(&migration["completedAt"])));
    }
    if let Some(message) = migration["message"].as_str() {
        all.push_str(&line("  Message", message));
    }
    all
}

fn table(header: &[&str], objects: &[Value], fields: &[&str]) -> String {
    if objects.is_empty() {
        return String::new();
    }
    let rows: Vec<Vec<String>> = objects
        .iter()
        .map(|object| fields.iter().map(|field| text(&object[*field]).to_owned()).collect())
        .collect();
    let table = output::table(header, &rows);
    table.lines().map(|line| format!("  {line}\n")).collect()
}

fn line(name: &str, value: &str) -> String {
    format!("{:<15}{value}\n", format!("{name}:"))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("<none>")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_control_plane_is_shown_whole() {
        let object = json!({"metadata": {"name": "shop", "creationTimestamp": "t0"},
            "spec": {"mode": "Virtual", "classRef": {"name": "starter"}, "deletionPolicy": "Retain"},
            "status": {"phase": "Migrating", "kubeconfigSecretRef": {"name": "s"},
                "endpoints": [{"type": "Internal", "url": "https://a.example"}],
                "migration": {"step": "Copying", "from": "Virtual", "to": "Dedicated", "startedAt": "t1", "message": "m"},
                "conditions": [{"type": "Ready", "status": "True", "reason": "Reconciled", "message": "ok"}]}});
        let registrations = json!({"items": [{"metadata": {"name": "r"}, "spec": {"services": ["controllers"]},
            "status": {"ready": true}}]});
        let events =
            json!({"items": [{"type": "Normal", "reason": "Ready", "lastTimestamp": "t2", "message": "it is"}]});
        expect_test::expect![[r#"
            Name:          shop
            Created:       t0
            Class:         starter
            Mode:          Virtual
            Phase:         Migrating
            Plane:         shop
            Deletion:      Retain
            Namespace:     kplane-cp-shop
            Kubeconfig:    s
            Endpoints:
              Internal  https://a.example
            Migration:     Copying, Virtual to Dedicated
              Started:     t1
              Message:     m
            Conditions:
              TYPE    STATUS   REASON       MESSAGE
              Ready   True     Reconciled   ok
            Registrations:
              r   controllers   Shared   ready
            Events:
              TYPE     REASON   LAST SEEN   MESSAGE
              Normal   Ready    t2          it is
        "#]]
        .assert_eq(&shown(&object, &registrations, &events));
    }
}
