//! State machines as tables.
//!
//! A [`Table`] is a `const` list of rows: from, event, guard, to. It is the thing that runs: [`Table::next`] takes the first
//! row that applies, [`Table::take`] refuses what no row lists. The same rows are listed for tests and drawn for the docs
//! ([`Table::mermaid`], [`Table::rows_as_markdown`]), so that there is no second copy to drift.
//!
//! Events are not messages. Whether one holds is asked of what was observed, every time: a change that nobody told us of
//! costs nothing.

use std::fmt::{self, Write as _};

/// A state: one of a few, with a name.
pub trait State: Copy + Eq + fmt::Debug + 'static {
    /// All of them, in the order in which people read them.
    const ALL: &'static [Self];
    /// As it is written in status and docs.
    fn name(self) -> &'static str;
}

/// An event: a name for something that is true of what was observed, `F`.
pub trait Event<F: ?Sized>: Copy + Eq + fmt::Debug + 'static {
    /// As it is written in docs and Kubernetes events.
    fn name(self) -> &'static str;
    /// Whether it holds.
    fn holds(self, facts: &F) -> bool;
}

/// What must hold besides the event.
#[derive(Debug)]
pub struct Guard<F: ?Sized> {
    /// In a few words, for docs.
    pub name: &'static str,
    /// Whether it does.
    pub holds: fn(&F) -> bool,
}

/// From which states the event leads where.
#[derive(Debug)]
pub struct Row<S: 'static, E, F: ?Sized> {
    /// The states it leads from.
    pub from: &'static [S],
    /// What must be true.
    pub event: E,
    /// What must be true besides.
    pub guard: Option<Guard<F>>,
    /// The state it leads to.
    pub to: S,
}

/// The rows, the more urgent first: where several apply, the first is taken.
#[derive(Debug)]
pub struct Table<S: 'static, E: 'static, F: ?Sized + 'static> {
    /// In order.
    pub rows: &'static [Row<S, E, F>],
}

/// One change of state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hop<S, E> {
    /// Where it was.
    pub from: S,
    /// What led away.
    pub event: E,
    /// Where it is.
    pub to: S,
}

/// Why a change of state is not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The table has no such row.
    #[error("the table has no row from {from} by {event}")]
    NotListed {
        /// The state.
        from: &'static str,
        /// The event.
        event: &'static str,
    },
    /// It has, and the guard does not hold.
    #[error("{event} leads away from {from} only if: {guard}")]
    Guarded {
        /// The state.
        from: &'static str,
        /// The event.
        event: &'static str,
        /// The guard.
        guard: &'static str,
    },
}

/// More states than this are not drawn as so many arrows, but said in a sentence.
const DRAWN_AT_MOST: usize = 3;

impl<F: ?Sized> Guard<F> {
    /// A guard by its words and its test.
    pub const fn new(name: &'static str, holds: fn(&F) -> bool) -> Self {
        Self { name, holds }
    }
}

impl<S: State, E, F: ?Sized> Row<S, E, F> {
    /// Whether the guard, if any, holds.
    fn allows(&self, facts: &F) -> bool {
        self.guard.as_ref().is_none_or(|guard| (guard.holds)(facts))
    }
}

impl<S: State, E: Event<F>, F: ?Sized> Table<S, E, F> {
    /// The first row that leads away from here, by what is true now.
    pub fn next(&self, from: S, facts: &F) -> Option<Hop<S, E>> {
        self.first(from, facts, |_| true)
    }

    /// The same, among the rows whose hop the caller has not made yet.
    pub fn next_but(&self, from: S, facts: &F, made: &[Hop<S, E>]) -> Option<Hop<S, E>> {
        self.first(from, facts, |hop| !made.contains(&hop))
    }

    fn first(&self, from: S, facts: &F, wanted: impl Fn(Hop<S, E>) -> bool) -> Option<Hop<S, E>> {
        self.rows
            .iter()
            .filter(|row| row.from.contains(&from))
            .filter(|row| row.event.holds(facts) && row.allows(facts))
            .map(|row| Hop {
                from,
                event: row.event,
                to: row.to,
            })
            .find(|hop| wanted(*hop))
    }

    /// Where this event leads from here; refused where the table does not say so.
    pub fn take(&self, from: S, event: E, facts: &F) -> Result<S, Refused> {
        let listed = || {
            self.rows
                .iter()
                .filter(move |row| row.event == event && row.from.contains(&from))
        };
        if let Some(row) = listed().find(|row| row.allows(facts)) {
            return Ok(row.to);
        }
        let (from, event) = (from.name(), event.name());
        Err(match listed().find_map(|row| row.guard.as_ref()) {
            Some(guard) => Refused::Guarded {
                from,
                event,
                guard: guard.name,
            },
            None => Refused::NotListed { from, event },
        })
    }

    /// Whether the table lists this change of state, guards apart.
    pub fn lists(&self, hop: Hop<S, E>) -> bool {
        self.rows
            .iter()
            .any(|row| row.event == hop.event && row.to == hop.to && row.from.contains(&hop.from))
    }

