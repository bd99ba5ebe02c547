//! R25, R26 and R44: a child pool, its holder in the parent, a Subnet in the child and one in the parent that wants the same
//! addresses; and the pool claim behind it, if there is one. Any number of operators, as in [`super::crowd`]; here with two watches, of Subnets and of pools, each of which
//! may lag as it likes, and with reads past the view, each of which happens at one moment and is used at a later one.
//!
//! What anybody may still write to an object at its present version is decided by: a view of the Subnets from the time of that
//! version or later; any state of the child pool there ever was, since the watch of pools may be that old; and answers
//! to questions asked since that version was seen. So that is what is kept: of the Subnets' views what they let somebody
//! decide, for each state of the pool; which states of the pool there were; and which answers could be had since.

use std::collections::HashMap;

use super::explore::{Move, State, World};
use super::family::{Child, HOLDER, LEAF, Maker, Member, Origin, Pool, PoolClaim, PoolWrite, RIVAL};
use super::here::{Here, TABLE_BITS};
use super::mutant::TreeMutant;
use super::questions::{Questions, Read};
use super::subnet::{Write, each};

/// For each state of the child pool, what may be written: without answers, and with them.
type Table = [[u8; 16]; 2];
/// In place of a slot: the child pool.
const POOL: usize = 3;

/// What can happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    CreatePool,
    DeletePool,
    Create(usize, Maker),
    Delete(usize),
    /// An operator writes to a Subnet.
    Write(usize, Write),
    /// An operator writes to the child pool.
    WritePool(PoolWrite),
    /// An operator creates the holder of the pool in this life.
    CreateHolder(u8),
    DeletePoolClaim,
    /// An operator lets the pool claim go.
    DropPoolClaim,
}

/// The world.
pub struct Tree {
    pub questions: Questions,
    mutant: Option<TreeMutant>,
    tables: Vec<Table>,
    numbers: HashMap<Table, u16>,
    unions: HashMap<(u16, u16), u16>,
    /// By slot and view, one more than the number.
    of_view: Vec<u16>,
}

impl Tree {
    pub fn new(questions: Questions, mutant: Option<TreeMutant>) -> Self {
        let mut tree = Self {
            questions,
            mutant,
            tables: Vec::new(),
            numbers: HashMap::new(),
            unions: HashMap::new(),
            of_view: vec![0; 4 << 15],
        };
        tree.number([[0; 16]; 2]);
        tree
    }

    fn number(&mut self, table: Table) -> u16 {
        let next = self.tables.len() as u16;
        let number = *self.numbers.entry(table).or_insert(next);
        if number == next {
            self.tables.push(table);
            assert!(self.tables.len() < 1 << TABLE_BITS, "more tables than have a number");
        }
        number
    }

    fn union(&mut self, a: u16, b: u16) -> u16 {
        if a == b || b == 0 {
            return a;
        }
        if a == 0 {
            return b;
        }
        let pair = (a.min(b), a.max(b));
        if let Some(known) = self.unions.get(&pair) {
            return *known;
        }
        let (one, two) = (self.tables[usize::from(a)], self.tables[usize::from(b)]);
        let both = std::array::from_fn(|i| std::array::from_fn(|c| one[i][c] | two[i][c]));
        let number = self.number(both);
        self.unions.insert(pair, number);
        number
    }

    /// What a view of the Subnets lets somebody write to a slot, or to the child pool.
    fn decided(&mut self, slot: usize, subnets: [u8; 3]) -> u16 {
        let place = subnets.iter().fold(slot, |all, number| all << 5 | usize::from(*number));
        if self.of_view[place] == 0 {
            let mut table = [[0; 16]; 2];
            for child in 0..self.questions.family.child_count() {
                let writes = match slot {
                    POOL => self.questions.pool_writes(child, subnets[HOLDER], subnets[LEAF]),
                    _ => self.questions.subnet_writes(slot, subnets, child),
                };
                for (row, set) in table.iter_mut().zip(writes) {
                    row[usize::from(child)] = set;
                }
            }
            self.of_view[place] = self.number(table) + 1;
        }
        self.of_view[place] - 1
    }

    /// The pool claim in a state.
    pub fn pool_claim(state: State) -> PoolClaim {
        Here::unpack(state).pool_claim
    }

    /// The child pool and the three Subnets in a state.
    pub fn shown(&self, state: State) -> (Child, [Option<Member>; 3]) {
        let here = Here::unpack(state);
        let members = [HOLDER, LEAF, RIVAL].map(|slot| self.member(&here, slot));
        (self.questions.family.child(here.child), members)
    }

