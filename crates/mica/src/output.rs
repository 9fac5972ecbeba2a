//! Tables as kubectl prints them, and JSON.

use std::io::Write as _;

use serde_json::{Value, json};

use crate::cli::Output;

/// Columns are as wide as their widest cell and three spaces apart.
pub fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows
            .iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count());
        cells.chain([header[column].chars().count()]).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let padded: Vec<String> = cells
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        format!("{}\n", padded.join("   ").trim_end())
    };
    let mut text = line(&mut header.iter().copied());
    for row in rows {
        text.push_str(&line(&mut row.iter().map(String::as_str)));
    }
    text
}

/// A `meta.k8s.io` Table, with the columns that kubectl shows without `-o wide`.
pub fn server_table(answer: &Value) -> String {
    let columns: Vec<(usize, String)> = list(answer, "columnDefinitions")
        .iter()
        .enumerate()
        .filter(|(_, column)| column["priority"].as_i64().unwrap_or(0) == 0)
        .map(|(i, column)| (i, column["name"].as_str().unwrap_or_default().to_uppercase()))
        .collect();
    let rows: Vec<Vec<String>> = list(answer, "rows")
        .iter()
        .map(|row| columns.iter().map(|(i, _)| cell(&row["cells"][*i])).collect())
        .collect();
    let header: Vec<&str> = columns.iter().map(|(_, name)| name.as_str()).collect();
    table(&header, &rows)
}

pub fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value[field].as_array().map_or(&[], Vec::as_slice)
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => "<none>".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Writes to the standard output; a reader that went away is an error, not a panic.
pub fn print(text: &str) -> std::io::Result<()> {
    std::io::stdout().lock().write_all(text.as_bytes())
}

pub fn print_json(value: &Value) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(value)?;
    Ok(print(&format!("{text}\n"))?)
}

pub fn version(output: Output) -> anyhow::Result<()> {
    let mica = env!("CARGO_PKG_VERSION");
    let kubernetes = mica_server::version::KUBERNETES;
    match output {
        Output::Json => {
            // The newest formats of stores that are read, and those that are written: what may follow what on the same data.
            let etcd = mica_store::etcd::FORMAT
                .rsplit('-')
                .next()
                .and_then(|number| number.parse::<u32>().ok());
            let store = json!({"embedded": mica_store::embedded::FORMAT_VERSION, "etcd": etcd.unwrap_or_default()});
            print_json(&json!({"mica": mica, "kubernetes": kubernetes, "store": store}))
        }
        Output::Table | Output::Name => Ok(print(&format!("mica {mica} (Kubernetes {kubernetes})\n"))?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_table_prints_as_kubectl_prints_it() {
        let answer = json!({
            "columnDefinitions": [
                {"name": "Name", "priority": 0}, {"name": "Phase"}, {"name": "Id", "priority": 1}, {"name": "Age"},
            ],
            "rows": [
                {"cells": ["team-a", "Ready", "x", "5d"]},
                {"cells": ["b", null, "y", 7]},
            ],
        });
        expect_test::expect![[r#"
            NAME     PHASE    AGE
            team-a   Ready    5d
            b        <none>   7
        "#]]
        .assert_eq(&server_table(&answer));
    }
}
