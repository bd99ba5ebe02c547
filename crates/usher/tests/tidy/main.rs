//! The few rules of this repository that neither rustc nor clippy can hold. Each test is one rule; its message names the
//! file, the line and the way out.
//!
//! Here are the rules about sources; [`packages`] has those about what comes from elsewhere. [`source`] reads Rust as
//! text, [`workspace`] knows our crates from `cargo metadata`, which reads `Cargo.lock` and asks nobody.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod packages;
mod source;
mod workspace;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use source::{Source, word_at};
use workspace::{Crate, ROOT, Role, crates, section, sources};

/// What a pure file may not name. `HashMap` is among them because its order is random.
const IMPURE: [&str; 29] = [
    "tokio",
    "kube",
    "futures",
    "hyper",
    "axum",
    "tower",
    "async",
    "await",
    "Future",
    "usher_operator",
    "std::fs",
    "std::io",
    "std::env",
    "std::process",
    "std::thread",
    "std::os",
    "SystemTime",
    "Instant",
    "Timestamp::now",
    "Zoned::now",
    "rand",
    "uuid",
    "HashMap",
    "HashSet",
    "RandomState",
    "println",
    "eprintln",
    "print",
    "eprint",
];

/// Rooms of a kind's crate that do I/O, or serve those that do: pure files may not reach into them.
const ROOMS_WITH_IO: [&str; 4] = ["crate::act", "crate::observe", "crate::wake", "crate::kinds"];

/// Of `std::net`, addresses are values; all else is I/O.
const NET_VALUES: [&str; 4] = ["IpAddr", "Ipv4Addr", "Ipv6Addr", "AddrParseError"];

/// Where the operator may ask a clock itself, and why. Everything else asks `clock::Clock`.
const CLOCK_EDGES: [(&str, &str); 3] = [
    ("crates/operator/src/clock.rs", "it is the clock"),
    (
        "crates/operator/src/watch.rs",
        "how long a watch request lasted, on tokio's clock as its time-outs are",
    ),
    (
        "crates/operator/src/webhook.rs",
        "the deadline of one HTTP request, for tokio's timer",
    ),
];

/// Functions of tests that may sleep between two looks or two tries, beside the body of a `while` that looks itself.
/// A sleep that is itself what is tested says so with a comment `// edge: why` on its line.
const POLLING: [&str; 8] = [
    // Until an answer is as the case wants it.
    "ask_until",
    "eventually",
    "until",
    "until_ready",
    "wait_until",
    // Until a process has ended.
    "terminate",
    // Until a request is answered.
    "insist",
    "record",
];

const GOOD_LENGTH: usize = 400;
const LONGEST_FILE: usize = 600;

#[test]
fn the_engine_and_all_plans_and_objects_know_no_io_no_clock_and_no_async() {
    let is_pure = |crate_: &Crate, source: &Source| match crate_.role {
        Role::Engine => true,
        Role::Kind => {
            let room = crate_.room(source);
            room.starts_with("plan") || room.starts_with("objects")
        }
        Role::Operator | Role::Embedded | Role::Binary | Role::Xtask | Role::Benches => false,
    };
    let (mut faults, mut looked_at) = (Vec::new(), 0);
    for crate_ in crates() {
        let rooms: &[&str] = if crate_.role == Role::Kind { &ROOMS_WITH_IO } else { &[] };
        for source in crate_.production().filter(|source| is_pure(crate_, source)) {
            looked_at += 1;
            for word in IMPURE.iter().chain(rooms) {
                faults.extend(source.uses(word).map(|at| format!("{}: {word}", source.at(at))));
            }
            for at in source.uses("std::net") {
                let rest = &source.production[at..];
                let names = rest
                    .split(';')
                    .next()
                    .unwrap_or(rest)
                    .split(|c: char| !c.is_alphanumeric());
                let names: Vec<_> = names.skip_while(|name| *name != "net").skip(1).collect();
                let impure = names.iter().find(|name| !name.is_empty() && !NET_VALUES.contains(name));
                faults.extend(impure.map(|name| format!("{}: std::net, {name}", source.at(at))));
            }
        }
    }
    assert!(looked_at >= 10, "only {looked_at} pure files: the search is broken");
    verdict(
        &faults,
        "this file is pure: do it in observe.rs or act.rs, or let it arrive as an argument",
    );
}

