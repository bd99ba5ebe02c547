//! Two operators without a lease behind a door that misbehaves (A17): watch events delayed per type, dropped with their
//! connection, and said again; 409, 410, 429, 500, connections cut before and after the effect, and answers that never
//! come, on writes and reads; all under a mixed load. It ends as if nothing had been.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::load::{self, Load};
use crate::support::proxy::{Fault, Held, Proxy, Rule, When, of, on};
use crate::support::{Chance, World};
use serde_json::json;

/// `USHER_SOAK_SECONDS` for longer.
const SECONDS: usize = 25;

const TYPES: [&str; 4] = ["/subnets", "/subnetpools", "/subnetclaims", "/subnetpoolclaims"];

/// Each of these must have happened, and so many claims must have been bound, for the rest to prove something.
const FAULTS: [&str; 11] = [
    "409",
    "410",
    "429",
    "500",
    "cut before",
    "cut after",
    "no answer",
    "cut",
    "410 in the stream",
    "delayed",
    "said again",
];
const ENOUGH: usize = 100;

/// How often each fault happened.
type Met = BTreeMap<&'static str, usize>;

/// A call that was not answered for this long has an unknown outcome (the operator's own limit is 10 s).
const UNANSWERED: Duration = Duration::from_secs(11);

/// One fault at a time, over and over, at one operator's door.
struct Trouble {
    proxy: Proxy,
    chance: Chance,
    rules: BTreeMap<&'static str, Vec<Arc<Rule>>>,
    watches: Met,
    lost: Vec<(Instant, Held)>,
}

impl Trouble {
    fn some_write(&mut self) -> When {
        let method = *self.chance.pick(&["POST", "PUT", "PUT", "PATCH", "DELETE"]);
        on(method, *self.chance.pick(&TYPES))
    }

    fn rule(&mut self, what: &'static str, when: When, fault: Fault) {
        let times = usize::try_from(self.chance.between(1, 4)).unwrap();
        let rule = self.proxy.fault(when, times, fault);
        self.rules.entry(what).or_default().push(rule);
    }

    async fn make(&mut self) {
        let kind = *self.chance.pick(&TYPES);
        let when = self.some_write();
        match self.chance.between(0, 11) {
            0 => self.rule("409", when, Fault::answer(409, "Conflict")),
            1 => self.rule("429", when, Fault::too_many(1)),
            2 => self.rule("500", when, Fault::answer(500, "InternalError")),
            3 => self.rule("cut before", when, Fault::CutBefore),
            4 | 5 => self.rule("cut after", when, Fault::CutAfter),
            6 => self.rule("410", of("watch").and(kind), Fault::answer(410, "Expired")),
            7 if self.lost.len() < 2 => {
                let held = self.proxy.hold_answers(when, 1);
                self.rules.entry("no answer").or_default().push(held.rule.clone());
                self.lost.push((Instant::now(), held));
            }
            8 => {
                *self.watches.entry("cut").or_default() += 1;
                self.proxy.cut_watches(kind);
            }
            9 => {
                *self.watches.entry("410 in the stream").or_default() += 1;
                let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                    "code": 410, "reason": "Expired", "message": "too old resource version"});
                self.proxy
                    .end_watches_with(kind, json!({"type": "ERROR", "object": status}));
            }
            10 => {
                let events = usize::try_from(self.chance.between(1, 8)).unwrap();
                self.proxy.repeat_watches(kind, events);
            }
            _ => {
                *self.watches.entry("delayed").or_default() += 1;
                self.proxy.hold_watches(kind);
                let late = Duration::from_millis(self.chance.between(20, 1_500));
                tokio::time::sleep(late).await; // edge: how late the events are
                self.proxy.release_watches(kind);
            }
        }
        self.lost.retain(|(since, _)| since.elapsed() < UNANSWERED);
    }

    /// How often each fault happened so far.
    fn met(&self) -> Met {
        let mut met = self.watches.clone();
        for (what, rules) in &self.rules {
            met.insert(what, rules.iter().map(|rule| rule.hits()).sum());
        }
        met.insert("said again", self.proxy.repeated());
        met
    }

    /// From here on the door is only a door.
    fn end(&mut self) {
        self.rules.values().flatten().for_each(|rule| rule.lift());
        self.lost.drain(..).for_each(|(_, held)| held.release());
    }
}

/// The faults of both doors.
fn together(doors: &[Met]) -> Met {
    let mut all = Met::new();
    for (what, times) in doors.iter().flatten() {
        *all.entry(*what).or_default() += times;
    }
    all
}

fn missing(met: &Met) -> Vec<&'static str> {
    let happened = |fault: &&str| met.get(*fault).is_some_and(|times| *times > 0);
    FAULTS.into_iter().filter(|fault| !happened(fault)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a17_behind_a_door_that_misbehaves_everything_ends_right() {
    let lasting = Duration::from_secs(crate::support::chance::number("USHER_SOAK_SECONDS", SECONDS) as u64);
    let mut chance = Chance::from_environment();
    let world = Arc::new(World::new().await);
    load::pools(&world).await;
    let (mut troubles, mut operators) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let proxy = Proxy::start(world.server.client().await).await;
        let kubeconfig = proxy.kubeconfig(&world.file("proxy"));
        operators.push(world.operator().with(&kubeconfig).ready().await);
        troubles.push(Trouble {
            proxy,
            chance: chance.fork(),
            rules: BTreeMap::new(),
            watches: Met::new(),
            lost: Vec::new(),
        });
    }
    let load = Load::begin(&world, chance.fork());
    let begun = Instant::now();
    let met = Arc::new(Mutex::new(vec![Met::new(); troubles.len()]));
    let enough = {
        let (met, world) = (met.clone(), world.clone());
        move || {
            let all = together(&met.lock().unwrap());
            missing(&all).is_empty() && world.history.bound_order().len() > ENOUGH
        }
    };
    let mut tasks = tokio::task::JoinSet::new();
    for (door, mut trouble) in troubles.into_iter().enumerate() {
        let (met, enough) = (met.clone(), enough.clone());
        tasks.spawn(async move {
            // A busy machine takes longer to meet everything.
            while begun.elapsed() < lasting || (!enough() && begun.elapsed() < lasting + load::PROOF) {
                trouble.make().await;
                let rest = Duration::from_millis(trouble.chance.between(20, 250));
                tokio::time::sleep(rest).await; // edge: faults come at random moments
                met.lock().unwrap()[door] = trouble.met();
            }
            trouble.end();
            trouble
        });
    }
    let _doors = tasks.join_all().await;
    let met = together(&met.lock().unwrap());
    let issued = load.issued();
    let live = load.end().await;
    let (took, alive) = (begun.elapsed(), live.len());
    let proof = load::ends_right(&world, live).await;
    for operator in &mut operators {
        operator.assert_alive();
    }
    println!("{took:.1?}: {met:?}; {issued} wishes, {alive} live at the end; {proof:?}");
    assert!(missing(&met).is_empty(), "no {:?}: {met:?}", missing(&met));
    assert_eq!(proof.gaps, 0);
    assert!(proof.claims_bound > ENOUGH, "too little happened: {proof:?}");
}
