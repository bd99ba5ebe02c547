use super::*;
use crate::plan::sketch::{Sketch, node, start};
use crate::plan::step::ClusterStep;
use crate::seen::{Link, RoleSaid};
use jiff::SignedDuration;

fn later(seconds: i64) -> Timestamp {
    start() + SignedDuration::from_secs(seconds)
}

fn wanted() -> Text {
    "new".into()
}

/// A cluster of the old revision whose set carries the new one.
fn outdated_cluster(drawing: &str, replicas: u16) -> Sketch {
    let mut sketch = Sketch::of(drawing, 3, replicas);
    for pod in sketch.seen.pods.values_mut() {
        pod.template = Some("old".into());
    }
    sketch.seen.set.as_mut().unwrap().template = Some(wanted());
    sketch
}

fn update(sketch: &mut Sketch, ordinals: &[u16]) {
    for at in ordinals {
        sketch.seen.pods.get_mut(&Ordinal(*at)).unwrap().template = Some(wanted());
    }
}

fn on_record(pod: Option<u16>, since: i64) -> Roll {
    Roll {
        revision: "new".into(),
        shard: None,
        pod: pod.map(|at| format!("vc-{at}")),
        pod_uid: pod.map(|at| format!("pod-{at}")),
        since: later(since),
        surge: false,
    }
}

