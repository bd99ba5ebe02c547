//! Two operators, one lease: the leader is killed (-9) and paused (SIGSTOP past its lease) twenty times each under load.
//! The API server's own log shows that no write of a past leader began after its lease (I12, R27), and no claim is lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use nix::sys::signal::Signal;

use crate::support::audit::Request;
use crate::support::history::{Now, Seen};
use crate::support::load::{self, Load};
use crate::support::operator::LEASE_SECONDS;
use crate::support::{Chance, Operator, World, rights};

const KILLS: usize = 20;
const PAUSES: usize = 20;
/// Claims that must have been bound for the rest to prove something.
const ENOUGH: usize = 100;
/// How long a lease holds.
const LEASE: SignedDuration = SignedDuration::from_secs(LEASE_SECONDS);
/// What was under way when it was stopped is with the server this long after it goes on.
const BEGUN_BEFORE: SignedDuration = SignedDuration::from_millis(250);

/// The operators of this test. Each has its own ServiceAccount, named as it is in the lease: the audit log tells them
/// apart, also two lives of one place.
struct Pair {
    world: Arc<World>,
    running: BTreeMap<String, Operator>,
    started: usize,
}

impl Pair {
    async fn start_one(&mut self) {
        self.started += 1;
        let name = format!("usher-{:02}", self.started);
        let kubeconfig = self.world.account(&name).await;
        let launch = self.world.operator().with(&kubeconfig).lease(&name);
        self.running.insert(name, launch.start());
    }

    /// Who leads, once one of these does.
    async fn leader(&self) -> String {
        let mut leader = String::new();
        self.world
            .until("one of the two leads", |now| {
                leader = holder(now).unwrap_or_default();
                self.running.contains_key(&leader)
            })
            .await;
        leader
    }
}

fn holder(now: &Now) -> Option<String> {
    let spec = now.leases.get("usher-operator")?.spec.as_ref()?;
    spec.holder_identity.clone().filter(|holder| !holder.is_empty())
}

#[tokio::test(flavor = "multi_thread")]
async fn i12_r27_no_write_of_a_past_leader_begins_after_its_lease_and_no_claim_is_lost() {
    let mut chance = Chance::from_environment();
    let world = Arc::new(World::new().await);
    let audit = world.audit();
    world.grant(rights::all()).await;
    load::pools(&world).await;
    let mut pair = Pair {
        world: world.clone(),
        running: BTreeMap::new(),
        started: 0,
    };
    pair.start_one().await;
    pair.start_one().await;
    let begun = Instant::now();
    let load = Load::begin(&world, chance.fork());
    let mut faults: Vec<bool> = (0..KILLS + PAUSES).map(|n| n < KILLS).collect();
    let mut takeovers = Vec::new();
    let mut resumed = Vec::new();
    while !faults.is_empty() {
        let kill = faults.swap_remove(usize::try_from(chance.next() % faults.len() as u64).unwrap());
        let leader = pair.leader().await;
        // In the middle of its work: a random number of changes from here.
        let moment = world.history.len() + usize::try_from(chance.between(1, 250)).unwrap();
        world.history.until_heard(moment, Duration::from_secs(3)).await;
        let fault = Instant::now();
        if kill {
            pair.running.remove(&leader).unwrap().kill();
            pair.start_one().await;
        } else {
            pair.running[&leader].signal(Signal::SIGSTOP);
        }
        world
            .until("another one leads", |now| {
                holder(now).is_some_and(|holder| holder != leader)
            })
            .await;
        takeovers.push(fault.elapsed());
        if !kill {
            // It goes on while the other is at work, with whatever it was about to write.
            let moment = world.history.len() + usize::try_from(chance.between(0, 40)).unwrap();
            world.history.until_heard(moment, Duration::from_secs(1)).await;
            resumed.push((leader.clone(), Timestamp::now()));
            pair.running[&leader].signal(Signal::SIGCONT);
        }
    }
    load.until_bound(&world, ENOUGH).await;
    let issued = load.issued();
    let live = load.end().await;
    let took = begun.elapsed();
    let alive = live.len();
    let proof = load::ends_right(&world, live).await;
    for operator in pair.running.values_mut() {
        operator.assert_alive();
    }
    // Nothing more is written: log and watch end at the same point.
    pair.running.clear();
    let requests = audit.requests(&world).await;
    let checked = no_past_leader_writes(&world, &requests, &resumed);
    takeovers.sort();
    println!(
        "{KILLS} kills and {PAUSES} pauses in {took:.1?}, {issued} claims and deletions, {alive} live at the end; \
         {checked}; take-over median {:.1?}, longest {:.1?}; {proof:?}",
        takeovers[takeovers.len() / 2],
        takeovers[takeovers.len() - 1],
    );
    assert_eq!(proof.gaps, 0);
    assert!(proof.claims_bound > ENOUGH, "too little happened: {proof:?}");
}

