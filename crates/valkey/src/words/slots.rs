//! Slots, ranges of them, and sets.

use std::fmt;

use serde::Serialize;

/// How many slots a cluster has.
pub const SLOTS: u16 = 16_384;

/// One hash slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Slot(pub u16);

/// Slots from `first` to `last`, both within.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotRange {
    /// The lowest.
    pub first: Slot,
    /// The highest; never below `first`.
    pub last: Slot,
}

impl SlotRange {
    /// How many there are.
    pub fn count(self) -> u16 {
        self.last.0.saturating_sub(self.first.0) + 1
    }

    /// Reads a range as servers and people write it; `None` where a text is none.
    pub fn parse(text: &str) -> Option<Self> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let slot = |text: &str| text.parse().ok().filter(|slot| *slot < SLOTS).map(Slot);
        let (first, last) = (slot(first)?, slot(last)?);
        (first <= last).then_some(Self { first, last })
    }
}

/// As servers and people write it: `0-5460`, or `7` for one alone.
impl fmt::Display for SlotRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(f, "{}", self.first.0)
        } else {
            write!(f, "{}-{}", self.first.0, self.last.0)
        }
    }
}

/// A set of slots, kept as the ranges it is made of: a shard has a handful, and a cluster's views are full of them.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SlotSet {
    /// Ascending, with a gap between any two.
    ranges: Vec<SlotRange>,
}

impl SlotSet {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// All of the ranges, in whatever order, overlapping or not. Numbers past the last slot are no slots and are left out.
    pub fn of(ranges: impl IntoIterator<Item = SlotRange>) -> Self {
        let mut given: Vec<SlotRange> = ranges
            .into_iter()
            .filter(|range| range.first <= range.last && range.first.0 < SLOTS)
            .map(|range| SlotRange {
                first: range.first,
                last: range.last.min(Slot(SLOTS - 1)),
            })
            .collect();
        given.sort_unstable();
        let mut ranges: Vec<SlotRange> = Vec::with_capacity(given.len());
        for range in given {
            match ranges.last_mut() {
                Some(last) if range.first.0 <= last.last.0 + 1 => last.last = last.last.max(range.last),
                _ => ranges.push(range),
            }
        }
        Self { ranges }
    }

    /// Slots `0..count`: a whole (small) cluster.
    pub fn first(count: u16) -> Self {
        match count.checked_sub(1) {
            Some(last) => Self::of([SlotRange {
                first: Slot(0),
                last: Slot(last),
            }]),
            None => Self::new(),
        }
    }

    /// Just one.
    pub fn one(slot: Slot) -> Self {
        Self::of([SlotRange {
            first: slot,
            last: slot,
        }])
    }

    /// Whether it is in.
    pub fn contains(&self, slot: Slot) -> bool {
        let before = self.ranges.partition_point(|range| range.first <= slot);
        let range = before.checked_sub(1).and_then(|at| self.ranges.get(at));
        range.is_some_and(|range| slot <= range.last)
    }

    /// How many.
    pub fn count(&self) -> u16 {
        self.ranges.iter().map(|range| range.count()).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// All of them, ascending.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Slot> + '_ {
        self.ranges
            .iter()
            .flat_map(|range| (range.first.0..=range.last.0).map(Slot))
    }

    /// The lowest.
    pub fn lowest(&self) -> Option<Slot> {
        self.ranges.first().map(|range| range.first)
    }

    /// As few ranges as there can be, ascending.
    pub fn ranges(&self) -> &[SlotRange] {
        &self.ranges
    }

    /// The `count` highest: what a source gives first, so that ranges stay few (R19).
    #[must_use]
    pub fn highest(&self, count: u16) -> Self {
        let mut left = count;
        let mut taken = Vec::new();
        for range in self.ranges.iter().rev() {
            let take = range.count().min(left);
            if take == 0 {
                break;
            }
            left -= take;
            taken.push(SlotRange {
                first: Slot(range.last.0 + 1 - take),
                last: range.last,
            });
        }
        Self::of(taken)
    }

    /// The `count` lowest.
    #[must_use]
    pub fn lowest_of(&self, count: u16) -> Self {
        self.minus(&self.highest(self.count().saturating_sub(count)))
    }