    fn member(&self, here: &Here, slot: usize) -> Option<Member> {
        self.questions.family.member(slot, here.subnets[slot])
    }

    /// The world after a Subnet was written.
    fn subnet_written(&mut self, here: &Here, slot: usize, member: Option<Member>) -> State {
        let mut then = *here;
        then.subnets[slot] = self.questions.family.member_number(slot, member);
        then.tables[slot] = 0;
        for slot in 0..3 {
            let table = self.decided(slot, then.subnets);
            then.tables[slot] = self.union(then.tables[slot], table);
        }
        let table = self.decided(POOL, then.subnets);
        then.pool_table = self.union(then.pool_table, table);
        let early = |mutant| self.mutant == Some(mutant);
        if slot == LEAF && !early(TreeMutant::PoolConfirmedEarly) {
            then.stands = [false; 2];
        }
        if slot == HOLDER && !early(TreeMutant::HolderListedEarly) {
            then.holder_may_go = false;
        }
        if slot == HOLDER && !early(TreeMutant::ClaimConfirmedEarly) {
            then.claim_stands = false;
        }
        self.asked(then)
    }

    /// The world after the pool claim was written.
    fn pool_claim_written(&mut self, here: &Here, pool_claim: PoolClaim) -> State {
        let mut then = Here { pool_claim, ..*here };
        if self.mutant != Some(TreeMutant::ClaimListedEarly) {
            then.claim_may_go = [false; 2];
        }
        self.asked(then)
    }

    /// The world after the child pool was written.
    fn pool_written(&mut self, here: &Here, child: Child) -> State {
        let mut then = *here;
        then.child = self.questions.family.child_number(child);
        then.ever |= 1 << then.child;
        if self.mutant != Some(TreeMutant::PoolListedEarly) {
            then.pool_may_go = false;
        }
        self.asked(then)
    }

    /// Somebody asks everything that can be asked, now that something has changed.
    fn asked(&mut self, mut here: Here) -> State {
        let is = |mutant| self.mutant == Some(mutant);
        // What the mutants show to those who ask.
        let mut shown = self.questions.family.child(here.child);
        if let Child::Some(pool) = &mut shown {
            pool.marked &= !is(TreeMutant::LeavingPoolConfirmed);
        }
        let child_shown = self.questions.family.child_number(shown);
        let mut holder_shown = here.subnets;
        if let Some(mut holder) = self.member(&here, HOLDER)
            && is(TreeMutant::LeavingHolderConfirmed)
        {
            holder.marked = false;
            holder_shown[HOLDER] = self.questions.family.member_number(HOLDER, Some(holder));
        }
        let mut leaf_shown = here.subnets;
        if is(TreeMutant::CandidatesUnlisted) && self.member(&here, LEAF).is_some_and(|leaf| !leaf.settled()) {
            leaf_shown[LEAF] = 0;
        }
        let (unconfirmed, unheld) = (is(TreeMutant::PoolUnconfirmed), is(TreeMutant::HolderUnconfirmed));
        let (pool_unlisted, holder_unlisted) = (is(TreeMutant::PoolUnlisted), is(TreeMutant::HolderUnlisted));
        let owned_unlisted = is(TreeMutant::OwnedPoolsUnlisted) && self.questions.family.origin == Origin::PoolClaim;
        for life in 0..2 {
            here.stands[usize::from(life)] |=
                unconfirmed || self.questions.read(Read::PoolStands(life), child_shown, here.subnets);
        }
        if let Child::Some(pool) = self.questions.family.child(here.child) {
            let life = usize::from(pool.life);
            here.held[life] |= unheld || self.questions.read(Read::HolderStands, here.child, holder_shown);
        } else if let Child::None { after } = self.questions.family.child(here.child)
            && is(TreeMutant::HolderConfirmedEarly)
            && let Some(held) = here.held.get_mut(usize::from(after))
        {
            // The next child, which nobody has seen yet.
            let next = Child::Some(unmade(self.questions.family.origin, after));
            let next = self.questions.family.child_number(next);
            *held |= self.questions.read(Read::HolderStands, next, holder_shown);
        }
        here.pool_may_go |= pool_unlisted || self.questions.read(Read::PoolMayGo, here.child, leaf_shown);
        here.holder_may_go |=
            holder_unlisted || owned_unlisted || self.questions.read(Read::HolderMayGo, here.child, here.subnets);
        if self.questions.family.origin == Origin::PoolClaim {
            self.claim_asked(&mut here);
        }
        here.pack()
    }

