//! Scenario scripts: one file per story under `tests/stories/`, commands and comments; beside it, what the operator decides,
//! step by step, as golden text, driven against the model. A change in behaviour shows as a readable diff.
//! `INSTA_UPDATE=always` rewrites them. Labels that are written on pods are left out.
//!
//! Commands: `create MxR [memory] [few-slots]` (without volumes; 64 slots), `clients` (a load begins), `size MxR`, `image TAG`,
//! `run` (until all is well and nothing is left to do), `passes N`, `until PHASE`, `kill POD`, `delete POD`, `lose POD`
//! (with its node), `lose-volume POD`, `promote POD` (by a stranger), `switchover POD`, `pause`, `resume`, `crash` (the
//! operator loses its memory), `jobs fail|work`, `image TAG bad` (its pods do not start), `scale-set N` (somebody's hand),
//! `wait SECONDS`, `get` (shards, size, slots moved), `errors` (what clients saw).

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod driver;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use driver::{Decision, Driver, picture};
use usher_engine::{Stance, Step};
use usher_valkey::model::{Setup, Stage};
use usher_valkey::plan::step::ClusterStep;
use usher_valkey::words::Ordinal;

struct Story {
    out: String,
    driver: Option<Driver>,
    /// Who sat where: ids are read as pods.
    names: BTreeMap<String, u16>,
    phase: String,
    told: Vec<String>,
}

impl Story {
    fn new() -> Self {
        Self {
            out: String::new(),
            driver: None,
            names: BTreeMap::new(),
            phase: String::new(),
            told: Vec::new(),
        }
    }

    fn driver(&mut self) -> &mut Driver {
        self.driver
            .as_mut()
            .unwrap_or_else(|| panic!("a story begins with create"))
    }

    fn say(&mut self, line: &str) {
        writeln!(self.out, "  {line}").unwrap();
    }

    fn command(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| words[at].parse::<u16>().unwrap_or_else(|_| panic!("{line}"));
        let size = |text: &str| {
            let (masters, replicas) = text.split_once('x').unwrap_or_else(|| panic!("{line}"));
            (masters.parse::<u16>().unwrap(), replicas.parse::<u16>().unwrap())
        };
        match words[0] {
            "create" => {
                let (masters, replicas) = size(words[1]);
                let mut setup = Setup {
                    persistence: !words.contains(&"memory"),
                    ..Setup::default()
                };
                if words.contains(&"few-slots") {
                    setup.habits.slots = 64;
                }
                self.driver = Some(Driver::new(setup, masters, replicas));
            }
            "clients" => self.driver().serve(),
            "size" => {
                let (masters, replicas) = size(words[1]);
                self.driver().resize(masters, replicas);
            }
            "image" => {
                let driver = self.driver();
                driver.edit(|spec| spec.image.tag = words[1].into());
                if words.get(2) == Some(&"bad") {
                    let template = driver.world.kube.wanted.template.clone();
                    driver.world.kube.bad_templates.insert(template);
                }
            }
            "run" => self.run(600, |_, _| false),
            "passes" => {
                for _ in 0..number(1) {
                    self.pass();
                }
            }
            "until" => {
                let phase = words[1].to_owned();
                self.run(600, move |_, decision| {
                    format!("{:?}", decision.status.phase.unwrap()) == phase
                });
            }
            "kill" => self.driver().kill(number(1)),
            "delete" => {
                let driver = self.driver();
                let now = driver.world.now;
                driver.world.kube.delete_pod(Ordinal(number(1)), now);
            }
            "lose" => self.driver().lose_pod(number(1)),
            "lose-volume" => {
                let driver = self.driver();
                driver.audit.fault();
                driver.world.lose_volume(Ordinal(number(1)));
            }
            "promote" => self.driver().stranger_promotes(number(1)),
            "switchover" => {
                let pod = driver::pod(number(1));
                self.driver().wish(|wishes| wishes.switchover = Some(pod));
            }
            "pause" => self.driver().wish(|wishes| wishes.paused = true),
            "resume" => self.driver().wish(|wishes| wishes.paused = false),
            "crash" => self.driver().crash(),
            "jobs" => self.driver().world.faults.jobs_fail_at = (words[1] == "fail").then_some(Stage::Streaming),
            "scale-set" => {
                let driver = self.driver();
                driver.audit.fault();
                driver.world.kube.set.as_mut().unwrap().replicas = number(1);
            }
            "wait" => {
                let driver = self.driver();
                driver.world.advance(u64::from(number(1)) * 1000);
                driver.audit.look(&driver.record, &driver.world);
            }
            "get" => self.get(),
            "errors" => {
                let driver = self.driver();
                let troubles = &driver.world.clients.troubles;
                let (count, held) = (troubles.len(), driver.world.clients.longest_hold_ms);
                let first = troubles.first().map(|trouble| trouble.what.clone()).unwrap_or_default();
                self.say(&format!(
                    "{count} errors, longest hold under a second: {} {first}",
                    held <= 1000
                ));
            }
            _ => panic!("no such command: {line}"),
        }
        if let Some(broken) = self.driver.as_ref().and_then(|driver| driver.audit.broken.clone()) {
            panic!("{}\n  => {broken}", self.out);
        }
    }

