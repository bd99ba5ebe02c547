//! Ways to get the protocol wrong. Each is a wrapper around what the shipped code is shown or what becomes of its answer,
//! so that it runs in every test run without a patched source. The search must find a violation for each; one it does not
//! find means that the search, or the rule, is worth nothing.

use usher_operator::record::Meta;
use usher_subnets::api::{SubnetPhase, SubnetStatus};
use usher_subnets::records::SubnetRecord;

/// A mistake in R21-R23.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// R21(b): only Allocated ones are in the way, candidates are not.
    CandidatesIgnored,
    /// R23: Failed goes to Allocated without Pending in between.
    ReopenSkipped,
    /// R21(a): a commit carries no version.
    CommitUnguarded,
    /// R22: a withdrawal carries no version.
    WithdrawalUnguarded,
    /// R21(a): one that is marked for deletion commits all the same.
    TerminatingCommitted,
    /// R21(b): whatever is marked for deletion counts as withdrawn, Allocated or not.
    TerminatingIgnored,
    /// R21(b): a released range counts as free while its Subnet still has it.
    ReleasedIgnored,
    /// R22: an Allocated one that is overlapped yields like a candidate.
    AllocatedWithdrawn,
    /// 2.3: a phase is written without the generation it speaks of.
    GenerationUnwritten,
    /// Words: a view shows a later write without an earlier one, as when the answer of one's own write counts as seen.
    OrderIgnored,
}

impl Mutant {
    pub const ALL: [Mutant; 10] = [
        Mutant::CandidatesIgnored,
        Mutant::ReopenSkipped,
        Mutant::CommitUnguarded,
        Mutant::WithdrawalUnguarded,
        Mutant::TerminatingCommitted,
        Mutant::TerminatingIgnored,
        Mutant::ReleasedIgnored,
        Mutant::AllocatedWithdrawn,
        Mutant::GenerationUnwritten,
        Mutant::OrderIgnored,
    ];

    /// Whether another Subnet, which holds a range, is seen as one that does.
    pub fn sees(self, other: &SubnetRecord) -> bool {
        match self {
            Mutant::CandidatesIgnored => other.settled(),
            Mutant::TerminatingIgnored => other.meta.deleting.is_none(),
            Mutant::ReleasedIgnored => other.phase() != Some(SubnetPhase::Released),
            _ => true,
        }
    }

    /// The Subnet itself, as the decision gets to see it.
    pub fn shown(self, own: &SubnetRecord) -> SubnetRecord {
        let mut shown = own.clone();
        match self {
            Mutant::TerminatingCommitted if !own.settled() => {
                shown.meta = Meta {
                    deleting: None,
                    generation: own.meta.generation - i64::from(own.meta.deleting.is_some()),
                    ..own.meta.clone()
                };
            }
            Mutant::AllocatedWithdrawn if own.phase() == Some(SubnetPhase::Allocated) => {
                shown.set_status(SubnetStatus {
                    phase: Some(SubnetPhase::Pending),
                    ..own.status()
                });
            }
            _ => {}
        }
        shown
    }
}

/// A mistake in R25, R26 or R44.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TreeMutant {
    /// R25, first half: a commit in a child pool asks nobody whether the pool still stands.
    PoolUnconfirmed,
    /// R25, second half: a pool is let go without a list of its Subnets.
    PoolUnlisted,
    /// R26, first half: a child is Held because the view shows its holder, which is not read again.
    HolderUnconfirmed,
    /// R26, second half: a holder is let go without a list of the pools.
    HolderUnlisted,
    /// R25: an answer that was asked for before the Subnet was seen counts.
    PoolConfirmedEarly,
    /// R25: a list that was asked for before the deletion mark was seen counts.
    PoolListedEarly,
    /// R25: a pool that is on its way out counts as standing.
    LeavingPoolConfirmed,
    /// R25: candidates do not keep a pool, only what is Allocated does.
    CandidatesUnlisted,
    /// R26: an answer that was asked for before the child was seen counts.
    HolderConfirmedEarly,
    /// R26: a list that was asked for before the holder's deletion mark was seen counts.
    HolderListedEarly,
    /// R26: a holder that is on its way out counts as standing.
    LeavingHolderConfirmed,
    /// R26: pools that were made for the pool claim do not keep its holder.
    OwnedPoolsUnlisted,
    /// R44, first half: a commit for a pool claim asks nobody whether the claim still stands.
    ClaimUnconfirmed,
    /// R44, second half: a pool claim is let go without a list of the Subnets.
    ClaimUnlisted,
    /// R44: an answer that was asked for before the Subnet was seen counts.
    ClaimConfirmedEarly,
    /// R44: a list that was asked for before the deletion mark was seen counts.
    ClaimListedEarly,
    /// R44: a pool claim that is on its way out counts as standing.
    LeavingClaimConfirmed,
    /// R44: candidates do not keep a pool claim, only what is Allocated does.
    ClaimCandidatesUnlisted,
}

impl TreeMutant {
    pub const ALL: [TreeMutant; 18] = [
        TreeMutant::PoolUnconfirmed,
        TreeMutant::PoolUnlisted,
        TreeMutant::HolderUnconfirmed,
        TreeMutant::HolderUnlisted,
        TreeMutant::PoolConfirmedEarly,
        TreeMutant::PoolListedEarly,
        TreeMutant::LeavingPoolConfirmed,
        TreeMutant::CandidatesUnlisted,
        TreeMutant::HolderConfirmedEarly,
        TreeMutant::HolderListedEarly,
        TreeMutant::LeavingHolderConfirmed,
        TreeMutant::OwnedPoolsUnlisted,
        TreeMutant::ClaimUnconfirmed,
        TreeMutant::ClaimUnlisted,
        TreeMutant::ClaimConfirmedEarly,
        TreeMutant::ClaimListedEarly,
        TreeMutant::LeavingClaimConfirmed,
        TreeMutant::ClaimCandidatesUnlisted,
    ];

    /// About pools and their Subnets; the others are about children, holders and pool claims.
    pub fn is_of_r25(self) -> bool {
        matches!(
            self,
            TreeMutant::PoolUnconfirmed
                | TreeMutant::PoolUnlisted
                | TreeMutant::PoolConfirmedEarly
                | TreeMutant::PoolListedEarly
                | TreeMutant::LeavingPoolConfirmed
                | TreeMutant::CandidatesUnlisted
        )
    }
}
