use super::names::{METRICS, Shape};
use super::*;
use crate::plan::sketch::{Sketch, node, start};
use serde_json::json;
use usher_operator::record::read;

fn cluster(uid: &str) -> ClusterRecord {
    let metadata = json!({"namespace": "ns", "name": "cache", "uid": uid, "resourceVersion": "1",
        "creationTimestamp": "2026-01-01T00:00:00Z"});
    let object = json!({"apiVersion": "x/v1", "kind": "ValkeyCluster", "metadata": metadata, "spec": {}});
    read(&serde_json::from_value(object).unwrap()).unwrap()
}

type Keep<'k> = &'k mut dyn FnMut(&dyn Fn(&ObjectKey) -> bool);

fn exposed(figures: &Figures, is_there: bool) -> String {
    let mut registry = Registry::default();
    let present = move |keep: Keep<'_>| keep(&|_| is_there);
    registry.register_collector(Box::new(scrape::Scrape::new(figures.clone(), present)));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    text
}

fn looked() -> Figures {
    let figures = Figures::default();
    figures.seen(&cluster("u"), &Observation::default(), Timestamp::UNIX_EPOCH);
    figures
}

#[test]
fn every_metric_is_exposed_with_its_labels_and_no_other_is() {
    let figures = looked();
    let key = cluster("u").meta.key;
    if let Some(sheet) = figures.lock().get_mut(&key) {
        sheet.lags.insert("cache-1".into(), 7);
        sheet.stuck = stuck(&ValkeyClusterStatus::default(), std::iter::empty());
    }
    let text = exposed(&figures, true);
    for metric in METRICS {
        let name = match metric.shape {
            Shape::Histogram => format!("{}_count", metric.name),
            Shape::Counter | Shape::Gauge => metric.name.to_owned(),
        };
        let line = text.lines().find(|line| line.starts_with(&format!("{name}{{")));
        let line = line.unwrap_or_else(|| panic!("{name} is not in\n{text}"));
        for label in metric.labels {
            assert!(line.contains(&format!("{label}=\"")), "{label} is not in {line}");
        }
        assert_eq!(line.matches("=\"").count(), metric.labels.len(), "{line}");
    }
    let kinds = text.lines().filter(|line| line.starts_with("# TYPE")).count();
    assert_eq!(kinds, METRICS.len());
}

#[test]
fn series_end_with_their_cluster() {
    let figures = looked();
    assert!(exposed(&figures, true).contains("name=\"cache\""));
    assert!(!exposed(&figures, false).contains("name=\"cache\""));
    assert!(!exposed(&figures, true).contains("name=\"cache\""));
}

#[test]
fn another_cluster_of_the_name_begins_anew() {
    let figures = looked();
    let (old, new) = (cluster("u"), cluster("v"));
    figures.failed(&old.meta.key);
    assert_eq!(figures.failed(&old.meta.key).0, 2);
    figures.seen(&new, &Observation::default(), Timestamp::UNIX_EPOCH);
    assert_eq!(figures.failed(&new.meta.key).0, 1);
    figures.succeeded(&new.meta.key);
    assert_eq!(figures.failed(&new.meta.key).0, 1);
}

fn job(state: JobState) -> Job {
    Job {
        name: "job".into(),
        exports: true,
        source: node(0),
        target: node(1),
        slots: crate::words::SlotSet::first(8),
        state,
        message: String::new(),
        updated: None,
        remaining: None,
    }
}

/// A whole cluster, with this job on its first server.
fn with_job(state: JobState) -> Observation {
    let mut seen = Sketch::of("0* 3 | 1* 4 | 2* 5", 3, 1).seen;
    let mut said = seen.answers.values_mut().filter_map(|answer| match answer {
        Answer::Says(says) => Some(says),
        _ => None,
    });
    said.next().unwrap().jobs = vec![job(state)];
    drop(said);
    seen
}

#[test]
fn a_job_is_counted_once_and_what_was_over_before_is_not() {
    let at = |second| Timestamp::from_second(second).unwrap();
    let done = |sheet: &Sheet| sheet.jobs[&("atomic", "success")];
    let mut sheet = Sheet::new("u".into());
    sheet.count_jobs(&with_job(JobState::Success), at(1));
    assert_eq!(done(&sheet), 0, "that was before us");
    let mut sheet = Sheet::new("u".into());
    sheet.looked = true;
    sheet.count_jobs(&with_job(JobState::InFlight("streaming".into())), at(1));
    for second in [4, 5] {
        sheet.count_jobs(&with_job(JobState::Success), at(second));
    }
    assert_eq!(done(&sheet), 1);
}

#[test]
fn figures_are_those_of_the_cluster_as_it_was_seen() {
    let figures = Figures::default();
    let sketch = Sketch::of("0* 3 | 1* 4 | 2*", 3, 1);
    figures.seen(&cluster("u"), &sketch.seen, start());
    let text = exposed(&figures, true);
    let value = |series: &str| {
        let line = text
            .lines()
            .find(|line| line.starts_with(series))
            .unwrap_or_else(|| panic!("{series}:\n{text}"));
        line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()
    };
    let labels = "namespace=\"ns\",name=\"cache\"";
    assert_eq!(value(&format!("usher_valkey_slots_unserved{{{labels}}}")), 0.0);
    assert_eq!(value(&format!("usher_valkey_members{{{labels},state=\"live\"}}")), 5.0);
    assert_eq!(value(&format!("usher_valkey_shards{{{labels},state=\"owning\"}}")), 3.0);
    assert_eq!(
        value(&format!("usher_valkey_shards{{{labels},state=\"unreplicated\"}}")),
        1.0
    );
}

#[test]
fn failovers_are_told_apart_by_who_asked_for_them() {
    let sketch = Sketch::of("0* 3 | 1* 4 | 2* 5", 3, 1);
    let topology = sketch.topology();
    let mut sheet = Sheet::new("u".into());
    sheet.count_failovers(&topology, start());
    assert_eq!(sheet.failovers.values().sum::<u64>(), 0, "the first look");
    // As if others had been primaries when it was looked at last.
    let shards: Vec<_> = sheet.primaries.keys().cloned().collect();
    sheet
        .primaries
        .values_mut()
        .take(2)
        .for_each(|primary| *primary = node(9));
    sheet.asked.insert(shards[0].clone(), ("planned", start()));
    sheet.count_failovers(&topology, start());
    sheet.count_failovers(&topology, start());
    assert_eq!(
        sheet.failovers,
        BTreeMap::from([("forced", 0), ("planned", 1), ("unplanned", 1)])
    );
}

#[test]
fn a_cluster_that_stands_still_is_told_apart() {
    let mut status = ValkeyClusterStatus {
        phase: Some(Phase::Failed),
        ..ValkeyClusterStatus::default()
    };
    let how = |status: &ValkeyClusterStatus, reasons: &[&str]| -> Vec<_> {
        let stuck = stuck(status, reasons.iter().copied());
        stuck.into_iter().filter(|(_, is)| *is).map(|(how, _)| how).collect()
    };
    assert_eq!(how(&status, &[]), ["failed"]);
    status.phase = Some(Phase::RebalancingSlots);
    assert_eq!(how(&status, &["RollStalled"]), ["roll"]);
    let mut conditions = usher_engine::Conditions::default();
    conditions.set(
        "Progressing",
        false,
        "ProgressDeadlineExceeded",
        "",
        1,
        Timestamp::UNIX_EPOCH,
    );
    status.conditions = conditions.into_vec();
    assert_eq!(how(&status, &[]), ["scale"]);
}
