//! The pod supervisor: one small process per pod, which starts its containers, keeps their logs, and outlives `usher`
//! (spec 11.2, 11.4, 11.6).
//!
//! It is our own program, executed again as `PROGRAM pod-supervisor FOLDER`. Both sides of it live here:
//!
//! - [`protocol`]: what the node's agent and a supervisor say to each other, and what stands in a pod's folder;
//! - [`client`]: the agent's side: start a supervisor, find one again, ask it, clear up after a dead one;
//! - [`probe`]: which isolation this machine allows, found out by trying;
//! - `supervise`, `asks`, `peers`: the supervisor's loop, its answers, its connections;
//! - `container`, `exec`, `launch`, `log`: what it looks after;
//! - `memory`: volumes that are not on the disk;
//! - `record`: the state on disk; [`processes`]: `/proc`, pidfds and the only ways in which anything is killed;
//! - `stage`, `control`: what a child does before it becomes a program, and the line to it.
//!
//! **A pair (container, attempt) runs at most once, whatever dies when.** A start is on disk before the program is
//! executed; a supervisor's lock keeps a second one out; what a dead supervisor left is killed before the next begins.
//!
//! Nothing in here uses tokio except [`client`]: a supervisor is one thread and a few hundred kilobytes.

mod asks;
mod begin;
pub mod client;
mod container;
mod control;
mod exec;
mod launch;
mod log;
mod memory;
mod peers;
pub mod probe;
pub mod processes;
pub mod protocol;
mod record;
mod stage;
mod supervise;

use std::ffi::OsString;
use std::process::ExitCode;

/// The hidden subcommand of our program under which all of this runs.
pub const SUBCOMMAND: &str = "pod-supervisor";
/// `PROGRAM pod-supervisor stage …`
const STAGE: &str = "stage";
/// `PROGRAM pod-supervisor probe`
const PROBE: &str = "probe";
/// In a pod's folder: where private roots are built. Empty, always.
const SCAFFOLD_FOLDER: &str = "root.d";

/// The subcommand. `args` is what follows [`SUBCOMMAND`].
///
/// To be called before anything else in `main`: no thread may have been started (a process with threads cannot make a
/// user namespace), and descriptors beyond the standard ones are closed.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let mut args = args.peekable();
    match args.peek().and_then(|word| word.to_str()) {
        Some(STAGE) => stage::main(args.skip(1)),
        Some(PROBE) => probe::main(),
        _ => match args.next() {
            Some(folder) => begin::main(folder.as_ref()),
            None => {
                eprintln!(
                    "usage: {SUBCOMMAND} FOLDER: supervises the pod whose plan is in FOLDER. Started by usher, not by hand."
                );
                ExitCode::FAILURE
            }
        },
    }
}
