//! Rolling changes: which revision a pod has, which it should have, and whose turn it is.
//!
//! A [`Revision`] is the hash of what a spec says of pods, and of nothing that we add to it: a newer Usher restarts nobody
//! by itself. One pod is planned down at a time, its uid on record ([`Down`]) before it is deleted; the next has its turn
//! when the last is back. A pod that does not come back stops the walk there; what is broken and outdated goes first, so
//! that going back in the spec mends it at once.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use crate::hash::CanonicalHash;
use crate::{Text, Uid};

/// What shapes a pod, as one short text: fit for an annotation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Revision(Text);

impl Revision {
    /// The revision of what the spec says of pods.
    pub fn of<T: Serialize>(shaping: &T) -> Result<Self, serde_json::Error> {
        Ok(Self(CanonicalHash::of(shaping)?.to_string().into()))
    }

    /// One that was written down.
    pub fn written(text: &str) -> Self {
        Self(text.into())
    }

    /// As it is written down.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The pod that was taken down on purpose, by what is on record of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Down {
    /// Its name: the successor has the same.
    pub name: Text,
    /// The incarnation that was to go.
    pub uid: Uid,
    /// When that was written down.
    pub since: Timestamp,
}

/// One pod of the walk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its name.
    pub name: Text,
    /// Its incarnation.
    pub uid: Uid,
    /// The revision that shaped it, where it says so.
    pub revision: Option<Revision>,
    /// Whether it does all that it is there for: Ready, in sync, known to the others.
    pub whole: bool,
}

impl Member {
    /// Whether it is of another revision, or of one that nobody knows.
    pub fn outdated(&self, wanted: &Revision) -> bool {
        self.revision.as_ref() != Some(wanted)
    }
}

/// Whose turn it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Turn<'m> {
    /// Nobody is outdated, and nobody is down.
    Over,
    /// This one may be taken down.
    Of(&'m Member),
    /// This pod was taken down and is on its way back.
    Waits {
        /// Its name.
        name: Text,
        /// Since when.
        since: Timestamp,
    },
    /// This pod was taken down and has not come back in its time: the walk stands.
    Stalled {
        /// Its name.
        name: Text,
        /// Since when it is down.
        since: Timestamp,
    },
    /// Nothing is planned down, and this one is not whole: who takes another down now has two down.
    Held {
        /// Its name.
        name: Text,
    },
}

