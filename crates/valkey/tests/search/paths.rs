//! Paths: a change, and at most one thing that happens in between.

use std::fmt;

use usher_engine::Step;
use usher_valkey::words::{Ordinal, Slot};

use crate::driver::{Driver, mutant::Mutant, picture, small};

/// From any state, all is well again within this many passes (the spec's liveness) and a margin for slow gossip.
const PASSES: usize = 400;

/// What is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Create {
        masters: u16,
        replicas: u16,
    },
    Scale {
        from: (u16, u16),
        to: (u16, u16),
    },
    Roll {
        masters: u16,
        replicas: u16,
    },
    /// A pod comes back whose volume holds keys from an earlier life (R9).
    DirtyReturn,
}

/// What happens in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The operator dies after the first step of a pass.
    DiesInMidPass,
    /// … after it has reported, before it acts.
    DiesBeforeActing,
    /// The pass is made twice, on the same observation.
    PassTwice,
    /// A second passes between look and act.
    StaleView,
    /// A primary is killed, and comes back.
    PrimaryKilled,
    /// A replica, or the last pod, is killed, and comes back.
    LastKilled,
    /// A primary's pod is gone, its volume is not.
    PodLost,
    /// Somebody else promotes a replica.
    PrimaryChanges,
    /// A server does not answer the operator for half a minute.
    Unseen,
    /// A command is answered OK and not done.
    NotDone,
    /// A command is done and not answered.
    Unanswered,
    /// Jobs fail for a while.
    JobsFail,
    /// Somebody changes the size again.
    EditedAgain,
    /// Somebody changes it back.
    EditedBack,
}

impl Event {
    pub const ALL: [Event; 14] = [
        Event::DiesInMidPass,
        Event::DiesBeforeActing,
        Event::PassTwice,
        Event::StaleView,
        Event::PrimaryKilled,
        Event::LastKilled,
        Event::PodLost,
        Event::PrimaryChanges,
        Event::Unseen,
        Event::NotDone,
        Event::Unanswered,
        Event::JobsFail,
        Event::EditedAgain,
        Event::EditedBack,
    ];
}

impl Event {
    /// For how many passes.
    fn lasts(self) -> usize {
        match self {
            Event::Unseen | Event::JobsFail => 20,
            _ => 0,
        }
    }
}

/// A path.
#[derive(Debug, Clone, Copy)]
pub struct Path {
    pub change: Change,
    pub seed: u64,
    pub event: Option<(Event, usize)>,
    pub mutant: Option<Mutant>,
}

/// What happened, for people.
#[derive(Debug)]
pub struct Story {
    path: Path,
    lines: Vec<String>,
    broken: String,
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:?}", self.path)?;
        let skipped = self.lines.len().saturating_sub(40);
        for line in self.lines.iter().skip(skipped) {
            writeln!(f, "  {line}")?;
        }
        write!(f, "  => {}", self.broken)
    }
}

impl Path {
    fn begin(self) -> Driver {
        let setup = small(self.seed);
        match self.change {
            Change::Create { masters, replicas } => Driver::new(setup, masters, replicas),
            Change::Scale { from, to } => {
                let mut driver = Driver::running(setup, from.0, from.1);
                driver.resize(to.0, to.1);
                driver
            }
            Change::DirtyReturn => {
                let mut driver = Driver::running(setup, 4, 0);
                driver.resize(3, 0);
                driver.settle(PASSES).unwrap_or_else(|why| panic!("{why}"));
                let volume = driver.world.kube.volumes.get_mut(&Ordinal(3)).unwrap();
                let mut old = usher_valkey::model::store::Keys::default();
                (0..8).for_each(|slot| old.set(Slot(slot), slot.into(), 1));
                volume.disk.keys = Some(old);
                driver.resize(4, 0);
                driver
            }
            Change::Roll { masters, replicas } => {
                let mut driver = Driver::running(setup, masters, replicas);
                driver.edit(|spec| spec.image.tag = "9.1.2".into());
                driver
            }
        }
    }

    /// Walks it to its end: the world before each pass, or the story of what went wrong.
    pub fn walk(self) -> Result<Vec<Driver>, Story> {
        let mut driver = self.begin();
        driver.mutant = self.mutant;
        self.walk_on(driver, 0)
    }

