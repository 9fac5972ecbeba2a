//! What was measured, as a table for people and JSON for scripts, and how it stands against what we aim for.

use std::fmt::Write;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::subject::{FLOOR, KUBE_APISERVER, MICA};

/// One number about one server, with what belongs to it.
#[derive(Clone, Debug, Serialize)]
pub struct Measurement {
    pub scenario: &'static str,
    pub target: String,
    pub value: f64,
    pub unit: &'static str,
    pub latency_ms: Option<Latency>,
    pub operations: u64,
    pub errors: u64,
    pub first_error: Option<String>,
    /// Processor time per operation, of all the server's processes.
    pub server_cpu_us: Option<f64>,
    /// Processor time per operation of this program: it must be small beside the server's.
    pub client_cpu_us: Option<f64>,
    pub detail: String,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct Latency {
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
}

impl Measurement {
    pub fn new(scenario: &'static str, target: &str, value: f64, unit: &'static str) -> Self {
        Self {
            scenario,
            target: target.to_owned(),
            value,
            unit,
            latency_ms: None,
            operations: 0,
            errors: 0,
            first_error: None,
            server_cpu_us: None,
            client_cpu_us: None,
            detail: String::new(),
        }
    }

    pub fn with_latency(mut self, histogram: &Histogram<u64>) -> Self {
        let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e6;
        let (p50, p90, p99, p999) = (at(0.5), at(0.9), at(0.99), at(0.999));
        self.latency_ms = Some(Latency {
            p50,
            p90,
            p99,
            p999,
            max: histogram.max() as f64 / 1e6,
        });
        self
    }

    /// One line, for progress.
    pub fn line(&self) -> String {
        let mut line = format!(
            "{:<20} {:<14} {:>12} {}",
            self.scenario,
            self.target,
            number(self.value),
            self.unit
        );
        if let Some(latency) = self.latency_ms {
            let _ = write!(line, ", p50 {} ms, p99 {} ms", number(latency.p50), number(latency.p99));
        }
        if let Some(first) = &self.first_error {
            let _ = write!(line, ", {} errors, first: {first}", self.errors);
        }
        line
    }
}

/// Something that we aim for, and what came out.
#[derive(Debug, Serialize)]
pub struct Goal {
    pub goal: String,
    pub measured: String,
    pub met: bool,
}

#[derive(Serialize)]
pub struct Report<'a> {
    pub taken: String,
    pub machine: &'a crate::machine::Machine,
    pub sizes: &'a crate::scenario::Sizes,
    pub measurements: &'a [Measurement],
    pub goals: Vec<Goal>,
}

/// Three significant digits, with thousands set apart.
pub fn number(value: f64) -> String {
    let digits = if value.abs() >= 100.0 || value == 0.0 {
        0
    } else {
        (2 - value.abs().log10().floor() as i32).clamp(0, 4) as usize
    };
    let text = format!("{value:.digits$}");
    let (whole, rest) = text
        .split_once('.')
        .map_or((text.as_str(), String::new()), |(w, f)| (w, format!(".{f}")));
    let mut grouped = String::new();
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i).is_multiple_of(3) && !grouped.ends_with('-') {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + &rest
}

/// The table for people, in Markdown so that it can be kept.
pub fn table(measurements: &[Measurement]) -> String {
    let mut rows = vec![
        [
            "scenario",
            "server",
            "result",
            "unit",
            "p50 ms",
            "p99 ms",
            "max ms",
            "server µs",
            "bench µs",
            "notes",
        ]
        .map(str::to_owned),
    ];
    let or_dash = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), number);
    for m in measurements {
        let errors = if m.errors > 0 {
            format!("{} errors ", m.errors)
        } else {
            String::new()
        };
        rows.push([
            m.scenario.to_owned(),
            m.target.clone(),
            number(m.value),
            m.unit.to_owned(),
            or_dash(m.latency_ms.map(|l| l.p50)),
            or_dash(m.latency_ms.map(|l| l.p99)),
            or_dash(m.latency_ms.map(|l| l.max)),
            or_dash(m.server_cpu_us),
            or_dash(m.client_cpu_us),
            format!("{errors}{}", m.detail),
        ]);
    }
    let mut widths = [0; 10];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for (i, row) in rows.iter().enumerate() {
        for ((column, cell), width) in row.iter().enumerate().zip(widths) {
            let is_number = i > 0 && (column == 2 || (4..9).contains(&column));
            let _ = if is_number {
                write!(text, "| {cell:>width$} ")
            } else {
                write!(text, "| {cell:<width$} ")
            };
        }
        text.push_str("|\n");
        if i == 0 {
            for width in widths {
                let _ = write!(text, "|{}", "-".repeat(width + 2));
            }
            text.push_str("|\n");
        }
    }
    text
}

