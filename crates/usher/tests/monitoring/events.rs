//! Events of a storm: as many as fit, and the rest summed up on the pool.

use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::ListParams;
use serde_json::json;

use super::exposition::Exposition;
use crate::support::World;
use crate::support::world::eventually;

/// More than one burst of events; a pool has room for all of them.
const CLAIMS: usize = 300;

#[tokio::test(flavor = "multi_thread")]
async fn events_that_are_left_out_are_counted_and_summed_up_on_the_pool() {
    let world = World::new().await;
    world.pool("p", json!({"cidr": "10.0.0.0/16"})).await;
    let names: Vec<String> = (0..CLAIMS).map(|n| format!("c{n:03}")).collect();
    world
        .claim_all(
            names
                .iter()
                .map(|name| (name.clone(), json!({"poolRef": "p", "blockSize": 28}))),
        )
        .await;
    // All at once, however slowly they were made: else there is nothing to leave out.
    let operator = world.operator().ready().await;
    world
        .until("all are Bound", |now| names.iter().all(|name| now.is_bound(name)))
        .await;
    let events: Api<Event> = Api::namespaced(world.client.clone(), &world.namespace);
    let mut told = (0, Vec::new());
    eventually("every claim has its event, or is counted on its pool", async || {
        let of_bound = |event: &Event| event.reason.as_deref() == Some("SubnetAllocated");
        let list: Vec<Event> = events.list(&ListParams::default()).await.unwrap().items;
        let kind = |event: &Event| event.regarding.as_ref().and_then(|about| about.kind.clone());
        let (on_claims, on_pool): (Vec<Event>, Vec<Event>) = list
            .into_iter()
            .filter(of_bound)
            .partition(|event| kind(event).as_deref() == Some("SubnetClaim"));
        let notes: Vec<String> = on_pool.into_iter().filter_map(|event| event.note).collect();
        told = (on_claims.len(), notes);
        // "1 claim bound, ...", "12 claims bound, ...".
        let summed = |note: &String| {
            let (count, _) = note.split_once(" claim").unwrap();
            count.parse::<usize>().unwrap()
        };
        told.0 + told.1.iter().map(summed).sum::<usize>() == CLAIMS
    })
    .await;
    let (one_by_one, notes) = told;
    assert!((100..CLAIMS).contains(&one_by_one), "{one_by_one} events of claims");
    assert!((1..=3).contains(&notes.len()), "one in ten seconds: {notes:?}");
    let shown = Exposition::read(&operator.metrics());
    assert_eq!(
        shown.sum("usher_subnets_events_shed_total", &[]),
        (CLAIMS - one_by_one) as f64
    );
}
