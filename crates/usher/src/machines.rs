//! `usher node` and `usher images`: the machines of a cluster that `usher up` runs, asked over its own API.
//!
//! Other clusters do not have these doors, and say so with 404.

use std::fmt::Write as _;

use clap::{Args as ClapArgs, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::cluster::{Cluster, ClusterArgs};
use crate::output::{self, Format};
use crate::{Failed, WrongUsage};

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Without NAME, lists them. Only clusters of `usher up` have nodes that can be told so; nodes of other kinds of clusters are
none of Usher's business.")]
pub(crate) struct NodeArgs {
    /// The node.
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
    isolation: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Node {
    name: String,
    state: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Images {
    entries: Vec<Entry>,
    errors: Vec<String>,
    /// Images of pods that no entry matches.
    unknown: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    file: String,
    line: u64,
    #[serde(rename = "match")]
    pattern: String,
    /// What it comes to here.
    resolves_to: Option<String>,
    missing: Option<String>,
}

pub(crate) async fn node(cluster: &ClusterArgs, args: &NodeArgs) -> Result<(), Failed> {
    if let (Some(name), None) = (&args.name, args.what) {
        let words = What::value_variants().iter().map(|what| what.word());
        let words: Vec<&str> = words.collect();
        return Err(WrongUsage(format!(
            "what is to become of node {name}? Say `usher node {name} WHAT`, where WHAT is one of {}; `usher node` alone lists \
             the nodes",
            words.join(", ")
        ))
        .into());
    }
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
    let nodes: Nodes = ask(
        &cluster,
        "list its nodes",
        http::Request::get("/usher/nodes").body(Vec::new())?,
    )
    .await?;
    match args.output.data() {
        Some(format) => output::print(&output::render(format, &nodes)?),
        None => {
            let mut text = format!("{:<20} {:<8} ADDRESS\n", "NAME", "STATE");
            for node in &nodes.nodes {
                let address = node.address.as_deref().unwrap_or_default();
                writeln!(text, "{:<20} {:<8} {address}", node.name, node.state)?;
            }
            if let Some(isolation) = &nodes.isolation {
                writeln!(text, "\nIsolation of pods: {isolation}.")?;
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
    let mut text = format!("{:<40} COMES TO\n", "MATCH");
    for entry in &images.entries {
        let comes_to = match (&entry.resolves_to, &entry.missing) {
            (Some(found), _) => found.clone(),
            (None, missing) => format!("nothing: {}", missing.as_deref().unwrap_or_default()),
        };
        writeln!(text, "{:<40} {comes_to}", entry.pattern)?;
    }
    for image in &images.unknown {
        writeln!(text, "\nA pod wants {image}, which no entry matches: add one.")?;
    }
    for error in &images.errors {
        writeln!(text, "\n{error}")?;
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
