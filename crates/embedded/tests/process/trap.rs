//! A chore that panics. Nothing of ours does, so a listener to its log lines does it in its place: this test runs on one thread,
//! and the panic rises where the line was written.

use std::sync::{Arc, Mutex};

use nix::sys::signal::{Signal, kill};
use serde_json::json;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::faults::supervisor;
use crate::world::{World, sh};

/// Panics once, at this line.
const AT: &str = "a supervisor does not answer and is woken";

#[derive(Debug, Clone, Default)]
struct Trap {
    heard: Arc<Mutex<Vec<String>>>,
}

impl Trap {
    fn count(&self, line: &str) -> usize {
        self.heard.lock().unwrap().iter().filter(|heard| *heard == line).count()
    }
}

/// The text of a line.
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

impl Subscriber for Trap {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("usher_embedded::node")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        let is_first = text.0 == AT && self.count(AT) == 0;
        self.heard.lock().unwrap().push(text.0);
        assert!(!is_first, "the trap");
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[tokio::test]
async fn n12_a_chore_that_panics_takes_its_worker_along_and_the_pod_goes_on() {
    let trap = Trap::default();
    let _guard = tracing::subscriber::set_default(trap.clone());
    let world = World::new();
    let spec = json!({"restartPolicy": "Never", "containers": [sh("c", "sleep 2; exit 5")]});
    world.run("p", spec).await;
    let pod = world.running("p").await;
    let uid = pod["metadata"]["uid"].as_str().unwrap();
    // Whoever looks whether it still answers waits, and says so before it wakes it.
    kill(supervisor(world.data(), uid), Signal::SIGSTOP).unwrap();
    let pod = world.phase("p", "Failed").await;
    assert_eq!(
        pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"],
        5
    );
    let heard = trap.heard.lock().unwrap().join("\n");
    assert_eq!(trap.count("a pod's worker panicked and is started anew"), 1, "{heard}");
    assert!(
        trap.count(AT) >= 2,
        "the next worker found it stopped and woke it: {heard}"
    );
}
