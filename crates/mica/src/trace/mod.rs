//! Logs to the standard error or a file, and traces to an OpenTelemetry collector if one is named.

mod export;
mod file;
mod layer;

use std::io::IsTerminal as _;
use std::path::Path;
use std::sync::Mutex;

use tracing::Level;
use tracing_subscriber::filter::{EnvFilter, Targets};
use tracing_subscriber::fmt;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::cli::LogFormat;
use crate::config::Otlp;
use crate::exit::Usage;
use file::LogFile;

/// Spans under this target are traces. They are at DEBUG, so that they cost nothing where no collector listens.
const TRACED: &str = "mica::request";

/// What the libraries of the embedded store say of every start is of no use to whoever runs the server.
const QUIET: &str = "fjall=warn,lsm_tree=warn";

/// Begins logging and tracing. What comes back sends the last spans.
pub fn init(log: &str, format: LogFormat, otlp: Option<&Otlp>) -> anyhow::Result<Tracing> {
    init_to(None, log, format, otlp)
}

/// The same, with lines in a file if one is named. Panics are told there, too.
pub fn init_to(file: Option<&Path>, log: &str, format: LogFormat, otlp: Option<&Otlp>) -> anyhow::Result<Tracing> {
    let bad = |error| Usage(format!("log: {log:?} is no level or filter: {error}"));
    EnvFilter::try_new(log).map_err(bad)?;
    // The last directive for a target counts, so that those of the setting win.
    let filter = EnvFilter::try_new(format!("{QUIET},{log}")).map_err(bad)?;
    let writer = match file {
        None => BoxMakeWriter::new(std::io::stderr),
        Some(path) => {
            let opened =
                LogFile::open(path).map_err(|error| Usage(format!("log-file: {}: {error}", path.display())))?;
            std::panic::set_hook(Box::new(|panic| tracing::error!("{panic}")));
            BoxMakeWriter::new(Mutex::new(opened))
        }
    };
    let ansi = file.is_none() && std::io::stderr().is_terminal();
    let lines = fmt::layer().with_writer(writer);
    let lines = match format {
        LogFormat::Json => lines.json().with_filter(filter).boxed(),
        LogFormat::Text => lines.with_ansi(ansi).with_filter(filter).boxed(),
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
