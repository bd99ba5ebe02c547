//! A cluster that was formed by hand: what the model's own tests begin with.

#![allow(dead_code)]

use usher_engine::Uid;
use usher_valkey::model::server::Server;
use usher_valkey::model::{Clients, Setup, Sync, World};
use usher_valkey::plan::step::{ClusterStep, Server as Named};
use usher_valkey::words::{Epoch, NodeId, Ordinal, ShardId, Slot, SlotRange, SlotSet};

/// The server in a seat.
pub fn server(world: &World, seat: u16) -> &Server {
    &world.servers[&seat]
}

/// A step's name for the server in a seat.
pub fn named(world: &World, seat: u16) -> Named {
    Named {
        ordinal: Ordinal(seat),
        pod: pod(world, seat),
        id: id(world, seat),
    }
}

pub fn pod(world: &World, seat: u16) -> Uid {
    world.kube.pods[&Ordinal(seat)].uid.clone()
}

pub fn id(world: &World, seat: u16) -> NodeId {
    server(world, seat).id().clone()
}

pub fn shard(world: &World, seat: u16) -> ShardId {
    server(world, seat).own().unwrap().shard.clone()
}

/// Lets time pass until something is so, and says how long that took.
pub fn until(world: &mut World, limit_ms: u64, what: &str, so: impl Fn(&World) -> bool) -> u64 {
    let begun = world.now;
    while !so(world) {
        assert!(world.now - begun < limit_ms, "not within {limit_ms} ms: {what}");
        world.advance(100);
    }
    world.now - begun
}

/// Pods 0 to `pods`, running and alone.
pub fn pods(setup: Setup, pods: u16) -> World {
    let mut world = World::new(setup);
    world.kube.wanted.replicas = pods;
    world.kube.apply_set();
    until(&mut world, 10_000, "all pods run", |world| running(world, pods));
    world
}

pub fn running(world: &World, pods: u16) -> bool {
    (0..pods).all(|seat| world.servers.get(&seat).is_some_and(Server::answers))
}

/// A cluster of primaries 0 to `masters`, each with so many replicas behind them.
pub fn cluster(setup: Setup, masters: u16, replicas: u16) -> World {
    let all = masters * (1 + replicas);
    let mut world = pods(setup, all);
    for seat in 0..all {
        let (on, epoch) = (named(&world, seat), Epoch(u64::from(seat) + 1));
        world.apply(&ClusterStep::SetConfigEpoch { on, epoch }).unwrap();
    }
    for seat in 1..all {
        let (from, to) = (named(&world, 0), named(&world, seat));
        world.apply(&ClusterStep::Meet { from, to }).unwrap();
    }
    until(&mut world, 15_000, "all know all", |world| all_know_all(world, all));
    let slots = world.habits.slots;
    for seat in 0..masters {
        let (first, last) = (slots / masters * seat, slots / masters * (seat + 1) - 1);
        let last = if seat + 1 == masters { slots - 1 } else { last };
        let slots = SlotSet::of([SlotRange {
            first: Slot(first),
            last: Slot(last),
        }]);
        let to = named(&world, seat);
        world.apply(&ClusterStep::AddSlots { to, slots }).unwrap();
    }
    for seat in masters..all {
        let (on, primary) = (named(&world, seat), id(&world, (seat - masters) / replicas.max(1)));
        world.apply(&ClusterStep::Replicate { on, primary }).unwrap();
    }
    until(&mut world, 30_000, "all is well", |world| well(world, all));
    world
}

/// The same, with clients on it.
pub fn busy(setup: Setup, masters: u16, replicas: u16) -> World {
    let mut world = cluster(setup, masters, replicas);
    let keys = u32::from(world.habits.slots.min(64));
    world.clients = Clients::spread(world.habits.slots, keys);
    let map = server(&world, 0).clone();
    world.clients.learn(&map);
    world.advance(1_000);
    assert_eq!(world.clients.troubles, []);
    world
}

pub fn all_know_all(world: &World, all: u16) -> bool {
    (0..all).all(|one| {
        let known = &server(world, one).conf.peers;
        (0..all).all(|other| known.contains_key(&id(world, other)))
    })
}

/// Everybody agrees, serves, and follows.
pub fn well(world: &World, all: u16) -> bool {
    let views = (0..all).map(|seat| {
        let peers = &server(world, seat).conf.peers;
        let lines = peers
            .iter()
            .map(|(id, peer)| (id.clone(), peer.primary.clone(), peer.slots.clone()));
        lines.collect::<Vec<_>>()
    });
    let mut views = views.collect::<Vec<_>>();
    views.dedup();
    let fine = |server: &Server| {
        let peers = server.conf.peers.values();
        server.state_ok
            && (server.is_primary() || server.sync == Sync::Up)
            && peers.clone().all(|peer| peer.reachable())
    };
    views.len() == 1 && (0..all).all(|seat| fine(server(world, seat)))
}

/// Begins to move slots from one seat to another.
pub fn migrate(world: &mut World, from: u16, to: u16, slots: SlotSet) -> Result<(), String> {
    let step = ClusterStep::MigrateSlots {
        epoch: Epoch(server(world, from).epoch()),
        shard: shard(world, from),
        from: named(world, from),
        to: named(world, to),
        slots,
    };
    world.apply(&step)
}

/// Asks a replica to take over.
pub fn failover(world: &mut World, from: u16, to: u16) -> Result<(), String> {
    let step = ClusterStep::Failover {
        shard: shard(world, from),
        epoch: Epoch(server(world, from).epoch()),
        from: named(world, from),
        to: named(world, to),
    };
    world.apply(&step)
}
