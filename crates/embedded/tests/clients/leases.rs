//! Leader election by kube-lease-manager.

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube_lease_manager::LeaseManagerBuilder;
use tokio::sync::watch;

use crate::{World, soon};

const LEASE: &str = "throne";
/// The shortest that leave room for one renewal.
const DURATION_SECONDS: u64 = 2;
const GRACE_SECONDS: u64 = 1;

struct Contender {
    name: &'static str,
    leads: watch::Receiver<bool>,
}

async fn contender(world: &World, name: &'static str) -> Contender {
    let manager = LeaseManagerBuilder::new(world.client.clone(), LEASE)
        .with_namespace("default")
        .with_identity(name)
        .with_duration(DURATION_SECONDS)
        .with_grace(GRACE_SECONDS)
        .build()
        .await
        .unwrap();
    // The task ends, and the lease is released, when the receiver is dropped.
    let (leads, _task) = manager.watch().await;
    Contender { name, leads }
}

/// Until one of the two leads; never both.
async fn leader(one: &mut Contender, other: &mut Contender) -> &'static str {
    loop {
        let leading = [*one.leads.borrow_and_update(), *other.leads.borrow_and_update()];
        match leading {
            [true, true] => panic!("two lead"),
            [true, false] => return one.name,
            [false, true] => return other.name,
            [false, false] => {}
        }
        let changes = [one.leads.changed(), other.leads.changed()].map(Box::pin);
        soon("a leader", futures::future::select_all(changes)).await.0.unwrap();
    }
}

async fn holder(world: &World) -> Option<String> {
    let leases: Api<Lease> = Api::default_namespaced(world.client.clone());
    leases
        .get(LEASE)
        .await
        .unwrap()
        .spec
        .and_then(|spec| spec.holder_identity)
}

pub async fn one_leads_and_another_takes_over(world: &World) {
    let mut one = contender(world, "one").await;
    let mut other = contender(world, "other").await;
    let first = leader(&mut one, &mut other).await;
    assert_eq!(holder(world).await.as_deref(), Some(first));
    // A renewal is no change of leader: the lease is written again, by the same.
    let leases: Api<Lease> = Api::default_namespaced(world.client.clone());
    let renewed = |lease: Option<&Lease>| {
        lease
            .and_then(|lease| lease.spec.as_ref())
            .and_then(|spec| spec.renew_time.clone())
    };
    let before = renewed(Some(&leases.get(LEASE).await.unwrap()));
    let later = move |lease: Option<&Lease>| renewed(lease) > before;
    let waiting = kube::runtime::wait::await_condition(leases.clone(), LEASE, later);
    soon("a renewal", waiting).await.unwrap();
    assert_eq!(holder(world).await.as_deref(), Some(first));
    // Who leads goes; the other follows, and the one who comes anew must wait.
    let (gone, mut left) = if first == "one" { (one, other) } else { (other, one) };
    drop(gone);
    let mut third = contender(world, "third").await;
    let second = leader(&mut left, &mut third).await;
    assert_ne!(second, first);
    assert_eq!(holder(world).await.as_deref(), Some(second));
}
