//! The manual cluster: nothing happens by itself, everything is reproducible, and time is told by the test (E1, E2, E3).

#[path = "../deletion/world.rs"]
mod world;

mod first_poll;
mod script;
mod started;
mod time;
