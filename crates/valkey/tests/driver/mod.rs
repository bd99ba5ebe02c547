//! Drives `plan` against the model: looks, decides, acts, waits; with everything that may come in between.
//!
//! Whatever happens, [`audit`] looks at it: the invariants of the spec, at every point.

#![allow(dead_code, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

pub mod audit;
pub mod mutant;

use std::sync::Arc;
use std::time::Duration;

use usher_engine::{Next, ObjectKey, Step, Text};
use usher_operator::record::Meta;
use usher_valkey::api::{FINALIZER, Phase, ValkeyClusterSpec, ValkeyClusterStatus};
use usher_valkey::model::{Clients, Setup, World};
use usher_valkey::objects;
use usher_valkey::observe::{Memory, Observation};
use usher_valkey::plan::plan;
use usher_valkey::plan::step::ClusterStep;
use usher_valkey::records::{ClusterRecord, Wishes};
use usher_valkey::words::{Ordinal, ServerVersion};

use audit::Audit;
use mutant::Mutant;

/// What one look led to.
#[derive(Debug, Clone)]
pub struct Decision {
    pub seen: Observation,
    pub status: ValkeyClusterStatus,
    pub steps: Vec<ClusterStep>,
    pub findings: Vec<usher_engine::Finding>,
    pub next: Next,
}

impl Decision {
    /// Steps that change something for somebody: labels on pods do not.
    pub fn deeds(&self) -> impl Iterator<Item = &ClusterStep> {
        let label = |step: &&ClusterStep| !matches!(step, ClusterStep::LabelPod { .. });
        self.steps.iter().filter(label)
    }
}

/// An operator with one cluster, in a world.
#[derive(Debug, Clone)]
pub struct Driver {
    pub world: World,
    pub record: ClusterRecord,
    pub memory: Memory,
    pub audit: Audit,
    pub mutant: Option<Mutant>,
    pub passes: usize,
}

/// A small world: eight slots, and everything a little faster.
pub fn small(seed: u64) -> Setup {
    let mut setup = Setup {
        seed,
        ..Setup::default()
    };
    setup.habits.slots = 8;
    setup
}

impl Driver {
    /// A cluster that was just created.
    pub fn new(setup: Setup, masters: u16, replicas: u16) -> Self {
        let spec = ValkeyClusterSpec {
            masters: masters.into(),
            replicas_per_master: replicas.into(),
            ..ValkeyClusterSpec::default()
        };
        let persistence = setup.persistence;
        let world = World::new(setup);
        let meta = Meta {
            key: ObjectKey::new("ns", "vc").unwrap(),
            uid: "cluster-1".into(),
            revision: 1,
            generation: 1,
            created: world.time().into(),
            deleting: None,
            owners: Box::new([]),
            finalizers: Arc::new([]),
            status_hash: None,
        };
        let mut record = ClusterRecord {
            meta,
            spec,
            status: ValkeyClusterStatus::default(),
            wishes: Wishes::default(),
        };
        record.spec.persistence.enabled = persistence;
        record.spec.persistence.aof.enabled = world.habits.aof;
        record.spec.persistence.rdb.enabled = world.habits.rdb;
        record.spec.image.tag = "9.1.1".into();
        let mut driver = Self {
            audit: Audit::new(&world),
            world,
            record,
            memory: Memory::default(),
            mutant: None,
            passes: 0,
        };
        driver.render();
        driver
    }

    /// A formed cluster with clients on it.
    pub fn running(setup: Setup, masters: u16, replicas: u16) -> Self {
        let mut driver = Self::new(setup, masters, replicas);
        driver.settle(400).unwrap_or_else(|why| panic!("{why}"));
        driver.serve_lazily();
        driver
    }

    /// Clients begin; some of them are lazy, and hear late of what has moved.
    pub fn serve_lazily(&mut self) {
        self.serve();
        self.world.clients.lazy = true;
    }

