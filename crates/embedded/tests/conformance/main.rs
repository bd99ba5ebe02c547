//! The conformance suite: scripts of requests (`cases/<area>/<name>.case`, in the language of [`case`]), and what the
//! reference answers to them (`recorded/<area>/<name>.answers`). Whoever builds the server sees here what is wanted of it.
//!
//! - The embedded server is compared with the recorded answers in every run. `CONFORMANCE=watch/` plays only cases whose
//!   name contains that; `CONFORMANCE_SHOW=1` prints every answer that came.
//! - Real servers are held against the same files where the environment names them, as `cargo xtask test` does (Z3):
//!   `USHER_TEST_BARE_KUBECONFIG` for cases about the API server alone, `USHER_TEST_KUBECONFIG` for those with controllers
//!   or a scheduler, `USHER_TEST_NODE_KUBECONFIG` for those whose pods run.
//! - `cargo xtask conformance --record` renews the files from a real server (`CONFORMANCE_RECORD=1`).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod case;
mod diff;
mod difference;
mod normal;
mod recorded;
mod render;
mod run;
mod select;
mod target;

use std::collections::BTreeMap;
use std::io::Write;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use futures::StreamExt;

use case::{Case, Needs};
use difference::Difference;
use run::{Answer, Story};
use target::Target;

/// Cases at a time: many of them only wait for a watch.
const TOGETHER: usize = 6;

/// Not captured by the test program: each case's line is to be seen in good runs, too.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

struct Played<'a> {
    case: &'a Case,
    story: Story,
    seconds: f64,
}

/// The servers of one kind.
struct Servers {
    bare: Option<Target>,
    with_controllers: Option<Target>,
    with_node: Option<Target>,
}

impl Servers {
    fn of(&self, case: &Case) -> Option<&Target> {
        match case.needs {
            Needs::Nothing => self.bare.as_ref(),
            Needs::Controllers | Needs::Scheduler => self.with_controllers.as_ref(),
            Needs::Node => self.with_node.as_ref(),
        }
    }

    fn first(&self) -> Option<&Target> {
        let servers = [&self.bare, &self.with_controllers, &self.with_node];
        servers.into_iter().find_map(Option::as_ref)
    }
}

fn chosen() -> Vec<Case> {
    let wanted = std::env::var("CONFORMANCE").unwrap_or_default();
    let mut cases = recorded::cases();
    cases.retain(|case| case.name.contains(&wanted));
    assert!(!cases.is_empty(), "no case has {wanted} in its name");
    cases
}

async fn play<'a>(cases: &'a [Case], servers: &Servers) -> Vec<Played<'a>> {
    // A server may be asked again and again, so every run names its namespaces anew; all names are equally long.
    let run = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() & 0xffff_ffff;
    let one = async |(index, case): (usize, &'a Case), target: &Target| {
        let started = Instant::now();
        let namespace = format!("c{run:08x}{index:03}");
        let story = run::run(case, target, &namespace).await;
        let seconds = started.elapsed().as_secs_f64();
        Played { case, story, seconds }
    };
    let served = cases
        .iter()
        .enumerate()
        .filter_map(|(index, case)| Some(((index, case), servers.of(case)?)));
    let (alone, together): (Vec<_>, Vec<_>) = served.partition(|((_, case), _)| case.runs_alone());
    let playing = together.into_iter().map(|(case, target)| one(case, target));
    let mut played: Vec<Played> = futures::stream::iter(playing)
        .buffer_unordered(TOGETHER)
        .collect()
        .await;
    for (case, target) in alone {
        played.push(one(case, target).await);
    }
    played.sort_by(|a, b| a.case.name.cmp(&b.case.name));
    played
}

/// Steps whose answer is not the recorded one, each with what differs.
fn compare(recorded: Option<&[Answer]>, came: &[Answer]) -> Vec<(usize, String)> {
    let Some(recorded) = recorded else {
        return vec![(1, "    nothing is recorded: cargo xtask conformance --record\n".into())];
    };
    let titles = |answers: &[Answer]| -> Vec<String> { answers.iter().map(|answer| answer.title.clone()).collect() };
    if titles(recorded) != titles(came) {
        return vec![(1, "    the case has changed: cargo xtask conformance --record\n".into())];
    }
    let diffs = recorded
        .iter()
        .zip(came)
        .map(|(want, came)| diff::diff(&want.text, &came.text));
    let steps = diffs.enumerate().map(|(index, diff)| (index + 1, diff));
    steps.filter(|(_, diff)| !diff.is_empty()).collect()
}

/// Tells of each case; returns what is wrong.
fn judge(played: &[Played], listed: &[Difference]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut steps = Vec::new();
    let mut areas: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    let (mut accepted, mut good) = (0, 0);
    for one in played {
        let name = &one.case.name;
        if std::env::var_os("CONFORMANCE_SHOW").is_some() {
            let answers = one.story.answers.iter();
            answers.for_each(|answer| say(&format!("== {}\n{}", answer.title, answer.text)));
        }
        let mut failures = String::new();
        for (step, diff) in compare(recorded::read(name).as_deref(), &one.story.answers) {
            steps.push((name.clone(), step));
            if listed.iter().any(|difference| difference.is(name, step, &diff)) {
                accepted += 1;
            } else {
                let title = one.case.steps.get(step - 1).map_or("", |step| step.title.as_str());
                let mark = difference::mark(&diff);
                failures += &format!("  step {step}: {title} (mark {mark})\n{diff}");
            }
        }
        let area = areas.entry(name.split('/').next().unwrap_or_default()).or_default();
        area.1 += 1;
        if failures.is_empty() {
            good += 1;
            area.0 += 1;
            say(&format!("ok      {name} ({:.2} s)", one.seconds));
        } else {
            say(&format!("DIFFERS {name}\n{failures}"));
            wrong.push(format!("{name}\n{failures}"));
        }
    }
    for (area, (good, all)) in areas {
        say(&format!("{area:<14} {good:>4} of {all:>4}"));
    }
    say(&format!(
        "{good} of {} cases answered as {}; {accepted} accepted differences, {} listed",
        played.len(),
        recorded::version(),
        listed.len()
    ));
    wrong.extend(difference::stale(listed, &steps, |case| {
        played.iter().any(|one| one.case.name == case)
    }));
    wrong
}

