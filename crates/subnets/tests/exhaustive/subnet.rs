//! One Subnet of the small world in a few bits.
//!
//! A pool of four addresses; three names: `left` and `right` for its halves, `whole` for all of it. A claim's Subnet has
//! the range of its name. One made by hand begins with it, and may be edited to any of the three.

use std::collections::HashMap;

use serde_json::{Value, json};
use usher_subnets::api::{FINALIZER, SubnetPhase};

/// Names, by slot. `whole` sorts last, so that both orders of rank occur between it and the halves.
pub const SLOTS: [&str; 3] = ["left", "right", "whole"];
/// Ranges, in the same order.
pub const RANGES: [&str; 3] = ["10.0.0.0/31", "10.0.0.2/31", "10.0.0.0/30"];

/// Whether two of the ranges overlap.
pub fn overlap(a: u8, b: u8) -> bool {
    a == b || a == 2 || b == 2
}

/// Who made a Subnet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Maker {
    /// Usher, for a claim: with our finalizer.
    Claim,
    /// A user: without any.
    Hand,
    /// A user, with a finalizer of their own: it can be on its way out for long.
    HandHeld,
}

/// A Subnet, as far as the rules look at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Subnet {
    /// Who made it.
    pub maker: Maker,
    /// Which of [`RANGES`].
    pub range: u8,
    /// Created in a later second than others: who yields depends on it.
    pub late: bool,
    /// The phase as stored.
    pub phase: Option<SubnetPhase>,
    /// Its spec was edited after that phase was written.
    pub edited: bool,
    /// Marked for deletion.
    pub marked: bool,
}

impl Subnet {
    /// Holds its range for good, as the spec's 2.3 reads a phase. Said here once more, so that the judge does not use the
    /// code that is judged.
    pub fn settled(&self) -> bool {
        !self.edited && matches!(self.phase, Some(SubnetPhase::Allocated | SubnetPhase::Released))
    }

    /// As the API server would show it.
    pub fn object(&self, slot: usize) -> Value {
        let spec_generation = if self.edited { 2 } else { 1 };
        let name = SLOTS[slot];
        let mut object = json!({
            "apiVersion": "plexaubnet.io/v1alpha1", "kind": "Subnet",
            "metadata": {
                "namespace": "ns", "name": name, "uid": format!("uid-{name}"), "resourceVersion": "7",
                "generation": spec_generation + i64::from(self.marked),
                "creationTimestamp": format!("2026-01-01T00:00:0{}Z", u8::from(self.late)),
            },
            "spec": {"poolRef": "p", "clusterID": name, "cidr": RANGES[self.range as usize]},
        });
        match self.maker {
            Maker::Claim => {
                object["metadata"]["finalizers"] = json!([FINALIZER]);
                object["metadata"]["ownerReferences"] = json!([{
                    "apiVersion": "plexaubnet.io/v1alpha1", "kind": "SubnetClaim", "controller": true,
                    "name": format!("claim-{name}"), "uid": format!("claim-uid-{name}"),
                }]);
                object["spec"]["claimRef"] =
                    json!({"name": format!("claim-{name}"), "uid": format!("claim-uid-{name}")});
            }
            Maker::Hand => {}
            Maker::HandHeld => object["metadata"]["finalizers"] = json!(["example.com/mine"]),
        }
        if self.marked {
            object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:01:00Z");
        }
        if let Some(phase) = self.phase {
            object["status"] = json!({"phase": phase, "observedGeneration": 1});
        }
        object
    }

    /// For stories.
    pub fn describe(&self, slot: usize) -> String {
        let maker = match self.maker {
            Maker::Claim => "of a claim",
            Maker::Hand => "made by hand",
            Maker::HandHeld => "made by hand, with a finalizer",
        };
        let phase = self.phase.map_or("no phase".to_owned(), |p| format!("{p:?}"));
        let edited = if self.edited { ", edited since" } else { "" };
        let marked = if self.marked { ", marked for deletion" } else { "" };
        format!(
            "{} ({maker}, {}, {phase}{edited}{marked})",
            SLOTS[slot], RANGES[self.range as usize]
        )
    }
}

/// What a write of an operator makes of a Subnet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Write {
    Pending,
    Allocated,
    Failed,
    Released,
    /// DELETE, with something holding it back.
    Mark,
    /// It is gone: DELETE without a finalizer, or the last finalizer removed.
    Gone,
}

impl Write {
    pub const ALL: [Write; 6] = [
        Write::Pending,
        Write::Allocated,
        Write::Failed,
        Write::Released,
        Write::Mark,
        Write::Gone,
    ];