    /// Clients begin.
    pub fn serve(&mut self) {
        let slots = self.world.habits.slots;
        self.world.clients = Clients::spread(slots, u32::from(slots.min(64)));
        let someone = self.world.servers.values().find(|server| server.state_ok).cloned();
        self.world.clients.learn(&someone.unwrap());
    }

    /// What the spec renders to now.
    fn render(&mut self) {
        let volumes = self.world.kube.volumes.iter();
        let volumes = volumes.map(|(at, volume)| (*at, volume.uid.clone())).collect();
        let wanted = &mut self.world.kube.wanted;
        wanted.replicas = objects::set::first_size(&self.record, &volumes);
        wanted.template = objects::revision::revision(&self.record).as_str().into();
        wanted.version = ServerVersion::parse(&self.record.spec.image.tag).unwrap();
    }

    /// Somebody edits the spec.
    pub fn edit(&mut self, change: impl FnOnce(&mut ValkeyClusterSpec)) {
        change(&mut self.record.spec);
        self.record.meta.generation += 1;
        self.render();
        self.audit.edited(&self.record, &self.world);
    }

    /// Somebody sets another size.
    pub fn resize(&mut self, masters: u16, replicas: u16) {
        self.edit(|spec| (spec.masters, spec.replicas_per_master) = (masters.into(), replicas.into()));
    }

    /// Somebody writes or removes an annotation.
    pub fn wish(&mut self, change: impl FnOnce(&mut Wishes)) {
        change(&mut self.record.wishes);
        self.render();
    }

    /// The operator dies and another starts: what it remembered is gone.
    pub fn crash(&mut self) {
        self.memory = Memory::default();
    }

    /// Looks and decides.
    pub fn look(&mut self) -> Decision {
        self.audit.looked();
        let mut seen = self.world.observe(&self.memory);
        self.memory = seen.memory.clone();
        if let Some(mutant) = self.mutant {
            mutant.sees(&mut seen);
        }
        let planned = plan(&self.record, &seen, self.world.time());
        let mut decision = Decision {
            seen,
            status: planned.status,
            steps: planned.steps,
            findings: planned.findings,
            next: planned.next,
        };
        if let Some(mutant) = self.mutant {
            mutant.decides(&mut decision, &self.record);
        }
        self.audit.decided(&self.record, &decision, &self.world);
        decision
    }

    /// Reports, and acts: as many steps as `at_most`; the first that fails ends it.
    pub fn act(&mut self, decision: &Decision, at_most: usize) -> Vec<(ClusterStep, Result<(), String>)> {
        self.passes += 1;
        self.record.status = decision.status.clone();
        let mut done = Vec::new();
        for step in decision.steps.iter().take(at_most) {
            self.audit.before(step, &self.record, &self.world);
            self.world.faults.blind = self.mutant.is_some_and(Mutant::is_blind);
            // What is begun is remembered before: a try that failed is a try.
            self.note(step);
            let result = self.world.apply(step);
            self.audit.after(step, result.is_ok(), &self.world);
            let failed = result.is_err();
            done.push((step.clone(), result));
            if failed {
                break;
            }
        }
        if self.world.kube.finalizer {
            self.record.meta.finalizers = Arc::new([FINALIZER.into()]);
        }
        for annotation in std::mem::take(&mut self.world.kube.cleared) {
            assert!(annotation.ends_with("switchover"), "{annotation}");
            self.record.wishes.switchover = None;
        }
        done
    }

    /// What `act` tells the memory.
    fn note(&mut self, step: &ClusterStep) {
        let now = self.world.time();
        match step {
            ClusterStep::Meet { to, .. } => self.memory.note_met(to.id.clone(), now),
            ClusterStep::Failover { shard, to, .. } | ClusterStep::ForceFailover { shard, to, .. } => {
                self.memory.note_failover(shard.clone(), to.id.clone(), now);
            }
            _ => {}
        }
    }

