//! How upstream shows what changed in a struct that may not change: a unified diff of its indented JSON.

use serde_json::Value;

use super::internal;

/// Lines that stay around a change.
const CONTEXT: usize = 3;
/// Lines beyond which no longest common part is looked for, since that takes the square of them.
const MAX_LINES: usize = 3000;

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
    let edit = |mark, line: &'a String| Edit { mark, line };
    let head = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let tail = old[head..]
        .iter()
        .rev()
        .zip(new[head..].iter().rev())
        .take_while(|(a, b)| a == b)
        .count();
    let (gone, came) = (&old[head..old.len() - tail], &new[head..new.len() - tail]);
    let mut edits: Vec<Edit<'a>> = old[..head].iter().map(|line| edit(' ', line)).collect();
    if gone.len() > MAX_LINES || came.len() > MAX_LINES {
        edits.extend(gone.iter().map(|line| edit('-', line)));
        edits.extend(came.iter().map(|line| edit('+', line)));
    } else {
        merge(gone, came, &mut edits);
    }
    edits.extend(old[old.len() - tail..].iter().map(|line| edit(' ', line)));
    edits
}

/// Keeps a longest common part of the lines.
fn merge<'a>(gone: &'a [String], came: &'a [String], edits: &mut Vec<Edit<'a>>) {
    let width = came.len() + 1;
    let mut common = vec![0u16; (gone.len() + 1) * width];
    for i in (0..gone.len()).rev() {
        for j in (0..came.len()).rev() {
            common[i * width + j] = if gone[i] == came[j] {
                common[(i + 1) * width + j + 1] + 1
            } else {
                common[(i + 1) * width + j].max(common[i * width + j + 1])
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    while i < gone.len() || j < came.len() {
        if i < gone.len() && j < came.len() && gone[i] == came[j] {
            edits.push(Edit {
                mark: ' ',
                line: &gone[i],
            });
            (i, j) = (i + 1, j + 1);
        } else if j == came.len() || (i < gone.len() && common[(i + 1) * width + j] >= common[i * width + j + 1]) {
            edits.push(Edit {
                mark: '-',
                line: &gone[i],
            });
            i += 1;
        } else {
            edits.push(Edit {
                mark: '+',
                line: &came[j],
            });
            j += 1;
        }
    }
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
