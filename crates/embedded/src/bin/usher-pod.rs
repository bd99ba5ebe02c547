//! The pod supervisor as a program of its own, for tests: `usher-pod pod-supervisor FOLDER`. In the product the same
//! words are a hidden subcommand of `usher`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    match args.next() {
        Some(word) if word == usher_embedded::node::supervisor::SUBCOMMAND => {
            usher_embedded::node::supervisor::main(args)
        }
        _ => {
            eprintln!(
                "usage: usher-pod {} FOLDER",
                usher_embedded::node::supervisor::SUBCOMMAND
            );
            ExitCode::FAILURE
        }
    }
}
