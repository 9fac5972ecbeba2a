//! How upstream shows what changed in a struct that may not change: a unified diff of its indented JSON.

use std::collections::HashMap;
use std::ops::Range;

use serde_json::Value;

use super::internal;

/// Lines that stay around a change.
const CONTEXT: usize = 3;
/// Lines beyond which nothing in common is looked for, since that takes the square of them.
const MAX_LINES: usize = 3000;
/// Lines from which on a text is long.
const MANY_LINES: usize = 200;

/// The changes from one value of a type to another.
pub fn unified(old: &Value, new: &Value, openapi: &str) -> String {
    let (old, new) = (lines(old, openapi), lines(new, openapi));
    let edits = edits(&old, &new);
    let mut text = String::new();
    let mut at = 0;
    while let Some(start) = (at..edits.len()).find(|i| edits[*i].mark != ' ') {
        let mut end = start + 1;
        // Changes whose surroundings touch are shown as one.
        while let Some(next) = (end..edits.len()).find(|i| edits[*i].mark != ' ') {
            if next - end > 2 * CONTEXT {
                break;
            }
            end = next + 1;
        }
        let (from, to) = (start.saturating_sub(CONTEXT), (end + CONTEXT).min(edits.len()));
        hunk(&edits, from, to, &mut text);
        at = end;
    }
    text
}

/// One line of either text: kept, taken away or added.
struct Edit<'a> {
    mark: char,
    line: &'a str,
}

fn lines(value: &Value, openapi: &str) -> Vec<String> {
    let shown = internal::shown(value, openapi);
    let mut out = Vec::new();
    let mut line = String::new();
    let (mut depth, mut quoted, mut escaped) = (0, false, false);
    let mut characters = shown.chars().peekable();
    while let Some(c) = characters.next() {
        if quoted {
            line.push(c);
            quoted = escaped || c != '"';
            escaped = !escaped && c == '\\';
            continue;
        }
        match c {
            '"' => {
                quoted = true;
                line.push(c);
            }
            '{' | '[' => {
                line.push(c);
                if let Some(close) = characters.next_if(|next| *next == '}' || *next == ']') {
                    line.push(close);
                } else {
                    depth += 1;
                    out.push(std::mem::replace(&mut line, " ".repeat(depth)));
                }
            }
            '}' | ']' => {
                depth -= 1;
                out.push(std::mem::replace(&mut line, " ".repeat(depth)));
                line.push(c);
            }
            ',' => {
                line.push(c);
                out.push(std::mem::replace(&mut line, " ".repeat(depth)));
            }
            ':' => line.push_str(": "),
            c => line.push(c),
        }
    }
    out.push(line);
    out
}

fn edits<'a>(old: &'a [String], new: &'a [String]) -> Vec<Edit<'a>> {
    let mut edits = Vec::new();
    let (mut i, mut j) = (0, 0);
    let end = Match {
        old: old.len(),
        new: new.len(),
        len: 0,
    };
    for kept in matches(old, new).into_iter().chain([end]) {
        let mark = |mark, lines: &'a [String]| lines.iter().map(move |line| Edit { mark, line });
        edits.extend(mark('-', &old[i..kept.old]));
        edits.extend(mark('+', &new[j..kept.new]));
        edits.extend(mark(' ', &old[kept.old..kept.old + kept.len]));
        (i, j) = (kept.old + kept.len, kept.new + kept.len);
    }
    edits
}

/// Lines that both texts have.
#[derive(Clone, Copy)]
struct Match {
    old: usize,
    new: usize,
    len: usize,
}

/// What both texts have, in order, as upstream's library finds it: the longest run of equal lines, then the longest before
/// it and after it. In long texts, lines that are everywhere (brackets) do not begin a run.
fn matches(old: &[String], new: &[String]) -> Vec<Match> {
    if old.len() > MAX_LINES || new.len() > MAX_LINES {
        return Vec::new();
    }
    let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
    for (j, line) in new.iter().enumerate() {
        places.entry(line).or_default().push(j);
    }
    if new.len() >= MANY_LINES {
        places.retain(|_, places| places.len() <= new.len() / 100 + 1);
    }
    let places: Vec<&[usize]> = old
        .iter()
        .map(|line| places.get(line.as_str()).map_or(&[][..], Vec::as_slice))
        .collect();
    let mut found = Vec::new();
    let mut waiting = vec![(0..old.len(), 0..new.len())];
    while let Some((within_old, within_new)) = waiting.pop() {
        let longest = longest_match(old, new, &places, within_old.clone(), within_new.clone());
        if longest.len > 0 {
            found.push(longest);
            waiting.push((within_old.start..longest.old, within_new.start..longest.new));
            waiting.push((
                longest.old + longest.len..within_old.end,
                longest.new + longest.len..within_new.end,
            ));
        }
    }
    found.sort_unstable_by_key(|found| found.old);
    found
}