#[test]
fn dependencies_point_one_way_from_usher_to_kinds_to_operator_to_engine() {
    let roles: BTreeMap<&str, Role> = crates().iter().map(|c| (c.name.as_str(), c.role)).collect();
    let mut faults = Vec::new();
    for crate_ in crates() {
        let allowed: &[Role] = match crate_.role {
            Role::Engine | Role::Embedded | Role::Xtask => &[],
            Role::Operator => &[Role::Engine],
            Role::Kind => &[Role::Engine, Role::Operator],
            Role::Binary | Role::Benches => &[Role::Engine, Role::Operator, Role::Kind, Role::Embedded],
        };
        for dependency in crate_.dependencies.iter().filter(|d| d.ours) {
            let role = roles.get(dependency.name.as_str());
            if role.is_none_or(|role| !allowed.contains(role)) {
                faults.push(format!("{} uses {}", crate_.name, dependency.name));
            }
        }
    }
    assert!(roles.values().any(|role| *role == Role::Kind), "no kind: {roles:?}");
    verdict(
        &faults,
        "ARCHITECTURE.md: kinds do not know each other, and nobody below them knows a kind",
    );
}

#[test]
fn the_operator_and_the_engine_name_no_kind() {
    // A kind's own word (`subnet`) and its API groups.
    let mut words = BTreeSet::new();
    for kind in crates().iter().filter(|c| c.role == Role::Kind) {
        let word = kind.name.trim_start_matches("usher-").trim_end_matches('s');
        words.insert(word.to_owned());
        for source in kind.production() {
            let groups = source.uncommented.match_indices("group = \"");
            let names = groups.filter_map(|(at, found)| source.text[at + found.len()..].split('"').next());
            words.extend(names.map(str::to_owned));
        }
    }
    assert!(words.len() >= 2, "no kind with a group was found: {words:?}");
    let below = crates()
        .iter()
        .filter(|c| matches!(c.role, Role::Engine | Role::Operator));
    let mut faults = Vec::new();
    for source in below.flat_map(Crate::production) {
        // Strings count here; what belongs to tests is blank in `production`.
        let lines = source.uncommented.lines().zip(source.production.lines());
        for (number, (line, _)) in lines.enumerate().filter(|(_, (_, code))| !code.trim().is_empty()) {
            let line = line.to_lowercase();
            let named = words.iter().find(|word| line.contains(word.as_str()));
            faults.extend(named.map(|word| format!("{}:{}: {word}", source.shown(), number + 1)));
        }
    }
    verdict(
        &faults,
        "the runtime runs whatever implements `Kind`; what is of one kind belongs into its crate",
    );
}

#[test]
fn a_file_fits_one_sitting() {
    let mut faults = Vec::new();
    for source in sources().filter(|source| source.shown().contains("/src/")) {
        let lines = source.text.lines().count();
        if lines > LONGEST_FILE {
            faults.push(format!("{}: {lines} lines", source.shown()));
        } else if lines > GOOD_LENGTH {
            eprintln!("{}: {lines} lines; {GOOD_LENGTH} would read better", source.shown());
        }
    }
    verdict(
        &faults,
        "600 is the limit: make it a folder of the same name whose mod.rs tells the story",
    );
}

#[test]
fn modules_are_named_after_what_they_are() {
    let empty = [
        "util", "utils", "helper", "helpers", "manager", "common", "data", "misc",
    ];
    let mut faults = Vec::new();
    for source in sources() {
        let shown = source.shown();
        let path = shown.trim_end_matches(".rs").split('/');
        let declared = source.code.match_indices("mod ");
        let declared = declared.map(|(at, found)| word_at(&source.code, at + found.len()));
        let word = path.chain(declared).find(|name| empty.contains(name));
        faults.extend(word.map(|word| format!("{shown}: `{word}`")));
    }
    verdict(
        &faults,
        "this name says nothing; take one of the domain: claim, lease, hand-over",
    );
}

#[test]
fn every_crate_takes_the_lints_of_the_workspace() {
    let mut faults = Vec::new();
    for path in crates().iter().map(|c| c.dir.join("Cargo.toml")) {
        let manifest = fs::read_to_string(&path).unwrap();
        if !section(&manifest, "[lints]").any(|line| line == "workspace = true") {
            faults.push(path.display().to_string());
        }
    }
    verdict(&faults, "add `[lints]` with `workspace = true`");
}

