//! A model of the world around the lease protocol: one server, a few candidates, each with its own clock, requests
//! that take their time or get lost, processes that stop, go on, die and come back. True time is known to the model
//! only. After every event it checks that at most one candidate may act.

use std::collections::BTreeMap;
use std::time::Duration;

use usher_engine::Moment;

use super::{Candidate, Decision, Guard, Leadership, LeaseTiming, LeaseView};

/// True time, in microseconds since the model's start.
pub(super) type Micros = u64;

/// What becomes of one request. Times are true time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Way {
    /// From the sender to the server.
    pub(super) there: Micros,
    /// From the server to the sender.
    pub(super) back: Micros,
    pub(super) lost: Lost,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lost {
    Nothing,
    Request,
    Answer,
}

/// What happens to candidates, or to the Lease.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fault {
    /// The process stops for so long (SIGSTOP): its clock and what it sent go on.
    Pause(Micros),
    /// The process dies; a new one begins after so long.
    Crash(Micros),
    /// The process ends and gives the lease back; a new one begins after so long.
    Release(Micros),
    /// Somebody deletes the Lease. Only after every candidate has seen it, and while no request to create one is
    /// under way: who never saw it cannot know that there was one.
    Delete,
}

#[derive(Debug, Clone)]
enum Ask {
    Get,
    Put {
        guard: Guard,
        holder: Option<String>,
        duration_seconds: u32,
        transitions: i32,
    },
}

type Answer = Result<Option<LeaseView>, ()>;

#[derive(Debug, Clone)]
enum Event {
    Step {
        who: usize,
        life: u32,
    },
    Effect {
        who: usize,
        life: u32,
        request: u64,
        ask: Ask,
        way: Way,
    },
    Answer {
        who: usize,
        life: u32,
        request: u64,
        answer: Answer,
    },
    Timeout {
        who: usize,
        life: u32,
        request: u64,
    },
    Fault {
        who: usize,
        fault: Fault,
    },
    Begin {
        who: usize,
        life: u32,
    },
}

struct Process {
    candidate: Candidate,
    timing: LeaseTiming,
    leadership: Leadership,
    /// Its clock shows `offset + true * rate / 1_000_000`.
    offset: Micros,
    rate: u64,
    life: u32,
    alive: bool,
    paused_until: Micros,
    /// The request under way, and whether it is a write.
    request: Option<(u64, bool)>,
    /// The newest version of the Lease it has seen.
    knows_version: u64,
}

impl Process {
    fn clock(&self, now: Micros) -> Moment {
        Moment::after_start(Duration::from_micros(self.offset + mul(now, self.rate, 1_000_000)))
    }

    /// True time until its clock has gone on by `wait`.
    fn takes(&self, wait: Duration) -> Micros {
        mul(u64::try_from(wait.as_micros()).unwrap(), 1_000_000, self.rate) + 1
    }
}

fn mul(value: u64, by: u64, over: u64) -> u64 {
    u64::try_from(u128::from(value) * u128::from(by) / u128::from(over)).unwrap()
}

/// How one candidate is set up.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setup {
    pub(super) timing: LeaseTiming,
    pub(super) offset: Micros,
    pub(super) rate: u64,
}

/// The world.
pub(super) struct World {
    pub(super) now: Micros,
    events: BTreeMap<(Micros, u8, u64), Event>,
    number: u64,
    lease: Option<LeaseView>,
    version: u64,
    deleted_version: u64,
    processes: Vec<Process>,
    ways: Vec<Way>,
    pub(super) takeovers: u32,
}

impl World {
    /// `ways` are used in turn, over and over.
    pub(super) fn new(setups: &[Setup], ways: Vec<Way>) -> Self {
        let processes = setups.iter().enumerate().map(|(who, setup)| Process {
            candidate: Candidate::new(format!("c{who}.0"), setup.timing).unwrap(),
            timing: setup.timing,
            leadership: Leadership::never_held(),
            offset: setup.offset,
            rate: setup.rate,
            life: 0,
            alive: true,
            paused_until: 0,
            request: None,
            knows_version: 0,
        });
        let mut world = Self {
            now: 0,
            events: BTreeMap::new(),
            number: 0,
            lease: None,
            version: 0,
            deleted_version: 0,
            processes: processes.collect(),
            ways,
            takeovers: 0,
        };
        for who in 0..setups.len() {
            world.later(0, Event::Step { who, life: 0 });
        }
        world
    }

