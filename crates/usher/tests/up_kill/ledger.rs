//! What must be so after a kill, from what was asked, acknowledged and seen before it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ObjectList;

use crate::writer::Asked;

/// One state of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    pub name: String,
    pub uid: String,
    pub serial: u64,
    pub revision: u64,
}

/// Not the system's: each namespace has one of its own.
pub fn is_ours(map: &ConfigMap) -> bool {
    map.data.as_ref().is_some_and(|data| data.contains_key("serial"))
}

pub fn fact(map: &ConfigMap) -> Fact {
    Fact {
        name: map.metadata.name.clone().unwrap(),
        uid: map.metadata.uid.clone().unwrap(),
        serial: map.data.as_ref().unwrap()["serial"].parse().unwrap(),
        revision: map.metadata.resource_version.as_deref().unwrap().parse().unwrap(),
    }
}

/// An object that one writer owns.
#[derive(Debug, Clone, Default)]
pub struct Slot {
    pub name: String,
    /// The last acknowledged state.
    pub known: Option<Fact>,
    pub asked: Option<Asked>,
    /// All acknowledged states of this life, and how many writes (deletions too).
    pub acknowledged: Vec<Fact>,
    pub writes: usize,
}

/// One line of the watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub fact: Fact,
    pub is_deleted: bool,
}

#[derive(Debug, Default)]
pub struct Ledger {
    slots: Vec<Slot>,
    /// Every revision that anybody was told of, and what it was.
    revisions: BTreeMap<u64, Fact>,
    /// Whose a uid is, over all lives.
    uids: BTreeMap<String, String>,
    /// The watch, over all lives.
    history: Vec<Seen>,
    /// What the watch has led to.
    state: BTreeMap<String, Fact>,
    /// What the list after the last kill showed.
    listed: BTreeMap<String, Fact>,
    newest: u64,
    writes: usize,
    unanswered: usize,
}

const SLOTS_PER_WRITER: usize = 5;

impl Ledger {
    pub fn lend(&mut self, writers: usize) -> Vec<Vec<Slot>> {
        if self.slots.is_empty() {
            let name = |at: usize| format!("w{}-{}", at / SLOTS_PER_WRITER, at % SLOTS_PER_WRITER);
            let slot = |at| Slot {
                name: name(at),
                ..Slot::default()
            };
            self.slots = (0..writers * SLOTS_PER_WRITER).map(slot).collect();
        }
        let slots = std::mem::take(&mut self.slots);
        slots.chunks(SLOTS_PER_WRITER).map(<[Slot]>::to_vec).collect()
    }

    pub fn take_back(&mut self, slots: Vec<Slot>) -> Result<(), String> {
        for mut slot in slots {
            for fact in std::mem::take(&mut slot.acknowledged) {
                self.told(fact)?;
            }
            self.writes += std::mem::take(&mut slot.writes);
            self.unanswered += usize::from(slot.asked.is_some());
            self.slots.push(slot);
        }
        Ok(())
    }

    pub fn acknowledge(&mut self, map: &ConfigMap) -> Result<(), String> {
        let fact = fact(map);
        self.listed.insert(fact.name.clone(), fact.clone());
        self.told(fact)
    }

    /// S5: no revision that anybody saw is used for something else; nor is a uid.
    fn told(&mut self, fact: Fact) -> Result<(), String> {
        let owner = self.uids.entry(fact.uid.clone()).or_insert_with(|| fact.name.clone());
        if *owner != fact.name {
            return Err(format!("one uid for two objects: {owner}, then {fact:?}"));
        }
        self.newest = self.newest.max(fact.revision);
        match self.revisions.insert(fact.revision, fact.clone()) {
            Some(before) if before != fact => Err(format!("S5: revision used twice: {before:?}, then {fact:?}")),
            _ => Ok(()),
        }
    }

    /// The list after a kill: what was acknowledged, and of each writer perhaps the one thing that was not answered.
    pub fn compare(&mut self, found: &ObjectList<ConfigMap>) -> Result<(), String> {
        let revision: u64 = found.metadata.resource_version.as_deref().unwrap().parse().unwrap();
        if revision < self.newest {
            return Err(format!("S1: revisions went back from {} to {revision}", self.newest));
        }
        self.newest = revision;
        self.listed = found
            .items
            .iter()
            .filter(|map| map.data.is_some())
            .map(fact)
            .map(|fact| (fact.name.clone(), fact))
            .collect();
        for fact in self.listed.clone().into_values() {
            self.told(fact)?;
        }
        for slot in &mut self.slots {
            let now = self.listed.get(&slot.name).cloned();
            let is_kept = now == slot.known;
            let is_asked = match (&slot.asked, &now) {
                (Some(Asked::Delete), None) => true,
                (Some(Asked::Write { serial }), Some(now)) => {
                    let before = slot.known.as_ref();
                    now.serial == *serial && before.is_none_or(|old| old.uid == now.uid && old.revision < now.revision)
                }
                _ => false,
            };
            if !is_kept && !is_asked {
                return Err(format!(
                    "S6: {now:?} is there; acknowledged {:?}, asked {:?}",
                    slot.known, slot.asked
                ));
            }
            slot.known = now;
            slot.asked = None;
        }
        Ok(())
    }

    /// Where the watch is.
    pub fn seen(&self) -> u64 {
        self.history.last().map_or(0, |seen| seen.fact.revision)
    }

    pub fn saw(&mut self, events: Vec<Seen>) -> Result<(), String> {
        for event in events {
            if event.fact.revision <= self.seen() {
                return Err(format!("O3: {event:?} after revision {}", self.seen()));
            }
            // A deletion has a revision of its own.
            self.told(event.fact.clone())?;
            if event.is_deleted {
                self.state.remove(&event.fact.name);
            } else {
                self.state.insert(event.fact.name.clone(), event.fact.clone());
            }
            self.history.push(event);
        }
        Ok(())
    }

    /// The watch has come as far as the list: it leads to the same, and missed nothing that was acknowledged.
    pub fn check_history(&self) -> Result<(), String> {
        if self.state != self.listed {
            return Err(format!(
                "O3: the watch led to {:?}, the list shows {:?}",
                self.state, self.listed
            ));
        }
        let seen: BTreeMap<u64, &Fact> = self
            .history
            .iter()
            .map(|seen| (seen.fact.revision, &seen.fact))
            .collect();
        for (revision, fact) in &self.revisions {
            if seen.get(revision) != Some(&fact) {
                return Err(format!("O3: the watch never told of {fact:?}"));
            }
        }
        Ok(())
    }

    pub fn counts(&self) -> (usize, usize) {
        (self.writes, self.unanswered)
    }
}
