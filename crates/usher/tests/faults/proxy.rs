//! Two operators without a lease behind a door that misbehaves (A17): watch events delayed per type, dropped with their
//! connection, and said again; 409, 410, 429, 500, connections cut before and after the effect, and answers that never
//! come, on writes and reads; all under a mixed load. It ends as if nothing had been.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::load::{self, Load};
use crate::support::proxy::{Fault, Held, Proxy, Rule, When, of, on};
use crate::support::{Chance, World};
use serde_json::json;

/// `USHER_SOAK_SECONDS` for longer.
const SECONDS: usize = 25;

const TYPES: [&str; 4] = ["/subnets", "/subnetpools", "/subnetclaims", "/subnetpoolclaims"];

/// A call that was not answered for this long has an unknown outcome (the operator's own limit is 10 s).
const UNANSWERED: Duration = Duration::from_secs(11);

/// One fault at a time, over and over, at one operator's door.
struct Trouble {
    proxy: Proxy,
    chance: Chance,
    rules: BTreeMap<&'static str, Vec<Arc<Rule>>>,
    watches: BTreeMap<&'static str, usize>,
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

    /// From here on the door is only a door.
    fn end(&mut self) -> BTreeMap<&'static str, usize> {
        let mut met = std::mem::take(&mut self.watches);
        for (what, rules) in &self.rules {
            rules.iter().for_each(|rule| rule.lift());
            met.insert(what, rules.iter().map(|rule| rule.hits()).sum());
        }
        met.insert("said again", self.proxy.repeated());
        self.lost.drain(..).for_each(|(_, held)| held.release());
        met
    }
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
            watches: BTreeMap::new(),
            lost: Vec::new(),
        });
    }
    let load = Load::begin(&world, chance.fork());
    let begun = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for mut trouble in troubles {
        tasks.spawn(async move {
            while begun.elapsed() < lasting {
                trouble.make().await;
                let rest = Duration::from_millis(trouble.chance.between(20, 250));
                tokio::time::sleep(rest).await; // edge: faults come at random moments
            }
            let met = trouble.end();
            (trouble, met)
        });
    }
    let (mut doors, mut met) = (Vec::new(), BTreeMap::<&str, usize>::new());
    for (door, faults) in tasks.join_all().await {
        doors.push(door);
        for (what, times) in faults {
            *met.entry(what).or_default() += times;
        }
    }
    let issued = load.issued();
    let live = load.end().await;
    let (took, alive) = (begun.elapsed(), live.len());
    let proof = load::ends_right(&world, live).await;
    for operator in &mut operators {
        operator.assert_alive();
    }
    println!("{took:.1?}: {met:?}; {issued} wishes, {alive} live at the end; {proof:?}");
    for fault in [
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
    ] {
        assert!(met.get(fault).is_some_and(|times| *times > 0), "no {fault}: {met:?}");
    }
    assert_eq!(proof.gaps, 0);
    assert!(proof.claims_bound > 100, "too little happened: {proof:?}");
}