fn rolled(sketch: &Sketch, roll: Option<&Roll>, now: i64, change: impl Fn(&mut Rolling<'_>)) -> Rolled {
    let (topology, wanted) = (sketch.topology(), wanted());
    let mut rolling = Rolling {
        topology: &topology,
        wanted: &wanted,
        on_record: roll,
        linger_seconds: 5,
        in_place: false,
        persistent: true,
        min_replicas: 0,
        now: later(now),
    };
    change(&mut rolling);
    rolling.plan()
}

/// What a roll does or waits for, in a few words.
fn told(rolled: &Rolled) -> String {
    let steps: Vec<String> = rolled
        .work
        .steps
        .iter()
        .map(|step| match step {
            ClusterStep::DeletePod { name, .. } => format!("delete {name}"),
            ClusterStep::Failover { from, to, .. } => format!("hand over {} to {}", from.ordinal, to.ordinal),
            ClusterStep::Replicate { on, .. } => format!("attach {}", on.ordinal),
            ClusterStep::SetMinReplicas { on, replicas } => format!("{} wants {replicas}", on.ordinal),
            step => format!("{step:?}"),
        })
        .collect();
    let waits = rolled
        .work
        .findings
        .iter()
        .map(|finding| format!("{}: {}", finding.reason, finding.message));
    let pod = rolled.roll.as_ref().and_then(|roll| roll.pod.clone());
    let intent = pod
        .filter(|_| steps.is_empty() && rolled.work.findings.is_empty())
        .map(|pod| format!("intends {pod}"));
    let all: Vec<String> = steps.into_iter().chain(intent).chain(waits).collect();
    all.join("; ")
}

fn plain(sketch: &Sketch, roll: &Roll, now: i64) -> String {
    told(&rolled(sketch, Some(roll), now, |_| {}))
}

#[test]
fn r7_the_roll_and_the_pod_are_on_record_before_anything_is_restarted() {
    let sketch = outdated_cluster("0* 3 | 1* 4 | 2* 5", 1);
    let begun = rolled(&sketch, None, 0, |_| {});
    assert_eq!(
        (begun.work.steps.len(), begun.roll.as_ref().unwrap().revision.as_str()),
        (0, "new")
    );
    assert_eq!(plain(&sketch, &begun.roll.unwrap(), 1), "intends vc-3");
    assert_eq!(plain(&sketch, &on_record(Some(3), 1), 2), "delete vc-3");
}

#[test]
fn r35_replicas_first_then_the_primary_hands_over_and_goes_as_a_replica() {
    let mut sketch = outdated_cluster("0* 3 | 1* 4 | 2* 5", 1);
    sketch.seen.pods.get_mut(&Ordinal(3)).unwrap().ready = false;
    update(&mut sketch, &[3]);
    assert!(plain(&sketch, &on_record(Some(3), 0), 10).starts_with("RollWaits: waiting for pod vc-3"));
    sketch.seen.pods.get_mut(&Ordinal(3)).unwrap().ready = true;
    assert_eq!(plain(&sketch, &on_record(Some(3), 0), 10), "hand over 0 to 3");
    // Roles have changed.
    let mut sketch = outdated_cluster("0 3* | 1* 4 | 2* 5", 1);
    update(&mut sketch, &[3]);
    sketch.seen.memory.slotless_since.insert(node(0), later(8));
    assert!(plain(&sketch, &on_record(None, 0), 10).contains("answers clients for 3 s more"));
    assert_eq!(plain(&sketch, &on_record(None, 0), 13), "intends vc-0");
    update(&mut sketch, &[0]);
    assert_eq!(
        plain(&sketch, &on_record(Some(0), 0), 20),
        "intends vc-4",
        "the next shard"
    );
}

#[test]
fn r35_a_pod_that_does_not_come_back_stops_the_roll_and_says_why() {
    let mut sketch = outdated_cluster("0* 3 | 1* 4 | 2* 5", 1);
    update(&mut sketch, &[3]);
    sketch.silence(3);
    let pod = sketch.seen.pods.get_mut(&Ordinal(3)).unwrap();
    pod.ready = false;
    pod.trouble = Some("ImagePullBackOff: no such image".into());
    let stalled = rolled(&sketch, Some(&on_record(Some(3), 0)), 600, |_| {});
    assert!(stalled.stalled);
    assert!(told(&stalled).contains("RollStalled: pod vc-3 has not come back within 600 s: ImagePullBackOff"));
}

#[test]
fn r35_going_back_begins_with_the_broken_pod() {
    let mut sketch = outdated_cluster("0* 3 | 1* 4 | 2* 5", 1);
    // All are of the wanted revision again, but the one that was rolled.
    update(&mut sketch, &[0, 1, 2, 4, 5]);
    sketch.silence(3);
    sketch.seen.pods.get_mut(&Ordinal(3)).unwrap().ready = false;
    let broken = Roll {
        revision: "bad".into(),
        ..on_record(Some(3), 0)
    };
    let begun = rolled(&sketch, Some(&broken), 700, |_| {}).roll.unwrap();
    assert_eq!((begun.revision.as_str(), begun.pod.as_deref()), ("new", Some("vc-3")));
    assert_eq!(plain(&sketch, &begun, 701), "delete vc-3");
}

#[test]
fn i4_nobody_is_restarted_beside_one_that_is_not_whole() {
    let mut sketch = outdated_cluster("0* 3 | 1* 4 | 2* 5", 1);
    update(&mut sketch, &[4]);
    sketch.says(4).role = RoleSaid::Replica {
        link: Link::Syncing,
        offset: 1,
    };
    assert!(plain(&sketch, &on_record(None, 0), 10).contains("while pod vc-4 is not whole: it is not in sync yet"));
}

#[test]
fn r31_nothing_is_restarted_in_a_shard_without_its_primary() {
    let mut sketch = outdated_cluster("0* 3 | 1* 4 | 2* 5", 1);
    sketch.silence(0);
    sketch.seen.pods.get_mut(&Ordinal(0)).unwrap().ready = false;
    assert!(plain(&sketch, &on_record(None, 0), 10).contains("R31"));
}

#[test]
fn r34_a_set_that_does_not_carry_the_template_restarts_nobody() {
    let mut sketch = outdated_cluster("0* 3 | 1* 4 | 2* 5", 1);
    sketch.seen.set.as_mut().unwrap().template = Some("old".into());
    assert!(plain(&sketch, &on_record(None, 0), 10).contains("does not carry the new template"));
}

#[test]
fn r36_without_replicas_a_spare_pod_comes_first() {
    let sketch = outdated_cluster("0* | 1* | 2*", 0);
    assert!(rolled(&sketch, None, 0, |_| {}).roll.unwrap().surge);
    let in_place = rolled(&sketch, None, 0, |rolling| rolling.in_place = true);
    assert!(!in_place.roll.unwrap().surge);
    assert!(plain(&sketch, &on_record(None, 0), 1).contains("no updated pod is there that could take over"));
}

#[test]
fn r36_the_spare_goes_round() {
    // It has joined, and is empty.
    let mut sketch = outdated_cluster("0* | 1* | 2* | 3* -", 0);
    sketch.size.surge = true;
    update(&mut sketch, &[3]);
    assert_eq!(plain(&sketch, &on_record(None, 0), 1), "attach 3");
    let mut sketch = outdated_cluster("0* 3 | 1* | 2*", 0);
    sketch.size.surge = true;
    update(&mut sketch, &[3]);
    assert_eq!(plain(&sketch, &on_record(None, 0), 1), "hand over 0 to 3");
    // The old primary is back as the spare of the next shard.
    let mut sketch = outdated_cluster("3* 0 | 1* | 2*", 0);
    sketch.size.surge = true;
    update(&mut sketch, &[3, 0]);
    assert_eq!(plain(&sketch, &on_record(Some(0), 0), 1), "attach 0");
}

#[test]
fn r36_in_place_the_outage_is_said() {
    let sketch = outdated_cluster("0* | 1* | 2*", 0);
    let change = |rolling: &mut Rolling<'_>| rolling.in_place = true;
    assert_eq!(
        told(&rolled(&sketch, Some(&on_record(None, 0)), 1, change)),
        "intends vc-0"
    );
    let step = rolled(&sketch, Some(&on_record(Some(0), 0)), 2, change)
        .work
        .steps
        .remove(0);
    assert!(usher_engine::Step::describe(&step).contains("not served until it is back"));
}

#[test]
fn r37_a_primary_that_wants_more_than_will_be_left_wants_less_for_a_while() {
    let mut sketch = outdated_cluster("0* 3 | 1* 4 | 2* 5", 1);
    sketch.says(0).min_replicas = Some(1);
    assert!(plain(&sketch, &on_record(Some(3), 0), 1).starts_with("0 wants 0; delete vc-3; MinReplicasLowered"));
    update(&mut sketch, &[0, 1, 2, 3, 4, 5]);
    sketch.says(0).min_replicas = Some(0);
    let (topology, wanted) = (sketch.topology(), wanted());
    let rolling = Rolling {
        topology: &topology,
        wanted: &wanted,
        on_record: None,
        linger_seconds: 5,
        in_place: false,
        persistent: true,
        min_replicas: 1,
        now: later(100),
    };
    assert!(matches!(
        rolling.restore_min_replicas().steps.as_slice(),
        [ClusterStep::SetMinReplicas { on, replicas: 1 }] if on.ordinal == Ordinal(0)
    ));
}

#[test]
fn a_roll_ends_when_nobody_is_outdated() {
    let mut sketch = outdated_cluster("0* 3 | 1* 4 | 2* 5", 1);
    update(&mut sketch, &[0, 1, 2, 3, 4, 5]);
    assert_eq!(rolled(&sketch, Some(&on_record(Some(5), 0)), 30, |_| {}).roll, None);
    assert_eq!(rolled(&sketch, None, 30, |_| {}).roll, None);
}