    /// Walks on from a world that an uneventful path has reached.
    pub fn walk_on(self, mut driver: Driver, from: usize) -> Result<Vec<Driver>, Story> {
        let (mut lines, mut before, mut calm) = (Vec::new(), Vec::new(), 0);
        for pass in from..PASSES {
            if self.event.is_none() && self.mutant.is_none() {
                before.push(driver.clone());
            }
            let decision = driver.look();
            let steps: Vec<String> = decision.deeds().map(Step::describe).collect();
            let phase = decision.status.phase.unwrap_or_default();
            if !steps.is_empty() || Some(phase) != driver.record.status.phase {
                lines.push(format!("{pass}: {phase:?}: {}", steps.join("; ")));
            }
            let event = self.event.filter(|(_, at)| *at == pass).map(|(event, _)| event);
            match event {
                Some(event) => {
                    lines.push(format!("{pass}: *** {event:?}, at {}", picture(&driver.world)));
                    self.happens(event, &mut driver, &decision);
                }
                None => drop(driver.act(&decision, usize::MAX)),
            }
            driver.wait(decision.next);
            self.ends(pass, &mut driver);
            if let Some(broken) = driver.audit.broken.clone() {
                return Err(Story {
                    path: self,
                    lines,
                    broken,
                });
            }
            let over = self.event.is_none_or(|(event, at)| pass > at + event.lasts());
            calm = if driver.is_calm(&decision) && over { calm + 1 } else { 0 };
            if calm >= 2 {
                return Ok(before);
            }
        }
        let broken = format!("no calm after {PASSES} passes: {}", driver.why());
        Err(Story {
            path: self,
            lines,
            broken,
        })
    }

    fn happens(self, event: Event, driver: &mut Driver, decision: &crate::driver::Decision) {
        let primary = |driver: &Driver| {
            let owns =
                |server: &&usher_valkey::model::server::Server| server.is_primary() && !server.slots().is_empty();
            driver.world.servers.values().find(owns).map(|server| server.seat)
        };
        match event {
            Event::DiesInMidPass => {
                driver.act(decision, 1);
                driver.crash();
            }
            Event::DiesBeforeActing => {
                driver.act(decision, 0);
                driver.crash();
            }
            Event::PassTwice => {
                driver.act(decision, usize::MAX);
                driver.act(decision, usize::MAX);
            }
            Event::StaleView => {
                driver.world.advance(1_000);
                driver.act(decision, usize::MAX);
            }
            Event::PrimaryKilled => {
                if let Some(seat) = primary(driver) {
                    driver.kill(seat);
                }
                driver.act(decision, usize::MAX);
            }
            Event::LastKilled => {
                if let Some(seat) = driver.world.servers.keys().next_back().copied() {
                    driver.kill(seat);
                }
                driver.act(decision, usize::MAX);
            }
            Event::PodLost => {
                if let Some(seat) = primary(driver) {
                    driver.lose_pod(seat);
                }
                driver.act(decision, usize::MAX);
            }
            Event::PrimaryChanges => {
                let replica = driver.world.servers.values().find(|server| !server.is_primary());
                if let Some(seat) = replica.map(|server| server.seat) {
                    driver.stranger_promotes(seat);
                }
                driver.world.advance(500);
                driver.act(decision, usize::MAX);
            }
            Event::Unseen => {
                if let Some(seat) = primary(driver) {
                    driver.world.faults.unseen.insert(seat);
                }
                driver.act(decision, usize::MAX);
            }
            Event::NotDone => {
                driver.world.faults.next_not_done = true;
                driver.act(decision, usize::MAX);
            }
            Event::Unanswered => {
                driver.world.faults.next_unanswered = true;
                driver.act(decision, usize::MAX);
            }
            Event::JobsFail => {
                driver.world.faults.jobs_fail_at = Some(usher_valkey::model::Stage::Streaming);
                driver.act(decision, usize::MAX);
            }
            Event::EditedAgain => {
                driver.act(decision, usize::MAX);
                let (masters, replicas) = (driver.record.masters(), driver.record.replicas_per_master());
                driver.resize(if masters > 3 { 3 } else { masters + 1 }, replicas);
            }
            Event::EditedBack => {
                driver.act(decision, usize::MAX);
                match self.change {
                    Change::Scale { from, .. } => driver.resize(from.0, from.1),
                    Change::Roll { .. } => {
                        driver.edit(|spec| (spec.image.tag, spec.image.allow_downgrade) = ("9.1.1".into(), true))
                    }
                    Change::DirtyReturn => driver.resize(3, 0),
                    Change::Create { masters, replicas } => driver.resize(masters, 1 - replicas.min(1)),
                }
            }
        }
    }

    /// What lasts only a while is over then.
    fn ends(self, pass: usize, driver: &mut Driver) {
        if self.event.is_some_and(|(event, at)| pass == at + event.lasts()) {
            driver.world.faults.unseen.clear();
            driver.world.faults.jobs_fail_at = None;
        }
    }
}
