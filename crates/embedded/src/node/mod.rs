//! Nodes: where pods run.
//!
//! - [`door`]: what the API asks of a node: a container's log, a command in a container.
//! - [`logs`]: reading and following the log files of a container.
//! - [`net`]: addresses of pods and Services, names, and the relay behind a Service's address.

pub mod door;
pub mod logs;
pub mod net;