    pub fn of(phase: SubnetPhase) -> Self {
        match phase {
            SubnetPhase::Pending => Write::Pending,
            SubnetPhase::Allocated => Write::Allocated,
            SubnetPhase::Failed => Write::Failed,
            SubnetPhase::Released => Write::Released,
        }
    }

    pub fn phase(self) -> Option<SubnetPhase> {
        match self {
            Write::Pending => Some(SubnetPhase::Pending),
            Write::Allocated => Some(SubnetPhase::Allocated),
            Write::Failed => Some(SubnetPhase::Failed),
            Write::Released => Some(SubnetPhase::Released),
            Write::Mark | Write::Gone => None,
        }
    }

    /// The Subnet after this write.
    pub fn apply(self, subnet: Subnet) -> Option<Subnet> {
        match self {
            Write::Gone => None,
            Write::Mark => Some(Subnet { marked: true, ..subnet }),
            status => Some(Subnet {
                phase: status.phase(),
                edited: false,
                ..subnet
            }),
        }
    }

    /// The rule that this write of an operator breaks, whatever else is there.
    pub fn breaks(self, subnet: &Subnet) -> Option<&'static str> {
        let by_hand = subnet.maker != Maker::Claim;
        match self {
            Write::Failed | Write::Pending if subnet.settled() => Some("I6: what was Allocated is withdrawn"),
            Write::Mark | Write::Gone if by_hand => Some("I6: Usher deletes a Subnet made by hand"),
            _ => None,
        }
    }
}

/// A set of writes, one bit each.
pub type Writes = u8;

/// All writes in a set.
pub fn each(set: Writes) -> impl Iterator<Item = Write> {
    Write::ALL
        .into_iter()
        .filter(move |write| set & (1 << *write as u8) != 0)
}

/// Every Subnet there can be, numbered; 0 is "none". Those with a user's finalizer come last, so that a world without
/// them needs fewer bits.
pub struct Catalogue {
    subnets: Vec<Subnet>,
    numbers: HashMap<Subnet, u8>,
}

impl Catalogue {
    pub fn new() -> Self {
        let mut subnets = Vec::new();
        let phases = [
            SubnetPhase::Pending,
            SubnetPhase::Allocated,
            SubnetPhase::Failed,
            SubnetPhase::Released,
        ];
        let phases: Vec<Option<SubnetPhase>> = std::iter::once(None).chain(phases.map(Some)).collect();
        for maker in [Maker::Claim, Maker::Hand, Maker::HandHeld] {
            for (range, late, phase) in (0..3)
                .flat_map(|range| [false, true].map(|late| (range, late)))
                .flat_map(|(range, late)| phases.iter().map(move |phase| (range, late, *phase)))
            {
                for (edited, marked) in [(false, false), (false, true), (true, false), (true, true)] {
                    let possible = match maker {
                        // Its range is that of its name; it cannot be edited.
                        Maker::Claim => range == 0 && !edited,
                        // Nothing holds it back, so it is never marked; only Usher's own are Released.
                        Maker::Hand => !marked && phase != Some(SubnetPhase::Released),
                        Maker::HandHeld => phase != Some(SubnetPhase::Released),
                    };
                    if possible && !(edited && phase.is_none()) {
                        subnets.push(Subnet {
                            maker,
                            range,
                            late,
                            phase,
                            edited,
                            marked,
                        });
                    }
                }
            }
        }
        let numbers = subnets.iter().zip(1..).map(|(subnet, n)| (*subnet, n)).collect();
        Self { subnets, numbers }
    }

    /// The numbers, without that of "none".
    pub fn numbers(&self) -> impl Iterator<Item = u8> + use<> {
        1..=self.subnets.len() as u8
    }

    /// How many bits a number takes.
    pub fn bits(&self, with_held: bool) -> u32 {
        let held = |s: &&Subnet| with_held || s.maker != Maker::HandHeld;
        u8::BITS - (self.subnets.iter().filter(held).count() as u8).leading_zeros()
    }

    /// The Subnet of this number in this slot.
    pub fn subnet(&self, slot: usize, number: u8) -> Option<Subnet> {
        let mut subnet = *self.subnets.get(usize::from(number).checked_sub(1)?)?;
        if subnet.maker == Maker::Claim {
            subnet.range = slot as u8;
        }
        Some(subnet)
    }

    /// Its number.
    pub fn number(&self, subnet: Option<Subnet>) -> u8 {
        let Some(mut subnet) = subnet else { return 0 };
        if subnet.maker == Maker::Claim {
            subnet.range = 0;
        }
        *self
            .numbers
            .get(&subnet)
            .unwrap_or_else(|| panic!("no such Subnet: {subnet:?}"))
    }
}
