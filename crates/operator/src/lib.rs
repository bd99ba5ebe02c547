//! Runs kinds against any Kubernetes API.
//!
//! The way of a change: a watch event ([`watch`]) enters the [`view`], whose mappers wake keys in the [`queue`]; a
//! dispatcher ([`run`]) starts a [`pass`]; the pass observes, plans, records and acts through a [`kind`].
//!
//! **This crate knows no kind.** [`view::View`], [`queue::Queue`], [`leadership::Leadership`] and [`written::Written`] are
//! plain values without clock, task or lock of their own: the simulator runs the same ones.

pub mod api;
mod arrived;
mod boxed;
pub mod client;
pub mod clock;
mod dispatch;
pub mod error;
pub mod events;
mod feed;
pub mod hands;
pub mod kind;
pub mod leadership;
pub mod lease;
pub mod metrics;
pub mod pass;
pub mod port;
pub mod queue;
pub mod record;
pub mod run;
pub mod serve;
mod shared;
pub mod tls;
pub mod trigger;
pub mod turn;
pub mod view;
mod watch;
pub mod webhook;
pub mod window;
pub mod written;

pub use kind::Kind;
