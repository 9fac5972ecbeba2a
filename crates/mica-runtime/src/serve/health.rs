//! Health: named checks, answered as upstream's servers answer them.

use std::fmt::Write as _;
use std::sync::Arc;

use http::StatusCode;
use parking_lot::RwLock;

use super::{Answer, TEXT};

/// Says what is wrong, if anything is. It must not wait.
pub type Check = dyn Fn() -> Result<(), String> + Send + Sync;

type Named = Vec<(String, Box<Check>)>;

/// Checks by name, such as those behind `/readyz`. A clone is the same checks.
#[derive(Clone, Default)]
pub struct Checks(Arc<RwLock<Named>>);

impl Checks {
    /// Adds a check, or replaces the one of that name.
    pub fn set(&self, name: impl Into<String>, check: impl Fn() -> Result<(), String> + Send + Sync + 'static) {
        let name = name.into();
        let mut checks = self.0.write();
        checks.retain(|(known, _)| *known != name);
        checks.push((name, Box::new(check)));
    }

    /// What fails now, and why.
    pub fn failing(&self) -> Vec<(String, String)> {
        let checks = self.0.read();
        let failing = checks
            .iter()
            .filter_map(|(name, check)| Some((name.clone(), check().err()?)));
        failing.collect()
    }

    /// Answers `path`, which begins with `endpoint` (`/readyz`), or one check below it.
    pub(crate) fn answer(&self, endpoint: &str, path: &str, query: &str) -> Option<Answer> {
        let rest = path.strip_prefix(endpoint)?;
        let checks = self.0.read();
        if let Some(name) = rest.strip_prefix('/').filter(|name| !name.is_empty()) {
            let (_, check) = checks.iter().find(|(known, _)| known == name)?;
            return Some(match check() {
                Ok(()) => Answer::ok(TEXT, "ok".to_owned()),
                Err(why) => failed(format!("internal server error: {why}\n")),
            });
        }
        if !matches!(rest, "" | "/") {
            return None;
        }
        let verbose = query
            .split('&')
            .any(|part| part == "verbose" || part.starts_with("verbose="));
        let endpoint = endpoint.trim_start_matches('/');
        let (mut text, mut fails) = (String::new(), 0);
        for (name, check) in checks.iter() {
            let line = match check() {
                Ok(()) => writeln!(text, "[+]{name} ok"),
                Err(why) => {
                    fails += 1;
                    writeln!(text, "[-]{name} failed: {why}")
                }
            };
            line.expect("writing to a string does not fail");
        }
        Some(match (fails, verbose) {
            (0, false) => Answer::ok(TEXT, "ok".to_owned()),
            (0, true) => Answer::ok(TEXT, format!("{text}{endpoint} check passed\n")),
            _ => failed(format!("{text}{endpoint} check failed\n")),
        })
    }
}

fn failed(body: String) -> Answer {
    Answer {
        status: StatusCode::INTERNAL_SERVER_ERROR,
        content: TEXT,
        body,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_answered_together_and_one_by_one() {
        let checks = Checks::default();
        checks.set("ping", || Ok(()));
        let told = |path: &str, query: &str| {
            let answer = checks.answer("/readyz", path, query);
            answer.map(|answer| (answer.status.as_u16(), answer.body))
        };
        assert_eq!(told("/readyz", ""), Some((200, "ok".to_owned())));
        let verbose = "[+]ping ok\nreadyz check passed\n".to_owned();
        assert_eq!(told("/readyz/", "verbose"), Some((200, verbose)));
        checks.set("providers", || Err("planes has not listed".to_owned()));
        let failing = "[+]ping ok\n[-]providers failed: planes has not listed\nreadyz check failed\n";
        assert_eq!(told("/readyz", ""), Some((500, failing.to_owned())));
        assert_eq!(told("/readyz/ping", ""), Some((200, "ok".to_owned())));
        let one = "internal server error: planes has not listed\n".to_owned();
        assert_eq!(told("/readyz/providers", ""), Some((500, one)));
        assert_eq!(told("/readyz/other", ""), None);
        assert_eq!(told("/readyzz", ""), None);
        assert_eq!(checks.failing().len(), 1);
        checks.set("providers", || Ok(()));
        assert!(checks.failing().is_empty(), "the check of that name was replaced");
    }
}
