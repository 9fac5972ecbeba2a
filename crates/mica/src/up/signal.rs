//! Being asked to stop: once to finish, twice to go.

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// As a shell reports a process that ended by SIGINT.
const IMPATIENT: i32 = 130;

pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// From now on signals are kept, not obeyed at once: also one during start-up leads to an orderly end.
    pub fn listen() -> anyhow::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate()).context("listening for signals")?,
            interrupt: signal(SignalKind::interrupt()).context("listening for signals")?,
        })
    }

    pub async fn first(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    /// Ends the process at the next signal, whatever it is doing.
    pub fn exit_on_second(mut self) {
        tokio::spawn(async move {
            self.first().await;
            std::process::exit(IMPATIENT);
        });
    }
}
