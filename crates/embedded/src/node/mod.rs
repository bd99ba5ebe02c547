//! Nodes: where pods run.
//!
//! - [`entry`]: which nodes there are: their labels, taints and capacity, read from a file or counted; and the Node and
//!   Lease objects that speak for them, for every kind of node.
//! - [`hollow`]: nodes that run nothing: their pods go through stages that are data.

pub mod entry;
pub mod hollow;
