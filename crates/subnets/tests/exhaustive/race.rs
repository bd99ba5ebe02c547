//! R21 to R23 between two operators: three Subnets, views that lag, requests that arrive late.
//!
//! An operator is a position in the history of Subnets: its view is the history up to there. It decides on that view, with
//! the shipped code. What it decides arrives at once, or is under way for as long as you like, and takes effect only on the
//! version it was decided for. Beside the operators users create, edit and delete, at any moment.
//!
//! What makes the world small without losing anything:
//! - An operator sees more only just before it decides; before that, nobody can tell the difference. So its position is
//!   what it has seen at least.
//! - Of an old view only the decisions are kept that can still take effect. A Subnet that was written since takes none of
//!   them; a view with none left is forgotten, and who was there is at the next one.
//! - A decision is made on the oldest view that allows it.
//! - Operators are told apart by their positions only: the one that lags is named first.
//! - A create is guarded by its name alone: one under way is as good as one sent later.

use usher_subnets::api::SubnetPhase;

use super::decide::Decisions;
use super::explore::{Move, State, World};
use super::mutant::Mutant;
use super::subnet::{Maker, RANGES, SLOTS, Subnet, Write, Writes, each, overlap};

/// Requests under way, at most.
pub const LATE: u32 = 2;
/// Bits of a number in [`Sets`].
const SET_BITS: u32 = 11;

/// What can happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// A user, or Usher for a claim, creates the Subnet of this slot.
    Create(usize, Maker),
    /// A user gives a Subnet made by hand another range.
    Edit(usize, u8),
    /// A user deletes a Subnet.
    Delete(usize),
    /// A user takes their finalizer off.
    LetGo(usize),
    /// An operator decides on one of the views there are.
    Decide {
        /// 0 lags behind 1.
        operator: usize,
        /// Which view: the oldest is 0, the newest comes after all others.
        view: usize,
        slot: usize,
        write: Write,
        /// It is under way, and arrives later.
        late: bool,
    },
    /// A request that was under way arrives.
    Arrive(usize, Write),
}

/// What one view lets an operator decide, per slot.
type Set = [Writes; 3];

/// Numbers for those sets: few of the 2^18 occur.
struct Sets {
    sets: Vec<Set>,
    /// By what the set says; one more than the number.
    numbers: Vec<u16>,
}

impl Sets {
    fn new() -> Self {
        Self {
            sets: Vec::new(),
            numbers: vec![0; 1 << 18],
        }
    }

    fn number(&mut self, set: Set) -> u16 {
        let number = &mut self.numbers[set.iter().fold(0, |all, writes| all << 6 | usize::from(*writes))];
        if *number == 0 {
            self.sets.push(set);
            assert!(
                self.sets.len() < 1 << SET_BITS,
                "more sets of decisions than have a number"
            );
            *number = self.sets.len() as u16;
        }
        *number - 1
    }
}

/// An old view that still lets somebody decide something.
#[derive(Debug, Clone, Copy, Default)]
struct Old {
    set: Set,
    /// After how many writes it was the newest. For stories; not part of the state.
    age: u8,
}

/// A state, unpacked.
#[derive(Debug, Clone, Copy)]
struct Here {
    /// The Subnets as they are, by number.
    now: [u8; 3],
    /// Each as it was before its last write; only for [`Mutant::OrderIgnored`].
    before: [u8; 3],
    /// Requests under way.
    late: Set,
    /// Old views, oldest first. The newest, of everything as it is, is not among them.
    views: [Old; 8],
    len: usize,
    /// What each operator has seen at least.
    at: [usize; 2],
    /// How many writes there were. For stories.
    age: u8,
}

/// The world.
pub struct Race {
    pub decisions: Decisions,
    mutant: Option<Mutant>,
    bits: u32,
    sets: Sets,
}

impl Race {
    pub fn new(mutant: Option<Mutant>) -> Self {
        let decisions = Decisions::new(mutant);
        let bits = decisions.catalogue.bits(false);
        Self {
            decisions,
            mutant,
            bits,
            sets: Sets::new(),
        }
    }

    /// The three Subnets in a state, by number.
    pub fn now(&self, state: State) -> [u8; 3] {
        self.unpack(state).now
    }

