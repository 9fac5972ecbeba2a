//! `Warning` headers: what a client should know although its request was understood.
//!
//! A body can give rise to a warning for each of its fields, so there is a bound, which is upstream's: once all texts
//! together are longer than it, each is cut, and no more are added.

use std::collections::HashSet;

use http::Response;
use http::header::{HeaderValue, WARNING};

use crate::http::Body;

/// Characters of all texts together, from which on each is cut.
const WHOLE: usize = 4 * 1024;
/// Characters that are left of one that is cut.
const CUT: usize = 256;

/// Adds warnings with upstream's code, 299, and no agent.
pub(crate) fn warn(response: &mut Response<Body>, warnings: &[String]) {
    for text in bounded(warnings) {
        let quoted = text.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
            response.headers_mut().append(WARNING, value);
        }
    }
}

/// Each text once, within the bounds. What no header can hold is told to nobody, as upstream has it.
fn bounded(warnings: &[String]) -> Vec<&str> {
    let mut seen = HashSet::new();
    let mut texts: Vec<&str> = Vec::new();
    let mut written = 0;
    let mut cutting = false;
    let tellable = |text: &&str| !text.is_empty() && !text.contains(char::is_control);
    for text in warnings.iter().map(String::as_str).filter(tellable) {
        if cutting && written >= WHOLE {
            break;
        }
        if !seen.insert(text) {
            continue;
        }
        texts.push(if cutting { cut(text) } else { text });
        written += texts.last().map_or(0, |text| text.chars().count());
        if !cutting && written > WHOLE {
            cutting = true;
            texts.iter_mut().for_each(|text| *text = cut(text));
            written = texts.iter().map(|text| text.chars().count()).sum();
        }
    }
    texts
}

fn cut(text: &str) -> &str {
    text.char_indices().nth(CUT).map_or(text, |(end, _)| &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_or_long_warnings_are_cut_as_upstream_cuts_them() {
        let texts = |count: usize, length: usize| -> Vec<String> {
            (0..count).map(|at| format!("{at:04}{}", "é".repeat(length))).collect()
        };
        let lengths =
            |warnings: &[String]| -> Vec<usize> { bounded(warnings).iter().map(|text| text.chars().count()).collect() };
        assert_eq!(lengths(&texts(3, 6)), [10, 10, 10]);
        let odd = ["a", "", "a", "two\nlines", "\0"].map(ToOwned::to_owned);
        assert_eq!(lengths(&odd), [1]);
        assert_eq!(lengths(&texts(1, 5000)), [256]);
        assert_eq!(lengths(&texts(3, 2000)), [256, 256, 256]);
        assert_eq!(lengths(&texts(5000, 6)).len(), 410);
        assert_eq!(lengths(&texts(5000, 2000)).len(), 16);
    }
}
