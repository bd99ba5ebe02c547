//! Inputs that nobody would write: CIDR texts, whole objects, watch orders. Nothing panics, nothing that holds is broken.
//!
//! A million by default, from a fixed seed. `USHER_SEED=n` takes others, `USHER_FUZZ=n` makes it n times as many. An input
//! that fails is the one before which the test stopped; its number is printed, and with `USHER_INPUT=number` it comes alone.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[path = "../world/audit.rs"]
mod audit;
#[path = "../dice/mod.rs"]
mod dice;
mod forge;
#[path = "../probe/mod.rs"]
mod probe;
mod watch;

use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};

use dice::Dice;
use ipnet::IpNet;
use kube::api::DynamicObject;
use usher_operator::record::{self, Record};
use usher_subnets::plan::map::AddressMap;
use usher_subnets::records::{ClaimRecord, PoolClaimRecord, PoolRecord, SubnetRecord, range};
use watch::{Counts, Watcher};

/// Together a million; the dearer, the fewer.
const TEXTS: u64 = 600_000;
const OBJECTS: u64 = 200_000;
const WATCH_EVENTS: u64 = 200_000;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is a number, not {text:?}")),
    )
}

/// So many inputs, each with dice of its own.
fn inputs(count: u64, mut one: impl FnMut(&mut Dice)) {
    if let Some(alone) = number("USHER_INPUT") {
        return one(&mut Dice::new(alone));
    }
    let first = number("USHER_SEED").unwrap_or(1) << 32;
    for input in first..first + count * number("USHER_FUZZ").unwrap_or(1) {
        let outcome = catch_unwind(AssertUnwindSafe(|| one(&mut Dice::new(input))));
        assert!(
            outcome.is_ok(),
            "input {input} fails: repeat it with USHER_INPUT={input}"
        );
    }
}

#[test]
fn a_text_is_a_range_or_an_error_that_quotes_it() {
    let (mut good, mut map) = (0, AddressMap::new("10.0.0.0/23".parse().unwrap()));
    inputs(TEXTS, |dice| {
        let text = forge::text(dice);
        let net = match range("spec.cidr", &text) {
            Ok(net) => net,
            Err(message) => {
                assert!(
                    message.contains(&format!("{text:?}")) && message.contains("spec.cidr"),
                    "{message}"
                );
                return;
            }
        };
        assert_eq!(net, net.trunc(), "host bits are cleared");
        assert_eq!(
            net.to_string().parse::<IpNet>(),
            Ok(net),
            "its own text is the same range"
        );
        let (address, length) = text.split_once('/').unwrap();
        // Zeros in front of a number are octal to some and decimal to others; `::` for no group at all is nobody's.
        let known: IpAddr = address.parse().unwrap_or_else(|_| panic!("{text:?} is no {net}"));
        assert_eq!(IpNet::new(known, length.parse().unwrap()).map(|n| n.trunc()), Ok(net));
        // And through the map, whatever its family, inside and outside.
        good += 1;
        let who = dice.roll(4);
        match dice.roll(3) {
            0 => drop(map.hold(net, who)),
            1 => drop(map.release(net, &who)),
            _ => drop(map.reserve_exact(net, who)),
        }
        if good % 500 == 0 {
            map.check().unwrap_or_else(|damage| panic!("{damage:?}"));
            map = AddressMap::new(net);
        }
    });
    assert!(
        good > TEXTS / 10 || number("USHER_INPUT").is_some(),
        "only {good} of the texts were ranges"
    );
}

#[test]
fn an_object_is_a_record_or_an_error_that_names_it() {
    let mut read = [0_u64; 4];
    inputs(OBJECTS, |dice| {
        let kind = *dice.pick(&forge::KINDS);
        let mut object = forge::object(dice, kind, 7);
        for _ in 0..dice.roll(4) {
            forge::spoil(dice, &mut object);
        }
        // What is not even an object's metadata, the client refuses.
        let Ok(object) = serde_json::from_value::<DynamicObject>(object) else {
            return;
        };
        // As every kind: nobody promises that a list brings only what was asked for.
        if let Some(subnet) = try_reading::<SubnetRecord>(&object) {
            assert!(!(subnet.settled() && subnet.withdrawn()), "held and given up");
            assert_eq!(subnet.cidr, subnet.cidr.trunc());
            let _ = (subnet.by_hand(), subnet.may_hold_a_pool());
            read[0] += 1;
        }
        if let Some(pool) = try_reading::<PoolRecord>(&object) {
            let width = pool.cidr.max_prefix_len();
            assert!(pool.shortest >= pool.cidr.prefix_len() && pool.longest <= width && pool.shortest <= width);
            assert!(pool.shortest > pool.longest || (pool.shortest..=pool.longest).contains(&pool.default));
            assert!(pool.exclude.iter().all(|range| *range == range.trunc()));
            let _ = (pool.is_child(), pool.leaving(), pool.holder_id());
            read[1] += 1;
        }
        if let Some(claim) = try_reading::<ClaimRecord>(&object) {
            assert!(claim.bound().is_none_or(|range| range == range.trunc()));
            let _ = (claim.leaving(), claim.internal());
            read[2] += 1;
        }
        read[3] += u64::from(try_reading::<PoolClaimRecord>(&object).is_some());
    });
    println!("read as Subnet, pool, claim, pool claim: {read:?}");
    assert!(
        read.iter().all(|n| *n > OBJECTS / 20) || number("USHER_INPUT").is_some(),
        "{read:?}"
    );
}

fn try_reading<R: Record>(object: &DynamicObject) -> Option<R> {
    match record::read::<R>(object) {
        Ok(record) => {
            let key = &record.meta().key;
            assert!(!key.namespace().is_empty() && !key.name().is_empty());
            Some(record)
        }
        Err(problem) => {
            let shown = problem.to_string();
            assert!(
                shown.contains(object.metadata.name.as_deref().unwrap_or("?")),
                "{shown}"
            );
            None
        }
    }
}

#[test]
fn i6_i7_r21_r33_m4_whatever_the_watches_bring_the_ledger_is_right_and_plans_keep_the_rules() {
    const STEPS: u64 = 100;
    let mut all = Counts::default();
    // A step is one event and one pass; lists have several.
    inputs(WATCH_EVENTS * 3 / 4 / STEPS, |dice| {
        let mut watcher = Watcher::new(dice);
        for step in 1..=STEPS {
            watcher.event();
            watcher.pass();
            if step % 10 == 0 {
                watcher.audit();
            }
        }
        all += watcher.counts;
    });
    println!("{all:?}");
    let alone = number("USHER_INPUT").is_some();
    assert!(all.events >= WATCH_EVENTS || alone, "{all:?}");
    assert!(
        all.grants > 400 && all.commits > 400 && all.steps > 1000 && all.unreadable > 1000 || alone,
        "{all:?}"
    );
}
