//! The other acceptance programs on the embedded cluster: A15 (kill -9, writes cut), A16 (two operators without a
//! lease), A17 (a bad connection), A24 (scripts), A29 (restart). The same cases by the same code; only the server is another
//! (`support/plane.rs`). A20, A26, the lease and the command line are in `cluster_embedded`. What kills an API server
//! (`faults_server`) is `up_kill` here.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(
    clippy::duplicate_mod,
    reason = "each of these is a program with a support of its own elsewhere, and so it is here"
)]

#[path = "faults_kill.rs"]
mod faults_kill;
#[path = "faults_proxy.rs"]
mod faults_proxy;
#[path = "faults_two.rs"]
mod faults_two;
#[path = "faults_writes.rs"]
mod faults_writes;
#[path = "restart.rs"]
mod restart;
#[path = "scripts.rs"]
mod scripts;
