//! One line on a terminal that says what is being waited for, written over as that changes. Nothing where nobody looks.

use std::io::{IsTerminal as _, Write as _};

/// Longer lines would wrap, and could not be written over.
const WIDTH: usize = 100;

pub struct Progress {
    terminal: bool,
    shown: String,
}

impl Progress {
    pub fn new() -> Self {
        Self {
            terminal: std::io::stderr().is_terminal(),
            shown: String::new(),
        }
    }

    /// Shows what is going on now.
    pub fn show(&mut self, text: &str) {
        let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let line: String = line.chars().take(WIDTH).collect();
        if self.terminal && line != self.shown {
            eprint!("\r\x1b[K{line}");
            let _ = std::io::stderr().flush();
            self.shown = line;
        }
    }

    /// Takes the line away.
    pub fn clear(&mut self) {
        if self.terminal && !self.shown.is_empty() {
            eprint!("\r\x1b[K");
            let _ = std::io::stderr().flush();
            self.shown.clear();
        }
    }

    /// Says something that stays.
    pub fn say(&mut self, text: &str) {
        self.clear();
        eprintln!("{text}");
    }
}
