//! The text of a scrape, read as Prometheus reads it.

use std::collections::BTreeMap;

use usher_subnets::metrics::names::{Metric, Shape};

#[derive(Debug, Clone)]
pub struct Series {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub value: f64,
}

#[derive(Debug, Clone, Default)]
pub struct Exposition {
    /// By the name of the family, which of a counter lacks `_total`.
    pub types: BTreeMap<String, String>,
    pub series: Vec<Series>,
}

impl Exposition {
    pub fn read(text: &str) -> Self {
        let mut read = Self::default();
        // The head of the HTTP answer comes first.
        let (_, body) = text.split_once("\r\n\r\n").unwrap_or(("", text));
        assert!(body.ends_with("# EOF\n"), "the text is cut: {body}");
        for line in body.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                let before = read.types.insert(name.to_owned(), kind.to_owned());
                assert_eq!(before, None, "{name} is described twice");
            } else if !line.starts_with('#') {
                read.series.push(Series::read(line));
            }
        }
        read
    }

    /// Series of this name that have all of these labels.
    pub fn of<'e>(&'e self, name: &'e str, labels: &'e [(&str, &str)]) -> impl Iterator<Item = &'e Series> {
        self.series.iter().filter(move |series| {
            series.name == name
                && labels
                    .iter()
                    .all(|(label, value)| series.labels.get(*label).map(String::as_str) == Some(*value))
        })
    }

    /// Their sum.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.of(name, labels).map(|series| series.value).sum()
    }

    /// What is wrong with how a metric is exposed.
    pub fn fault(&self, metric: &Metric) -> Option<String> {
        let (family, kind, first) = match metric.shape {
            Shape::Counter => (metric.name.strip_suffix("_total")?, "counter", metric.name.to_owned()),
            Shape::Gauge => (metric.name, "gauge", metric.name.to_owned()),
            Shape::Histogram => (metric.name, "histogram", format!("{}_count", metric.name)),
        };
        if self.types.get(family).map(String::as_str) != Some(kind) {
            return Some(format!("{} is no {kind}: {:?}", metric.name, self.types.get(family)));
        }
        let mut wanted = metric.labels.to_vec();
        wanted.sort_unstable();
        let mut series = self.of(&first, &[]).peekable();
        if series.peek().is_none() {
            return Some(format!("{first} has no series"));
        }
        series
            .find(|series| series.labels.keys().map(String::as_str).collect::<Vec<_>>() != wanted)
            .map(|series| format!("{first} has labels {:?} instead of {wanted:?}", series.labels))
    }
}

impl Series {
    fn read(line: &str) -> Self {
        let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no value: {line}"));
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        // Values of ours hold no quotes and no commas: they are Kubernetes names and words.
        let labels = labels
            .strip_suffix('}')
            .unwrap_or_else(|| panic!("labels do not end: {line}"));
        let label = |text: &str| {
            let (name, value) = text.split_once('=').unwrap_or_else(|| panic!("no label: {line}"));
            (name.to_owned(), value.trim_matches('"').to_owned())
        };
        Self {
            name: name.to_owned(),
            labels: labels.split(',').filter(|text| !text.is_empty()).map(label).collect(),
            value: value.parse().unwrap_or_else(|_| panic!("no number: {line}")),
        }
    }
}