#[test]
fn nothing_is_left_undone_or_switched_off() {
    let note = concat!("FIX", "ME");
    let mut faults = Vec::new();
    for source in sources() {
        for word in ["#[ignore", "todo!", "unimplemented!"] {
            let found = source.code.match_indices(word);
            faults.extend(found.map(|(at, _)| format!("{}: {word}", source.at(at))));
        }
        let found = source.text.match_indices(note);
        faults.extend(found.map(|(at, _)| format!("{}: {note}", source.at(at))));
    }
    verdict(
        &faults,
        "do it, or write an issue; a test that lacks what it needs says so and fails",
    );
}

#[test]
fn tests_wait_for_a_condition_and_never_for_a_time() {
    let sleeps = ["thread::sleep", "time::sleep", "sleep_until"];
    let mut faults = Vec::new();
    for source in sources() {
        let text: Vec<&str> = source.text.lines().collect();
        let code: Vec<&str> = source.code.lines().collect();
        for (at, production) in source.production.lines().enumerate() {
            let of_a_test = source.only_tests || production.trim().is_empty();
            if !of_a_test || !sleeps.iter().any(|sleep| code[at].contains(sleep)) {
                continue;
            }
            let function = code[..=at].iter().rev().find_map(|line| line.split_once("fn "));
            let function = function.map_or("", |(_, rest)| word_at(rest, 0));
            let is_edge = text[at].contains("// edge:");
            // The arm of a `select!` that gives up.
            let is_deadline = code[at].contains("=> panic!");
            if !is_edge && !is_deadline && !POLLING.contains(&function) && !in_while(&code, at) {
                faults.push(format!("{}:{}: in `{function}`", source.shown(), at + 1));
            }
        }
    }
    verdict(
        &faults,
        "poll a condition in a function of POLLING; where time itself is tested, say `// edge: why` on the line",
    );
}

/// Whether the innermost block around a line is the body of a `while`. Told by indentation: the code is formatted.
fn in_while(code: &[&str], at: usize) -> bool {
    let depth = |line: &str| line.len() - line.trim_start().len();
    let around = code[..at].iter().rev().filter(|line| !line.trim().is_empty());
    let head = around.into_iter().find(|line| depth(line) < depth(code[at]));
    head.is_some_and(|head| head.trim_start().starts_with("while "))
}

#[test]
fn the_operator_asks_its_clock_for_the_time() {
    let operator = crates().iter().find(|c| c.role == Role::Operator).unwrap();
    let mut faults = Vec::new();
    for source in operator.production() {
        if CLOCK_EDGES.iter().any(|(edge, _)| source.path == ROOT.join(edge)) {
            continue;
        }
        for word in ["SystemTime", "Instant", "Timestamp::now", "Zoned::now", "UnixTime::now"] {
            faults.extend(source.uses(word).map(|at| format!("{}: {word}", source.at(at))));
        }
    }
    for (edge, why) in CLOCK_EDGES {
        assert!(Path::new(&*ROOT).join(edge).exists(), "{edge} ({why}) is gone");
    }
    verdict(
        &faults,
        "ask `clock::Clock`, or add the file to CLOCK_EDGES and say why",
    );
}

