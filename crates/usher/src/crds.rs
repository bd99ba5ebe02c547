//! `usher crds`: the custom resource definitions, to be piped into `kubectl apply`.

use clap::Args as ClapArgs;
use serde_json::Value;

use crate::Failed;
use crate::output::{self, Data};

/// What to print.
#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// Format.
    #[arg(long, short, value_enum, default_value_t = Data::Yaml)]
    output: Data,
}

/// All of them as values, without what only the server fills in.
pub(crate) fn values() -> Result<Vec<Value>, serde_json::Error> {
    usher_subnets::api::crds().iter().map(serde_json::to_value).collect()
}

pub(crate) fn run(args: &Args) -> Result<(), Failed> {
    output::print(&output::render_objects(args.output, &values()?)?)
}
