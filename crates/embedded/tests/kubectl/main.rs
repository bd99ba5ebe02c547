//! kubectl transcripts (F6): what a user types (`scenarios/<name>.scenario`, in the language of [`scenario`]), and what
//! kubectl prints against the reference (`recorded/<kubectl's version>/<name>.txt`).
//!
//! - The embedded server is compared with the recorded transcripts in every run, over HTTPS, with `$USHER_TOOLS/kubectl`
//!   and the kubectl on the path, as far as transcripts of their versions are recorded. `TRANSCRIPTS=apply` plays only
//!   scenarios whose name contains that.
//! - Real servers are held against the same files where the environment names them, as `cargo xtask test` does (Z3):
//!   `USHER_TEST_BARE_KUBECONFIG` for scenarios about the API server alone, `USHER_TEST_KUBECONFIG` for those with
//!   controllers. With `TRANSCRIPTS_RECORD=1` their answers become the files.
//! - What may differ is listed in `differences.toml` with its reason, as in the conformance suite.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

// Shared with the conformance suite: what differs, and what may.
#[path = "../conformance/diff.rs"]
mod diff;
#[path = "../conformance/difference.rs"]
mod difference;
mod normal;
mod play;
mod program;
mod recorded;
mod scenario;
mod server;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use futures::StreamExt as _;

use program::Kubectl;
use recorded::Transcript;
use scenario::Scenario;
use server::Server;

/// Scenarios at a time: kubectl is the one who works.
const TOGETHER: usize = 4;

/// Not captured by the test program: each scenario's line is to be seen in good runs, too.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn chosen() -> Vec<Scenario> {
    let wanted = std::env::var("TRANSCRIPTS").unwrap_or_default();
    let mut scenarios = recorded::scenarios();
    scenarios.retain(|scenario| scenario.name.contains(&wanted));
    assert!(!scenarios.is_empty(), "no scenario has {wanted} in its name");
    scenarios
}

struct Played {
    scenario: Scenario,
    transcript: Transcript,
    seconds: f64,
}

/// Plays what there is a server for, each scenario in a namespace of its own.
async fn play(scenarios: &[Scenario], kubectl: &Kubectl, servers: &[Server]) -> Vec<Played> {
    // A server may be asked again and again, so every run names its namespaces anew.
    let run = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() & 0xffff_ffff;
    let playing = scenarios.iter().enumerate().filter_map(|(index, scenario)| {
        let server = servers
            .iter()
            .find(|server| server.controllers == scenario.controllers)?;
        let (scenario, kubectl, server) = (scenario.clone(), kubectl.clone(), server.clone());
        let namespace = format!("k{run:08x}-{index:03}");
        // Off the runtime's threads: they serve what kubectl asks.
        Some(tokio::task::spawn_blocking(move || {
            let started = Instant::now();
            let transcript = play::play(&scenario, &kubectl, &server, &namespace);
            Played {
                scenario,
                transcript,
                seconds: started.elapsed().as_secs_f64(),
            }
        }))
    });
    let mut played: Vec<Played> = futures::stream::iter(playing)
        .buffer_unordered(TOGETHER)
        .map(Result::unwrap)
        .collect()
        .await;
    played.sort_by(|a, b| a.scenario.name.cmp(&b.scenario.name));
    played
}

/// Tells of each scenario; returns what is wrong.
fn judge(kubectl: &Kubectl, played: &[Played], listed: &[difference::Difference]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut differing = Vec::new();
    for one in played {
        let name = &one.scenario.name;
        let mut failures = String::new();
        for (step, diff) in recorded::compare(kubectl, &one.scenario, &one.transcript) {
            differing.push((name.clone(), step));
            if !listed.iter().any(|listed| listed.is(name, step, &diff)) {
                let title = one.transcript.get(step - 1).map_or("", |(title, _)| title);
                let mark = difference::mark(&diff);
                failures += &format!("  step {step}: {title} (mark {mark})\n{diff}");
            }
        }
        match failures.is_empty() {
            true => say(&format!("ok      {} {name} ({:.1} s)", kubectl.version, one.seconds)),
            false => {
                say(&format!(
                    "DIFFERS {} {name} ({:.1} s)\n{failures}",
                    kubectl.version, one.seconds
                ));
                wrong.push(format!("{} {name}", kubectl.version));
            }
        }
    }
    wrong.extend(difference::stale(listed, &differing, |name| {
        played.iter().any(|one| one.scenario.name == name)
    }));
    wrong
}

#[tokio::test(flavor = "multi_thread")]
async fn f6_kubectl_prints_the_same_against_the_embedded_server() {
    let scenarios = chosen();
    let listed = difference::parse(&recorded::differences()).unwrap();
    let servers = server::embedded().await;
    let started = Instant::now();
    let mut wrong = Vec::new();
    for kubectl in program::recorded() {
        wrong.extend(judge(&kubectl, &play(&scenarios, &kubectl, &servers).await, &listed));
    }
    say(&format!(
        "{} scenarios, {:.1} s, {} differences listed",
        scenarios.len(),
        started.elapsed().as_secs_f64(),
        listed.len()
    ));
    assert!(wrong.is_empty(), "{} scenarios:\n{}", wrong.len(), wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn z3_the_recorded_transcripts_are_true_of_a_real_server() {
    let scenarios = chosen();
    let servers = server::real();
    if servers.is_empty() {
        say("no real server is named (USHER_TEST_KUBECONFIG, USHER_TEST_BARE_KUBECONFIG): Z3 was not checked");
        return;
    }
    let recording = std::env::var_os("TRANSCRIPTS_RECORD").is_some();
    let mut wrong = Vec::new();
    for kubectl in if recording { program::all() } else { program::recorded() } {
        let played = play(&scenarios, &kubectl, &servers).await;
        if !recording {
            wrong.extend(judge(&kubectl, &played, &[]));
            continue;
        }
        for one in &played {
            if recorded::write(&kubectl, &one.scenario, &one.transcript) {
                say(&format!(
                    "recorded {} {} ({:.1} s)",
                    kubectl.version, one.scenario.name, one.seconds
                ));
            }
        }
    }
    if recording {
        let known: BTreeSet<String> = recorded::scenarios().into_iter().map(|one| one.name).collect();
        for version in recorded::versions() {
            for orphan in recorded::names(&version).difference(&known) {
                recorded::remove(&version, orphan);
            }
        }
    }
    assert!(wrong.is_empty(), "{} scenarios:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn f6_every_scenario_is_recorded_and_every_transcript_has_its_scenario() {
    if std::env::var_os("TRANSCRIPTS_RECORD").is_some() {
        return;
    }
    let names: BTreeSet<String> = recorded::scenarios().into_iter().map(|one| one.name).collect();
    for version in recorded::versions() {
        assert_eq!(recorded::names(&version), names, "transcripts of kubectl {version}");
    }
}

/// The commands of section 5's table that need no controller but those we have.
#[test]
fn f6_every_command_of_the_table_is_typed() {
    let scenarios = recorded::scenarios();
    let typed: Vec<&str> = scenarios.iter().flat_map(|one| one.commands()).collect();
    for words in [
        "get",
        "apply",
        "apply --server-side",
        "create",
        "replace",
        "edit",
        "diff",
        "explain",
        "describe",
        "delete",
        "patch",
        "scale",
        "label",
        "annotate",
        "wait",
        "api-resources",
        "auth whoami",
        "auth can-i",
        "set image",
        "cordon",
        "taint",
    ] {
        let wanted = format!("kubectl {words}");
        assert!(typed.iter().any(|line| line.contains(&wanted)), "nobody types {wanted}");
    }
}