/// One stored write of the Lease: from then on, this one holds it.
struct Hold {
    received: Timestamp,
    holder: Option<String>,
}

/// Every write of every operator, held against who had the lease when the server received it.
///
/// A leader that was stopped may have been stopped between asking its fence and the system call that sends, once on each
/// processor. Those writes had begun, and are sent when it goes on: so many are let pass, and no more.
fn no_past_leader_writes(world: &World, requests: &[Request], resumed: &[(String, Timestamp)]) -> String {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let mut begun_before = vec![0; resumed.len()];
    let holds = holds(world, requests);
    let changes = holds.windows(2).filter(|pair| pair[0].holder != pair[1].holder).count();
    let prefix = rights::user(world, "usher-");
    let mut writes = 0;
    let mut closest = LEASE;
    for request in requests {
        let ours = request.user.starts_with(&prefix) && request.is_write() && request.resource != "leases";
        if !ours {
            continue;
        }
        let writer = request.user.rsplit(':').next().unwrap();
        let before: Vec<&Hold> = holds.iter().filter(|hold| hold.received <= request.received).collect();
        let last = before
            .last()
            .unwrap_or_else(|| panic!("before anybody led: {request:?}"));
        let late =
            |(who, at): &(String, Timestamp)| who == writer && (*at..=*at + BEGUN_BEFORE).contains(&request.received);
        if last.holder.as_deref() != Some(writer)
            && let Some(stop) = resumed.iter().position(late)
            && begun_before[stop] < processors
        {
            begun_before[stop] += 1;
            continue;
        }
        assert_eq!(
            last.holder.as_deref(),
            Some(writer),
            "I12: a write by one who does not hold the lease (since {}; it went on {resumed:?}): {request:#?}",
            last.received
        );
        // How long before the lease's end it was received. Not a verdict: the server may have had no processor meanwhile.
        closest = closest.min(LEASE - request.received.duration_since(last.received));
        writes += 1;
    }
    assert!(writes > 500, "too little was written: {writes}");
    format!(
        "{writes} writes by the holder at the time, {} begun before a stop ({changes} changes of holder, {} renewals; the \
         closest was received {closest:?} before its lease's end)",
        begun_before.iter().sum::<usize>(),
        holds.len()
    )
}

/// The Lease's versions in order (from the watch), each with the moment the server received the write that made it (from
/// the audit log): the first one by its holder after the `renewTime` it carries. Whether that write was answered does not
/// matter, only that it took effect.
fn holds(world: &World, requests: &[Request]) -> Vec<Hold> {
    let writes: Vec<&Request> = requests
        .iter()
        .filter(|r| r.resource == "leases" && r.is_write())
        .collect();
    let mut holds: Vec<Hold> = Vec::new();
    for entry in world.history.entries() {
        let Seen::Lease(lease) = entry.object else { continue };
        let spec = lease.spec.unwrap();
        let holder = spec.holder_identity.filter(|holder| !holder.is_empty());
        let last = holds.last().and_then(|hold| hold.holder.clone());
        // Whoever gives it back leaves no name.
        let writer = rights::user(world, &holder.clone().or(last).unwrap());
        let renewed = spec.renew_time.unwrap().0;
        let write = writes.iter().find(|r| r.user == writer && r.received >= renewed);
        let write = write.unwrap_or_else(|| panic!("no write by {writer} after {renewed} is in the log"));
        holds.push(Hold {
            received: write.received,
            holder,
        });
    }
    assert!(
        holds.is_sorted_by_key(|hold| hold.received),
        "each version replaces the one before"
    );
    holds
}