    /// What can be asked for the pool claim's sake.
    fn claim_asked(&mut self, here: &mut Here) {
        let is = |mutant| self.mutant == Some(mutant);
        let mut claim_shown = here.pool_claim;
        if claim_shown == PoolClaim::Marked && is(TreeMutant::LeavingClaimConfirmed) {
            claim_shown = PoolClaim::Alive;
        }
        let mut shown = here.subnets;
        if is(TreeMutant::ClaimCandidatesUnlisted) && self.member(here, HOLDER).is_some_and(|holder| !holder.settled())
        {
            shown[HOLDER] = 0;
        }
        let (unconfirmed, unlisted) = (is(TreeMutant::ClaimUnconfirmed), is(TreeMutant::ClaimUnlisted));
        let listed = here.pool_claim == PoolClaim::Marked || is(TreeMutant::ClaimListedEarly);
        let stands = Read::PoolClaimStands(claim_shown);
        here.claim_stands |= unconfirmed || self.questions.read(stands, 0, here.subnets);
        here.claim_may_go[0] |= listed && self.questions.read(Read::NoPoolOfClaim, here.child, here.subnets);
        here.claim_may_go[1] |= listed && (unlisted || self.questions.read(Read::NoSubnetOfClaim, 0, shown));
    }

    /// What may be written to a Subnet now.
    fn open(&mut self, here: &Here, slot: usize) -> u8 {
        let table = self.tables[usize::from(here.tables[slot])];
        let gone = slot == HOLDER && self.questions.read(Read::OwnerGone, here.child, here.subnets);
        let mut set = 0;
        for child in (0..self.questions.family.child_count()).filter(|child| here.ever & (1 << child) != 0) {
            let place = usize::from(child);
            set |= table[0][place];
            let answered = match (slot, self.questions.family.child(child)) {
                (LEAF, Child::Some(pool)) => here.stands[usize::from(pool.life)],
                (HOLDER, _) => gone || here.claim_stands,
                _ => false,
            };
            if answered {
                set |= table[1][place];
            }
        }
        if slot == HOLDER && !here.holder_may_go {
            set &= !(1 << Write::Gone as u8);
        }
        set
    }

    /// The world after this.
    fn happens(&mut self, here: &Here, what: What) -> State {
        let pool = |tree: &Self| match tree.questions.family.child(here.child) {
            Child::Some(pool) => pool,
            Child::None { .. } => panic!("{what:?} without a pool"),
        };
        match what {
            What::CreatePool => {
                let Child::None { after } = self.questions.family.child(here.child) else {
                    panic!("{what:?} while there is one");
                };
                let pool = unmade(self.questions.family.origin, after);
                self.pool_written(here, Child::Some(pool))
            }
            What::DeletePool => {
                let pool = pool(self);
                let then = match pool.ours {
                    true => Child::Some(Pool { marked: true, ..pool }),
                    false => Child::None { after: pool.life + 1 },
                };
                self.pool_written(here, then)
            }
            What::WritePool(write) => {
                let pool = pool(self);
                let then = match write {
                    PoolWrite::AddFinalizer => Child::Some(Pool { ours: true, ..pool }),
                    PoolWrite::Held => Child::Some(Pool { held: true, ..pool }),
                    PoolWrite::Mark => Child::Some(Pool { marked: true, ..pool }),
                    PoolWrite::DropFinalizer => Child::None { after: pool.life + 1 },
                    PoolWrite::CreateHolder => panic!("that is no write to the pool"),
                };
                self.pool_written(here, then)
            }
            What::DeletePoolClaim => self.pool_claim_written(here, PoolClaim::Marked),
            What::DropPoolClaim => self.pool_claim_written(here, PoolClaim::Gone),
            What::Create(slot, maker) => self.subnet_written(here, slot, Some(new(slot, maker))),
            What::CreateHolder(life) => self.subnet_written(here, HOLDER, Some(new(HOLDER, Maker::Pool(life)))),
            What::Delete(slot) => {
                let member = self.member(here, slot).expect("it is there");
                let then = (member.maker != Maker::Hand).then_some(Member { marked: true, ..member });
                self.subnet_written(here, slot, then)
            }
            What::Write(slot, write) => {
                let member = self.member(here, slot).expect("it is there");
                self.subnet_written(here, slot, member.written(write))
            }
        }
    }

