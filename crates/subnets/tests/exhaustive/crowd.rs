//! R21 to R23 for any number of operators, any number of requests under way, and writes without end.
//!
//! Operators remember nothing that matters here, so what one decides depends on its view only, and a view is a beginning
//! of the history. Then every decision that anybody could ever send is decided at the moment its view is the newest one, and
//! waits from then on until the version it carries is replaced. So no views need be kept at all, only what waits: a
//! request that is never delivered harms nobody. That world is finite; searched to its end, it says what holds after a
//! million writes by a thousand operators.

use super::decide::Decisions;
use super::explore::{Move, State, World};
use super::mutant::Mutant;
use super::race::{What, after, by_users, no_overlap, shown, tell_user};
use super::subnet::{Maker, Subnet, Writes, each};

/// The world.
pub struct Crowd {
    pub decisions: Decisions,
    mutant: Option<Mutant>,
    makers: &'static [Maker],
}

/// The three Subnets by number, and what waits for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Here {
    now: [u8; 3],
    late: [Writes; 3],
}

impl Here {
    fn unpack(state: State) -> Self {
        let byte = |at: usize| (state >> (8 * at)) as u8;
        Self {
            now: [byte(0), byte(1), byte(2)],
            late: [byte(3), byte(4), byte(5)],
        }
    }

    fn pack(&self) -> State {
        let bytes = self.now.iter().chain(&self.late);
        bytes
            .enumerate()
            .fold(0, |state, (at, byte)| state | u128::from(*byte) << (8 * at))
    }
}

impl Crowd {
    /// `large`: with users that put finalizers of their own on what they make.
    pub fn new(mutant: Option<Mutant>, large: bool) -> Self {
        Self {
            decisions: Decisions::new(mutant),
            mutant,
            makers: if large {
                &[Maker::Claim, Maker::Hand, Maker::HandHeld]
            } else {
                &[Maker::Claim, Maker::Hand]
            },
        }
    }

    /// The three Subnets in a state, by number.
    pub fn now(state: State) -> [u8; 3] {
        Here::unpack(state).now
    }

    fn written(&mut self, here: &Here, slot: usize, subnet: Option<Subnet>) -> State {
        let mut then = *here;
        then.now[slot] = self.decisions.catalogue.number(subnet);
        then.late[slot] = 0;
        // Whoever sees it first decides at once; whether and when it arrives is open.
        for slot in 0..3 {
            then.late[slot] |= self.decisions.of(then.now, slot);
        }
        then.pack()
    }
}

impl World for Crowd {
    type What = What;

    fn start(&self) -> State {
        0
    }

    fn quiet(&mut self, _: State, _: &mut Vec<Move<What>>) {}

    fn writes(&mut self, at: State, moves: &mut Vec<Move<What>>) {
        let here = Here::unpack(at);
        for slot in 0..3 {
            let Some(subnet) = self.decisions.catalogue.subnet(slot, here.now[slot]) else {
                for maker in self.makers.iter().copied() {
                    for late in [false, true] {
                        let new = Subnet {
                            maker,
                            range: slot as u8,
                            late,
                            phase: None,
                            edited: false,
                            marked: false,
                        };
                        let to = self.written(&here, slot, Some(new));
                        moves.push(Move {
                            what: What::Create(slot, maker),
                            to,
                            breaks: None,
                        });
                    }
                }
                continue;
            };
            for what in by_users(slot, &subnet) {
                let to = self.written(&here, slot, after(what, subnet, self.mutant));
                moves.push(Move { what, to, breaks: None });
            }
            for write in each(here.late[slot]) {
                let to = self.written(&here, slot, write.apply(subnet));
                moves.push(Move {
                    what: What::Arrive(slot, write),
                    to,
                    breaks: write.breaks(&subnet),
                });
            }
        }
    }

    fn broken(&self, at: State) -> Option<String> {
        no_overlap(&self.decisions, Here::unpack(at).now)
    }

    fn story(&mut self, way: &[What]) -> Vec<String> {
        let (mut at, mut lines, mut moves) = (self.start(), Vec::new(), Vec::new());
        for what in way {
            let shown = |slot| shown(&self.decisions, Here::unpack(at).now, slot);
            lines.push(match *what {
                What::Arrive(slot, write) => format!("somebody writes {write:?} to {}", shown(slot)),
                other => tell_user(other, &shown),
            });
            self.writes(at, &mut moves);
            at = moves
                .drain(..)
                .find(|step| step.what == *what)
                .map_or(at, |step| step.to);
        }
        lines
    }
}
