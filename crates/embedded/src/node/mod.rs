//! Nodes: where pods run.
//!
//! - [`entry`]: which nodes there are: their labels, taints and capacity, read from a file or counted; and the Node and
//!   Lease objects that speak for them, for every kind of node.
//! - [`hollow`]: nodes that run nothing: their pods go through stages that are data.
//! - [`retired`]: nodes of an earlier start that are no more.
//! - [`machine`]: what all process nodes of a cluster share, and the handles by which they are stopped and started.
//! - [`agent`]: what a kubelet does, for one process node: it decides. [`supervisor`]: one process per pod, which obeys.
//! - [`images`], [`environment`], [`volumes`], [`probes`], [`hooks`]: what a container is started with, and asked.
//! - [`door`]: what the API asks of a node: a container's log, a command in a container.
//! - [`logs`]: reading and following the log files of a container.
//! - [`net`]: addresses of pods and Services, names, and the relay behind a Service's address.

pub mod agent;
pub mod door;
pub mod entry;
pub mod environment;
pub mod hollow;
pub mod hooks;
pub mod images;
pub mod logs;
pub mod machine;
pub mod net;
pub mod probes;
pub(crate) mod retired;
pub mod supervisor;
pub mod volumes;