#[test]
fn the_code_map_names_every_crate_and_every_room() {
    let text = fs::read_to_string(ROOT.join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let mut faults = Vec::new();
    for crate_ in crates() {
        let place = crate_.dir.strip_prefix(&*ROOT).unwrap().display().to_string();
        let Some((_, after)) = text.split_once(&format!("### `{place}`")) else {
            faults.push(format!("{place} has no section ### `{place}`"));
            continue;
        };
        let part = after.split("\n#").next().unwrap_or(after);
        let rooms: BTreeSet<String> = crate_.production().map(|source| crate_.room(source)).collect();
        let unnamed = rooms.iter().filter(|room| *room != "lib" && *room != "main");
        let unnamed = unnamed.filter(|room| !part.contains(&format!("| `{room}")));
        faults.extend(unnamed.map(|room| format!("{place}: `{room}`")));
    }
    verdict(&faults, "ARCHITECTURE.md, \"Code map\", has one line for each");
}

#[test]
fn the_tests_that_architecture_md_names_exist() {
    let text = fs::read_to_string(ROOT.join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    // A sentence with underscores: nothing else in that document looks so.
    let quoted = text.split('`').skip(1).step_by(2);
    let named: BTreeSet<&str> = quoted
        .flat_map(|words| words.split(|c: char| !c.is_alphanumeric() && c != '_'))
        .filter(|word| word.matches('_').count() >= 3)
        .collect();
    assert!(named.len() >= 5, "no tests are named: {named:?}");
    let exists = |name: &str| sources().any(|source| source.code.contains(&format!("fn {name}(")));
    let faults: Vec<_> = named
        .into_iter()
        .filter(|name| !exists(name))
        .map(str::to_owned)
        .collect();
    verdict(
        &faults,
        "no such test (any more): say in ARCHITECTURE.md what holds the invariant now",
    );
}

#[test]
fn the_sentences_in_failure_modes_md_are_those_of_the_code() {
    let text = fs::read_to_string(ROOT.join("docs/failure-modes.md")).expect("docs/failure-modes.md");
    let of_code: String = sources().filter(|source| !source.only_tests).map(said).collect();
    let mut faults = Vec::new();
    let mut compared = 0;
    // Numbers and `…` stand for anything; of what is between them, whole phrases are compared.
    for quoted in text
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|quoted| !quoted.contains(" in body "))
    {
        let words: Vec<&str> = quoted.split_whitespace().collect();
        let phrases = words.split(|word| word.contains(|c: char| c.is_ascii_digit() || c == '…'));
        for phrase in phrases.filter(|words| words.len() >= 4).map(|words| words.join(" ")) {
            compared += 1;
            if !of_code.contains(&phrase) {
                faults.push(format!("docs/failure-modes.md: {phrase:?}"));
            }
        }
    }
    assert!(compared >= 30, "only {compared} phrases were compared");
    verdict(&faults, "no code says this: quote what users see now");
}

/// What the strings of a file say, without marks of code and breaks of lines.
fn said(source: &Source) -> String {
    let text = source.uncommented.replace("\\\n", "").replace('`', "");
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ")
}

fn verdict(faults: &[String], way_out: &str) {
    assert!(faults.is_empty(), "\n  {}\n{way_out}\n", faults.join("\n  "));
}

/// What a test is called and what it says when it fails: the names of functions, and what stands in quotes. A comment names
/// nothing.
fn names_and_texts(source: &str) -> String {
    let code = source.lines().filter(|line| !line.trim_start().starts_with("//"));
    let mut found = String::new();
    for line in code {
        if let Some((_, name)) = line.split_once("fn ") {
            found.push_str(name.split(['(', '<']).next().unwrap_or_default());
        }
        for (at, part) in line.split('"').enumerate() {
            if at % 2 == 1 {
                found.push_str(part);
            }
            found.push(' ');
        }
        found.push('\n');
    }
    found
}

/// What the spec of subnets numbers: rules, invariants, scenarios, mapper tests.
const SUBNETS_SPEC: [(char, usize); 4] = [('R', 51), ('I', 12), ('A', 29), ('M', 10)];

#[test]
fn every_rule_invariant_and_scenario_of_the_subnets_spec_is_named_by_a_test() {
    let mut tests = String::new();
    for crate_ in crates() {
        let ours = crate_
            .sources
            .iter()
            .filter(|source| !source.path.ends_with("tests/tidy/main.rs"));
        for source in ours {
            let from = if source.only_tests {
                Some(0)
            } else {
                source.text.find("#[cfg(test)]")
            };
            tests.push_str(&names_and_texts(from.map_or("", |from| &source.text[from..])));
        }
    }
    let stories = Path::new(ROOT.as_path()).join("crates/subnets/tests/scenarios");
    for story in fs::read_dir(stories).unwrap().map(|entry| entry.unwrap().path()) {
        if story.extension().is_some_and(|extension| extension == "txt") {
            tests.push_str(&fs::read_to_string(story).unwrap());
        }
    }
    let tests = tests.to_uppercase();
    let words: BTreeSet<&str> = tests.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    let unnamed: Vec<String> = SUBNETS_SPEC
        .iter()
        .flat_map(|(letter, last)| (1..=*last).map(move |number| format!("{letter}{number}")))
        .filter(|name| !words.contains(name.as_str()))
        .collect();
    verdict(
        &unnamed,
        "name the rule in the test that holds it, as `R7` or as part of the test's name",
    );
}