    /// Every change of state that the table lists.
    pub fn hops(&self) -> impl Iterator<Item = Hop<S, E>> + '_ {
        self.rows.iter().flat_map(|row| {
            row.from.iter().map(|from| Hop {
                from: *from,
                event: row.event,
                to: row.to,
            })
        })
    }

    /// The drawing, for Mermaid. What leads from more than three states to one is left to the list.
    pub fn mermaid(&self, start: S) -> String {
        let mut text = format!("stateDiagram-v2\n    [*] --> {}\n", start.name());
        let drawn = self.rows.iter().filter(|row| row.from.len() <= DRAWN_AT_MOST);
        for row in drawn {
            for from in row.from {
                // Writing to a String does not fail.
                let _ = writeln!(text, "    {} --> {}: {}", from.name(), row.to.name(), row.event.name());
            }
        }
        text
    }

    /// All rows, as a table of Markdown.
    pub fn rows_as_markdown(&self) -> String {
        let mut text = String::from("| from | event | only if | to |\n|---|---|---|---|\n");
        for row in self.rows {
            let guard = row.guard.as_ref().map_or("", |guard| guard.name);
            let _ = writeln!(
                text,
                "| {} | {} | {guard} | {} |",
                states(row.from),
                row.event.name(),
                row.to.name()
            );
        }
        text
    }
}

/// Their names; where they are most of all there are, those that they are not.
fn states<S: State>(some: &[S]) -> String {
    let names = |states: Vec<&S>| {
        let names: Vec<&str> = states.into_iter().map(|state| state.name()).collect();
        names.join(", ")
    };
    let rest: Vec<&S> = S::ALL.iter().filter(|state| !some.contains(state)).collect();
    match rest.len() {
        0 => "every".to_owned(),
        left if left <= DRAWN_AT_MOST && left < some.len() => format!("every but {}", names(rest)),
        _ => names(some.iter().collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Door {
        Open,
        Shut,
        Locked,
        Gone,
        Painted,
    }
    use Door::*;

    impl State for Door {
        const ALL: &'static [Self] = &[Open, Shut, Locked, Gone, Painted];
        fn name(self) -> &'static str {
            match self {
                Open => "Open",
                Shut => "Shut",
                Locked => "Locked",
                Gone => "Gone",
                Painted => "Painted",
            }
        }
    }

    #[derive(Debug, Default)]
    struct Room {
        pushed: bool,
        key: bool,
        fire: bool,
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Happens {
        Push,
        Fire,
    }

    impl Event<Room> for Happens {
        fn name(self) -> &'static str {
            match self {
                Happens::Push => "Push",
                Happens::Fire => "Fire",
            }
        }
        fn holds(self, room: &Room) -> bool {
            match self {
                Happens::Push => room.pushed,
                Happens::Fire => room.fire,
            }
        }
    }

    const DOOR: Table<Door, Happens, Room> = Table {
        rows: &[
            Row {
                from: &[Open, Shut, Locked, Painted],
                event: Happens::Fire,
                guard: None,
                to: Gone,
            },
            Row {
                from: &[Open],
                event: Happens::Push,
                guard: None,
                to: Shut,
            },
            Row {
                from: &[Shut],
                event: Happens::Push,
                guard: Some(Guard::new("a key is in it", |room| room.key)),
                to: Locked,
            },
        ],
    };

    #[test]
    fn the_first_row_that_applies_is_taken() {
        let mut room = Room {
            pushed: true,
            ..Room::default()
        };
        let hop = DOOR.next(Open, &room).unwrap();
        assert_eq!((hop.to, hop.event), (Shut, Happens::Push));
        assert!(DOOR.lists(hop));
        assert_eq!(DOOR.next(Shut, &room), None, "no key");
        room.key = true;
        assert_eq!(DOOR.next(Shut, &room).map(|hop| hop.to), Some(Locked));
        room.fire = true;
        let fire = DOOR.next(Open, &room).unwrap();
        assert_eq!(fire.to, Gone, "the more urgent row comes first");
        assert_eq!(DOOR.next_but(Open, &room, &[fire]).map(|hop| hop.to), Some(Shut));
        assert_eq!(DOOR.next(Gone, &room), None);
    }

    #[test]
    fn what_the_table_does_not_list_is_refused() {
        let room = Room::default();
        assert_eq!(DOOR.take(Open, Happens::Push, &room), Ok(Shut));
        let not_listed = DOOR.take(Gone, Happens::Push, &room).unwrap_err();
        assert_eq!(not_listed.to_string(), "the table has no row from Gone by Push");
        let guarded = DOOR.take(Shut, Happens::Push, &room).unwrap_err();
        assert_eq!(guarded.to_string(), "Push leads away from Shut only if: a key is in it");
        let invented = Hop {
            from: Open,
            event: Happens::Push,
            to: Gone,
        };
        assert!(!DOOR.lists(invented));
    }

    #[test]
    fn every_listed_hop_is_listed_once() {
        assert_eq!(DOOR.hops().count(), 6);
        assert!(DOOR.hops().all(|hop| DOOR.lists(hop)));
    }

    #[test]
    fn drawing_and_list_say_what_the_rows_say() {
        assert_eq!(
            DOOR.mermaid(Open),
            "stateDiagram-v2\n    [*] --> Open\n    Open --> Shut: Push\n    Shut --> Locked: Push\n"
        );
        let list = DOOR.rows_as_markdown();
        assert!(list.contains("| every but Gone | Fire |  | Gone |\n"), "{list}");
        assert!(list.contains("| Shut | Push | a key is in it | Locked |\n"), "{list}");
    }
}