/// The first of the longest runs of lines that parts of both texts have.
fn longest_match(
    old: &[String],
    new: &[String],
    places: &[&[usize]],
    within_old: Range<usize>,
    within_new: Range<usize>,
) -> Match {
    let mut best = Match {
        old: within_old.start,
        new: within_new.start,
        len: 0,
    };
    // How long the run is that ends before a line of the old text, for each line of the new one where one does.
    let mut ending: HashMap<usize, usize> = HashMap::new();
    for i in within_old.clone() {
        let mut next = HashMap::new();
        for j in places[i].iter().copied().filter(|j| within_new.contains(j)) {
            let len = 1 + j.checked_sub(1).and_then(|j| ending.get(&j)).copied().unwrap_or(0);
            next.insert(j, len);
            if len > best.len {
                best = Match {
                    old: i + 1 - len,
                    new: j + 1 - len,
                    len,
                };
            }
        }
        ending = next;
    }
    while best.old > within_old.start && best.new > within_new.start && old[best.old - 1] == new[best.new - 1] {
        (best.old, best.new, best.len) = (best.old - 1, best.new - 1, best.len + 1);
    }
    while best.old + best.len < within_old.end
        && best.new + best.len < within_new.end
        && old[best.old + best.len] == new[best.new + best.len]
    {
        best.len += 1;
    }
    best
}

fn hunk(edits: &[Edit<'_>], from: usize, to: usize, text: &mut String) {
    let count = |edits: &[Edit<'_>], without: char| edits.iter().filter(|edit| edit.mark != without).count();
    let (before, part) = (&edits[..from], &edits[from..to]);
    let range = |without| {
        let (start, length) = (count(before, without) + 1, count(part, without));
        if length == 1 {
            start.to_string()
        } else {
            format!("{start},{length}")
        }
    };
    text.push_str(&format!("@@ -{} +{} @@\n", range('+'), range('-')));
    for edit in part {
        text.push(edit.mark);
        text.push_str(edit.line);
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn marks(old: &str, new: &str) -> String {
        let [old, new] = [old, new].map(|text| text.chars().map(String::from).collect::<Vec<_>>());
        let edits = edits(&old, &new);
        edits.iter().map(|edit| format!("{}{}", edit.mark, edit.line)).collect()
    }

    #[test]
    fn what_goes_is_shown_before_what_comes_around_the_longest_run_in_common() {
        assert_eq!(marks("ab", "acab"), "+a+c a b");
        assert_eq!(marks("axcyb", "apcqb"), " a-x+p c-y+q b");
        assert_eq!(marks("1212", "2121"), "+2 1 2 1-2");
        assert_eq!(marks("", "ab"), "+a+b");
        assert_eq!(marks("same", "same"), " s a m e");
    }

    #[test]
    fn a_changed_claim_is_shown_as_upstream_shows_it() {
        let claim = |mode: &str| {
            json!({
                "accessModes": [mode],
                "resources": {"requests": {"storage": "1Gi"}},
                "storageClassName": "c",
                "volumeMode": "Filesystem",
            })
        };
        let shown = unified(
            &claim("ReadWriteOnce"),
            &claim("ReadOnlyMany"),
            "io.k8s.api.core.v1.PersistentVolumeClaimSpec",
        );
        let wanted = concat!(
            "@@ -1,6 +1,6 @@\n",
            " {\n",
            "  \"AccessModes\": [\n",
            "-  \"ReadWriteOnce\"\n",
            "+  \"ReadOnlyMany\"\n",
            "  ],\n",
            "  \"Selector\": null,\n",
            "  \"Resources\": {\n",
        );
        assert_eq!(shown, wanted);
    }
}
