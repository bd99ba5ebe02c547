//! What failed in a run of many test programs, told once more at its end: by then the words of the first failure are far
//! up the screen, between backtraces and logs.

/// Lines of one failure that are told again.
const LINES: usize = 60;

/// Reads what test programs print, line by line.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    told: Vec<String>,
    /// Lines of the failure that is being told, while it is.
    left: usize,
}

impl Failures {
    pub(crate) fn hear(&mut self, line: &str) {
        if is_panic(line) {
            self.told.push(line.to_owned());
            self.left = LINES;
        } else if self.left > 0 && !ends_a_failure(line) {
            self.left -= 1;
            if let Some(last) = self.told.last_mut() {
                *last = format!("{last}\n    {line}");
            }
        } else {
            self.left = 0;
        }
    }

    /// One text per failure.
    pub(crate) fn told(&self) -> &[String] {
        &self.told
    }
}

/// "thread 'a::test' (12) panicked at tests/a.rs:1:2:"
fn is_panic(line: &str) -> bool {
    line.starts_with("thread '") && line.contains("panicked at ")
}

fn ends_a_failure(line: &str) -> bool {
    let ends = [
        "stack backtrace:",
        "note: run with",
        "---- ",
        "--- ",
        "failures:",
        "test ",
    ];
    line.is_empty() || ends.iter().any(|end| line.starts_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_is_told_with_its_words_and_without_its_backtrace() {
        let output = "\
running 2 tests
test a::good ... ok
test a::bad ... FAILED

failures:

---- a::bad stdout ----
USHER_SEED=7

thread 'a::bad' (12) panicked at tests/a.rs:1:2:
assertion failed
  left: 1
 right: 2
stack backtrace:
   0: rust_begin_unwind

---- a::worse stdout ----

thread 'a::worse' (13) panicked at tests/a.rs:8:2:
it is lost
note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace
";
        let mut failures = Failures::default();
        output.lines().for_each(|line| failures.hear(line));
        assert_eq!(
            failures.told(),
            [
                "thread 'a::bad' (12) panicked at tests/a.rs:1:2:\n    assertion failed\n      left: 1\n     right: 2",
                "thread 'a::worse' (13) panicked at tests/a.rs:8:2:\n    it is lost",
            ]
        );
    }

    #[test]
    fn a_failure_of_many_words_is_cut() {
        let mut failures = Failures::default();
        failures.hear("thread 'a' (1) panicked at a.rs:1:1:");
        (0..1_000).for_each(|_| failures.hear("more"));
        assert_eq!(failures.told()[0].lines().count(), LINES + 1);
    }
}
