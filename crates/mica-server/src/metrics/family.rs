//! Families: one number per combination of label values, bounded.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use compact_str::CompactString;
use xxhash_rust::xxh3::xxh3_64;

use super::value::{Counter, Gauge, Histogram};
use super::{Collect, Text};

/// Series of one family. Beyond it the values of open labels become [`OTHER`].
const MAX_SERIES: usize = 4096;
/// What open labels say once a family is full.
const OTHER: &str = "other";

/// A label's name, and whether its values are ours to choose or come from outside.
#[derive(Clone, Copy, Debug)]
pub enum Label {
    Closed(&'static str),
    Open(&'static str),
}

impl Label {
    fn name(self) -> &'static str {
        match self {
            Self::Closed(name) | Self::Open(name) => name,
        }
    }
}

pub struct Family<V> {
    name: &'static str,
    help: &'static str,
    labels: &'static [Label],
    make: Box<dyn Fn() -> V + Send + Sync>,
    /// Keyed by the hash of the label values: 64 bits over a few thousand series do not meet.
    series: papaya::HashMap<u64, Arc<Series<V>>>,
    count: AtomicUsize,
}

/// One number of a family.
pub struct Series<V> {
    values: Box<[CompactString]>,
    pub value: V,
}

impl<V: Default + 'static> Family<V> {
    pub fn new(name: &'static str, help: &'static str, labels: &'static [Label]) -> Self {
        Self::with_maker(name, help, labels, V::default)
    }
}

impl Family<Histogram> {
    pub fn histogram(name: &'static str, help: &'static str, labels: &'static [Label], bounds: &'static [f64]) -> Self {
        Self::with_maker(name, help, labels, move || Histogram::new(bounds))
    }
}

impl<V> Family<V> {
    fn with_maker(
        name: &'static str,
        help: &'static str,
        labels: &'static [Label],
        make: impl Fn() -> V + Send + Sync + 'static,
    ) -> Self {
        Self {
            name,
            help,
            labels,
            make: Box::new(make),
            series: papaya::HashMap::new(),
            count: AtomicUsize::new(0),
        }
    }

    /// Lets `touch` change the number with these label values, making it if it is new.
    pub fn with(&self, values: &[&str], touch: impl FnOnce(&V)) {
        match self.series.pin().get(&hash(values)) {
            Some(found) => touch(&found.value),
            None => touch(&self.series(values).value),
        }
    }

    /// The number with these label values, for those who change it often. Made if it is new.
    pub fn series(&self, values: &[&str]) -> Arc<Series<V>> {
        assert_eq!(
            values.len(),
            self.labels.len(),
            "{} has {} labels",
            self.name,
            self.labels.len()
        );
        let series = self.series.pin();
        let key = hash(values);
        if let Some(found) = series.get(&key) {
            return found.clone();
        }
        if self.count.load(Ordering::Relaxed) < MAX_SERIES {
            return self.insert(key, values);
        }
        let folded: Vec<&str> = self
            .labels
            .iter()
            .zip(values)
            .map(|(label, value)| match label {
                Label::Open(_) if !value.is_empty() => OTHER,
                _ => *value,
            })
            .collect();
        // Closed labels have few values, so these last ones are few.
        self.insert(hash(&folded), &folded)
    }

    fn insert(&self, key: u64, values: &[&str]) -> Arc<Series<V>> {
        let made = Arc::new(Series {
            values: values.iter().map(|v| CompactString::from(*v)).collect(),
            value: (self.make)(),
        });
        let series = self.series.pin();
        let kept = series.get_or_insert_with(key, || {
            self.count.fetch_add(1, Ordering::Relaxed);
            made
        });
        kept.clone()
    }

    /// Series in the order of their label values, so that two scrapes are easily compared.
    fn sorted(&self) -> Vec<Arc<Series<V>>> {
        let series = self.series.pin();
        let mut all: Vec<Arc<Series<V>>> = series.values().cloned().collect();
        all.sort_by(|a, b| a.values.cmp(&b.values));
        all
    }

    fn labels_of<'a>(&self, series: &'a Series<V>) -> Vec<(&'static str, &'a str)> {
        self.labels
            .iter()
            .zip(&series.values)
            .map(|(label, value)| (label.name(), value.as_str()))
            .collect()
    }
}

