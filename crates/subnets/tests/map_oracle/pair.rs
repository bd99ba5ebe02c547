//! Map and oracle, side by side: the operations, done to both, and what must agree after each.

use std::collections::BTreeSet;

use ipnet::IpNet;
use usher_subnets::plan::map::{AddressMap, Conflict, Fit, NotGrowth, Overlay};

use crate::oracle::{Oracle, PLANNED, Who};
use crate::world::{World, block_at, contains, first_address, parse};

pub(crate) struct Pair {
    pub(crate) map: AddressMap<Who>,
    pub(crate) oracle: Oracle,
}

/// A block to do something with. Every value means something in every world.
#[derive(Clone, Debug)]
pub(crate) struct Pick {
    pub(crate) at: u32,
    pub(crate) len: Size,
    pub(crate) place: u8,
}

/// From 0, as big as the range, to 10, a unit.
pub(crate) type Size = u8;

pub(crate) fn length(size: Size, within: IpNet, unit: u8) -> u8 {
    within.prefix_len() + (unit - within.prefix_len()) * size.min(10) / 10
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Grant { len: Size, best: bool, who: Who },
    Reserve { pick: Pick, who: Who },
    Hold { pick: Pick, who: Who },
    Release { nth: u32 },
    ReleaseUnheld { pick: Pick, who: Who },
    Grow { len: Size },
    Rebuild { pick: Pick },
    Plan { steps: Vec<PlanStep> },
}

#[derive(Clone, Debug)]
pub(crate) enum PlanStep {
    Take { len: Size, best: bool },
    Reserve { pick: Pick },
}

pub(crate) fn fit_of(best: bool) -> Fit {
    if best { Fit::Best } else { Fit::First }
}

impl Pair {
    pub(crate) fn new(world: World) -> Pair {
        Pair {
            map: AddressMap::new(parse(world.base)),
            oracle: Oracle::new(world),
        }
    }

    pub(crate) fn length(&self, size: Size) -> u8 {
        length(size, self.oracle.base, self.oracle.unit)
    }

    pub(crate) fn net(&self, pick: &Pick) -> IpNet {
        let Oracle { range, base, unit, .. } = self.oracle;
        let within = match pick.place {
            0 => return range.supernet().unwrap_or(range),
            1 => return parse("203.0.0.0/9"),
            2 => return parse("3f80::/9"),
            3..8 => {
                let around = pick.at as u8 % (base.prefix_len() - range.prefix_len() + 1);
                return block_at(range, first_address(base), base.prefix_len() - around);
            }
            8..64 => range,
            _ => base,
        };
        let len = length(pick.len, within, unit);
        let index = u128::from(pick.at) % (1u128 << (len - within.prefix_len()));
        let offset = index.checked_shl((range.max_prefix_len() - len).into()).unwrap_or(0);
        block_at(range, first_address(within) + offset, len)
    }

    pub(crate) fn apply(&mut self, op: &Op) {
        match op {
            Op::Grant { len, best, who } => {
                let Some(found) = self.map.fit(self.length(*len), fit_of(*best)) else {
                    return;
                };
                assert_eq!(self.map.reserve_exact(found, *who), Ok(()), "what fits is free");
                assert_eq!(self.oracle.reserve(found, *who), Ok(()), "{found} was not free");
            }
            Op::Reserve { pick, who } => {
                let net = self.net(pick);
                assert_eq!(self.map.is_free(net), self.oracle.is_free(net), "is {net} free");
                assert_eq!(
                    self.map.reserve_exact(net, *who),
                    self.oracle.reserve(net, *who),
                    "reserve {net}"
                );
            }
            Op::Hold { pick, who } => {
                let net = self.net(pick);
                self.agree_on_overlaps(net);
                assert_eq!(self.map.hold(net, *who), self.oracle.hold(net, *who), "hold {net}");
            }
            Op::Release { nth } => {
                let held = self.oracle.holdings.len();
                let chosen = self.oracle.holdings.iter().nth(*nth as usize % held.max(1)).copied();
                let Some((net, who)) = chosen else { return };
                assert!(self.map.holds(net, &who));
                assert!(self.map.release(net, &who), "{net} was held by {who}");
                self.oracle.release(net, who);
                self.agree_on_overlaps(net);
            }
            Op::ReleaseUnheld { pick, who } => {
                let net = self.net(pick);
                assert_eq!(
                    self.map.release(net, who),
                    self.oracle.release(net, *who),
                    "release {net}"
                );
            }
            Op::Grow { len } => {
                let (old, range) = (self.oracle.base, self.oracle.range);
                let new = block_at(old, first_address(old), length(*len, range, self.oracle.unit));
                if contains(new, old) {
                    assert_eq!(self.map.grow(new), Ok(()));
                    self.oracle.base = new;
                } else {
                    assert_eq!(self.map.grow(new), Err(NotGrowth { old, new }));
                }
            }
            Op::Rebuild { pick } => {
                let new = self.net(&Pick {
                    place: 5,
                    ..pick.clone()
                });
                self.map.rebuild(new);
                self.oracle.base = new;
            }
            Op::Plan { steps } => self.plan(steps),
        }
    }

