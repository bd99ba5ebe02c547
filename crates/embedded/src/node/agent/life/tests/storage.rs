//! What becomes of a pod that has more on the disk than it may.

use serde_json::json;

use super::*;

fn usage(volumes: &[(&str, u64)], logs: &[(&str, u64)]) -> Option<Usage> {
    let all = |sizes: &[(&str, u64)]| {
        let sizes = sizes.iter().map(|(name, bytes)| ((*name).to_owned(), *bytes));
        sizes.collect()
    };
    Some(Usage {
        volumes: all(volumes),
        logs: all(logs),
    })
}

const MI: u64 = 1 << 20;

#[test]
fn a_pod_with_too_much_in_a_volume_is_evicted_with_a_second_of_grace() {
    let mut world = World::new(json!({
        "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}, {"name": "w", "emptyDir": {}}],
        "containers": [{"name": "c"}]}));
    world.runs("c", 0);
    world.usage = usage(&[("v", MI)], &[]);
    assert!(world.steps().is_empty(), "as much as it may is not too much");
    world.usage = usage(&[("v", MI + 1)], &[]);
    let decision = world.decide();
    assert_eq!(decision.steps, [stop("c", 0, 2)], "nobody has less than two seconds");
    assert_eq!(decision.status.phase.as_deref(), Some("Running"), "until it is over");
    let told: Vec<_> = decision
        .tellings
        .iter()
        .map(|telling| telling.reason.as_str())
        .collect();
    assert_eq!(told, ["Evicted", "Killing"]);
    assert!(decision.tellings[0].is_warning);
    let why = "Usage of EmptyDir volume \"v\" exceeds the limit \"1Mi\". ";
    assert_eq!(decision.tellings[0].message, why);
    world.is_asked_to_stop("c", 0, 2);
    // What was freed since does not save it.
    world.usage = usage(&[("v", 0)], &[]);
    assert!(world.told().is_empty(), "told once");
    world.exits("c", 0, 0);
    assert_eq!(world.steps(), [Step::End]);
    world.supervisor = Supervisor::Over;
    let decision = world.decide();
    assert_eq!(decision.steps, [Step::Clear], "the disk is free again");
    assert!(decision.is_settled);
    assert_eq!(decision.status.phase.as_deref(), Some("Failed"));
    assert_eq!(decision.status.reason.as_deref(), Some("Evicted"));
    assert_eq!(decision.status.message.as_deref(), Some(why));
    assert_eq!(condition(&decision, "Ready"), "False PodFailed");
    world.kept.is_cleared = true;
    assert!(world.steps().is_empty());
    world.deleted(30);
    let decision = world.decide();
    assert_eq!(decision.steps, [Step::Remove]);
    assert_eq!(decision.status.reason.as_deref(), Some("Evicted"));
}

#[test]
fn containers_limits_hold_for_all_of_the_pod_and_for_each_log() {
    let limit =
        |name: &str, amount: &str| json!({"name": name, "resources": {"limits": {"ephemeral-storage": amount}}});
    for (what, spec, used, expected) in [
        (
            "together",
            json!({"volumes": [{"name": "v", "emptyDir": {}}], "containers": [limit("c", "1Mi"), limit("d", "512Ki")]}),
            usage(&[("v", MI)], &[("c", MI / 2), ("d", 1)]),
            Some("Pod ephemeral local storage usage exceeds the total limit of containers 1536Ki. "),
        ),
        (
            "a sidecar counts, an init container if it has more",
            json!({"initContainers": [limit("i", "1Mi")], "containers": [limit("c", "1")]}),
            usage(&[], &[("c", 1), ("i", MI - 1)]),
            None,
        ),
        (
            "one of them",
            json!({"containers": [limit("c", "1Mi"), limit("d", "1Gi")]}),
            usage(&[], &[("c", MI + 1), ("d", 1)]),
            Some("Container c exceeded its local ephemeral storage limit \"1Mi\". "),
        ),
        (
            "no limit",
            json!({"volumes": [{"name": "v", "emptyDir": {"sizeLimit": "0"}}], "containers": [{"name": "c"}]}),
            usage(&[("v", MI)], &[("c", MI)]),
            None,
        ),
        (
            "the cluster's own",
            json!({"priority": 2_000_001_000, "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1"}}],
                "containers": [{"name": "c"}]}),
            usage(&[("v", MI)], &[]),
            None,
        ),
    ] {
        let mut world = World::new(spec);
        world.usage = used;
        let told = world.decide().tellings;
        let said = told.iter().find(|telling| telling.reason == "Evicted");
        assert_eq!(said.map(|telling| telling.message.as_str()), expected, "{what}");
    }
}

#[test]
fn only_what_has_a_limit_is_measured() {
    let of = |spec: Value| {
        let measured = Measured::of(&World::new(spec).pod);
        (measured.volumes.join(" "), measured.logs.join(" "))
    };
    let volumes = json!([{"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}, {"name": "w", "emptyDir": {}}]);
    let plain = of(json!({"volumes": [{"name": "w", "emptyDir": {}}], "containers": [{"name": "c"}]}));
    assert_eq!(plain, (String::new(), String::new()));
    let sized = of(json!({"volumes": volumes, "containers": [{"name": "c"}]}));
    assert_eq!(sized, ("v".to_owned(), String::new()));
    let whole = of(json!({"volumes": volumes,
        "containers": [{"name": "c", "resources": {"limits": {"ephemeral-storage": "1Mi"}}}]}));
    assert_eq!(whole, ("v w".to_owned(), "c".to_owned()));
}
