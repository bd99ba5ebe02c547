//! A model of servers and of the pods they run in, for tests and rehearsals: what `plan` decides is done to it, and what comes
//! of that is seen again, in virtual time and with seeded chance.
//!
//! [`server`] is one server's mind, [`gossip`], [`election`] and [`jobs`] how minds meet, [`command`] what can be told to one,
//! [`store`] its data and its disk, [`kube`] the pods, [`client`] who depends on all this. [`world`] lets time pass; [`eyes`]
//! and [`hands`] are the operator's.
//!
//! It is faithful where the spec has a ✓ (`tests/model`), and meaner than real servers elsewhere: letters take their time,
//! links break, commands lie.

pub mod bus;
pub mod client;
pub mod command;
pub mod dice;
pub mod election;
pub mod eyes;
pub mod gossip;
pub mod hands;
pub mod jobs;
pub mod kube;
pub mod server;
pub mod store;
pub mod world;

pub use client::{Clients, Served, Trouble};
pub use dice::Dice;
pub use jobs::Stage;
pub use server::{Habits, Life, STRANGERS, Seat, Sync};
pub use world::{Faults, Setup, World};
