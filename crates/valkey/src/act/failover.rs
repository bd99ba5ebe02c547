//! Steps that change who is primary.

use usher_operator::error::Failure;

use super::reach::{Reach, is_well};
use crate::observe::client::command;
use crate::observe::seen::{Link, RoleSaid};
use crate::plan::step::Server;
use crate::words::Epoch;

/// A candidate may lag by this much (R28): it is caught up with while the primary's writes are held.
pub const LAG_BYTES: u64 = 1 << 20;

/// T14. `OK` means that the replica has begun; the next passes see whether it came about.
pub async fn hand_over(reach: &Reach<'_>, from: &Server, to: &Server, epoch: Epoch) -> Result<(), Failure> {
    let (primary, replica) = (reach.hold(from).await?, reach.hold(to).await?);
    let RoleSaid::Replica { link, offset } = &replica.says().role else {
        // It has taken over already.
        return replica.require(!replica.myself().slots.is_empty(), "it is a primary without slots");
    };
    let RoleSaid::Primary { offset: written, .. } = &primary.says().role else {
        return Err(primary.moved("it is no primary any more"));
    };
    let follows = replica.myself().primary.as_ref() == Some(primary.id());
    replica.require(follows, "it follows another primary")?;
    replica.require(*link == Link::Up, "its link is not up")?;
    replica.require(replica.says().state_ok, "it does not say cluster_state:ok")?;
    replica.require(written.saturating_sub(*offset) <= LAG_BYTES, "it lags behind")?;
    primary.require(primary.myself().epoch == epoch, "its epoch is another")?;
    // Or it answers OK, and nothing happens.
    let listed = primary.knows(replica.id());
    let listed = listed.filter(|peer| peer.flags.replica && is_well(peer) && peer.primary.as_ref() == Some(&from.id));
    primary.require(listed.is_some(), "it does not list the candidate as its replica")?;
    let moves = primary.says().jobs.iter().any(|job| !job.is_over());
    primary.require(!moves, "its slots are being moved")?;
    primary.require(primary.myself().open.is_empty(), "it has open slots")?;
    replica.tell("promote", &command("CLUSTER FAILOVER")).await.map(drop)
}

/// T15. Only where the candidate itself has lost its primary: a primary that may live is never taken over from.
pub async fn force(reach: &Reach<'_>, to: &Server, takeover: bool) -> Result<(), Failure> {
    let replica = reach.hold(to).await?;
    let RoleSaid::Replica { link, .. } = &replica.says().role else {
        return replica.require(!replica.myself().slots.is_empty(), "it is a primary without slots");
    };
    replica.require(*link == Link::Down, "its primary still sends to it")?;
    let primary = replica.myself().primary;
    let lost = primary.as_ref().and_then(|primary| replica.knows(primary));
    let lost = lost.is_none_or(|peer| !is_well(peer));
    replica.require(lost, "it still reaches its primary")?;
    let words = if takeover {
        "CLUSTER FAILOVER TAKEOVER"
    } else {
        "CLUSTER FAILOVER FORCE"
    };
    replica.tell("promote", &command(words)).await.map(drop)
}
