//! Logs to the standard error, and traces to an OpenTelemetry collector if one is named.

mod export;
mod layer;

use std::io::IsTerminal as _;

use tracing::Level;
use tracing_subscriber::filter::{EnvFilter, Targets};
use tracing_subscriber::fmt;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::cli::LogFormat;
use crate::config::Otlp;
use crate::exit::Usage;

/// Spans under this target are traces. They are at DEBUG, so that they cost nothing where no collector listens.
const TRACED: &str = "mica::request";

/// What the libraries of the embedded store say of every start is of no use to whoever runs the server.
const QUIET: &str = "fjall=warn,lsm_tree=warn";

/// Begins logging and tracing. What comes back sends the last spans.
pub fn init(log: &str, format: LogFormat, otlp: Option<&Otlp>) -> anyhow::Result<Tracing> {
    let bad = |error| Usage(format!("log: {log:?} is no level or filter: {error}"));
    EnvFilter::try_new(log).map_err(bad)?;
    // The last directive for a target counts, so that those of the setting win.
    let filter = EnvFilter::try_new(format!("{QUIET},{log}")).map_err(bad)?;
    let lines = fmt::layer().with_writer(std::io::stderr);
    let lines = match format {
        LogFormat::Json => lines.json().with_filter(filter).boxed(),
        LogFormat::Text => lines
            .with_ansi(std::io::stderr().is_terminal())
            .with_filter(filter)
            .boxed(),
    };
    let (spans, exporter) = match otlp {
        None => (None, None),
        Some(otlp) => {
            let (layer, exporter) = export::start(otlp)?;
            (
                Some(layer.with_filter(Targets::new().with_target(TRACED, Level::DEBUG))),
                Some(exporter),
            )
        }
    };
    tracing_subscriber::registry().with(lines).with(spans).init();
    Ok(Tracing { exporter })
}

pub struct Tracing {
    exporter: Option<export::Exporter>,
}

impl Tracing {
    pub async fn flush(self) {
        if let Some(exporter) = self.exporter {
            exporter.flush().await;
        }
    }
}
