//! Runs the controller: on the cluster of the kubeconfig, or with `planes` on all planes of that server.

use std::error::Error;

use greeting::Greeting;
use kube::CustomResourceExt as _;
use mica_runtime::provider::Planes;
use mica_runtime::{Access, Manager};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mode = std::env::args().nth(1).unwrap_or_default();
    if mode == "crd" {
        println!("{}", serde_json::to_string_pretty(&Greeting::crd())?);
        return Ok(());
    }
    tracing_subscriber::fmt::init();
    let server = Access::infer().await?;
    let mut builder = Manager::builder(server.clone())
        .metrics(([127, 0, 0, 1], 8080).into())
        .probes(([127, 0, 0, 1], 8081).into());
    if mode == "planes" {
        builder = builder.provider(Planes::new(server));
    }
    let manager = builder.build()?;
    greeting::install(&manager)?;
    let interrupted = async { drop(tokio::signal::ctrl_c().await) };
    Ok(manager.run_until(interrupted).await?)
}
