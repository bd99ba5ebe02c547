//! What the API server said when it was asked past the view: each answer is a proof of something the view cannot show.
//!
//! Kept beside the records, in memory only: an answer that is lost is asked for again. Each kind of answer is bounded; the
//! oldest go first.

use std::collections::{BTreeMap, VecDeque};

use jiff::{SignedDuration, Timestamp};
use usher_engine::Uid;

use crate::plan::claim::Loss;
use crate::plan::footing::{Footing, Ground};

/// Answers of one kind that are remembered.
const KEPT: usize = 10_000;

/// A map that forgets its oldest entries.
#[derive(Debug)]
struct Bounded<K, V> {
    entries: BTreeMap<K, V>,
    order: VecDeque<K>,
}

impl<K, V> Default for Bounded<K, V> {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
            order: VecDeque::new(),
        }
    }
}

impl<K: Ord + Clone, V> Bounded<K, V> {
    fn insert(&mut self, key: K, value: V) {
        if self.entries.insert(key.clone(), value).is_none() {
            self.order.push_back(key);
        }
        while self.order.len() > KEPT {
            if let Some(oldest) = self.order.pop_front() {
                self.entries.remove(&oldest);
            }
        }
    }
}

/// What was asked about a ground, and what came of it (R25, R44).
#[derive(Debug, Clone, PartialEq)]
struct GroundAnswer {
    /// The view's event count when the answered question was sent.
    sent: u64,
    /// Uid of the ground that was found standing; `None`: there was none.
    stands: Option<Uid>,
    at: Timestamp,
}

/// See the module's header.
#[derive(Debug, Default)]
pub struct Answers {
    gone: Bounded<Uid, ()>,
    held: Bounded<Uid, Uid>,
    lost: Bounded<Uid, Loss>,
    grounds: Bounded<Ground, GroundAnswer>,
    asking: Bounded<Ground, (u64, Timestamp)>,
    adopted_at: Option<Timestamp>,
}

impl Answers {
    /// The object with this uid is gone.
    pub fn note_gone(&mut self, uid: Uid) {
        self.gone.insert(uid, ());
    }

    /// Whether the API server said that this object is gone.
    pub fn is_gone(&self, uid: &Uid) -> bool {
        self.gone.entries.contains_key(uid)
    }

    /// A holder of this uid was Allocated after the child pool of that uid was seen (R26).
    pub fn note_held(&mut self, child: Uid, holder: Uid) {
        self.held.insert(child, holder);
    }

    /// Whether that was said of this child and this holder.
    pub fn is_held(&self, child: &Uid, holder: &Uid) -> bool {
        self.held.entries.get(child).is_some_and(|by| by == holder)
    }

    /// What was found out about the lost Subnet of a claim.
    pub fn note_loss(&mut self, claim: Uid, loss: Loss) {
        self.lost.insert(claim, loss);
    }

    /// What is known of a claim's loss.
    pub fn loss(&self, claim: &Uid) -> Option<&Loss> {
        self.lost.entries.get(claim)
    }

    /// A question about a ground goes out, when the view has taken in `seen` events.
    pub fn ask(&mut self, ground: Ground, seen: u64, now: Timestamp) {
        self.asking.insert(ground, (seen, now));
    }

    /// Its answer: the uid of a ground that stands, or that there is none. `None`: no answer came.
    pub fn answer(&mut self, ground: &Ground, sent: u64, answer: Option<Option<Uid>>, now: Timestamp) {
        if self.asking.entries.get(ground).is_some_and(|(asked, _)| *asked == sent) {
            self.asking.insert(ground.clone(), (0, Timestamp::MIN));
        }
        let newer = self.grounds.entries.get(ground).is_none_or(|known| known.sent <= sent);
        if let Some(stands) = answer.filter(|_| newer) {
            self.grounds
                .insert(ground.clone(), GroundAnswer { sent, stands, at: now });
        }
    }

    /// What is known of a ground of this uid, for a Subnet whose version came with event `changed`: only a question that
    /// went out after that counts.
    pub fn footing(&self, ground: &Ground, uid: &Uid, changed: u64) -> Footing {
        let answer = self.grounds.entries.get(ground).filter(|answer| answer.sent >= changed);
        if let Some(answer) = answer {
            return match answer.stands.as_ref() == Some(uid) {
                true => Footing::Confirmed,
                false => Footing::Denied { at: answer.at },
            };
        }
        match self.asking.entries.get(ground) {
            Some((sent, at)) if *sent >= changed && *sent > 0 => Footing::Asked { at: *at },
            _ => Footing::Unconfirmed,
        }
    }

    /// R38: whether a batch of Subnets may be adopted now; at most one per second.
    pub fn may_adopt(&mut self, now: Timestamp) -> bool {
        let rested = |at: Timestamp| now.duration_since(at) >= SignedDuration::from_secs(1);
        let may = self.adopted_at.is_none_or(rested);
        if may {
            self.adopted_at = Some(now);
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use usher_engine::ObjectKey;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn pool(name: &str) -> Ground {
        Ground::Pool(ObjectKey::new("ns", name).unwrap())
    }

    #[test]
    fn a_pool_and_a_pool_claim_of_one_name_are_two_grounds() {
        let mut answers = Answers::default();
        answers.answer(&pool("p"), 7, Some(Some("u".into())), at(0));
        let claim = Ground::PoolClaim(ObjectKey::new("ns", "p").unwrap());
        assert_eq!(answers.footing(&claim, &"u".into(), 5), Footing::Unconfirmed);
    }

    #[test]
    fn only_a_question_sent_after_the_subnet_was_seen_confirms_its_pool_r25() {
        let (pool, mut answers) = (pool("p"), Answers::default());
        assert_eq!(answers.footing(&pool, &"u".into(), 5), Footing::Unconfirmed);
        answers.ask(pool.clone(), 7, at(0));
        assert_eq!(answers.footing(&pool, &"u".into(), 5), Footing::Asked { at: at(0) });
        assert_eq!(
            answers.footing(&pool, &"u".into(), 8),
            Footing::Unconfirmed,
            "seen after the question"
        );
        answers.answer(&pool, 7, Some(Some("u".into())), at(1));
        assert_eq!(answers.footing(&pool, &"u".into(), 7), Footing::Confirmed);
        assert_eq!(
            answers.footing(&pool, &"another".into(), 7),
            Footing::Denied { at: at(1) }
        );
        assert_eq!(answers.footing(&pool, &"u".into(), 8), Footing::Unconfirmed);
    }

    #[test]
    fn an_older_answer_does_not_replace_a_newer_one_and_none_is_no_answer() {
        let (pool, mut answers) = (pool("p"), Answers::default());
        answers.ask(pool.clone(), 9, at(0));
        answers.answer(&pool, 9, Some(None), at(0));
        answers.answer(&pool, 3, Some(Some("u".into())), at(0));
        assert_eq!(answers.footing(&pool, &"u".into(), 2), Footing::Denied { at: at(0) });
        answers.ask(pool.clone(), 11, at(1));
        answers.answer(&pool, 11, None, at(2));
        assert_eq!(
            answers.footing(&pool, &"u".into(), 10),
            Footing::Unconfirmed,
            "asked again at once"
        );
    }

    #[test]
    fn subnets_are_adopted_in_one_batch_per_second_r38() {
        let mut answers = Answers::default();
        assert!(answers.may_adopt(at(0)));
        assert!(!answers.may_adopt(at(0)));
        assert!(answers.may_adopt(at(1)));
    }
}
