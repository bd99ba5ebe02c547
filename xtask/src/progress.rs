//! Signs of life for work that takes minutes: a bar on a terminal, a timestamped line now and then elsewhere.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use indicatif::{ProgressBar, ProgressStyle};

/// Longest silence in a log. CI systems and people both start to worry at about half a minute.
const SILENCE_LIMIT: Duration = Duration::from_secs(15);

#[derive(Debug)]
pub(crate) struct Progress {
    label: String,
    started: Instant,
    done: u64,
    total: Option<u64>,
    detail: String,
    shown: Shown,
}

#[derive(Debug)]
enum Shown {
    Bar(ProgressBar),
    Lines { last: Instant },
}

impl Progress {
    pub(crate) fn start(label: impl Into<String>) -> Self {
        let label = label.into();
        let started = Instant::now();
        let shown = if std::io::stderr().is_terminal() {
            let bar = ProgressBar::new_spinner().with_prefix(label.clone());
            style(&bar, "{spinner} {prefix} {elapsed} {wide_msg:.dim}");
            bar.enable_steady_tick(Duration::from_millis(120));
            Shown::Bar(bar)
        } else {
            line(&label);
            Shown::Lines { last: started }
        };
        Self {
            label,
            started,
            done: 0,
            total: None,
            detail: String::new(),
            shown,
        }
    }

    /// From here on the end is known.
    pub(crate) fn expect(&mut self, total: u64) {
        self.total = Some(total);
        if let Shown::Bar(bar) = &self.shown {
            bar.set_length(total);
            style(
                bar,
                "{spinner} {prefix} [{bar:24}] {pos}/{len} {elapsed} {wide_msg:.dim}",
            );
        }
    }

    pub(crate) fn step(&mut self, detail: &str) {
        self.done += 1;
        self.detail(detail);
    }

    pub(crate) fn detail(&mut self, detail: &str) {
        detail.clone_into(&mut self.detail);
        self.tick();
    }

    /// Call often while waiting.
    pub(crate) fn tick(&mut self) {
        match &mut self.shown {
            Shown::Bar(bar) => {
                bar.set_message(self.detail.clone());
                bar.set_position(self.done);
            }
            Shown::Lines { last } => {
                if last.elapsed() >= SILENCE_LIMIT {
                    *last = Instant::now();
                    line(&format!("{}{}", self.label, self.counted()));
                }
            }
        }
    }

    fn counted(&self) -> String {
        let count = match self.total {
            Some(total) => format!(": {}/{total}", self.done),
            None if self.done > 0 => format!(": {}", self.done),
            None => String::new(),
        };
        let detail = if self.detail.is_empty() {
            String::new()
        } else {
            format!(", {}", self.detail)
        };
        format!("{count}{detail} ({})", seconds(self.started.elapsed()))
    }

    pub(crate) fn finish(self, outcome: &str) {
        let took = seconds(self.started.elapsed());
        if let Shown::Bar(bar) = &self.shown {
            bar.finish_and_clear();
        }
        line(&format!("{}: {outcome} ({took})", self.label));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Shown::Bar(bar) = &self.shown {
            bar.finish_and_clear();
        }
    }
}

/// To stdout: what was asked for. A reader that has gone away (`| head`) is no reason to stop, let alone to panic as
/// `println!` does: servers may be running.
pub(crate) fn say(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// To stderr: what happens meanwhile.
pub(crate) fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// `wide_msg` is what is cut to the width of the terminal, so it is the detail.
fn style(bar: &ProgressBar, template: &str) {
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
}

/// One line of news on stderr, with the time of day in UTC.
pub(crate) fn line(text: &str) {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs();
    note(&format!(
        "[{:02}:{:02}:{:02}] {text}",
        now / 3600 % 24,
        now / 60 % 60,
        now % 60
    ));
}

pub(crate) fn seconds(time: Duration) -> String {
    let whole = time.as_secs();
    match whole {
        0..60 => format!("{:.1}s", time.as_secs_f64()),
        _ => format!("{}m{:02}s", whole / 60, whole % 60),
    }
}