#[tokio::test(flavor = "multi_thread")]
async fn f3_the_embedded_server_answers_as_recorded() {
    let cases = chosen();
    let listed = difference::parse(&recorded::differences()).unwrap();
    let servers = Servers {
        bare: Some(target::embedded(Needs::Nothing)),
        with_controllers: Some(target::embedded(Needs::Scheduler)),
        with_node: Some(target::node()),
    };
    let played = play(&cases, &servers).await;
    assert_eq!(
        played.len(),
        cases.len(),
        "all servers are there: bare, with controllers, with a node"
    );
    let wrong = judge(&played, &listed);
    assert!(
        wrong.is_empty(),
        "{} of {} cases:\n{}",
        wrong.len(),
        cases.len(),
        wrong.join("\n")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn z3_the_recorded_answers_are_true_of_a_real_server() {
    let cases = chosen();
    let servers = Servers {
        bare: target::real(Needs::Nothing).await,
        with_controllers: target::real(Needs::Scheduler).await,
        with_node: target::real(Needs::Node).await,
    };
    let (Some(first), started) = (servers.first(), Instant::now()) else {
        say("no real server is named (USHER_TEST_KUBECONFIG, USHER_TEST_BARE_KUBECONFIG): Z3 was not checked");
        return;
    };
    let version = first.version().await;
    let played = play(&cases, &servers).await;
    let left_out = cases.len() - played.len();
    say(&format!(
        "{version}, {:.1} s; not played for want of their server: {left_out}",
        started.elapsed().as_secs_f64()
    ));
    if std::env::var_os("CONFORMANCE_RECORD").is_none() {
        let wrong = judge(&played, &[]);
        assert!(
            wrong.is_empty(),
            "{} of {} cases:\n{}",
            wrong.len(),
            cases.len(),
            wrong.join("\n")
        );
        return;
    }
    let mut broken = Vec::new();
    for one in &played {
        let name = &one.case.name;
        if let Some(why) = one.story.failures.first() {
            broken.push(format!("{name}: {why}"));
        } else if recorded::write(name, &one.story.answers) {
            say(&format!("recorded {name}"));
        }
    }
    for orphan in recorded::orphans(&recorded::cases()) {
        say(&format!("removed {orphan}: it has no case"));
        recorded::remove(&orphan);
    }
    recorded::write_version(&version);
    say(&format!("{} cases", played.len()));
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn f3_every_case_is_recorded_and_every_record_has_its_case() {
    if std::env::var_os("CONFORMANCE_RECORD").is_some() {
        return;
    }
    let cases = recorded::cases();
    let missing: Vec<&str> = cases
        .iter()
        .map(|case| case.name.as_str())
        .filter(|name| recorded::read(name).is_none())
        .collect();
    assert_eq!(missing, Vec::<&str>::new(), "cargo xtask conformance --record");
    assert_eq!(recorded::orphans(&cases), Vec::<String>::new());
}

/// The areas of section 14, F5, that this server has; fewer cases than this would prove less than was promised.
#[test]
fn f5_there_are_cases_for_every_area() {
    let cases = recorded::cases();
    assert!(cases.len() >= 410, "only {} cases", cases.len());
    for area in [
        "admission",
        "apply",
        "cel",
        "controllers",
        "crd",
        "crud",
        "deletion",
        "discovery",
        "errors",
        "openapi",
        "patches",
        "pods",
        "printing",
        "scheduler",
        "subresources",
        "versions",
        "watch",
    ] {
        let count = cases
            .iter()
            .filter(|case| case.name.starts_with(&format!("{area}/")))
            .count();
        // Those whose answers come from more than an API server were promised by number.
        let wanted = match area {
            "controllers" => 30,
            "pods" => 25,
            "scheduler" => 10,
            _ => 4,
        };
        assert!(count >= wanted, "{area} has {count} cases");
    }
}

#[test]
fn f4_differences_name_cases_that_are_there() {
    let cases = recorded::cases();
    for Difference { case, step, .. } in difference::parse(&recorded::differences()).unwrap() {
        let there = cases.iter().find(|known| known.name == case);
        assert!(there.is_some_and(|case| step <= case.steps.len()), "{case} step {step}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(texts: &[&str]) -> Vec<Answer> {
        let answer = |text: &&str| Answer {
            title: "GET /a".into(),
            text: (*text).into(),
        };
        texts.iter().map(answer).collect()
    }

    #[test]
    fn each_differing_step_is_told() {
        let recorded = answers(&["200\n", "404\n"]);
        let steps = |came: &[&str]| {
            let differing = compare(Some(&recorded), &answers(came)).into_iter();
            differing.map(|(step, _)| step).collect::<Vec<_>>()
        };
        assert_eq!(steps(&["200\n", "404\n"]), Vec::<usize>::new());
        assert_eq!(steps(&["201\n", "405\n"]), [1, 2]);
        assert_eq!(steps(&["200\n", "nothing came\n"]), [2]);
        assert_eq!(steps(&["200\n"]), [1], "another number of steps");
        assert_eq!(compare(None, &recorded).len(), 1, "nothing is recorded");
    }
}