    pub(super) fn fault(&mut self, at: Micros, who: usize, fault: Fault) {
        self.later(
            at.saturating_sub(self.now),
            Event::Fault {
                who: who % self.processes.len(),
                fault,
            },
        );
    }

    /// From now on requests go these ways.
    pub(super) fn calm(&mut self, ways: Vec<Way>) {
        self.ways = ways;
    }

    /// Who may act now, by their own clocks.
    pub(super) fn acting(&self) -> Vec<usize> {
        let may = |p: &Process| p.alive && p.leadership.may_act(p.clock(self.now));
        (0..self.processes.len())
            .filter(|who| may(&self.processes[*who]))
            .collect()
    }

    /// Goes on until `end` or until `done`; whether it is done.
    pub(super) fn run(&mut self, end: Micros, done: impl Fn(&World) -> bool) -> Result<bool, String> {
        let mut last = self.acting();
        while !done(self) {
            let Some(entry) = self.events.first_entry().filter(|entry| entry.key().0 <= end) else {
                self.now = end;
                return Ok(done(self));
            };
            let ((at, ..), event) = entry.remove_entry();
            self.now = self.now.max(at);
            self.happen(event);
            let acting = self.acting();
            if acting.len() > 1 {
                return Err(format!("{acting:?} may act at once, at {} us", self.now));
            }
            if !acting.is_empty() && acting != last {
                self.takeovers += 1;
                last = acting;
            }
        }
        Ok(true)
    }

    /// Everybody goes on and nothing old is under way any more.
    pub(super) fn settled(&self) -> bool {
        let effects = self
            .events
            .values()
            .any(|event| matches!(event, Event::Effect { .. } | Event::Fault { .. }));
        !effects && self.processes.iter().all(|p| p.paused_until <= self.now && p.alive)
    }

    pub(super) fn kill_for_good(&mut self, who: usize) {
        self.processes[who].alive = false;
        self.processes[who].life += 1;
    }

    fn later(&mut self, wait: Micros, event: Event) {
        // At the same instant an answer goes before the end of waiting for it, as in tokio's timeout.
        let rank = u8::from(matches!(event, Event::Timeout { .. }));
        self.number += 1;
        self.events.insert((self.now + wait, rank, self.number), event);
    }

    fn happen(&mut self, event: Event) {
        if let Event::Step { who, life } | Event::Answer { who, life, .. } | Event::Timeout { who, life, .. } = event {
            let process = &self.processes[who];
            if !process.alive || process.life != life {
                return;
            }
            if process.paused_until > self.now {
                let wait = process.paused_until - self.now;
                return self.later(wait, event);
            }
        }
        match event {
            Event::Step { who, .. } => self.step(who),
            Event::Effect {
                who,
                life,
                request,
                ask,
                way,
            } => {
                let answer = self.serve(ask);
                if way.lost != Lost::Answer {
                    self.later(
                        way.back,
                        Event::Answer {
                            who,
                            life,
                            request,
                            answer,
                        },
                    );
                }
            }
            Event::Answer {
                who, request, answer, ..
            } => self.answered(who, request, answer),
            Event::Timeout { who, request, .. } => {
                if self.processes[who].request.is_some_and(|(r, _)| r == request) {
                    let now = self.now;
                    let process = &mut self.processes[who];
                    process.request = None;
                    process.candidate.unanswered(process.clock(now));
                    self.step(who);
                }
            }
            Event::Fault { who, fault } => self.strike(who, fault),
            Event::Begin { who, life } => {
                let process = &mut self.processes[who];
                if process.life == life {
                    process.candidate = Candidate::new(format!("c{who}.{life}"), process.timing).unwrap();
                    process.alive = true;
                    self.later(0, Event::Step { who, life });
                }
            }
        }
    }

