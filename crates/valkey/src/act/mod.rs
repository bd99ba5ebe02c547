//! I/O out: performs one step.
//!
//! Nothing is decided here. Every step on a server asks it again who and what it is ([`reach`]), and what it finds otherwise
//! than planned is a conflict, for the next plan. What is so already is done. [`members`], [`slots`] and [`failover`] are the
//! steps on servers, [`objects`] those on what Kubernetes keeps.

pub mod failover;
pub mod members;
pub mod objects;
pub mod reach;
pub mod slots;

use usher_engine::{ErrorClass, Step as _};
use usher_operator::api::Pass;
use usher_operator::error::Failure;

use crate::observe::cluster;
use crate::observe::fetch::Kept;
use crate::plan::step::ClusterStep;
use crate::records::ClusterRecord;
use crate::words::SlotSet;
use reach::Reach;

/// Performs a step.
pub async fn step(kept: &Kept, pass: &Pass, cluster: &ClusterRecord, step: &ClusterStep) -> Result<(), Failure> {
    let leads = || pass.leads();
    let targets = pass.view(|view| cluster::targets(&cluster::pods(view, cluster)));
    let reach = Reach {
        clients: &kept.clients,
        key: cluster.meta.key.clone(),
        cluster: cluster.meta.uid.clone(),
        password: kept.password(pass, cluster).await?,
        pods: targets.into_iter().map(|target| (target.pod, target.address)).collect(),
        leads: &leads,
    };
    match step {
        ClusterStep::ApplyObject { kind, name } => objects::apply(pass, cluster, kind, name).await,
        ClusterStep::DeleteObject { kind, name } => objects::delete(pass, cluster, kind, name).await,
        ClusterStep::Finalizer { on } => {
            if !on {
                kept.forget(&cluster.meta.uid);
            }
            objects::finalizer(pass, cluster, *on).await
        }
        ClusterStep::SetReplicas {
            from,
            to,
            set,
            revision,
        } => objects::resize(pass, &reach, cluster, (*from, *to), (set, *revision)).await,
        ClusterStep::DeletePod {
            name, uid, revision, ..
        } => objects::delete_pod(pass, &reach, cluster, (name, uid, *revision)).await,
        ClusterStep::LabelPod {
            name,
            uid,
            labels,
            annotations,
        } => objects::label_pod(pass, cluster, (name, uid), labels, annotations).await,
        ClusterStep::ClearAnnotation { annotation } => objects::annotate(pass, cluster, annotation, None).await,
        of_servers => on_servers(kept, pass, &reach, of_servers).await,
    }
}

/// Those that speak with servers. What they began is remembered before they begin it: a try that failed is a try.
async fn on_servers(kept: &Kept, pass: &Pass, reach: &Reach<'_>, step: &ClusterStep) -> Result<(), Failure> {
    let (memories, cluster, now) = (&kept.memories, &reach.cluster, pass.now());
    match step {
        ClusterStep::Meet { to, .. } => memories.note(cluster, |memory| memory.note_met(to.id.clone(), now)),
        ClusterStep::Failover { shard, to, .. } | ClusterStep::ForceFailover { shard, to, .. } => {
            memories.note(cluster, |memory| {
                memory.note_failover(shard.clone(), to.id.clone(), now)
            });
        }
        _ => {}
    }
    perform(reach, step).await
}

/// Performs a step on servers.
pub async fn perform(reach: &Reach<'_>, step: &ClusterStep) -> Result<(), Failure> {
    match step {
        ClusterStep::SetConfigEpoch { on, epoch } => members::set_config_epoch(reach, on, *epoch).await,
        ClusterStep::Meet { from, to } => members::meet(reach, from, to).await,
        ClusterStep::CleanMember { on } => members::clean(reach, on).await,
        ClusterStep::Replicate { on, primary } => members::replicate(reach, on, primary).await,
        ClusterStep::ResetMember { on } => members::reset(reach, on).await,
        ClusterStep::Detach { on } => members::detach(reach, on).await,
        ClusterStep::Forget { member, by } => members::forget(reach, member, by, &SlotSet::new()).await,
        ClusterStep::ForgetLost { member, by, slots } => members::forget(reach, member, by, slots).await,
        ClusterStep::SetMinReplicas { on, replicas } => members::set_min_replicas(reach, on, *replicas).await,
        ClusterStep::AddSlots { to, slots } => slots::add(reach, to, slots).await,
        ClusterStep::MigrateSlots {
            from, epoch, to, slots, ..
        } => slots::migrate(reach, from, *epoch, to, slots).await,
        ClusterStep::CancelMigrations { on, .. } => slots::cancel(reach, on).await,
        ClusterStep::MoveSlotByKeys { slot, from, to, .. } => slots::move_by_keys(reach, *slot, from, to).await,
        ClusterStep::StabilizeSlot { slot, on, owner } => slots::stabilize(reach, *slot, on, owner.as_ref()).await,
        ClusterStep::Failover { from, to, epoch, .. } => failover::hand_over(reach, from, to, *epoch).await,
        ClusterStep::ForceFailover { to, takeover, .. } => failover::force(reach, to, *takeover).await,
        other => Err(Failure::Kind {
            class: ErrorClass::Permanent,
            message: format!("{}: {} is no step on servers; report this", reach.key, other.name()),
        }),
    }
}