    fn offer(&mut self, here: &Here, what: What, breaks: Option<&'static str>, moves: &mut Vec<Move<What>>) {
        let to = self.happens(here, what);
        moves.push(Move { what, to, breaks });
    }

    fn tell(&self, here: &Here, what: What) -> String {
        let name = |slot: usize| ["the holder", "the leaf in the child", "the rival in the parent"][slot];
        let shown = |slot: usize| {
            let member = self.member(here, slot).expect("it is there");
            let maker = match member.maker {
                Maker::Claim => "of a claim".to_owned(),
                Maker::Hand => "made by hand".to_owned(),
                Maker::Pool(life) => format!("of child pool {}", life + 1),
            };
            let phase = member.phase.map_or("no phase".to_owned(), |phase| format!("{phase:?}"));
            let marked = if member.marked { ", marked for deletion" } else { "" };
            format!("{} ({maker}, {phase}{marked})", name(slot))
        };
        let pool = match self.questions.family.child(here.child) {
            Child::Some(pool) => format!(
                "child pool {}{}{}",
                pool.life + 1,
                if pool.held { ", Held" } else { "" },
                if pool.marked { ", marked for deletion" } else { "" }
            ),
            Child::None { after } => format!("child pool {}", after + 1),
        };
        match what {
            What::CreatePool => format!("{pool} is created"),
            What::DeletePool => format!("a user deletes {pool}"),
            What::WritePool(write) => format!("an operator writes {write:?} to {pool}"),
            What::DeletePoolClaim => "a user deletes the pool claim".to_owned(),
            What::DropPoolClaim => "an operator lets the pool claim go".to_owned(),
            What::Create(slot, Maker::Claim) => format!("Usher creates {} for a claim", name(slot)),
            What::Create(slot, _) => format!("a user creates {}", name(slot)),
            What::CreateHolder(life) => format!("an operator creates the holder of child pool {}", life + 1),
            What::Delete(slot) => format!("a user deletes {}", shown(slot)),
            What::Write(slot, write) => format!("an operator writes {write:?} to {}", shown(slot)),
        }
    }
}

/// The child pool as it is created.
fn unmade(origin: Origin, life: u8) -> Pool {
    Pool {
        life,
        ours: origin == Origin::PoolClaim,
        held: false,
        marked: false,
    }
}

fn new(slot: usize, maker: Maker) -> Member {
    Member {
        maker,
        phase: None,
        marked: false,
        // The rival comes first where it was made by hand, so that both orders of rank occur.
        late: slot == RIVAL && maker == Maker::Claim,
    }
}

impl World for Tree {
    type What = What;

    fn start(&self) -> State {
        let nothing = self.questions.family.child_number(Child::None { after: 0 });
        Here {
            child: nothing,
            subnets: [0; 3],
            ever: 1 << nothing,
            tables: [0; 3],
            pool_table: 0,
            stands: [false; 2],
            held: [false; 2],
            pool_may_go: false,
            holder_may_go: false,
            pool_claim: PoolClaim::Alive,
            claim_stands: false,
            claim_may_go: [false; 2],
        }
        .pack()
    }

    fn quiet(&mut self, _: State, _: &mut Vec<Move<What>>) {}

    fn writes(&mut self, at: State, moves: &mut Vec<Move<What>>) {
        let mut here = Here::unpack(at);
        // What the first view, of nothing, lets somebody decide.
        let first = self.decided(POOL, [0; 3]);
        here.pool_table = self.union(here.pool_table, first);
        let here = here;
        match self.questions.family.child(here.child) {
            Child::None { after } if after < 2 => self.offer(&here, What::CreatePool, None, moves),
            Child::None { .. } => {}
            Child::Some(pool) => {
                if !pool.marked {
                    self.offer(&here, What::DeletePool, None, moves);
                }
                let table = self.tables[usize::from(here.pool_table)];
                let place = usize::from(here.child);
                let mut set = table[0][place];
                if here.held[usize::from(pool.life)] {
                    set |= table[1][place];
                }
                if !here.pool_may_go {
                    set &= !(1 << PoolWrite::DropFinalizer as u8);
                }
                for write in PoolWrite::ALL
                    .into_iter()
                    .filter(|write| set & (1 << *write as u8) != 0)
                {
                    if write != PoolWrite::CreateHolder {
                        self.offer(&here, What::WritePool(write), None, moves);
                    }
                }
            }
        }
        match here.pool_claim {
            PoolClaim::Alive if self.questions.family.origin == Origin::PoolClaim => {
                self.offer(&here, What::DeletePoolClaim, None, moves);
            }
            // Whoever lets it go may have a view of pools and Subnets from before there was any.
            PoolClaim::Marked if here.claim_may_go == [true; 2] => {
                self.offer(&here, What::DropPoolClaim, None, moves);
            }
            _ => {}
        }
        for slot in [HOLDER, LEAF, RIVAL] {
            let Some(member) = self.member(&here, slot) else {
                self.creations(&here, slot, moves);
                continue;
            };
            if !member.marked {
                self.offer(&here, What::Delete(slot), None, moves);
            }
            for write in each(self.open(&here, slot)) {
                let breaks = match write {
                    Write::Failed | Write::Pending if member.settled() => Some("I6: what was Allocated is withdrawn"),
                    Write::Mark | Write::Gone if member.maker == Maker::Hand => {
                        Some("I6: Usher deletes a Subnet made by hand")
                    }
                    _ => None,
                };
                self.offer(&here, What::Write(slot, write), breaks, moves);
            }
        }
    }

