//! The text exposition format, version 0.0.4.

use std::fmt::Write as _;

/// Collects families and samples into text.
#[derive(Default)]
pub struct Text(String);

impl Text {
    /// Starts a family; its samples follow.
    pub fn family(&mut self, name: &str, help: &str, kind: &str) {
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}").expect("a string takes all");
    }

    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        self.0.push_str(name);
        if !labels.is_empty() {
            self.0.push('{');
            for (i, (label, value)) in labels.iter().enumerate() {
                if i > 0 {
                    self.0.push(',');
                }
                self.0.push_str(label);
                self.0.push_str("=\"");
                for c in value.chars() {
                    match c {
                        '\\' => self.0.push_str("\\\\"),
                        '"' => self.0.push_str("\\\""),
                        '\n' => self.0.push_str("\\n"),
                        c => self.0.push(c),
                    }
                }
                self.0.push('"');
            }
            self.0.push('}');
        }
        self.0.push(' ');
        self.0.push_str(&go_float(value));
        self.0.push('\n');
    }

    pub fn finish(self) -> String {
        self.0
    }
}

/// A number as Go's `strconv.FormatFloat(v, 'g', -1, 64)` writes it: bucket bounds are labels, so their text matters.
pub(super) fn go_float(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').expect("the e format has an e");
    let exponent: i32 = exponent.parse().expect("the exponent is an integer");
    if (-4..6).contains(&exponent) {
        return format!("{value}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_as_go_writes_them() {
        for (value, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (0.005, "0.005"),
            (1.25, "1.25"),
            (1000.0, "1000"),
            (1e6, "1e+06"),
            (1_234_567.0, "1.234567e+06"),
            (1e9, "1e+09"),
            (131_072.0, "131072"),
            (0.00001, "1e-05"),
            (f64::INFINITY, "+Inf"),
        ] {
            assert_eq!(go_float(value), text);
        }
    }

    #[test]
    fn labels_and_help_are_escaped() {
        let mut text = Text::default();
        text.family("a_total", "one\ntwo \\", "counter");
        text.sample("a_total", &[("x", "q\"\\\n")], 2.0);
        assert_eq!(
            text.finish(),
            "# HELP a_total one\\ntwo \\\\\n# TYPE a_total counter\na_total{x=\"q\\\"\\\\\\n\"} 2\n"
        );
    }
}
