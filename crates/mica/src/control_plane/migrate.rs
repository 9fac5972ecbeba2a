//! `mica control-plane migrate`: asks for another mode, and follows the steps.

use std::time::Duration;

use anyhow::bail;
use http::Method;
use serde_json::Value;
use tokio::time::Instant;

use super::args::{DedicatedArgs, Mode};
use super::progress::Progress;
use super::{LOOK, change, condition, one, set_dedicated, waits_for};
use crate::client::Client;
use crate::output;

/// What is known of a migration at one look.
#[derive(PartialEq, Debug)]
enum Seen {
    /// The operator has not begun.
    Asked,
    Step(String),
    Done,
    Cancelled,
}

pub async fn run(
    client: &mut Client,
    name: &str,
    to: Mode,
    dedicated: &DedicatedArgs,
    patience: Option<Duration>,
) -> anyhow::Result<()> {
    let before = client.json(Method::GET, &one(name), None).await?;
    let from = before["spec"]["mode"].as_str().unwrap_or("Virtual").to_owned();
    let changed = change(client, name, |object| {
        object["spec"]["mode"] = to.as_str().into();
        set_dedicated(&mut object["spec"], dedicated);
    })
    .await?;
    if from == to.as_str() && is_there(&changed, to) {
        return Ok(output::print(&format!(
            "controlplane/{name} is {} already\n",
            to.as_str()
        ))?);
    }
    let Some(patience) = patience else {
        return Ok(output::print(&format!(
            "controlplane/{name} migration to {} has begun\n",
            to.as_str()
        ))?);
    };
    let started = text(&before, "startedAt").to_owned();
    follow(client, name, to, &started, patience).await?;
    let object = client.json(Method::GET, &one(name), None).await?;
    let endpoint = object["status"]["endpoint"].as_str().unwrap_or_default();
    Ok(output::print(&format!(
        "controlplane/{name} is {} at {endpoint}\n",
        to.as_str()
    ))?)
}

/// Tells each step as it begins, until the last has ended.
async fn follow(client: &mut Client, name: &str, to: Mode, before: &str, patience: Duration) -> anyhow::Result<()> {
    let end = Instant::now() + patience;
    let mut progress = Progress::new();
    let mut told = String::new();
    loop {
        let object = client.json(Method::GET, &one(name), None).await?;
        match seen(&object, to, before) {
            Seen::Done => {
                progress.clear();
                return Ok(());
            }
            Seen::Cancelled => {
                progress.clear();
                let why = text(&object, "message").to_owned();
                bail!("the migration of control plane {name:?} was cancelled: {why}");
            }
            Seen::Step(step) if step != told => {
                progress.say(&format!("{name}: {step}"));
                told = step;
            }
            Seen::Step(step) => progress.show(&format!("{name}: {step}: {}", text(&object, "message"))),
            Seen::Asked => progress.show(&format!("{name}: {}", waits_for(&object))),
        }
        if Instant::now() >= end {
            progress.clear();
            let seconds = patience.as_secs();
            let step = if told.is_empty() { "not begun" } else { told.as_str() };
            bail!(
                "control plane {name:?} is not {} after {seconds} s ({step}); it goes on by itself: mica control-plane describe {name}",
                to.as_str()
            );
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["status"]["migration"][field].as_str().unwrap_or_default()
}

/// Whether a control plane is where it should be, and nothing is under way.
fn is_there(object: &Value, to: Mode) -> bool {
    let migration = &object["status"]["migration"];
    let rests = migration.is_null() || migration["step"] == "Completed";
    let arrived = migration.is_null() || migration["to"] == to.as_str();
    let ready = condition(object, "Ready").is_some_and(|ready| ready["status"] == "True");
    rests && arrived && ready
}

/// `before` is when the migration began that was there before this one was asked for.
fn seen(object: &Value, to: Mode, before: &str) -> Seen {
    let step = text(object, "step");
    if step.is_empty() || (text(object, "startedAt") == before && text(object, "to") != to.as_str()) {
        return Seen::Asked;
    }
    match step {
        "Completed" if text(object, "to") == to.as_str() => Seen::Done,
        "Cancelled" => Seen::Cancelled,
        "Completed" => Seen::Asked,
        step => Seen::Step(step.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn steps_are_told_until_the_migration_that_was_asked_for_is_done() {
        let at = |step: &str, to: &str, started: &str| json!({"status": {"migration": {"step": step, "to": to, "startedAt": started}}});
        for (object, expected) in [
            (json!({}), Seen::Asked),
            (at("Completed", "Virtual", "t0"), Seen::Asked),
            (at("Cancelled", "Virtual", "t0"), Seen::Asked),
            (at("Copying", "Dedicated", "t1"), Seen::Step("Copying".to_owned())),
            (at("Cancelled", "Dedicated", "t1"), Seen::Cancelled),
            (at("Completed", "Dedicated", "t1"), Seen::Done),
        ] {
            assert_eq!(seen(&object, Mode::Dedicated, "t0"), expected, "{object}");
        }
    }
}
