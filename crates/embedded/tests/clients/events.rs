//! kube-runtime's recorder: events.k8s.io/v1 is written, kubectl and k9s read core/v1.

use k8s_openapi::api::core::v1::{ConfigMap, Event as CoreEvent};
use k8s_openapi::api::events::v1::Event;
use kube::api::{ListParams, PostParams};
use kube::runtime::events::{Event as News, EventType, Recorder, Reporter};
use kube::{Api, Resource as _};
use serde_json::json;

use crate::World;

fn news(reason: &str, note: &str, type_: EventType) -> News {
    News {
        type_,
        reason: reason.into(),
        note: Some(note.into()),
        action: "Looking".into(),
        secondary: None,
    }
}

pub async fn are_seen_through_both_groups(world: &World) {
    let maps: Api<ConfigMap> = Api::default_namespaced(world.client.clone());
    let map = serde_json::from_value(json!({"metadata": {"name": "watched"}})).unwrap();
    let map = maps.create(&PostParams::default(), &map).await.unwrap();
    let reporter = Reporter {
        controller: "example.com/gardener".into(),
        instance: Some("gardener-0".into()),
    };
    let recorder = Recorder::new(world.client.clone(), reporter);
    let about = map.object_ref(&());
    for _ in 0..3 {
        recorder
            .publish(&news("Seen", "It was seen", EventType::Normal), &about)
            .await
            .unwrap();
    }
    recorder
        .publish(&news("Lost", "It was lost", EventType::Warning), &about)
        .await
        .unwrap();

    let events: Api<Event> = Api::default_namespaced(world.client.clone());
    let everything = events.list(&ListParams::default()).await.unwrap().items;
    assert_eq!(everything.len(), 2, "three of the same are one: {everything:#?}");
    let by_reason = |reason: &str| ListParams::default().fields(&format!("reason={reason},regarding.name=watched"));
    let seen = events.list(&by_reason("Seen")).await.unwrap().items.remove(0);
    let series = seen.series.clone().unwrap();
    assert_eq!(series.count, 3);
    assert_eq!(seen.reporting_instance.as_deref(), Some("gardener-0"));
    let lost = events.list(&by_reason("Lost")).await.unwrap().items.remove(0);
    assert_eq!((lost.type_.as_deref(), lost.series), (Some("Warning"), None));

    // As `kubectl describe` asks.
    let core: Api<CoreEvent> = Api::default_namespaced(world.client.clone());
    let uid = map.metadata.uid.clone().unwrap();
    let selector =
        format!("involvedObject.name=watched,involvedObject.kind=ConfigMap,involvedObject.uid={uid},reason=Seen");
    let same = core.list(&ListParams::default().fields(&selector)).await.unwrap().items;
    let [same] = same.as_slice() else {
        panic!("one event: {same:#?}");
    };
    assert_eq!(same.metadata.uid, seen.metadata.uid);
    assert_eq!(same.metadata.resource_version, seen.metadata.resource_version);
    assert_eq!(same.message.as_deref(), Some("It was seen"));
    assert_eq!(same.reporting_component.as_deref(), Some("example.com/gardener"));
    assert_eq!(same.series.as_ref().and_then(|series| series.count), Some(3));
    assert_eq!(same.event_time, seen.event_time);
}
