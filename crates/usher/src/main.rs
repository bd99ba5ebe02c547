//! The `usher` binary. Every command is a module; this file only chooses.

mod cluster;
mod completions;
mod crds;
mod explain;
mod generate;
mod install;
mod kubeconfig;
mod machines;
mod operator;
mod output;
mod plan;
mod target;
mod uninstall;
mod up;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use cluster::ClusterArgs;
use usher_embedded::node::supervisor;

/// Changes what Kubernetes finds hard to change, one safe, explained step at a time.
#[derive(Debug, Parser)]
#[command(name = "usher", version, propagate_version = true, after_help = EXIT_CODES)]
struct Cli {
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(subcommand)]
    command: Command,
}

/// Part of `--help` and of the reference page.
const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  not done; one sentence on standard error says why, and what to do about it
  2  wrong usage: an unknown command, flag or value";

#[derive(Debug, Subcommand)]
enum Command {
    /// Installs Usher: CRDs, rights, and the operator's Deployment. Run it again to update.
    Install(install::Args),
    /// Removes what `install` made. Pools, claims and Subnets stay unless you say otherwise.
    Uninstall(uninstall::Args),
    /// Says what Usher would do next for one object, and why. Reads only.
    Plan(target::Args),
    /// Says why an object is as it is: its place in the queue, what it waits for, who has that. Reads only.
    Explain(target::Args),
    /// Prints the custom resource definitions.
    Crds(crds::Args),
    /// Runs the operator against the current kubeconfig, or in a cluster.
    Operator(Box<operator::Args>),
    /// Runs a small Kubernetes and the operator in one process, on this machine, for trying Usher.
    Up(Box<up::Args>),
    /// Stops, kills, cuts off or starts a node of `usher up`, or lists them.
    Node(machines::NodeArgs),
    /// Says which programs the images of `usher up` stand for, and which images pods want in vain.
    Images(machines::ImagesArgs),
    /// Prints a completion script for a shell.
    Completions(completions::Args),
    /// Writes the files of the repository that come from code.
    #[command(hide = true)]
    GenerateArtifacts(generate::Args),
}

/// Anything that ends a command: a sentence for people.
type Failed = Box<dyn std::error::Error + Send + Sync>;

/// A [`Failed`] that is the caller's mistake on the command line, where clap could not see it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct WrongUsage(String);

/// How we were called. kubectl finds its plugins by file name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CalledAs {
    /// `usher`, or any name that means nothing to us.
    Usher,
    /// `kubectl usher`, by a file named `kubectl-usher`.
    KubectlPlugin,
    /// kubectl asks what could come next, by a file named `kubectl_complete-usher`.
    KubectlCompletion,
}

impl CalledAs {
    fn from_program(program: &Path) -> Self {
        match program.file_stem().and_then(|name| name.to_str()) {
            Some("kubectl-usher") => CalledAs::KubectlPlugin,
            Some("kubectl_complete-usher") => CalledAs::KubectlCompletion,
            _ => CalledAs::Usher,
        }
    }

    /// What people type to call us.
    fn name(self) -> &'static str {
        match self {
            CalledAs::Usher => "usher",
            CalledAs::KubectlPlugin | CalledAs::KubectlCompletion => "kubectl usher",
        }
    }
}

/// The whole command line, as clap sees it.
fn command(called_as: CalledAs) -> clap::Command {
    Cli::command().bin_name(called_as.name())
}

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    // Pods are supervised by this same program. That must come before any thread is started.
    if words.next().is_some_and(|word| word == supervisor::SUBCOMMAND) {
        return supervisor::main(words);
    }
    match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime.block_on(answer()),
        Err(problem) => {
            eprintln!("usher: cannot start: {problem}");
            ExitCode::FAILURE
        }
    }
}

async fn answer() -> ExitCode {
    // One TLS provider for the whole process; ring, as in kube's default.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let program = arguments.first().map_or_else(|| Path::new("usher"), Path::new);
    let called_as = CalledAs::from_program(program);
    let outcome = if called_as == CalledAs::KubectlCompletion {
        completions::for_kubectl(command(called_as), arguments.get(1..).unwrap_or_default())
    } else {
        let parsed = command(called_as)
            .try_get_matches_from(arguments)
            .and_then(|matches| Cli::from_arg_matches(&matches));
        match parsed {
            Ok(cli) => run(cli).await,
            // Help and version, too: clap knows where each goes and which code it has.
            Err(problem) => problem.exit(),
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("usher: {problem}");
            if problem.is::<WrongUsage>() {
                ExitCode::from(2)
            } else {
                ExitCode::FAILURE
            }
        }
    }
}

async fn run(cli: Cli) -> Result<(), Failed> {
    match cli.command {
        Command::Install(args) => install::run(&cli.cluster, &args).await,
        Command::Uninstall(args) => uninstall::run(&cli.cluster, &args).await,
        Command::Plan(args) => plan::run(&cli.cluster, &args).await,
        Command::Explain(args) => explain::run(&cli.cluster, &args).await,
        Command::Crds(args) => crds::run(&args),
        Command::Operator(args) => operator::run(&cli.cluster, *args).await,
        Command::Up(args) => up::run(&cli.cluster, &args).await,
        Command::Node(args) => machines::node(&cli.cluster, &args).await,
        Command::Images(args) => machines::images(&cli.cluster, &args).await,
        Command::Completions(args) => completions::run(&args),
        Command::GenerateArtifacts(args) => generate::run(&args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        command(CalledAs::Usher).debug_assert();
    }

    #[test]
    fn the_file_name_says_who_calls() {
        for (program, called_as) in [
            ("/usr/local/bin/usher", CalledAs::Usher),
            ("kubectl-usher", CalledAs::KubectlPlugin),
            ("/home/a b/.krew/bin/kubectl-usher.exe", CalledAs::KubectlPlugin),
            ("/x/kubectl_complete-usher", CalledAs::KubectlCompletion),
            ("kubectl-usher-old", CalledAs::Usher),
        ] {
            assert_eq!(CalledAs::from_program(Path::new(program)), called_as, "{program}");
        }
    }
}
