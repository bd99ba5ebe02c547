//! Old history goes (S7): each minute while there is any, and not at all in a cluster where nothing is written.

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};

use super::{Census, Control, Hand, Next, Wishes};
use crate::fault::Fault;
use crate::store::{Entry, LogEntry, Retention};

const EVERY: SignedDuration = SignedDuration::from_secs(60);
const KEY: &str = "history";

#[derive(Debug, Default)]
pub(super) struct Compaction;

impl Control for Compaction {
    fn begin(&mut self, hand: &Hand, _: &[Entry], _: &Census, wishes: &mut Wishes) {
        wishes.sync_by(KEY, later(hand.now()));
    }

    fn see(&mut self, hand: &Hand, _: &LogEntry, _: &Census, wishes: &mut Wishes) {
        wishes.sync_by(KEY, later(hand.now()));
    }

    fn sync<'a>(&'a mut self, hand: &'a Hand, _: &'a str, _: &'a mut Wishes) -> BoxFuture<'a, Result<Next, Fault>> {
        async move {
            let (store, now) = (&hand.registry.store, hand.now());
            store.compact(now);
            // So many revisions are kept whatever their age: with fewer, only a write brings more to do.
            let kept = store.revision() - store.floor();
            let has_more = kept > Retention::default().min_revisions as u64;
            Ok(if has_more { Next::At(later(now)) } else { Next::Done })
        }
        .boxed()
    }
}

fn later(now: Timestamp) -> Timestamp {
    now.saturating_add(EVERY).unwrap_or(Timestamp::MAX)
}