    fn broken(&self, at: State) -> Option<String> {
        let here = Here::unpack(at);
        let [holder, leaf, rival] = [HOLDER, LEAF, RIVAL].map(|slot| self.member(&here, slot));
        let settled = |member: Option<Member>| member.is_some_and(|member| member.settled());
        let child = match self.questions.family.child(here.child) {
            Child::Some(pool) => Some(pool),
            Child::None { .. } => None,
        };
        let stands_for = |pool: Pool| match holder.map(|holder| holder.maker) {
            Some(Maker::Pool(life)) => settled(holder) && life == pool.life,
            Some(_) => settled(holder),
            None => false,
        };
        if settled(leaf) && settled(rival) {
            return Some("I4: the leaf in the child pool and its rival in the parent have the same addresses".into());
        }
        if settled(holder) && settled(rival) {
            return Some("I1: the holder and its rival in the parent have the same addresses".into());
        }
        if settled(leaf) && child.is_none() {
            return Some("I10: the child pool is gone, its Subnet is not".into());
        }
        if settled(leaf) && !child.is_some_and(stands_for) {
            return Some("I2: a Subnet of the child pool lies in no holder of it".into());
        }
        if child.is_some_and(|pool| pool.held && !stands_for(pool)) {
            return Some("I2: the child pool was Held, and its holder is gone".into());
        }
        if here.pool_claim == PoolClaim::Gone && settled(holder) {
            return Some("I10: the pool claim is gone, its holder is not".into());
        }
        if here.pool_claim == PoolClaim::Gone && child.is_some_and(|pool| pool.held) {
            return Some("I10: the pool claim is gone, its pool is not".into());
        }
        None
    }

    fn story(&mut self, way: &[What]) -> Vec<String> {
        let (mut at, mut lines, mut moves) = (self.start(), Vec::new(), Vec::new());
        for what in way {
            lines.push(self.tell(&Here::unpack(at), *what));
            self.writes(at, &mut moves);
            at = moves
                .drain(..)
                .find(|step| step.what == *what)
                .map_or(at, |step| step.to);
        }
        lines
    }
}

impl Tree {
    /// Who may come to be in an empty slot.
    fn creations(&mut self, here: &Here, slot: usize, moves: &mut Vec<Move<What>>) {
        match (slot, self.questions.family.origin) {
            (HOLDER, Origin::Label) => {
                // Whoever saw the pool once may still have a create under way.
                let table = self.tables[usize::from(here.pool_table)];
                for life in 0..2 {
                    let creates = |child: u8| match self.questions.family.child(child) {
                        Child::Some(pool) if pool.life == life => {
                            table[0][usize::from(child)] & (1 << PoolWrite::CreateHolder as u8) != 0
                        }
                        _ => false,
                    };
                    if (0..self.questions.family.child_count())
                        .any(|child| here.ever & (1 << child) != 0 && creates(child))
                    {
                        self.offer(here, What::CreateHolder(life), None, moves);
                    }
                }
            }
            (HOLDER, Origin::PoolClaim) => self.offer(here, What::Create(slot, Maker::Claim), None, moves),
            _ => {
                for maker in [Maker::Claim, Maker::Hand] {
                    self.offer(here, What::Create(slot, maker), None, moves);
                }
            }
        }
    }
}
