//! Makes transcripts of two servers, or of two runs, comparable: what a server invents becomes an ordinal of first sight
//! within the scenario, what depends on when one asks becomes a word. What the scenario itself wrote stays as it is.

use std::collections::HashMap;
use std::sync::LazyLock;

use regex::{Captures, Regex};

use crate::scenario::NAMESPACE;

#[derive(Debug)]
pub struct Normaliser {
    namespace: String,
    folder: String,
    scenario: String,
    seen: HashMap<(&'static str, String), usize>,
    counts: HashMap<&'static str, usize>,
}

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("written below")
}

static UID: LazyLock<Regex> =
    LazyLock::new(|| regex(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"));
static TIME: LazyLock<Regex> = LazyLock::new(|| regex(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)"));
/// As `describe` has it, and as `diff` does.
static OTHER_TIME: LazyLock<Regex> = LazyLock::new(|| {
    regex(r"(\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d [+-]\d{4})|(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+ [+-]\d{4})")
});
/// What kubectl itself logs in front of an error.
static LOG: LazyLock<Regex> = LazyLock::new(|| regex(r"(?m)^([EWI])\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ ([\w.]+):\d+\]"));
static ADDRESS: LazyLock<Regex> = LazyLock::new(|| regex(r"\b\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}\b( {3,})?"));
static SERVER: LazyLock<Regex> = LazyLock::new(|| regex(r"https://127\.0\.0\.1:\d+"));
static VERSION: LazyLock<Regex> = LazyLock::new(|| {
    regex(r#"(resourceVersion\\?"?: ?\\?"|Resource Version: +|resource version to be \d+, was )(\d+)"#)
});
static FOLDER: LazyLock<Regex> = LazyLock::new(|| regex(r"\b(LIVE-|MERGED-|kubectl-edit-)\d+"));
/// A column of ages, with the blanks behind it, which are as many as the longest leaves.
static AGE: LazyLock<Regex> = LazyLock::new(|| regex(r"(?m)(^| |\()(\d+[smhdy])+( ago\)|\))?( {2,}|\n|$| \()"));
static NO_ADDRESS: LazyLock<Regex> = LazyLock::new(|| regex(r"(ClusterIP +None) +"));
static AGE_HEADER: LazyLock<Regex> = LazyLock::new(|| regex(r"\b(AGE|CLUSTER-IP) {2,}"));
/// The head of events in `describe`.
static EVENTS_HEAD: LazyLock<Regex> =
    LazyLock::new(|| regex(r"(?m)^  Type +Reason +Age +From +Message\n  ---- +------ +---- +---- +-------$"));
static OVER: LazyLock<Regex> = LazyLock::new(|| regex(r"\(x(\d+) over (\d+[smhdy])+\) +"));

/// What client-go logs when a watch ends before it has seen anything: a matter of milliseconds.
static SHORT_WATCH: LazyLock<Regex> = LazyLock::new(|| regex(r"(?m)^[WE].*reflector\.go.*\n"));

impl Normaliser {
    pub fn new(namespace: &str, folder: &str, scenario: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            folder: folder.to_owned(),
            scenario: scenario.to_owned(),
            seen: HashMap::new(),
            counts: HashMap::new(),
        }
    }

    pub fn text(&mut self, text: &str) -> String {
        let text = text
            .replace(&self.namespace, NAMESPACE)
            .replace(&self.folder, "<folder>");
        let text = SHORT_WATCH.replace_all(&text, "");
        let text = UID.replace_all(&text, |found: &Captures| self.own(&found[0], "uid"));
        let text = TIME.replace_all(&text, |found: &Captures| match &found[0] {
            written if self.scenario.contains(written) => written.to_owned(),
            fine if fine.contains('.') => "<time-in-µs>".to_owned(),
            _ => "<time>".to_owned(),
        });
        let text = OTHER_TIME.replace_all(&text, "<time>");
        let text = LOG.replace_all(&text, "$1 <time> $2]");
        let text = SERVER.replace_all(&text, "https://<server>");
        let text = ADDRESS.replace_all(&text, |found: &Captures| {
            let shown = self.own(found[0].trim_end(), "ip");
            let blanks = found.get(1).map_or("", |blanks| match shown.starts_with('<') {
                true => "   ",
                false => blanks.as_str(),
            });
            shown + blanks
        });
        let text = VERSION.replace_all(&text, |found: &Captures| {
            let version = self.ordinal("rv", &found[2]);
            format!("{}{version}", &found[1])
        });
        let text = FOLDER.replace_all(&text, "$1<number>");
        let text = EVENTS_HEAD.replace_all(
            &text,
            "  Type  Reason  Age  From  Message\n  ----  ------  ----  ----  -------",
        );
        let text = OVER.replace_all(&text, "(x$1 over <age>)  ");
        let text = NO_ADDRESS.replace_all(&text, "$1   ");
        let text = AGE_HEADER.replace_all(&text, "$1   ");
        AGE.replace_all(&text, |found: &Captures| {
            let group = |index| found.get(index).map_or("", |part| part.as_str());
            let behind = match group(4) {
                blanks if blanks.starts_with("  ") => "   ",
                other => other,
            };
            format!("{}<age>{}{behind}", group(1), group(3))
        })
        .into_owned()
    }

    /// As the scenario wrote it, or by an ordinal.
    fn own(&mut self, value: &str, what: &'static str) -> String {
        match self.scenario.contains(value) {
            true => value.to_owned(),
            false => self.ordinal(what, value),
        }
    }

    fn ordinal(&mut self, what: &'static str, value: &str) -> String {
        let Self { seen, counts, .. } = self;
        let ordinal = seen.entry((what, value.to_owned())).or_insert_with(|| {
            let count = counts.entry(what).or_default();
            *count += 1;
            *count
        });
        format!("<{what}-{ordinal}>")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normal(text: &str) -> String {
        Normaliser::new("k01234567-000", "/tmp/x1", "10.0.0.9").text(text)
    }

    #[test]
    fn ages_and_the_blanks_behind_them_are_told_alike() {
        let (young, old) = (
            "NAME   AGE   IMAGE\na      4s    i:1\n",
            "NAME   AGE     IMAGE\na      12m4s   i:1\n",
        );
        assert_eq!(normal(young), "NAME   AGE   IMAGE\na      <age>   i:1\n");
        assert_eq!(normal(young), normal(old));
        assert_eq!(normal("Age:  3s\n"), "Age:  <age>\n");
        assert_eq!(normal("1s is in a sentence"), "1s is in a sentence");
    }

    #[test]
    fn versions_and_uids_are_told_apart() {
        let text = "resourceVersion: \"12\"\nresourceVersion: \"13\"\nresourceVersion: \"12\"\n";
        let want = "resourceVersion: \"<rv-1>\"\nresourceVersion: \"<rv-2>\"\nresourceVersion: \"<rv-1>\"\n";
        assert_eq!(normal(text), want);
    }

    #[test]
    fn what_the_scenario_wrote_stays() {
        assert_eq!(
            normal("10.0.0.9   10.0.0.10    x k01234567-000"),
            "10.0.0.9   <ip-1>   x the-namespace"
        );
    }
}
