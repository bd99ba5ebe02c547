//! The address map against an oracle that counts addresses one by one (invariant I7).
//!
//! Map and oracle do the same random operations in small worlds of both families, and after each step every count,
//! choice and conflict must agree. `USHER_SEED=7 USHER_STEPS=1000000 cargo test -p usher-subnets --test map_oracle`
//! runs another and longer walk; a failure prints the seed and the step. The properties at the end do the same with
//! operations that shrink.
#![cfg(test)]

mod oracle;
mod pair;
mod world;

use proptest::prelude::*;

use crate::oracle::Who;
use crate::pair::{Op, Pair, Pick, PlanStep, Size};
use crate::world::{WORLDS, World};

/// SplitMix64: small, seeded, the same everywhere.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.roll() % bound
    }

    fn pick(&mut self) -> Pick {
        Pick {
            at: self.roll() as u32,
            len: self.size(),
            place: self.roll() as u8,
        }
    }

    /// Small blocks more often than big ones: the greatest of three.
    fn size(&mut self) -> Size {
        (0..3).map(|_| self.below(11) as Size).max().unwrap_or(0)
    }

    /// `ebb` alternates: the pool fills up, and drains again.
    fn op(&mut self, ebb: bool) -> Op {
        let who = self.below(4) as Who;
        match self.below(100) {
            _ if self.below(100) < if ebb { 68 } else { 16 } => Op::Release {
                nth: self.roll() as u32,
            },
            0..50 => Op::Grant {
                len: self.size(),
                best: self.below(2) == 0,
                who,
            },
            50..66 => Op::Reserve { pick: self.pick(), who },
            66..88 => Op::Hold { pick: self.pick(), who },
            88..91 => Op::ReleaseUnheld { pick: self.pick(), who },
            91..94 => Op::Grow {
                len: self.below(6) as Size,
            },
            94 => Op::Rebuild {
                pick: Pick {
                    len: self.below(5) as Size,
                    ..self.pick()
                },
            },
            _ => {
                let steps = (0..self.below(12))
                    .map(|_| match self.below(3) {
                        0 => PlanStep::Reserve { pick: self.pick() },
                        _ => PlanStep::Take {
                            len: self.size(),
                            best: self.below(2) == 0,
                        },
                    })
                    .collect();
                Op::Plan { steps }
            }
        }
    }
}

/// Says on failure how to get there again.
struct Trace {
    world: World,
    seed: u64,
    step: usize,
    op: Option<Op>,
}

impl Drop for Trace {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "USHER_SEED={}: {:?}, step {}, {:?}",
                self.seed, self.world, self.step, self.op
            );
        }
    }
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

fn walk(first: usize, last: usize) {
    let seed = setting("USHER_SEED", 20_260_401);
    let total = setting("USHER_STEPS", 130_000) as usize;
    for (number, world) in WORLDS.iter().enumerate().take(last + 1).skip(first) {
        let mut trace = Trace {
            world: *world,
            seed,
            step: 0,
            op: None,
        };
        let mut dice = Dice(seed ^ ((number as u64) << 56));
        let mut pair = Pair::new(*world);
        let mut most_held = 0;
        for step in 0..total * world.share / 100 {
            let op = dice.op(step % 600 >= 300);
            (trace.step, trace.op) = (step, Some(op.clone()));
            pair.apply(&op);
            pair.agree();
            if step % 32 == 0 {
                pair.agree_in_depth();
            }
            most_held = most_held.max(pair.map.holding_count());
        }
        pair.agree_in_depth();
        assert!(
            most_held > 30 || total < 100_000,
            "a walk should fill its pool, this one held {most_held} at most"
        );
    }
}

#[test]
fn i7_the_map_agrees_with_a_recount_ipv4() {
    assert_eq!(WORLDS.iter().map(|world| world.share).sum::<usize>(), 100);
    walk(0, 0);
}

#[test]
fn i7_the_map_agrees_with_a_recount_ipv6() {
    walk(1, 2);
}

#[test]
fn i7_the_map_agrees_with_a_recount_at_the_ends_of_address_space() {
    walk(3, 6);
}

#[test]
fn i7_the_map_agrees_with_a_recount_sixteen_bits_wide() {
    walk(7, 8);
}

fn pick() -> impl Strategy<Value = Pick> {
    (any::<u32>(), 0..11u8, any::<u8>()).prop_map(|(at, len, place)| Pick { at, len, place })
}

fn plan_steps() -> impl Strategy<Value = Vec<PlanStep>> {
    let step = prop_oneof![
        2 => (0..11u8, any::<bool>()).prop_map(|(len, best)| PlanStep::Take { len, best }),
        1 => pick().prop_map(|pick| PlanStep::Reserve { pick }),
    ];
    prop::collection::vec(step, 0..40)
}

fn op() -> impl Strategy<Value = Op> {
    let who = 0..4u8;
    prop_oneof![
        4 => (0..11u8, any::<bool>(), who.clone()).prop_map(|(len, best, who)| Op::Grant { len, best, who }),
        3 => (pick(), who.clone()).prop_map(|(pick, who)| Op::Reserve { pick, who }),
        4 => (pick(), who.clone()).prop_map(|(pick, who)| Op::Hold { pick, who }),
        6 => any::<u32>().prop_map(|nth| Op::Release { nth }),
        1 => (pick(), who).prop_map(|(pick, who)| Op::ReleaseUnheld { pick, who }),
        1 => (0..6u8).prop_map(|len| Op::Grow { len }),
        1 => pick().prop_map(|pick| Op::Rebuild { pick }),
    ]
}

fn world() -> impl Strategy<Value = World> {
    prop::sample::select(&WORLDS[..7])
}

fn after(world: World, ops: &[Op]) -> Pair {
    let mut pair = Pair::new(world);
    for op in ops {
        pair.apply(op);
    }
    pair
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn i7_any_history_agrees_with_a_recount(world in world(), ops in prop::collection::vec(op(), 0..60)) {
        let mut pair = Pair::new(world);
        for op in &ops {
            pair.apply(op);
            pair.agree();
        }
        pair.agree_in_depth();
    }

    #[test]
    fn an_overlay_answers_as_a_copy_would(world in world(), ops in prop::collection::vec(op(), 0..40), steps in plan_steps()) {
        after(world, &ops).plan(&steps);
    }

    #[test]
    fn r2_releasing_everything_leaves_one_free_block(world in world(), ops in prop::collection::vec(op(), 0..60)) {
        let mut pair = after(world, &ops);
        while !pair.oracle.holdings.is_empty() {
            pair.apply(&Op::Release { nth: 0 });
        }
        prop_assert_eq!(pair.map.largest_free(), Some(pair.oracle.base.prefix_len()));
        pair.agree_in_depth();
    }

    #[test]
    fn r40_growing_equals_rebuilding(world in world(), ops in prop::collection::vec(op(), 0..60), len in 0..6u8) {
        let mut pair = after(world, &ops);
        pair.apply(&Op::Grow { len });
        let mut rebuilt = pair.map.clone();
        rebuilt.rebuild(pair.oracle.base);
        prop_assert!(rebuilt.counts().eq(pair.map.counts()));
        pair.agree();
    }
}
