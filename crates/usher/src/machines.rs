//! `usher node` and `usher images`: the machines of a cluster that `usher up` runs, asked over its own API.
//!
//! Other clusters do not have these doors, and say so with 404.

use std::fmt::Write as _;

use clap::{Args as ClapArgs, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::Failed;
use crate::cluster::{Cluster, ClusterArgs};
use crate::output::{self, Format};

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Without NAME, lists them. Only clusters of `usher up` have nodes that can be told so; nodes of other kinds of clusters are
none of Usher's business.")]
pub(crate) struct NodeArgs {
    /// The node.
    #[arg(requires = "what")]
    name: Option<String>,
    /// What becomes of it.
    #[arg(value_enum)]
    what: Option<What>,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ImagesArgs {
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum What {
    /// Its agent goes; processes run on, and nobody reports them.
    Stop,
    /// Its agent goes, and every process with SIGKILL: a power cut.
    Kill,
    /// Its agent runs on and cannot reach the API.
    Cut,
    /// Back to work: what still runs is found again.
    Start,
}

impl What {
    fn word(self) -> &'static str {
        match self {
            What::Stop => "stop",
            What::Kill => "kill",
            What::Cut => "cut",
            What::Start => "start",
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Nodes {
    nodes: Vec<Node>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Node {
    name: String,
    kind: String,
    state: String,
    pods: usize,
}

#[derive(Debug, Serialize, Deserialize)]
struct Images {
    files: Vec<String>,
    entries: Vec<Entry>,
    unknown: Vec<String>,
    problem: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    #[serde(rename = "match")]
    pattern: String,
    file: String,
    /// What it comes to here.
    resolves: String,
}

pub(crate) async fn node(cluster: &ClusterArgs, args: &NodeArgs) -> Result<(), Failed> {
    let cluster = cluster.connect("node").await?;
    if let (Some(name), Some(what)) = (&args.name, args.what) {
        let path = format!("/usher/nodes/{name}/{}", what.word());
        let request = http::Request::post(path).body(Vec::new())?;
        let told: Node = ask(&cluster, &format!("{} node {name}", what.word()), request).await?;
        return match args.output.data() {
            Some(format) => output::print(&output::render(format, &told)?),
            None => output::print(&format!("node {} is {}\n", told.name, told.state)),
        };
    }
    let nodes: Nodes = ask(&cluster, "list its nodes", http::Request::get("/usher/nodes").body(Vec::new())?).await?;
    match args.output.data() {
        Some(format) => output::print(&output::render(format, &nodes)?),
        None => {
            let mut text = format!("{:<20} {:<8} {:<8} {}\n", "NAME", "KIND", "STATE", "PODS");
            for node in &nodes.nodes {
                writeln!(text, "{:<20} {:<8} {:<8} {}", node.name, node.kind, node.state, node.pods)?;
            }
            output::print(&text)
        }
    }
}

pub(crate) async fn images(cluster: &ClusterArgs, args: &ImagesArgs) -> Result<(), Failed> {
    let cluster = cluster.connect("images").await?;
    let request = http::Request::get("/usher/images").body(Vec::new())?;
    let images: Images = ask(&cluster, "read its images table", request).await?;
    if let Some(format) = args.output.data() {
        return output::print(&output::render(format, &images)?);
    }
    let mut text = format!("{:<40} {}\n", "MATCH", "COMES TO");
    for entry in &images.entries {
        writeln!(text, "{:<40} {}", entry.pattern, entry.resolves)?;
    }
    for image in &images.unknown {
        writeln!(text, "\nA pod wants {image}, which no entry matches: add one to {}", images.files.join(" or "))?;
    }
    if let Some(problem) = &images.problem {
        writeln!(text, "\n{problem}")?;
    }
    output::print(&text)
}

async fn ask<T: serde::de::DeserializeOwned>(
    cluster: &Cluster,
    doing: &str,
    request: http::Request<Vec<u8>>,
) -> Result<T, Failed> {
    let answer = cluster.ask(doing, cluster.client.request::<T>(request)).await;
    answer.map_err(|refusal| {
        if refusal.is(404) {
            format!("{refusal}; only a cluster of `usher up` has such a door: --kubeconfig or $KUBECONFIG says which cluster").into()
        } else {
            refusal.into()
        }
    })
}