    /// One whole pass.
    pub fn pass(&mut self) -> Decision {
        let decision = self.look();
        self.act(&decision, usize::MAX);
        decision
    }

    /// Waits as long as a plan says, or until a pod or the set changes.
    pub fn wait(&mut self, next: Next) {
        let longest = match next {
            Next::OnChange => Duration::from_secs(10),
            Next::After(wait) => wait.min(Duration::from_secs(10)),
        };
        let end = self.world.now + u64::try_from(longest.as_millis()).unwrap().max(20);
        let changes = self.world.kube.changes();
        while self.world.now < end && self.world.kube.changes() == changes {
            self.world.advance(20.min(end - self.world.now));
            self.audit.look(&self.record, &self.world);
        }
    }

    /// Passes and waits until all is well and nothing is left to do, at most so many passes.
    pub fn settle(&mut self, passes: usize) -> Result<usize, String> {
        let (mut calm, begun) = (0, self.world.now);
        for pass in 0..passes {
            let decision = self.pass();
            self.wait(decision.next);
            if let Some(broken) = &self.audit.broken {
                return Err(broken.clone());
            }
            calm = if self.is_calm(&decision) { calm + 1 } else { 0 };
            if calm >= 2 {
                return Ok(pass);
            }
        }
        let seconds = (self.world.now - begun) / 1000;
        Err(format!("no calm after {passes} passes and {seconds} s: {}", self.why()))
    }

    /// Running at the spec's size, and nothing to do.
    pub fn is_calm(&self, decision: &Decision) -> bool {
        let status = &decision.status;
        let current = status.observed_generation == Some(self.record.meta.generation);
        let done = decision.deeds().next().is_none() && status.current_operation.is_none();
        current && done && status.phase == Some(Phase::Running) && self.audit.is_whole(&self.record, &self.world)
    }

    /// What the last pass said of itself.
    pub fn why(&mut self) -> String {
        let decision = self.look();
        let findings: Vec<String> = (decision.findings.iter())
            .map(|finding| format!("{}: {}", finding.reason, finding.message))
            .collect();
        let steps: Vec<String> = decision.steps.iter().map(Step::describe).collect();
        format!(
            "phase {:?}, message {:?}, steps {steps:?}, findings {findings:?}, world: {}",
            decision.status.phase,
            decision.status.message,
            picture(&self.world)
        )
    }

    /// Kills a server. A fault: what follows from it is not ours.
    pub fn kill(&mut self, ordinal: u16) {
        self.audit.fault();
        self.world.kill(Ordinal(ordinal));
    }

    /// A pod is gone with its node; its volume is not.
    pub fn lose_pod(&mut self, ordinal: u16) {
        self.audit.fault();
        self.world.lose_pod(Ordinal(ordinal));
    }

    /// Somebody else makes a replica primary: planned well, but not by us.
    pub fn stranger_promotes(&mut self, ordinal: u16) {
        self.world.with(ordinal, |server, around| server.failover(around).ok());
    }
}

/// Shards, one after the other: `{0* 3: 0-2} {1* 4: 3-5}`.
pub fn picture(world: &World) -> String {
    let mut shards = Vec::new();
    for server in world.servers.values().filter(|server| server.is_primary()) {
        let mut members = vec![format!("{}*", server.seat)];
        let follows = |other: &&usher_valkey::model::server::Server| other.primary() == Some(server.id());
        members.extend(
            world
                .servers
                .values()
                .filter(follows)
                .map(|other| other.seat.to_string()),
        );
        shards.push((
            server.slots().lowest().map_or(u16::MAX, |s| s.0),
            server.seat,
            format!("{{{}: {}}}", members.join(" "), server.slots()),
        ));
    }
    shards.sort();
    let shards: Vec<String> = shards.into_iter().map(|(.., text)| text).collect();
    shards.join(" ")
}

/// A pod's name.
pub fn pod(ordinal: u16) -> Text {
    format!("vc-{ordinal}").into()
}
