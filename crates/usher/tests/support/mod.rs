//! What the end-to-end tests stand on: a real API server, a namespace of their own, the real `usher` binary as a process,
//! and the whole watch history of what happened there.
//!
//! [`World`] is the one thing a test makes: a fresh namespace with its [`History`] running from before the first object.
//! [`Operator`] is the binary as a process. Tests wait for conditions of the history, never for a time; the few waits
//! that are a time are faults (a pause, a random moment), and say so.

#![allow(
    dead_code,
    unused_imports,
    reason = "each test program uses its part; what one leaves out another needs"
)]

pub mod audit;
pub mod chance;
pub mod control_plane;
pub mod history;
pub mod invariants;
pub mod judge;
pub mod kubectl;
pub mod load;
pub mod operator;
pub mod plane;
#[path = "../../../operator/tests/support/proxy.rs"]
pub mod proxy;
pub mod recount;
pub mod rights;
pub mod story;
pub mod world;

pub use chance::Chance;
pub use control_plane::{ControlPlane, Server};
pub use history::{History, Now};
pub use operator::Operator;
pub use world::World;
