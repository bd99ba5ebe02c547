//! The pod supervisor: one small process per pod, which outlives `usher` (spec 11.2).

pub mod protocol;