    /// The highest one.
    pub fn top(&self) -> Option<Slot> {
        self.ranges.last().map(|range| range.last)
    }

    /// In this or in the other.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self::of(self.ranges.iter().chain(&other.ranges).copied())
    }

    /// In this and not in the other.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        let mut left = Vec::new();
        for range in &self.ranges {
            let mut from = range.first.0;
            for cut in other
                .ranges
                .iter()
                .filter(|cut| cut.last >= range.first && cut.first <= range.last)
            {
                if cut.first.0 > from {
                    left.push(SlotRange {
                        first: Slot(from),
                        last: Slot(cut.first.0 - 1),
                    });
                }
                from = cut.last.0 + 1;
            }
            if from <= range.last.0 {
                left.push(SlotRange {
                    first: Slot(from),
                    last: range.last,
                });
            }
        }
        Self::of(left)
    }

    /// In both.
    #[must_use]
    pub fn common(&self, other: &Self) -> Self {
        self.minus(&self.minus(other))
    }
}

impl FromIterator<Slot> for SlotSet {
    fn from_iter<I: IntoIterator<Item = Slot>>(slots: I) -> Self {
        Self::of(slots.into_iter().map(|slot| SlotRange {
            first: slot,
            last: slot,
        }))
    }
}

/// The ranges, with commas between; `none` where there is none.
impl fmt::Display for SlotSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranges = &self.ranges;
        if ranges.is_empty() {
            return f.write_str("none");
        }
        for (at, range) in ranges.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}{range}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for SlotSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SlotSet({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn slots() -> impl Strategy<Value = BTreeSet<u16>> {
        // Dense at the beginning, so that ranges join.
        proptest::collection::btree_set(prop_oneof![0..64u16, 0..SLOTS], 0..80)
    }

    fn set(slots: &BTreeSet<u16>) -> SlotSet {
        slots.iter().copied().map(Slot).collect()
    }

    proptest! {
        #[test]
        fn a_set_of_slots_is_a_set(a in slots(), b in slots(), count in 0u16..100) {
            let (x, y) = (set(&a), set(&b));
            prop_assert_eq!(usize::from(x.count()), a.len());
            prop_assert_eq!(x.union(&y), set(&a.union(&b).copied().collect()));
            prop_assert_eq!(x.minus(&y), set(&a.difference(&b).copied().collect()));
            prop_assert_eq!(x.common(&y), set(&a.intersection(&b).copied().collect()));
            prop_assert_eq!(SlotSet::of(x.ranges().iter().copied()), x.clone());
            prop_assert!((0..SLOTS).all(|slot| x.contains(Slot(slot)) == a.contains(&slot)));
            prop_assert!(x.iter().map(|slot| slot.0).eq(a.iter().copied()));
            prop_assert_eq!(x.highest(count), set(&a.iter().rev().take(count.into()).copied().collect()));
            prop_assert_eq!(x.lowest_of(count), set(&a.iter().take(count.into()).copied().collect()));
            prop_assert_eq!(x.is_empty(), a.is_empty());
            prop_assert_eq!(x.top().map(|slot| slot.0), a.last().copied());
            let written = x.ranges().iter().map(SlotRange::to_string);
            prop_assert_eq!(SlotSet::of(written.filter_map(|range| SlotRange::parse(&range))), x);
        }
    }

    #[test]
    fn ranges_are_written_as_servers_write_them() {
        let set: SlotSet = [0, 1, 2, 7, 16_383].into_iter().map(Slot).collect();
        assert_eq!(set.to_string(), "0-2,7,16383");
        assert_eq!(SlotSet::new().to_string(), "none");
        assert_eq!(SlotSet::first(SLOTS).to_string(), "0-16383");
        assert_eq!(SlotSet::first(SLOTS).count(), SLOTS);
    }

    #[test]
    fn what_is_no_range_is_not_read() {
        for text in ["", "-", "1-", "-1", "5-4", "16384", "0-16384", "a", "1-2-3"] {
            assert_eq!(SlotRange::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn what_is_no_slot_is_not_taken_in() {
        let set: SlotSet = [SLOTS, u16::MAX].into_iter().map(Slot).collect();
        assert!(set.is_empty());
    }
}