/// A hash of label values, each apart from the next.
pub(super) fn hash(values: &[&str]) -> u64 {
    let mut text = [0; 256];
    let mut len = 0;
    for value in values {
        let Some(room) = text.get_mut(len..len + value.len() + 1) else {
            return hash_long(values);
        };
        let (copy, end) = room.split_at_mut(value.len());
        copy.copy_from_slice(value.as_bytes());
        end.fill(SEPARATOR);
        len += value.len() + 1;
    }
    xxh3_64(&text[..len])
}

fn hash_long(values: &[&str]) -> u64 {
    let mut text = Vec::new();
    for value in values {
        text.extend_from_slice(value.as_bytes());
        text.push(SEPARATOR);
    }
    xxh3_64(&text)
}

/// No label value can contain this byte, so values cannot run into each other.
const SEPARATOR: u8 = 0xff;

impl Collect for Family<Counter> {
    fn collect(&self, text: &mut Text) {
        text.family(self.name, self.help, "counter");
        for series in self.sorted() {
            text.sample(self.name, &self.labels_of(&series), series.value.get() as f64);
        }
    }
}

impl Collect for Family<Gauge> {
    fn collect(&self, text: &mut Text) {
        text.family(self.name, self.help, "gauge");
        for series in self.sorted() {
            text.sample(self.name, &self.labels_of(&series), series.value.get() as f64);
        }
    }
}

impl Collect for Family<Histogram> {
    fn collect(&self, text: &mut Text) {
        text.family(self.name, self.help, "histogram");
        let bucket = format!("{}_bucket", self.name);
        for series in self.sorted() {
            let labels = self.labels_of(&series);
            let mut count = 0;
            for (bound, below) in series.value.cumulative() {
                let bound = super::text::go_float(bound);
                let mut labels = labels.clone();
                labels.push(("le", &bound));
                text.sample(&bucket, &labels, below as f64);
                count = below;
            }
            text.sample(&format!("{}_sum", self.name), &labels, series.value.sum());
            text.sample(&format!("{}_count", self.name), &labels, count as f64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LABELS: &[Label] = &[Label::Closed("verb"), Label::Open("resource")];

    #[test]
    fn a_full_family_folds_open_labels_and_keeps_closed_ones() {
        let family: Family<Counter> = Family::new("t_total", "t", LABELS);
        for i in 0..MAX_SERIES + 500 {
            family.with(&["GET", &format!("r{i}")], Counter::inc);
        }
        family.with(&["GET", "r1"], Counter::inc);
        family.with(&["LIST", "new"], Counter::inc);
        assert!(family.sorted().len() <= MAX_SERIES + 2);
        let mut text = Text::default();
        family.collect(&mut text);
        let text = text.finish();
        assert!(text.contains("t_total{verb=\"GET\",resource=\"r1\"} 2\n"));
        assert!(text.contains("t_total{verb=\"GET\",resource=\"other\"} 500\n"));
        assert!(text.contains("t_total{verb=\"LIST\",resource=\"other\"} 1\n"));
    }

    #[test]
    fn values_do_not_run_into_each_other_however_long_they_are() {
        let long = "x".repeat(300);
        let all = [["ab", "c"], ["a", "bc"], ["abc", ""], [&long, "c"], [&long[1..], "xc"]];
        let hashes: std::collections::HashSet<u64> = all.iter().map(|values| hash(values)).collect();
        assert_eq!(hashes.len(), all.len());
        assert_eq!(
            hash(&["a", "b"]),
            hash_long(&["a", "b"]),
            "one series, whichever way it is found"
        );
    }

    #[test]
    fn histograms_show_cumulative_buckets_sum_and_count() {
        let family = Family::histogram("d_seconds", "d", LABELS, &[0.5, 1.0]);
        family.with(&["GET", "x"], |h| h.observe(0.75));
        let mut text = Text::default();
        family.collect(&mut text);
        expect_test::expect![[r#"
            # HELP d_seconds d
            # TYPE d_seconds histogram
            d_seconds_bucket{verb="GET",resource="x",le="0.5"} 0
            d_seconds_bucket{verb="GET",resource="x",le="1"} 1
            d_seconds_bucket{verb="GET",resource="x",le="+Inf"} 1
            d_seconds_sum{verb="GET",resource="x"} 0.75
            d_seconds_count{verb="GET",resource="x"} 1
        "#]]
        .assert_eq(&text.finish());
    }
}