    fn unpack(&self, mut state: State) -> Here {
        let mut take = |bits: u32| {
            let value = (state & ((1 << bits) - 1)) as u16;
            state >>= bits;
            value
        };
        let len = usize::from(take(3));
        let at = [usize::from(take(3)), usize::from(take(3))];
        let late = std::array::from_fn(|_| take(6) as u8);
        let now = std::array::from_fn(|_| take(self.bits) as u8);
        let mut views = [Old::default(); 8];
        for view in views.iter_mut().take(len) {
            view.set = self.sets.sets[usize::from(take(SET_BITS))];
        }
        let mut before = [0; 3];
        if self.mutant == Some(Mutant::OrderIgnored) {
            before = std::array::from_fn(|_| take(self.bits) as u8);
        }
        Here {
            now,
            before,
            late,
            views,
            len,
            at,
            age: 0,
        }
    }

    fn pack(&mut self, here: &Here) -> State {
        let (mut state, mut at) = (0, 0);
        let mut put = |value: u16, bits: u32| {
            state |= u128::from(value) << at;
            at += bits;
        };
        put(here.len as u16, 3);
        here.at.iter().for_each(|seen| put(*seen as u16, 3));
        here.late.iter().for_each(|late| put(u16::from(*late), 6));
        here.now.iter().for_each(|number| put(u16::from(*number), self.bits));
        for view in &here.views[..here.len] {
            put(self.sets.number(view.set), SET_BITS);
        }
        if self.mutant == Some(Mutant::OrderIgnored) {
            here.before.iter().for_each(|number| put(u16::from(*number), self.bits));
        }
        assert!(
            at <= State::BITS && here.len < 8,
            "{} old views do not fit a state",
            here.len
        );
        state
    }

    fn subnet(&self, here: &Here, slot: usize) -> Option<Subnet> {
        self.decisions.catalogue.subnet(slot, here.now[slot])
    }

    /// What the newest view lets an operator decide.
    fn newest(&mut self, here: &Here) -> Set {
        let mut set = std::array::from_fn(|slot| self.decisions.of(here.now, slot));
        if self.mutant == Some(Mutant::OrderIgnored) {
            for (slot, unseen) in [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)] {
                let mut view = here.now;
                view[unseen] = here.before[unseen];
                set[slot] |= self.decisions.of(view, slot);
            }
        }
        set
    }

    /// The world after the Subnet of a slot was written.
    fn written(&mut self, here: &Here, slot: usize, subnet: Option<Subnet>) -> Here {
        // Whatever was decided for the version before can only fail now.
        let unguarded: Writes = match self.mutant {
            _ if subnet.is_none() => 0,
            Some(Mutant::CommitUnguarded) => 1 << Write::Allocated as u8,
            Some(Mutant::WithdrawalUnguarded) => 1 << Write::Failed as u8 | 1 << Write::Mark as u8,
            _ => 0,
        };
        let mut then = *here;
        then.views[here.len] = Old {
            set: self.newest(here),
            age: here.age,
        };
        then.age += 1;
        then.now[slot] = self.decisions.catalogue.number(subnet);
        if self.mutant == Some(Mutant::OrderIgnored) {
            then.before[slot] = here.now[slot];
        }
        then.late[slot] &= unguarded;
        // Views that nobody is at any more, or that let nobody decide anything, are forgotten.
        let (mut kept, mut at) = (0, [None; 2]);
        for view in 0..=here.len {
            then.views[view].set[slot] &= unguarded;
            if view < here.at[0] || then.views[view].set == [0; 3] {
                continue;
            }
            for operator in 0..2 {
                if view >= here.at[operator] {
                    at[operator].get_or_insert(kept);
                }
            }
            then.views[kept] = then.views[view];
            kept += 1;
        }
        then.len = kept;
        then.at = at.map(|seen| seen.unwrap_or(kept));
        then
    }

    /// Decisions that can be made: operator, view, slot and writes. Each on the oldest view that allows it: whoever has seen
    /// less can still do everything that one who has seen more can.
    fn decisions(&mut self, here: &Here) -> impl Iterator<Item = (usize, usize, usize, Writes)> + use<> {
        let (at, len, mut views) = (here.at, here.len, here.views);
        views[len].set = self.newest(here);
        // Two that have seen the same are one.
        let operators = if at[0] == at[1] { 0..1 } else { 0..2 };
        operators.flat_map(move |operator| {
            let mut before = [0; 3];
            (at[operator]..=len).flat_map(move |view| {
                let set: Set = std::array::from_fn(|slot| views[view].set[slot] & !before[slot]);
                for (all, new) in before.iter_mut().zip(set) {
                    *all |= new;
                }
                (0..3).map(move |slot| (operator, view, slot, set[slot]))
            })
        })
    }

    /// The world once an operator has seen this view.
    fn seen(here: &Here, operator: usize, view: usize) -> Here {
        let mut then = *here;
        then.at[operator] = view;
        then.at.sort_unstable();
        then
    }

    /// The world after this; `None`: nothing such can happen.
    fn happens(&mut self, here: &Here, what: What) -> Here {
        let subnet = |race: &Self, slot| race.subnet(here, slot).expect("it is there");
        match what {
            What::Create(slot, maker) => self.written(here, slot, Some(new(slot, maker))),
            What::Edit(slot, _) | What::Delete(slot) | What::LetGo(slot) => {
                let then = after(what, subnet(self, slot), self.mutant);
                self.written(here, slot, then)
            }
            What::Arrive(slot, write) => {
                let then = write.apply(subnet(self, slot));
                self.written(here, slot, then)
            }
            What::Decide {
                operator,
                view,
                slot,
                write,
                late,
            } => {
                let mut seen = Self::seen(here, operator, view);
                if late {
                    seen.late[slot] |= 1 << write as u8;
                    return seen;
                }
                let then = write.apply(subnet(self, slot));
                self.written(&seen, slot, then)
            }
        }
    }

    fn offer(&mut self, here: &Here, what: What, breaks: Option<&'static str>, moves: &mut Vec<Move<What>>) {
        let then = self.happens(here, what);
        let to = self.pack(&then);
        moves.push(Move { what, to, breaks });
    }
}