    /// An overlay against a copy of the map, against a copy of the oracle.
    pub(crate) fn plan(&self, steps: &[PlanStep]) {
        let mut overlay = self.map.overlay();
        let mut copy = Pair {
            map: self.map.clone(),
            oracle: self.oracle.clone(),
        };
        for step in steps {
            match step {
                PlanStep::Take { len, best } => {
                    let (len, fit) = (self.length(*len), fit_of(*best));
                    let expected = copy.oracle.recount().fit(len, fit);
                    assert_eq!(overlay.fits(len), expected.is_some(), "does a /{len} fit");
                    assert_eq!(overlay.take(len, fit), expected, "take /{len} {fit:?}");
                    assert_eq!(copy.map.fit(len, fit), expected, "fit /{len} {fit:?}");
                    if let Some(net) = expected {
                        copy.map.hold(net, PLANNED);
                        copy.oracle.hold(net, PLANNED);
                    }
                }
                PlanStep::Reserve { pick } => {
                    let net = self.net(pick);
                    assert_eq!(overlay.is_free(net), copy.oracle.is_free(net), "is {net} free");
                    let expected = copy.oracle.reserve(net, PLANNED);
                    assert_eq!(overlay.reserve(net), expected, "reserve {net} in a plan");
                    let of_copy = copy.map.reserve_exact(net, PLANNED).map_err(|conflict| match conflict {
                        Conflict::Held { net, holder: PLANNED } => Conflict::Planned { net },
                        other => other,
                    });
                    assert_eq!(of_copy, expected, "reserve {net} in a copy");
                }
            }
            copy.agree_with(&overlay);
        }
    }

    pub(crate) fn agree_with(&self, overlay: &Overlay<'_, Who>) {
        assert_eq!(overlay.largest_free(), self.map.largest_free());
        for (len, count) in self.map.counts() {
            assert_eq!(overlay.count(len), count, "count(/{len}) of an overlay");
        }
        self.agree();
    }

    /// Every answer of the map that does not depend on an argument, or on a length only.
    pub(crate) fn agree(&self) {
        let Pair { map, oracle } = self;
        let recount = oracle.recount();
        assert_eq!(map.base(), oracle.base);
        assert_eq!(map.largest_free(), recount.largest());
        assert_eq!(map.holding_count(), oracle.holdings.len());
        let width = oracle.base.max_prefix_len();
        // Below the unit all lengths are alike, so the last ones stand for them.
        let shown = oracle.base.prefix_len().saturating_sub(1)..=oracle.unit;
        for len in shown.chain([oracle.unit + 1, width - 1, width, width + 1]) {
            assert_eq!(map.count(len), recount.count(len), "count(/{len})");
            assert_eq!(
                map.first_fit(len),
                recount.fit(len, Fit::First),
                "first fit of a /{len}"
            );
            assert_eq!(map.best_fit(len), recount.fit(len, Fit::Best), "best fit of a /{len}");
        }
        let size = 1u128.checked_shl((width - oracle.base.prefix_len()).into());
        assert_eq!(map.free_addresses(), recount.count(width));
        if let Some(size) = size {
            assert_eq!(map.held_addresses(), size - recount.count(width));
        }
        let units = recount.tally(oracle.unit).expect("the base has units");
        let held_percent = (units.blocks - units.free) * 100 / units.blocks;
        assert_eq!(usize::from(map.used_percent()), held_percent);
    }

    pub(crate) fn agree_on_overlaps(&self, net: IpNet) {
        let expected: BTreeSet<(IpNet, Who)> = self
            .oracle
            .holdings
            .iter()
            .filter(|(held, _)| contains(*held, net) || contains(net, *held))
            .copied()
            .collect();
        let listed: Vec<(IpNet, Who)> = self.map.overlapping(net).map(|(held, who)| (held, *who)).collect();
        assert_eq!(listed.len(), expected.len(), "each overlap of {net} once");
        assert_eq!(
            listed.into_iter().collect::<BTreeSet<_>>(),
            expected,
            "overlaps of {net}"
        );
    }

    /// What is too slow for every step.
    pub(crate) fn agree_in_depth(&self) {
        if let Err(damage) = self.map.check() {
            panic!("{damage}");
        }
        let listed: BTreeSet<(IpNet, Who)> = self.map.holdings().map(|(net, who)| (net, *who)).collect();
        assert_eq!(listed, self.oracle.holdings);
    }
}
