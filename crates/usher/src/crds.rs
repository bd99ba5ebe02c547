//! `usher crds`: the custom resource definitions, to be piped into `kubectl apply`.

use clap::{Args as ClapArgs, ValueEnum};

use crate::Failed;

/// What to print.
#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// Format.
    #[arg(long, short, value_enum, default_value_t = Output::Yaml)]
    output: Output,
}

/// A format of output.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Output {
    /// JSON.
    Json,
    /// YAML.
    Yaml,
}

pub(crate) fn run(args: &Args) -> Result<(), Failed> {
    let crds = usher_subnets::api::crds();
    match args.output {
        Output::Json => println!(
            "{}",
            serde_json::to_string_pretty(&serde_json::json!({
                "apiVersion": "v1", "kind": "List", "items": crds,
            }))?
        ),
        Output::Yaml => {
            for crd in crds {
                println!("---\n{}", serde_saphyr::to_string(&crd)?.trim_end());
            }
        }
    }
    Ok(())
}