    fn run(&mut self, passes: usize, ends: impl Fn(&Driver, &Decision) -> bool) {
        let mut calm = 0;
        for _ in 0..passes {
            let decision = self.pass();
            let driver = self.driver();
            if ends(driver, &decision) {
                return;
            }
            calm = if driver.is_calm(&decision) { calm + 1 } else { 0 };
            if calm >= 2 {
                return;
            }
            if let Some(broken) = driver.audit.broken.clone() {
                panic!("{}\n  => {broken}", self.out);
            }
        }
        let why = self.driver().why();
        panic!("{}\n  => no calm after {passes} passes: {why}", self.out);
    }

    fn pass(&mut self) -> Decision {
        let servers = self.driver().world.servers.values();
        let names: Vec<_> = servers
            .map(|server| (server.id().short().to_owned(), server.seat))
            .collect();
        self.names.extend(names);
        let decision = self.driver().look();
        let done = self.driver().act(&decision, usize::MAX);
        let phase = format!("{:?}", decision.status.phase.unwrap_or_default());
        if phase != self.phase {
            self.say(&phase);
            self.phase = phase;
        }
        let told: Vec<String> = (decision.findings.iter())
            .filter(|finding| matches!(finding.stance, Stance::Waiting | Stance::Blocked))
            .map(|finding| self.readable(&format!("{}: {}", finding.reason, finding.message)))
            .collect();
        // What only counts on is said once.
        let shape = |line: &String| line.replace(|c: char| c.is_ascii_digit(), "");
        for line in told.iter().filter(|line| !self.told.contains(&shape(line))) {
            writeln!(self.out, "    ({line})").unwrap();
        }
        self.told = told.iter().map(shape).collect();
        for (step, result) in done {
            if matches!(step, ClusterStep::LabelPod { .. }) {
                continue;
            }
            let failed = result.err().map(|why| format!(" [refused: {why}]")).unwrap_or_default();
            let line = self.readable(&format!("{}{failed}", step.describe()));
            writeln!(self.out, "    - {line}").unwrap();
        }
        self.driver().wait(decision.next);
        decision
    }

    /// Ids as the pods that have or had them; times that pass left out.
    fn readable(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (id, seat) in &self.names {
            text = text
                .replace(&format!(" ({id})"), "")
                .replace(id, &format!("the member of pod {seat}"));
        }
        text.split(", since ").next().unwrap_or_default().to_owned()
    }

    fn get(&mut self) {
        let driver = self.driver();
        let set = driver.world.kube.set.as_ref().map_or(0, |set| set.replicas);
        let (status, audit) = (&driver.record.status, &driver.audit);
        let lines = [
            format!("{set} pods: {}", picture(&driver.world)),
            format!(
                "{} slots, {} moved of at least {}",
                status.assigned_slots,
                audit.moves(),
                audit.least
            ),
            format!(
                "{:?}: {}",
                status.phase.unwrap_or_default(),
                status.message.clone().unwrap_or_default()
            ),
        ];
        for line in lines {
            let line = self.readable(&line);
            self.say(&line);
        }
    }
}

#[test]
fn every_story_goes_as_written() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stories");
    let mut stories: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|f| f.unwrap().path()).collect();
    let only = std::env::var("USHER_STORY").unwrap_or_default();
    stories.retain(|path| path.extension().is_some_and(|e| e == "txt") && path.to_string_lossy().contains(&only));
    stories.sort();
    assert!(!stories.is_empty(), "no story matches USHER_STORY={only}");
    let mut failed = Vec::new();
    for path in stories {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let told = std::panic::catch_unwind(|| {
            let mut story = Story::new();
            for line in std::fs::read_to_string(&path).unwrap().lines().map(str::trim) {
                if line.is_empty() || line.starts_with('#') {
                    writeln!(story.out, "{line}").unwrap();
                } else {
                    writeln!(story.out, "> {line}").unwrap();
                    story.command(line);
                }
            }
            insta::with_settings!({prepend_module_to_snapshot => false, snapshot_path => "stories", omit_expression => true}, {
                insta::assert_snapshot!(name.clone(), story.out);
            });
        });
        if told.is_err() {
            failed.push(name);
        }
    }
    assert!(failed.is_empty(), "these stories go otherwise: {failed:?}");
}