impl World for Race {
    type What = What;

    fn start(&self) -> State {
        0
    }

    fn quiet(&mut self, at: State, moves: &mut Vec<Move<What>>) {
        let here = self.unpack(at);
        if here.late.iter().map(|set| set.count_ones()).sum::<u32>() == LATE {
            return;
        }
        for (operator, view, slot, set) in self.decisions(&here) {
            for write in each(set & !here.late[slot]) {
                let late = true;
                let what = What::Decide {
                    operator,
                    view,
                    slot,
                    write,
                    late,
                };
                self.offer(&here, what, None, moves);
            }
        }
    }

    fn writes(&mut self, at: State, moves: &mut Vec<Move<What>>) {
        let here = self.unpack(at);
        for slot in 0..3 {
            let Some(subnet) = self.subnet(&here, slot) else {
                for maker in [Maker::Claim, Maker::Hand] {
                    self.offer(&here, What::Create(slot, maker), None, moves);
                }
                continue;
            };
            for what in by_users(slot, &subnet) {
                self.offer(&here, what, None, moves);
            }
            for write in each(here.late[slot]) {
                self.offer(&here, What::Arrive(slot, write), write.breaks(&subnet), moves);
            }
        }
        for (operator, view, slot, set) in self.decisions(&here) {
            for write in each(set & !here.late[slot]) {
                let breaks = self.subnet(&here, slot).and_then(|subnet| write.breaks(&subnet));
                let late = false;
                let what = What::Decide {
                    operator,
                    view,
                    slot,
                    write,
                    late,
                };
                self.offer(&here, what, breaks, moves);
            }
        }
    }

    fn broken(&self, at: State) -> Option<String> {
        no_overlap(&self.decisions, self.unpack(at).now)
    }

