//! `faults` on the embedded cluster: the same cases by the same code; only the server is another (`support/plane.rs`). What
//! kills an API server (`server`) is `up_kill` here.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod support;

mod faults {
    mod kill;
    mod leader;
    mod proxy;
    mod restart;
    mod scripts;
    mod two;
    mod writes;
}