    /// The driver, as `lease` has it: ask, do, tell.
    fn step(&mut self, who: usize) {
        let now = self.now;
        let process = &mut self.processes[who];
        if process.request.is_some() {
            return;
        }
        let local = process.clock(now);
        let decision = process.candidate.decide(local);
        let life = process.life;
        match &decision {
            Decision::Wait(wait) => {
                let wait = process.takes(*wait);
                self.later(wait, Event::Step { who, life });
            }
            Decision::Look => self.send(who, Ask::Get),
            Decision::Acquire { guard, transitions } | Decision::Renew { guard, transitions } => {
                process.candidate.sending(&decision, local);
                let ask = Ask::Put {
                    guard: guard.clone(),
                    holder: Some(process.candidate.identity().to_owned()),
                    duration_seconds: process.timing.duration_seconds(),
                    transitions: *transitions,
                };
                self.send(who, ask);
            }
        }
    }

    fn send(&mut self, who: usize, ask: Ask) {
        self.number += 1;
        let request = self.number;
        let way = self.ways[usize::try_from(request).unwrap() % self.ways.len()];
        let process = &mut self.processes[who];
        process.request = Some((request, matches!(ask, Ask::Put { .. })));
        let (life, limit) = (process.life, process.takes(process.timing.request_timeout()));
        if way.lost != Lost::Request {
            self.later(
                way.there,
                Event::Effect {
                    who,
                    life,
                    request,
                    ask,
                    way,
                },
            );
        }
        self.later(limit, Event::Timeout { who, life, request });
    }

    fn serve(&mut self, ask: Ask) -> Answer {
        let Ask::Put {
            guard,
            holder,
            duration_seconds,
            transitions,
        } = ask
        else {
            return Ok(self.lease.clone());
        };
        let found = self
            .lease
            .as_ref()
            .map_or(Guard::Absent, |lease| Guard::Version(lease.rv.clone()));
        if found != guard {
            return Err(());
        }
        self.version += 1;
        let rv = self.version.to_string();
        self.lease = Some(LeaseView {
            holder,
            rv,
            duration_seconds: Some(duration_seconds),
            transitions,
        });
        Ok(self.lease.clone())
    }

    fn answered(&mut self, who: usize, request: u64, answer: Answer) {
        let now = self.now;
        let process = &mut self.processes[who];
        let Some((_, is_write)) = process.request.take_if(|(r, _)| *r == request) else {
            return;
        };
        let local = process.clock(now);
        if let Ok(Some(lease)) = &answer {
            process.knows_version = lease.rv.parse().unwrap();
        }
        match answer {
            Ok(Some(lease)) if is_write => {
                let renewal = process.candidate.stored(&lease, local);
                process.leadership.renewed(renewal.sent_at, renewal.valid_for);
            }
            Ok(lease) => process.candidate.observe(lease.as_ref(), local),
            Err(()) => process.candidate.refused(),
        }
        if !process.candidate.is_holder() {
            process.leadership.lost();
        }
        self.step(who);
    }

    fn strike(&mut self, who: usize, fault: Fault) {
        let now = self.now;
        let process = &mut self.processes[who];
        let back = match fault {
            Fault::Pause(time) => {
                process.paused_until = process.paused_until.max(now + time);
                return;
            }
            Fault::Delete => {
                let create = |event: &Event| {
                    matches!(
                        event,
                        Event::Effect {
                            ask: Ask::Put {
                                guard: Guard::Absent,
                                ..
                            },
                            ..
                        }
                    )
                };
                let known = self.processes.iter().all(|p| p.knows_version > self.deleted_version);
                if known && !self.events.values().any(create) {
                    self.lease = None;
                    self.deleted_version = self.version;
                }
                return;
            }
            Fault::Crash(back) => back,
            Fault::Release(back) if process.alive && process.paused_until <= now => {
                process.leadership.lost();
                if let Some(guard) = process.candidate.releasable() {
                    let transitions = self.lease.as_ref().map_or(0, |lease| lease.transitions);
                    self.send(
                        who,
                        Ask::Put {
                            guard,
                            holder: None,
                            duration_seconds: 1,
                            transitions,
                        },
                    );
                }
                back
            }
            Fault::Release(_) => return,
        };
        let process = &mut self.processes[who];
        process.alive = false;
        process.leadership = Leadership::never_held();
        process.request = None;
        process.knows_version = 0;
        process.paused_until = 0;
        process.life += 1;
        let life = process.life;
        self.later(back, Event::Begin { who, life });
    }
}