    fn story(&mut self, way: &[What]) -> Vec<String> {
        let mut here = self.unpack(self.start());
        let mut lines = Vec::new();
        for what in way {
            let shown = |slot| shown(&self.decisions, here.now, slot);
            lines.push(match *what {
                What::Arrive(slot, write) => format!("the request under way arrives: {write:?} for {}", shown(slot)),
                What::Decide {
                    view,
                    slot,
                    write,
                    late,
                    ..
                } => {
                    let seen = if view == here.len {
                        here.age
                    } else {
                        here.views[view].age
                    };
                    let who = match here.age - seen {
                        0 => "an operator that has seen everything".to_owned(),
                        1 => "an operator that has not seen the last write".to_owned(),
                        n => format!("an operator that has not seen the last {n} writes"),
                    };
                    if late {
                        format!("{who} decides {write:?} for {}; the request is under way", shown(slot))
                    } else {
                        format!("{who} writes {write:?} to {}", shown(slot))
                    }
                }
                user => tell_user(user, &shown),
            });
            here = self.happens(&here, *what);
        }
        lines
    }
}

/// A Subnet as it is created. Which second it is from depends on its slot, so that `whole` comes before `left` and after
/// `right` when they contend.
fn new(slot: usize, maker: Maker) -> Subnet {
    Subnet {
        maker,
        range: slot as u8,
        late: slot == 0,
        phase: None,
        edited: false,
        marked: false,
    }
}

/// What users may do to a Subnet.
pub fn by_users(slot: usize, subnet: &Subnet) -> Vec<What> {
    let mut what = Vec::new();
    if subnet.maker != Maker::Claim {
        what.extend(
            (0..3)
                .filter(|range| *range != subnet.range)
                .map(|range| What::Edit(slot, range)),
        );
    }
    if !subnet.marked {
        what.push(What::Delete(slot));
    }
    if subnet.maker == Maker::HandHeld {
        what.push(What::LetGo(slot));
    }
    what
}

/// The Subnet after that.
pub fn after(what: What, subnet: Subnet, mutant: Option<Mutant>) -> Option<Subnet> {
    match what {
        What::Edit(_, range) => {
            let forgets = mutant == Some(Mutant::GenerationUnwritten) && subnet.phase == Some(SubnetPhase::Allocated);
            Some(Subnet {
                range,
                edited: subnet.phase.is_some() && !forgets,
                ..subnet
            })
        }
        What::Delete(_) => (subnet.maker != Maker::Hand).then_some(Subnet { marked: true, ..subnet }),
        What::LetGo(_) if subnet.marked => None,
        What::LetGo(_) => Some(Subnet {
            maker: Maker::Hand,
            ..subnet
        }),
        other => panic!("{other:?} is nothing a user does to a Subnet"),
    }
}

/// The Subnet in a slot, for people.
pub fn shown(decisions: &Decisions, now: [u8; 3], slot: usize) -> String {
    let subnet = decisions.catalogue.subnet(slot, now[slot]);
    subnet.map_or_else(|| SLOTS[slot].to_owned(), |subnet| subnet.describe(slot))
}

/// What users do, for people.
pub fn tell_user(what: What, shown: &dyn Fn(usize) -> String) -> String {
    match what {
        What::Create(slot, Maker::Claim) => format!("Usher creates the Subnet {} of a claim", SLOTS[slot]),
        What::Create(slot, _) => format!("a user creates the Subnet {}", SLOTS[slot]),
        What::Edit(slot, range) => format!("a user edits {}: {}", shown(slot), RANGES[range as usize]),
        What::Delete(slot) => format!("a user deletes {}", shown(slot)),
        What::LetGo(slot) => format!("a user removes their finalizer from {}", shown(slot)),
        other => panic!("{other:?} is nothing a user does"),
    }
}

/// I1: no two that hold a range for good overlap.
pub fn no_overlap(decisions: &Decisions, now: [u8; 3]) -> Option<String> {
    let subnets: [Option<Subnet>; 3] = std::array::from_fn(|slot| decisions.catalogue.subnet(slot, now[slot]));
    for (a, b) in [(0, 1), (0, 2), (1, 2)] {
        if let (Some(one), Some(two)) = (subnets[a], subnets[b])
            && one.settled()
            && two.settled()
            && overlap(one.range, two.range)
        {
            return Some(format!("I1: {} overlaps {}", one.describe(a), two.describe(b)));
        }
    }
    None
}
