//! The `usher` binary. Every command is a module; this file only chooses.

mod cluster;
mod crds;
mod operator;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Changes what Kubernetes finds hard to change, one safe, explained step at a time.
#[derive(Debug, Parser)]
#[command(name = "usher", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs the operator against the current kubeconfig, or in a cluster.
    Operator(operator::Args),
    /// Prints the custom resource definitions.
    Crds(crds::Args),
}

/// Anything that ends a command: a sentence for people.
type Failed = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> ExitCode {
    // One TLS provider for the whole process; ring, as in kube's default.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let cli = Cli::parse();
    let outcome = match cli.command {
        Command::Operator(args) => operator::run(args).await,
        Command::Crds(args) => crds::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("usher: {problem}");
            ExitCode::FAILURE
        }
    }
}
