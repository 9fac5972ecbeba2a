//! `mica store …`: the store as a whole.
//!
//! Backup and check ask a running server, which alone may touch its store; restore works on a directory without a server.

use std::io::{BufReader, Read};
use std::path::Path;

use anyhow::{Context as _, bail};
use http::Method;
use mica_store::embedded::{self, Durability};
use serde_json::Value;

use crate::cli::{Output, StoreArgs, StoreCommand};
use crate::client::Client;
use crate::output;
use crate::plane::Sink;
use crate::up::{DataDir, check_to_json, open_embedded, store_dir};

/// Paths of the server that are no resources.
const BACKUP: &str = "/mica/store/backup";
const CHECK: &str = "/mica/store/check";

pub async fn run(arguments: StoreArgs) -> anyhow::Result<()> {
    match arguments.command {
        StoreCommand::Backup { file } => {
            let mut sink = Sink::open(&file).await?;
            let mut client = Client::connect(&arguments.server).await?;
            let bytes = client.download(BACKUP, sink.writer()).await?;
            if let Some(path) = sink.keep().await? {
                eprintln!("store saved to {} ({bytes} bytes)", path.display());
            }
            Ok(())
        }
        StoreCommand::Restore { file, data_dir } => restore(&file, &data_dir).await,
        StoreCommand::Check {
            data_dir: Some(data_dir),
            output,
        } => report(&check_directory(&data_dir).await?, output),
        StoreCommand::Check { data_dir: None, output } => {
            let mut client = Client::connect(&arguments.server).await?;
            report(&client.json(Method::GET, CHECK, None).await?, output)
        }
    }
}

/// Prints what a check found: an object of names and numbers, with `problems` as a list of sentences.
fn report(found: &Value, form: Output) -> anyhow::Result<()> {
    let problems = output::list(found, "problems");
    match form {
        Output::Json => output::print_json(found)?,
        Output::Table | Output::Name => {
            let rows: Vec<Vec<String>> = found
                .as_object()
                .into_iter()
                .flatten()
                .filter(|(_, value)| !value.is_array())
                .map(|(name, value)| vec![name.clone(), value.to_string().trim_matches('"').to_owned()])
                .collect();
            output::print(&output::table(&["WHAT", "VALUE"], &rows))?;
        }
    }
    match problems.first().and_then(Value::as_str) {
        None => Ok(()),
        Some(first) if problems.len() == 1 => bail!("the store is damaged: {first}"),
        Some(first) => bail!("the store is damaged in {} places, first: {first}", problems.len()),
    }
}

/// Fills a data directory that has no store yet.
async fn restore(file: &Path, data_dir: &Path) -> anyhow::Result<()> {
    let mut from: Box<dyn Read + Send> = match file == Path::new("-") {
        true => Box::new(std::io::stdin()),
        false => Box::new(std::fs::File::open(file).with_context(|| file.display().to_string())?),
    };
    let _held = DataDir::take(data_dir)?;
    let directory = store_dir(data_dir);
    let restoring = move || {
        let mut buffered = BufReader::with_capacity(PIECE, &mut from);
        embedded::restore(&directory, &mut buffered, &embedded::Options::default())
    };
    let summary = tokio::task::spawn_blocking(restoring)
        .await?
        .with_context(|| file.display().to_string())?;
    let (records, revision) = (summary.records, summary.revision.0);
    Ok(output::print(&format!(
        "store restored to {}: {records} records at revision {revision}\n",
        data_dir.display()
    ))?)
}

const PIECE: usize = 256 * 1024;

async fn check_directory(data_dir: &Path) -> anyhow::Result<Value> {
    let directory = store_dir(data_dir);
    if !directory.exists() {
        bail!("{} holds no store", data_dir.display());
    }
    let _held = DataDir::take(data_dir)?;
    let store = open_embedded(data_dir, Durability::Power).await?;
    let checking = move || {
        let report = store.check();
        store.close();
        report
    };
    Ok(check_to_json(&tokio::task::spawn_blocking(checking).await??))
}
