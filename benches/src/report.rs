//! What comes out of a run: one table for people, the same as JSON.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;
use serde_json::Value;

/// One line of the table: the median of its runs.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    pub(crate) measure: String,
    pub(crate) unit: &'static str,
    pub(crate) median: f64,
    pub(crate) runs: Vec<f64>,
    pub(crate) target: Option<Target>,
    /// Whether the target is met; absent where there is none.
    pub(crate) holds: Option<bool>,
    pub(crate) note: String,
}

/// What is asked of a measure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Target {
    AtLeast(f64),
    AtMost(f64),
}

impl Row {
    pub(crate) fn new(measure: impl Into<String>, unit: &'static str, runs: Vec<f64>) -> Self {
        Self {
            measure: measure.into(),
            unit,
            median: median(&runs),
            runs,
            target: None,
            holds: None,
            note: String::new(),
        }
    }

    pub(crate) fn at_least(mut self, least: f64) -> Self {
        self.target = Some(Target::AtLeast(least));
        self.holds = Some(self.median >= least);
        self
    }

    pub(crate) fn at_most(mut self, most: f64) -> Self {
        self.target = Some(Target::AtMost(most));
        self.holds = Some(self.median <= most);
        self
    }

    /// The same, held against the best run: for what is measured in absolute terms on a machine that others use, too.
    pub(crate) fn best_at_least(mut self, least: f64) -> Self {
        self.target = Some(Target::AtLeast(least));
        self.holds = Some(self.runs.iter().any(|run| *run >= least));
        self
    }

    pub(crate) fn best_at_most(mut self, most: f64) -> Self {
        self.target = Some(Target::AtMost(most));
        self.holds = Some(self.runs.iter().any(|run| *run <= most));
        self
    }

    pub(crate) fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }
}

/// The middle one; of two, the mean. 0 of none.
pub(crate) fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// By linear interpolation between the two nearest.
pub(crate) fn quantile(values: &[f64], q: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1) as f64;
    let place = last * q;
    let at = |index: f64| sorted.get(index as usize).copied().unwrap_or(0.0);
    let (low, high) = (at(place.floor()), at(place.ceil()));
    low + (high - low) * place.fract()
}

/// A run, whole.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// Machine, versions and flags, by name.
    pub(crate) setting: BTreeMap<&'static str, String>,
    pub(crate) rows: Vec<Row>,
    /// What the rows were made from, for whoever asks further.
    pub(crate) details: Value,
}

impl Report {
    /// As a table.
    pub(crate) fn table(&self) -> String {
        let mut out = String::new();
        for (name, value) in &self.setting {
            let _ = writeln!(out, "{name:<10} {value}");
        }
        let _ = writeln!(out);
        let cells: Vec<[String; 6]> = std::iter::once(HEAD.map(str::to_owned))
            .chain(self.rows.iter().map(cells))
            .collect();
        let width = |column: usize| {
            let lengths = cells
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count());
            lengths.max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..HEAD.len()).map(width).collect();
        for [measure, median, range, target, holds, note] in &cells {
            let width = |column: usize| widths.get(column).copied().unwrap_or(0);
            let line = format!(
                "{measure:<a$}  {median:>b$}  {range:>c$}  {target:>d$}  {holds:<e$}  {note}",
                a = width(0),
                b = width(1),
                c = width(2),
                d = width(3),
                e = width(4)
            );
            let _ = writeln!(out, "{}", line.trim_end());
        }
        out
    }
}

const HEAD: [&str; 6] = ["measure", "median", "range", "target", "", ""];

fn cells(row: &Row) -> [String; 6] {
    let range = match (
        row.runs.iter().copied().reduce(f64::min),
        row.runs.iter().copied().reduce(f64::max),
    ) {
        (Some(low), Some(high)) if row.runs.len() > 1 => format!("{}..{}", number(low), number(high)),
        _ => String::new(),
    };
    let target = match row.target {
        Some(Target::AtLeast(least)) => format!(">= {}", number(least)),
        Some(Target::AtMost(most)) => format!("<= {}", number(most)),
        None => String::new(),
    };
    let holds = match row.holds {
        Some(true) => "ok",
        Some(false) => "MISSED",
        None => "",
    };
    let median = format!("{} {}", number(row.median), row.unit);
    [
        row.measure.clone(),
        median.trim_end().to_owned(),
        range,
        target,
        holds.to_owned(),
        row.note.clone(),
    ]
}

/// Three digits that count, no more.
fn number(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude >= 100.0 {
        format!("{value:.0}")
    } else if magnitude >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_quantiles_are_those_of_the_sorted_values() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(&[]), 0.0);
        let hundred: Vec<f64> = (0..=100).rev().map(f64::from).collect();
        assert_eq!(quantile(&hundred, 0.95), 95.0);
        assert_eq!(quantile(&hundred, 1.0), 100.0);
    }

    #[test]
    fn a_row_says_whether_its_target_is_met() {
        let row = Row::new("T2 / T1", "", vec![0.8, 0.9, 0.7]);
        assert_eq!(row.clone().at_least(0.85).holds, Some(false));
        assert_eq!(row.clone().at_most(0.8).holds, Some(true));
        assert_eq!(row.clone().best_at_least(0.85).holds, Some(true));
        assert_eq!(row.clone().best_at_least(0.95).holds, Some(false));
        assert_eq!(row.clone().best_at_most(0.75).holds, Some(true));
        assert_eq!(row.best_at_most(0.65).holds, Some(false));
    }

    #[test]
    fn the_table_shows_every_row_in_line() {
        let report = Report {
            setting: BTreeMap::from([("machine", "two cores".to_owned())]),
            rows: vec![
                Row::new("T1 ceiling", "claims/s", vec![400.0, 410.0, 390.0]),
                Row::new("T2 / T1", "", vec![0.5]).at_least(0.85),
            ],
            details: Value::Null,
        };
        let table = report.table();
        assert!(table.contains("machine    two cores"), "{table}");
        assert!(table.contains("400 claims/s  390..410"), "{table}");
        assert!(table.contains(">= 0.85  MISSED"), "{table}");
    }
}
