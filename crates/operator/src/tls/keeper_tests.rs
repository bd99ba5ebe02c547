use http::StatusCode;
use jiff::Timestamp;
use usher_engine::{Moment, ObjectKey};

use super::super::custody::Places;
use super::super::custody::tests::{Shared, cluster, custody, start};
use super::super::decide::Lifetimes;
use super::super::names::Names;
use super::*;

struct Still;

impl Clock for Still {
    fn wall(&self) -> Timestamp {
        start()
    }
    fn monotonic(&self) -> Moment {
        Moment::START
    }
}

fn keeper(server: &Shared, health: Option<Health>) -> Keeper {
    let places = Places {
        secret: ObjectKey::new("usher-system", "usher-webhook").unwrap(),
        configuration: None,
        config_map: None,
    };
    let names = Names::of_service("usher", "usher-system").unwrap();
    Keeper::new(
        custody(server),
        Custody::new(None, places, names, Lifetimes::default()),
        Arc::new(Still),
        Arc::new(Presented::default()),
        watch::Sender::new(None),
        health,
        Duration::from_secs(30),
    )
}

/// As an operator on somebody's laptop has no right to Secrets, or no namespace for one.
#[tokio::test]
async fn where_no_secret_can_be_kept_a_certificate_in_memory_serves_until_one_can() {
    for refusal in [StatusCode::FORBIDDEN, StatusCode::NOT_FOUND] {
        let server = cluster();
        let health = Health::new();
        let mut keeper = keeper(&server, Some(health.clone()));
        server.lock().unwrap().closed = Some(refusal);
        assert!(keeper.look().await, "it serves");
        let in_memory = keeper.bundle.borrow().clone();
        assert!(in_memory.is_some());
        let problem = keeper.problem.clone().unwrap();
        assert!(
            problem.contains("Secret usher-system/usher-webhook") && problem.contains("is kept in memory only"),
            "{problem}"
        );
        assert!(health.ready().is_err(), "API servers cannot check it");
        keeper.look().await;
        assert_eq!(*keeper.bundle.borrow(), in_memory, "the same as long as it has to do");

        server.lock().unwrap().closed = None;
        assert!(keeper.look().await);
        assert_ne!(*keeper.bundle.borrow(), in_memory, "from the Secret now");
        assert_eq!(keeper.problem, None);
        assert!(health.ready().is_ok());

        // Once kept, it stays, whatever happens to the rights.
        let kept = keeper.bundle.borrow().clone();
        server.lock().unwrap().closed = Some(refusal);
        assert!(keeper.look().await);
        assert_eq!(*keeper.bundle.borrow(), kept);
    }
}

#[tokio::test]
async fn a_server_that_is_only_late_is_waited_for() {
    let server = cluster();
    let mut keeper = keeper(&server, None);
    server.lock().unwrap().closed = Some(StatusCode::SERVICE_UNAVAILABLE);
    assert!(!keeper.look().await, "a certificate that all replicas share will come");
    server.lock().unwrap().closed = None;
    assert!(keeper.look().await);
}
