use super::*;
use crate::wake::register;
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use usher_operator::view::Event;

const UID: &str = "cache-uid";

fn put(view: &mut View, kind: ApiType, mut object: Value) {
    let metadata = object["metadata"].as_object_mut().unwrap();
    metadata.entry("namespace").or_insert("ns".into());
    metadata.entry("uid").or_insert(format!("{}-uid", kind.plural).into());
    // Versions only ever grow: what is not newer is no news to a view.
    static VERSION: AtomicU64 = AtomicU64::new(1);
    let version = VERSION.fetch_add(1, Ordering::Relaxed).to_string();
    metadata.insert("resourceVersion".into(), version.into());
    metadata.insert("creationTimestamp".into(), "2026-01-01T00:00:00Z".into());
    let object = serde_json::from_value(object).unwrap();
    let outcome = view.apply(kind, Event::Applied(Box::new(object)));
    assert!(outcome.unreadable.is_none(), "{:?}", outcome.unreadable);
}

/// A view with a cluster in it whose password is in Secret `geheim`.
fn world() -> (View, ClusterRecord) {
    let mut view = View::default();
    register(&mut view);
    let spec = json!({"auth": {"secretRef": {"name": "geheim"}}});
    put(
        &mut view,
        CLUSTERS,
        json!({"metadata": {"name": "cache", "uid": UID}, "spec": spec}),
    );
    let key = usher_engine::ObjectKey::new("ns", "cache").unwrap();
    let cluster = ClusterRecord::clone(view.get::<ClusterRecord>(&key).unwrap());
    (view, cluster)
}

fn everything(view: &mut View, cluster: &ClusterRecord) {
    for (kind, object) in objects::plain(cluster) {
        put(view, kind, object);
    }
    put(view, SETS, objects::set::set(cluster, 6));
    let secret = secret::secret(cluster, &secret::Data::new(), &BTreeSet::new(), Some(b"geheim"));
    put(view, SECRETS, secret);
    put(
        view,
        SECRETS,
        json!({"metadata": {"name": "geheim"}, "data": {"password": "Z2VoZWlt"}}),
    );
}

fn names(objects: &[(&'static str, Text)]) -> Vec<String> {
    objects.iter().map(|(kind, name)| format!("{kind} {name}")).collect()
}

#[test]
fn what_is_as_rendered_is_settled_and_what_is_not_is_named() {
    let (mut view, cluster) = world();
    let missing = names(&observe(&view, &cluster).objects.unsettled);
    assert_eq!(
        missing,
        [
            "Secret cache-config",
            "Service cache-headless",
            "Service cache",
            "PodDisruptionBudget cache"
        ]
    );
    everything(&mut view, &cluster);
    assert_eq!(observe(&view, &cluster).objects, Objects::default());
    let set = observe(&view, &cluster).set.unwrap();
    assert!(set.ours && set.replicas == 6 && set.template.is_some());
    let mut edited = objects::services::client(&cluster);
    edited["spec"]["ports"][0]["port"] = 1.into();
    put(&mut view, SERVICES, edited);
    let mut template = objects::set::set(&cluster, 6);
    template["spec"]["template"]["spec"]["containers"][0]["image"] = "another".into();
    put(&mut view, SETS, template);
    let seen = observe(&view, &cluster).objects;
    assert_eq!(
        (names(&seen.unsettled), seen.set_differs),
        (vec!["Service cache".to_owned()], true)
    );
}

#[test]
fn what_is_somebody_else_s_is_told_from_what_an_earlier_cluster_left() {
    let (mut view, cluster) = world();
    everything(&mut view, &cluster);
    put(
        &mut view,
        SETS,
        json!({"metadata": {"name": "cache"}, "spec": {"replicas": 1}}),
    );
    put(&mut view, SERVICES, json!({"metadata": {"name": "cache"}, "spec": {}}));
    let seen = observe(&view, &cluster);
    assert_eq!(names(&seen.objects.foreign), ["Service cache", "StatefulSet cache"]);
    assert!(!seen.set.unwrap().ours);
    let earlier = |mut object: Value| {
        object["metadata"]["ownerReferences"][0]["uid"] = "earlier".into();
        object
    };
    put(&mut view, SETS, earlier(objects::set::set(&cluster, 6)));
    put(&mut view, SERVICES, earlier(objects::services::client(&cluster)));
    let seen = observe(&view, &cluster);
    assert_eq!(
        (names(&seen.objects.foreign), names(&seen.objects.unsettled)),
        (vec![], vec![])
    );
    assert!(!seen.set.unwrap().ours, "it is not ours to change");
}

#[test]
fn the_password_in_force_is_told_from_the_one_that_is_named() {
    let (mut view, cluster) = world();
    let of = |view: &View| observe(view, &cluster).objects.password;
    assert!(matches!(of(&view), PasswordSeen::Missing { problem, .. } if problem.contains("does not exist")));
    put(
        &mut view,
        SECRETS,
        json!({"metadata": {"name": "geheim"}, "data": {"other": "eA=="}}),
    );
    assert!(matches!(of(&view), PasswordSeen::Missing { problem, .. } if problem.contains("no password under")));
    put(
        &mut view,
        SECRETS,
        json!({"metadata": {"name": "geheim"}, "data": {"password": ""}}),
    );
    assert!(
        matches!(of(&view), PasswordSeen::Missing { .. }),
        "an empty one is none"
    );
    everything(&mut view, &cluster);
    assert_eq!(of(&view), PasswordSeen::Settled);
    put(
        &mut view,
        SECRETS,
        json!({"metadata": {"name": "geheim"}, "data": {"password": "YW5kZXJz"}}),
    );
    assert_eq!(
        of(&view),
        PasswordSeen::Differs {
            secret: "geheim".into()
        }
    );
}

#[test]
fn the_read_service_goes_when_nobody_wants_it() {
    let (mut view, cluster) = world();
    everything(&mut view, &cluster);
    put(&mut view, SERVICES, objects::services::read(&cluster));
    assert_eq!(
        names(&observe(&view, &cluster).objects.unwanted),
        ["Service cache-read"]
    );
}
