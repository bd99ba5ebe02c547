//! `usher explain KIND/NAME`: why an object is as it is, and what it waits for.

use jiff::Timestamp;

use crate::Failed;
use crate::cluster::ClusterArgs;
use crate::output;
use crate::target::{self, Args};

pub(crate) async fn run(cluster: &ClusterArgs, args: &Args) -> Result<(), Failed> {
    let found = args.target.find(cluster, "explain").await?;
    let (kind, key) = (found.kind, &found.key);
    let explain = |view: &_| usher_subnets::explain::explain(view, kind, key, Timestamp::now());
    let Some(explanation) = found.operator()?.look(target::LISTS, explain).await? else {
        return Err(found.gone());
    };
    match args.output.data() {
        Some(format) => output::print(&output::render(format, &explanation)?),
        None => output::print(&explanation.text()),
    }
}
