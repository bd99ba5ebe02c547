//! Pure decisions on plain values: (resource, observation, now) to plan. Nothing below knows a client, a clock or a task.
//!
//! [`plan`] is one pass. [`topology`] says who is who, [`places`] who belongs where, [`slots`] and [`moves`] which slots go from
//! whom to whom, [`join`] and [`leave`] how members come and go; [`failover`] and [`roll`] decide who takes over and who
//! restarts. [`phase`] is the table that a cluster's life runs along, [`facts`] what is true of it, [`health`] whether all is as
//! it should be, [`validate`] what cannot be. [`heal`] is done in every phase, [`duty`] in each its own; [`order`] puts them in order, [`report`] and [`labels`] say what came of it;
//! [`step`] is what can be done, [`work`] what a part wants done.

pub mod duty;
pub mod facts;
pub mod failover;
pub mod heal;
pub mod health;
pub mod join;
pub mod labels;
pub mod leave;
pub mod moves;
pub mod order;
pub mod phase;
pub mod places;
pub mod report;
pub mod roll;
pub mod slots;
pub mod step;
pub mod terms;
pub mod topology;
pub mod validate;
pub mod work;

#[cfg(test)]
pub(crate) mod sketch;

use jiff::Timestamp;
use usher_engine::Text;

use crate::objects;
use crate::records::ClusterRecord;
use crate::seen::Observation;
use facts::Ground;
use places::Places;
use topology::{Past, Size, Topology};

pub use order::ClusterPlan;

/// What to do about a cluster now, why, and what to say of it.
pub fn plan(record: &ClusterRecord, seen: &Observation, now: Timestamp) -> ClusterPlan {
    let past = Past::of(&record.status);
    let size = Size {
        masters: record.masters(),
        replicas: record.replicas_per_master(),
        surge: record.status.roll.as_ref().is_some_and(|roll| roll.surge),
    };
    let topology = Topology::of(seen, &past, size);
    let recorded = record.status.scale.as_ref().map(|scale| scale.drain.as_slice());
    let places = Places::of(&topology, recorded.unwrap_or_default());
    let wanted: Text = objects::revision(record).into();
    let ground = Ground {
        record,
        topology: &topology,
        places: &places,
        wanted: &wanted,
        terms: &facts::terms(record),
        now,
    };
    ground.decide()
}
