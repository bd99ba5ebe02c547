//! Addresses and names (W1, W2, W4 to W6), all on loopback.
//!
//! - [`block`]: the plan of one 127.B.0.0/16. [`held`]: taking one, and keeping it while a pod lives.
//! - [`addresses`]: which pod has which address. [`hosts`]: the names that a pod knows.
//! - [`relay`]: what listens on a Service's address and passes connections on to its endpoints.
//! - [`endpoints`]: which endpoints a Service's port has, from its slices. [`api_service`]: the API's own Service.
//!
//! Called by the process nodes' agent, which feeds it pods, Services and EndpointSlices. Nothing here asks the registry,
//! and all but [`held`] and [`relay`] are pure.

pub mod addresses;
pub mod api_service;
pub mod block;
pub mod endpoints;
#[cfg(target_os = "linux")]
pub mod held;
pub mod hosts;
pub mod relay;

pub use addresses::Addresses;
pub use block::Block;
#[cfg(target_os = "linux")]
pub use held::HeldBlock;
pub use hosts::{HostsFolder, Names};
pub use relay::{PortNotAvailable, Relay};
