//! `usher plan KIND/NAME`: what the operator would do next for one object, and why.
//!
//! The same code as in the operator reads and plans; nothing acts.

mod story;

use kube::api::DynamicObject;
use serde::Serialize;
use serde_json::Value;
use usher_engine::ObjectKey;
use usher_operator::pass::Preview;
use usher_operator::record::ApiType;

use crate::Failed;
use crate::cluster::ClusterArgs;
use crate::output;
use crate::target::{self, Args};

/// What is shown: the object's own preview, and that of whoever must move first.
#[derive(Debug, Serialize)]
struct Shown {
    #[serde(flatten)]
    preview: Preview,
    /// The object that decides about this one, where that is another: a claim is granted its range by its pool.
    #[serde(rename = "decidedBy", skip_serializing_if = "Option::is_none")]
    decided_by: Option<Preview>,
}

pub(crate) async fn run(cluster: &ClusterArgs, args: &Args) -> Result<(), Failed> {
    let found = args.target.find(cluster, "plan").await?;
    let mut wanted = vec![(found.kind, found.key.clone())];
    wanted.extend(decider(found.resource, &found.key, &found.object));
    let mut previews = found.operator()?.previews(&wanted, target::LISTS).await?.into_iter();
    let Some(preview) = previews.next().flatten() else {
        return Err(found.gone());
    };
    let shown = Shown {
        preview,
        decided_by: previews.next().flatten(),
    };
    match args.output.data() {
        Some(format) => output::print(&output::render(format, &shown)?),
        None => output::print(&story::tell(
            &shown,
            found.object.data.get("status"),
            jiff::Timestamp::now(),
        )),
    }
}

/// Who decides about an object, where it is not the object's own plan.
fn decider(resource: ApiType, key: &ObjectKey, object: &DynamicObject) -> Option<(&'static str, ObjectKey)> {
    let field = |pointer: &str| object.data.pointer(pointer).and_then(Value::as_str);
    let waits = field("/status/phase") != Some("Bound") && object.metadata.deletion_timestamp.is_none();
    let is_claim = resource.kind == usher_subnets::kinds::CLAIM;
    let pool = field("/spec/poolRef").filter(|_| is_claim && waits)?;
    Some((usher_subnets::kinds::POOL, key.sibling(pool)?))
}
