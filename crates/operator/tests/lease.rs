//! The lease task against a real API server. Run it with
//! `USHER_TEST_KUBECONFIG=… cargo test -p usher-operator --test lease`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use usher_engine::ErrorClass;
use usher_operator::clock::{Clock, SystemClock};
use usher_operator::leadership::{LeaseTiming, SharedLeadership};
use usher_operator::lease::{self, LeaseConfig, LeaseError};

/// The longest any wait may take; the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs out soon, but not because the machine is busy for a moment.
const BRIEF: LeaseTiming = LeaseTiming {
    duration: Duration::from_secs(4),
    renew_every: Duration::from_millis(800),
    margin: Duration::from_secs(1),
};

/// Does not run out while a test waits.
const LONG: LeaseTiming = LeaseTiming {
    duration: Duration::from_secs(300),
    renew_every: Duration::from_millis(800),
    margin: Duration::from_secs(10),
};

async fn config() -> Config {
    let path = std::env::var("USHER_TEST_KUBECONFIG").unwrap_or_else(|_| {
        panic!(
            "USHER_TEST_KUBECONFIG is not set: point it at the kubeconfig of an API server this test may make \
             namespaces on"
        )
    });
    let kubeconfig = Kubeconfig::read_from(&path).unwrap_or_else(|e| panic!("{path} is no kubeconfig: {e}"));
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap()
}

/// A namespace of the test's own, its Lease, and one clock for all candidates: what two believe can be compared here.
struct Place {
    config: Config,
    namespace: String,
    clock: Arc<SystemClock>,
}

impl Place {
    async fn new() -> Self {
        let config = config().await;
        let namespaces: Api<Namespace> = Api::all(Client::try_from(config.clone()).unwrap());
        let made = serde_json::from_value(json!({"metadata": {"generateName": "usher-lease-"}})).unwrap();
        let made = namespaces
            .create(&PostParams::default(), &made)
            .await
            .unwrap_or_else(|e| panic!("cannot make a namespace on {}: {e}", config.cluster_url));
        Self {
            config,
            namespace: made.metadata.name.unwrap(),
            clock: Arc::new(SystemClock::new()),
        }
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(Client::try_from(self.config.clone()).unwrap(), &self.namespace)
    }

    async fn holder(&self) -> Option<String> {
        self.leases().get("usher").await.unwrap().spec.unwrap().holder_identity
    }

    fn start(&self, identity: &str, timing: LeaseTiming) -> Candidate {
        self.start_as(self.config.clone(), identity, timing)
    }

    fn start_as(&self, config: Config, identity: &str, timing: LeaseTiming) -> Candidate {
        let lease = LeaseConfig {
            namespace: self.namespace.clone(),
            name: "usher".to_owned(),
            identity: identity.to_owned(),
            timing,
        };
        let shared = SharedLeadership::never_held();
        let (stop, stopped) = watch::channel(false);
        let client = Client::try_from(config).unwrap();
        let task = tokio::spawn(lease::run(client, lease, shared.clone(), self.clock.clone(), stopped));
        Candidate {
            bell: shared.subscribe(),
            shared,
            clock: self.clock.clone(),
            stop,
            task,
        }
    }

    async fn remove(self) {
        let namespaces: Api<Namespace> = Api::all(Client::try_from(self.config).unwrap());
        namespaces
            .delete(&self.namespace, &DeleteParams::background())
            .await
            .unwrap();
    }
}

struct Candidate {
    shared: SharedLeadership,
    bell: watch::Receiver<bool>,
    clock: Arc<SystemClock>,
    stop: watch::Sender<bool>,
    task: JoinHandle<Result<(), LeaseError>>,
}

impl Candidate {
    async fn until(&mut self, leads: bool) {
        tokio::select! {
            now = self.bell.wait_for(|now| *now == leads) => drop(now.unwrap()),
            ended = &mut self.task => panic!("it ended: {ended:?}"),
            () = tokio::time::sleep(PATIENCE) => panic!("leads does not become {leads}"),
        }
    }

    fn may_act(&self) -> bool {
        self.shared.may_act(self.clock.monotonic())
    }
}

#[tokio::test]
async fn when_the_first_dies_the_second_takes_over_and_never_both() {
    let place = Place::new().await;
    let mut first = place.start("first", BRIEF);
    first.until(true).await;
    assert_eq!(place.holder().await.as_deref(), Some("first"));
    let second = place.start("second", BRIEF);
    // Dropped in the middle of whatever it does; what it believes goes on, as in a process that was stopped.
    first.task.abort();
    let taken_over = async {
        while !second.may_act() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(!first.may_act(), "two may act at once");
    };
    tokio::time::timeout(PATIENCE, taken_over)
        .await
        .expect("nobody takes over");
    let lease = place.leases().get("usher").await.unwrap().spec.unwrap();
    assert_eq!(lease.holder_identity.as_deref(), Some("second"));
    assert_eq!(
        (lease.lease_transitions, lease.lease_duration_seconds),
        (Some(1), Some(4))
    );
    second.task.abort();
    place.remove().await;
}

#[tokio::test]
async fn a_polite_release_is_taken_over_at_once() {
    let place = Place::new().await;
    let mut first = place.start("first", LONG);
    first.until(true).await;
    let mut second = place.start("second", LONG);
    let would_end = first.shared.held_until().unwrap();
    first.stop.send_replace(true);
    tokio::time::timeout(PATIENCE, first.task)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    second.until(true).await;
    assert!(place.clock.monotonic() < would_end, "the second waited it out");
    assert_eq!(place.holder().await.as_deref(), Some("second"));
    second.stop.send_replace(true);
    tokio::time::timeout(PATIENCE, second.task)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert_eq!(place.holder().await, None);
    place.remove().await;
}

#[tokio::test]
async fn a_lease_that_is_edited_or_deleted_by_hand_is_lost_at_once() {
    let place = Place::new().await;
    let mut one = place.start("one", LONG);
    one.until(true).await;
    let thief = Patch::Merge(json!({"spec": {"holderIdentity": "thief"}}));
    place
        .leases()
        .patch("usher", &PatchParams::default(), &thief)
        .await
        .unwrap();
    one.until(false).await;
    assert!(!one.may_act());
    let nobody = Patch::Merge(json!({"spec": {"holderIdentity": null}}));
    place
        .leases()
        .patch("usher", &PatchParams::default(), &nobody)
        .await
        .unwrap();
    one.until(true).await;
    place.leases().delete("usher", &DeleteParams::default()).await.unwrap();
    one.until(false).await;
    assert!(!one.may_act());
    one.task.abort();
    place.remove().await;
}

#[tokio::test]
async fn without_the_right_it_says_what_is_missing() {
    let place = Place::new().await;
    let mut nobody = place.config.clone();
    nobody.auth_info.impersonate = Some(format!("system:serviceaccount:{}:default", place.namespace));
    let task = place.start_as(nobody, "one", LONG).task;
    let error = tokio::time::timeout(PATIENCE, task)
        .await
        .expect("it neither fails nor ends: does this API server check rights (--authorization-mode=RBAC)?")
        .unwrap()
        .unwrap_err();
    assert_eq!(error.class(), ErrorClass::Permanent);
    let text = error.to_string();
    let start = format!(
        "may not get leases.coordination.k8s.io in namespace {} (lease usher)",
        place.namespace
    );
    assert!(
        text.starts_with(&start) && text.ends_with("`usher install` creates it"),
        "{text}"
    );
    place.remove().await;
}