/// Our aims, judged by this run. Those that need a server that was not measured are left out.
pub fn goals(measurements: &[Measurement]) -> Vec<Goal> {
    let find = |scenario: &str, target: &str| {
        measurements
            .iter()
            .find(|m| m.scenario == scenario && m.target == target && m.errors == 0)
    };
    let mut goals = Vec::new();
    for (scenario, times) in [
        ("get", 25.0),
        ("create", 10.0),
        ("update", 10.0),
        ("list", 10.0),
        ("watch", 10.0),
        ("custom-create", 10.0),
        ("custom-update", 10.0),
        ("custom-apply", 10.0),
        ("custom-watch", 10.0),
    ] {
        let (Some(ours), Some(theirs)) = (find(scenario, MICA), find(scenario, KUBE_APISERVER)) else {
            continue;
        };
        if theirs.value == 0.0 {
            continue; // Too slow for the time that was measured: nothing to compare with.
        }
        let ratio = ours.value / theirs.value;
        goals.push(Goal {
            goal: format!("{scenario}: at least {times} times kube-apiserver"),
            measured: format!("{} times", number(ratio)),
            met: ratio >= times,
        });
        if let (Some(ours), Some(theirs)) = (ours.latency_ms, theirs.latency_ms) {
            goals.push(Goal {
                goal: format!("{scenario}: p99 better than kube-apiserver's {} ms", number(theirs.p99)),
                measured: format!("{} ms", number(ours.p99)),
                met: ours.p99 < theirs.p99,
            });
        }
    }
    if let (Some(ours), Some(floor)) = (find("get", MICA), find("get", FLOOR)) {
        let ratio = ours.value / floor.value;
        goals.push(Goal {
            goal: "get: at least half of a bare TLS server".to_owned(),
            measured: format!("{:.0} %", 100.0 * ratio),
            met: ratio >= 0.5,
        });
    }
    goals.extend(bounds(find));
    goals
}

/// Our aims that need no other server.
fn bounds<'a>(find: impl Fn(&str, &str) -> Option<&'a Measurement>) -> Vec<Goal> {
    let mut goals = Vec::new();
    let absolute: [(&str, f64, bool, &str); 27] = [
        ("noisy-neighbour", 1.5, false, "times the idle p99 beside a noisy plane"),
        ("planes", 2_000.0, true, "planes/s created"),
        ("plane-memory", 1_024.0, false, "bytes per idle plane"),
        ("first-request", 5.0, false, "ms for the first request to an idle plane"),
        ("start", 300.0, false, "ms to ready on an empty directory"),
        ("restart", 2_000.0, false, "ms to ready with all planes stored"),
        ("delete-planes", 5_000.0, false, "ms to delete 10,000 planes"),
        ("fleet-engage", 2_000.0, false, "ms to engage 10,000 planes"),
        (
            "fleet-memory",
            64.0,
            false,
            "MiB for a process with 10,000 planes engaged",
        ),
        ("fleet-change", 20.0, false, "ms from a change to its reconcile, p99"),
        ("fleet-storm", 2.0, false, "times that while another plane storms"),
        (
            "fleet-rotation",
            0.0,
            false,
            "relists when the fleet gets new credentials",
        ),
        ("namespace", 2_000.0, false, "ms to empty a namespace of 1,000 objects"),
        ("namespaces", 60_000.0, false, "ms to delete 10,000 namespaces"),
        ("projects", 500.0, true, "projects/s ready"),
        (
            "project-list",
            50.0,
            false,
            "ms to list an organization's 10,000 projects",
        ),
        ("project-density", 1_024.0, false, "bytes per project"),
        ("control-planes", 500.0, true, "ControlPlanes/s ready"),
        (
            "control-plane",
            100.0,
            false,
            "ms until a ControlPlane can be used, p99",
        ),
        (
            "control-planes-rest",
            20.0,
            false,
            "ms of processor each second with 10,000 of them at rest",
        ),
        ("idle-watches", 8_192.0, false, "bytes per open idle watch"),
        ("objects", 2_048.0, false, "bytes of memory per stored 1-KiB object"),
        ("objects-disk", 2_048.0, false, "bytes of disk per stored 1-KiB object"),
        (
            "custom-memory",
            20.0,
            false,
            "MiB above idle for 10,000 1-KiB custom resources",
        ),
        ("definitions", 200.0, false, "KiB per definition, of 100 distinct ones"),
        // "A few hundred bytes": what tells planes with the same definitions apart.
        (
            "shared-definitions",
            512.0,
            false,
            "bytes per used plane beyond stored data, all with the same 30 definitions",
        ),
        (
            "shared-first-request",
            5.0,
            false,
            "ms for the first request to a plane with 30 definitions",
        ),
    ];
    for (scenario, bound, at_least, what) in absolute {
        let Some(ours) = find(scenario, MICA) else { continue };
        let (word, met) = if at_least {
            ("at least", ours.value >= bound)
        } else {
            ("at most", ours.value <= bound)
        };
        goals.push(Goal {
            goal: format!("{word} {} {what}", number(bound)),
            measured: number(ours.value),
            met,
        });
    }
    goals
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_groups() {
        for (value, text) in [
            (0.0, "0"),
            (0.01234, "0.0123"),
            (1.0, "1.00"),
            (12.345, "12.3"),
            (999.4, "999"),
            (1234.5, "1,234"),
            (1_234_567.0, "1,234,567"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn goals_compare_only_what_was_measured() {
        let get = |target, value| Measurement::new("get", target, value, "requests/s");
        let verdicts = |measurements: &[Measurement]| goals(measurements).iter().map(|g| g.met).collect::<Vec<_>>();
        assert_eq!(verdicts(&[get(MICA, 30_000.0)]), Vec::<bool>::new());
        assert_eq!(verdicts(&[get(MICA, 30_000.0), get(KUBE_APISERVER, 1_000.0)]), [true]);
        assert_eq!(verdicts(&[get(MICA, 30_000.0), get(FLOOR, 100_000.0)]), [false]);
    }
}
