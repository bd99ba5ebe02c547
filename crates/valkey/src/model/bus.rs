//! The cluster bus: letters between servers, by address. They take their time, and may meet nobody.

use std::net::IpAddr;
use std::sync::Arc;

use crate::words::{NodeId, ShardId, SlotSet};

/// A letter on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Letter {
    /// Whence.
    pub from: IpAddr,
    /// Whither.
    pub to: IpAddr,
    /// What it says.
    pub body: Body,
}

/// What a letter says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// Asks for an answer.
    Ping(Arc<Header>),
    /// The answer; or news, unasked.
    Pong(Arc<Header>),
    /// Asks to be taken in.
    Meet(Arc<Header>),
    /// Tells a server that its claim is out of date, and whose slots they are.
    Update(Claim),
    /// A majority cannot reach this member.
    Fail {
        /// Who says so.
        sender: NodeId,
        /// Whom.
        failed: NodeId,
    },
    /// Asks for a vote.
    VoteFor {
        /// The replica that asks, and what it would claim.
        claim: Claim,
        /// Its primary.
        primary: NodeId,
        /// The epoch it asks for.
        epoch: u64,
        /// The primary lives and agrees, or a person insists.
        forced: bool,
    },
    /// A vote.
    Vote {
        /// Whose.
        sender: NodeId,
        /// In which epoch.
        epoch: u64,
    },
    /// A replica asks its primary to hand over.
    HandOver(NodeId),
    /// The primary does, and stands still at this offset.
    StandsStill {
        /// The primary.
        sender: NodeId,
        /// How far its data goes.
        offset: u64,
    },
    /// Nobody listens at the address the letter was sent to.
    Refused,
}

/// Slots, and on what ground they are claimed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Whose.
    pub id: NodeId,
    /// Config epoch.
    pub epoch: u64,
    /// Which slots.
    pub slots: SlotSet,
}

/// What every ping and pong begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Who speaks.
    pub sender: NodeId,
    /// Its shard.
    pub shard: ShardId,
    /// The address it announces.
    pub address: IpAddr,
    /// The highest epoch it has heard of.
    pub current_epoch: u64,
    /// Its primary, where it is a replica.
    pub primary: Option<NodeId>,
    /// Its claim; a replica's is its primary's.
    pub claim: Claim,
    /// How far its data goes.
    pub offset: u64,
    /// What it thinks of others.
    pub rumours: Vec<Rumour>,
    /// Whom it was told to forget, and for how long still.
    pub forgotten: Vec<(NodeId, u64)>,
}

/// What one server says of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rumour {
    /// Of whom.
    pub id: NodeId,
    /// Where it is.
    pub address: Option<IpAddr>,
    /// Its shard.
    pub shard: ShardId,
    /// Whose replica it is.
    pub primary: Option<NodeId>,
    /// It cannot be reached, or a majority says so.
    pub failing: bool,
    /// A majority says so.
    pub failed: bool,
}