/// Whose turn it is. `members` are in the order of the walk; `patience` is how long a pod may take to come back.
pub fn turn<'m>(
    members: &'m [Member],
    wanted: &Revision,
    down: Option<&Down>,
    patience: Duration,
    now: Timestamp,
) -> Turn<'m> {
    if let Some(down) = down {
        let successor = members.iter().find(|member| member.name == down.name);
        let late = now.duration_since(down.since).unsigned_abs() >= patience;
        match successor {
            // Written down and not deleted yet; or it came back as it was, and must go once more.
            Some(member) if member.outdated(wanted) => return Turn::Of(member),
            Some(member) if member.whole => {}
            _ if late => {
                return Turn::Stalled {
                    name: down.name.clone(),
                    since: down.since,
                };
            }
            _ => {
                return Turn::Waits {
                    name: down.name.clone(),
                    since: down.since,
                };
            }
        }
    }
    let outdated = || members.iter().filter(|member| member.outdated(wanted));
    let broken = || members.iter().filter(|member| !member.whole);
    // Those that are not whole are outdated themselves: taking one down takes nothing away, and may mend it.
    if let Some(first) = broken().next()
        && broken().all(|member| member.outdated(wanted))
    {
        return Turn::Of(first);
    }
    match (broken().find(|member| !member.outdated(wanted)), outdated().next()) {
        (Some(one), Some(_)) => Turn::Held { name: one.name.clone() },
        (None, Some(next)) => Turn::Of(next),
        (_, None) => Turn::Over,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn member(name: &str, revision: &str, whole: bool) -> Member {
        Member {
            name: name.into(),
            uid: format!("{name}-{revision}").as_str().into(),
            revision: Some(Revision::written(revision)),
            whole,
        }
    }

    fn down(name: &str, since: i64) -> Down {
        Down {
            name: name.into(),
            uid: format!("{name}-old").as_str().into(),
            since: at(since),
        }
    }

    const PATIENCE: Duration = Duration::from_secs(600);

    fn said(members: &[Member], down: Option<&Down>, now: i64) -> String {
        match turn(members, &Revision::written("new"), down, PATIENCE, at(now)) {
            Turn::Over => "over".into(),
            Turn::Of(member) => format!("turn of {}", member.name),
            Turn::Waits { name, .. } => format!("waits for {name}"),
            Turn::Stalled { name, .. } => format!("stalled at {name}"),
            Turn::Held { name } => format!("held by {name}"),
        }
    }

    #[test]
    fn revisions_follow_what_is_said_and_not_how() {
        let one = Revision::of(&json!({"image": "a", "config": {"x": "1", "y": "2"}})).unwrap();
        let two = Revision::of(&json!({"config": {"y": "2", "x": "1"}, "image": "a"})).unwrap();
        assert_eq!(one, two);
        assert_eq!(Revision::written(one.as_str()), two);
        assert_ne!(one, Revision::of(&json!({"image": "b"})).unwrap());
    }

    #[test]
    fn one_after_the_other_in_the_order_given() {
        let mut pods = vec![member("a", "old", true), member("b", "old", true)];
        assert_eq!(said(&pods, None, 0), "turn of a");
        assert_eq!(
            said(&pods, Some(&down("a", 0)), 0),
            "turn of a",
            "on record, not yet deleted"
        );
        pods[0] = member("a", "new", false);
        assert_eq!(said(&pods, Some(&down("a", 0)), 599), "waits for a");
        assert_eq!(said(&pods, Some(&down("a", 0)), 600), "stalled at a");
        assert_eq!(
            said(&pods[1..], Some(&down("a", 0)), 5),
            "waits for a",
            "its successor is not there yet"
        );
        pods[0] = member("a", "new", true);
        assert_eq!(said(&pods, Some(&down("a", 0)), 700), "turn of b");
        pods[1] = member("b", "new", true);
        assert_eq!(said(&pods, Some(&down("b", 0)), 700), "over");
    }

    #[test]
    fn nobody_is_taken_down_beside_one_that_is_not_whole() {
        let pods = [member("a", "old", true), member("b", "new", false)];
        assert_eq!(said(&pods, None, 0), "held by b");
        let pods = [member("a", "old", false), member("b", "new", false)];
        assert_eq!(said(&pods, None, 0), "held by b");
    }

    #[test]
    fn the_broken_one_goes_first_when_it_is_outdated() {
        let pods = [member("a", "old", true), member("b", "old", false)];
        assert_eq!(said(&pods, None, 0), "turn of b");
        let both = [member("a", "old", false), member("b", "old", false)];
        assert_eq!(
            said(&both, None, 0),
            "turn of a",
            "neither gives anything that could be lost"
        );
        // Going back in the spec while the walk stands at b: b, which is broken, is of the wrong revision again.
        let pods = [member("a", "new", true), member("b", "broken", false)];
        assert_eq!(said(&pods, Some(&down("b", 0)), 601), "turn of b");
    }

    proptest! {
        #[test]
        fn whoever_has_the_turn_is_outdated_and_nobody_else_is_down(
            pods in prop::collection::vec((any::<bool>(), any::<bool>()), 0..6),
            downs in prop::option::of(0usize..6),
            now in 0i64..2000,
        ) {
            let members: Vec<Member> = pods.iter().enumerate()
                .map(|(at, (new, whole))| member(&at.to_string(), if *new { "new" } else { "old" }, *whole)).collect();
            let down = downs.map(|at| down(&at.to_string(), 0));
            let wanted = Revision::written("new");
            let got = turn(&members, &wanted, down.as_ref(), PATIENCE, at(now));
            if let Turn::Of(member) = &got {
                prop_assert!(member.outdated(&wanted));
                let planned = down.as_ref().is_some_and(|down| down.name == member.name);
                // Of those that are as they should be, nobody is down.
                let others_up = members.iter().all(|other| other.whole || other.outdated(&wanted));
                prop_assert!(planned || (others_up && (!member.whole || members.iter().all(|other| other.whole))));
            }
            if got == Turn::Over {
                prop_assert!(members.iter().all(|member| !member.outdated(&wanted)));
            }
        }
    }
}
