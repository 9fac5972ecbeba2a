//! Custom resources at full speed: objects of 160 fields created, updated and applied.
//!
//! Updates are merge patches with every field that a create sends: a PUT of a custom resource must name the version that it
//! replaces, which a generator that skips answers does not know. The work on the new object is the same.

use std::sync::Arc;

use anyhow::Result;

use super::definition::{Custom, FIELDS};
use super::requests::{IN_TURN, fill};
use super::{Bench, Limit, Subject, Template, fresh_namespace, remove_namespace};
use crate::load::Source;
use crate::report::Measurement;
use crate::subject::Running;

pub const MERGE_PATCH: &str = "application/merge-patch+json";
/// JSON is YAML, and what most clients send.
const APPLY: &str = "application/apply-patch+yaml";

pub async fn run(bench: &Bench, subject: &Subject, report: &mut impl FnMut(Measurement)) -> Result<()> {
    let running = subject.start(&bench.scratch).await?;
    let namespace = fresh_namespace(&running.endpoint).await?;
    let wide = Custom::wide(0);
    wide.install(&running.endpoint).await?;
    wide.served(&running.endpoint, &namespace).await?;
    let measured = async {
        if bench.wants("custom-write") {
            write(bench, subject, &running, &wide, &namespace, report).await?;
        }
        if bench.wants("custom-apply") {
            apply(bench, subject, &running, &wide, report).await?;
        }
        anyhow::Ok(())
    }
    .await;
    wide.clean_up(subject, &running.endpoint).await;
    remove_namespace(subject, &running.endpoint, &namespace).await;
    measured?;
    running.stop().await
}

async fn write(
    bench: &Bench,
    subject: &Subject,
    running: &Running,
    wide: &Custom,
    namespace: &str,
    report: &mut impl FnMut(Measurement),
) -> Result<()> {
    let connections = bench.sizes.connections;
    let detail = format!("{FIELDS} fields, {} bytes sent", wide.object.len());
    let post = Template::new(
        running
            .endpoint
            .request("POST", &wide.collection(namespace), &wide.object),
    );
    let source: Source = Arc::new(move |n, request: &mut Vec<u8>| post.write(n, n, request));
    let loaded = bench.load(running, connections, bench.timed(), source).await?;
    report(Measurement {
        detail: detail.clone(),
        ..loaded.rate("custom-create", subject, "writes/s")
    });

    let updated = fresh_namespace(&running.endpoint).await?;
    fill(bench, running, &wide.collection(&updated), &wide.object, IN_TURN).await?;
    let patch = running
        .endpoint
        .typed_request("PATCH", &wide.object_path(&updated), MERGE_PATCH, &wide.object);
    let patch = Template::new(patch);
    let source: Source = Arc::new(move |n, request: &mut Vec<u8>| patch.write(n % IN_TURN, n, request));
    let loaded = bench.load(running, connections, bench.timed(), source).await?;
    report(Measurement {
        detail,
        ..loaded.rate("custom-update", subject, "writes/s")
    });
    remove_namespace(subject, &running.endpoint, &updated).await;
    Ok(())
}

/// The whole object, applied again and again by one manager with one field changed each time.
async fn apply(
    bench: &Bench,
    subject: &Subject,
    running: &Running,
    wide: &Custom,
    report: &mut impl FnMut(Measurement),
) -> Result<()> {
    let namespace = fresh_namespace(&running.endpoint).await?;
    let path = format!("{}?fieldManager=bench", wide.object_path(&namespace));
    let apply = Template::new(running.endpoint.typed_request("PATCH", &path, APPLY, &wide.object));
    let source: Source = Arc::new(move |n, request: &mut Vec<u8>| apply.write(n % IN_TURN, n, request));
    let connections = bench.sizes.connections;
    // The first apply of each object creates it: that is not what is measured.
    let created = bench
        .load(running, connections, Limit::Count(IN_TURN), source.clone())
        .await?;
    anyhow::ensure!(
        created.outcome.errors == 0,
        "could not apply: {:?}",
        created.outcome.first_error
    );
    // The loop counts from zero again, but no object gets the number that it has: the counter runs on.
    let source: Source = Arc::new(move |n, request: &mut Vec<u8>| source(n + IN_TURN, request));
    let loaded = bench.load(running, connections, bench.timed(), source).await?;
    report(Measurement {
        detail: format!("{FIELDS} fields, {} bytes sent, one field changed", wide.object.len()),
        ..loaded.rate("custom-apply", subject, "applies/s")
    });
    remove_namespace(subject, &running.endpoint, &namespace).await;
    Ok(())
}
