//! How the program ends: one line on stderr, and a code that tells a mistake in the call from a failure of the work.

use std::process::ExitCode;

/// The caller's mistake: as clap exits for bad flags.
const USAGE: u8 = 2;
const FAILURE: u8 = 1;

/// Marks an error as the caller's mistake: a bad flag, variable or configuration file.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// Prints an error, if there is one, and chooses the exit code.
pub fn code(done: anyhow::Result<()>) -> ExitCode {
    let Err(error) = done else { return ExitCode::SUCCESS };
    // A reader that closed our output early (`mica … | head`) is no failure worth a line.
    if error.chain().any(is_broken_pipe) {
        return ExitCode::from(FAILURE);
    }
    eprintln!("error: {}", one_line(&error));
    ExitCode::from(if error.is::<Usage>() { USAGE } else { FAILURE })
}

fn is_broken_pipe(error: &(dyn std::error::Error + 'static)) -> bool {
    error
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

/// The error and its causes on one line. A cause that the line says already is left out.
pub fn one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain() {
        let text = cause.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        if line.contains(&text) {
            continue;
        }
        if !line.is_empty() {
            line.push_str(": ");
        }
        line.push_str(&text);
    }
    line
}

#[cfg(test)]
mod tests {
    use anyhow::{Context as _, anyhow};

    use super::*;

    #[test]
    fn causes_follow_on_the_same_line_without_repeating() {
        let error = anyhow!("connection\n  refused")
            .context("connection refused: cannot reach x")
            .context("starting");
        assert_eq!(one_line(&error), "starting: connection refused: cannot reach x");
        let usage = Err::<(), _>(Usage("bad flag".to_owned()))
            .context("mica.yaml")
            .unwrap_err();
        assert!(usage.is::<Usage>());
    }
}
