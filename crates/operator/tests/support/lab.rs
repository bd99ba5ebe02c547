//! One test's corner of a real cluster.

use std::net::{Ipv4Addr, SocketAddr};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{CustomResourceExt, ResourceExt};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OnceCell, watch};
use tokio::task::JoinHandle;
use usher_engine::{Backoff, Condition, ConditionStatus};
use usher_operator::Kind;
use usher_operator::queue::QueueConfig;
use usher_operator::run::{Operator, RunError, Settings, boxed};

use super::logs::Logs;
use super::proxy::{Proxy, When, on};
use super::rigged::{Rig, Rigged};
use crate::greeting::{Greeting, Greetings};

/// Nothing these tests wait for takes longer on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

pub async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    if tokio::time::timeout(PATIENCE, wait).await.is_err() {
        panic!("not within {} s: {what}", PATIENCE.as_secs());
    }
}

/// An address that is free now.
pub async fn free_address() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    listener.local_addr().unwrap()
}

/// What an operator answers there.
pub async fn ask(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

/// Settings with which failures are retried fast: what is not to be retried then stands out.
pub fn quick() -> Settings {
    Settings {
        queue: QueueConfig {
            backoff: Backoff {
                first: Duration::from_millis(5),
                cap: Duration::from_millis(200),
                factor: 1.5,
            },
            ..QueueConfig::default()
        },
        ..Settings::default()
    }
}

/// An operator at work.
pub struct Running {
    switch: watch::Sender<bool>,
    operator: JoinHandle<Result<(), RunError>>,
}

impl Running {
    /// Tells it to stop, and waits until it has.
    pub async fn stop(self) {
        self.switch.send_replace(true);
        ended(self.operator).await;
    }

    /// Loses the switch it could be stopped with, and waits until it has stopped.
    pub async fn drop_switch(self) {
        drop(self.switch);
        ended(self.operator).await;
    }
}

async fn ended(operator: JoinHandle<Result<(), RunError>>) {
    let ended = tokio::time::timeout(PATIENCE, operator).await;
    ended.expect("it stops in time").unwrap().unwrap();
}

pub struct Lab {
    /// Past the proxy, as an administrator.
    pub client: kube::Client,
    pub proxy: Proxy,
    pub namespace: String,
    pub logs: Logs,
    pub rig: Arc<Rig>,
    running: Vec<Running>,
}

impl Lab {
    /// Runs a test in a fresh namespace, with a proxy of its own; cleans up whatever comes of it.
    pub async fn run(test: impl AsyncFnOnce(&mut Lab)) {
        let client = connect().await;
        let proxy = Proxy::start(client.clone()).await;
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let new = serde_json::from_value(json!({"metadata": {"generateName": "usher-operator-"}})).unwrap();
        let namespace = namespaces
            .create(&PostParams::default(), &new)
            .await
            .unwrap()
            .name_any();
        let mut lab = Lab {
            client,
            proxy,
            namespace,
            logs: Logs::shared(),
            rig: Arc::default(),
            running: Vec::new(),
        };
        let outcome = AssertUnwindSafe(test(&mut lab)).catch_unwind().await;
        for running in lab.running.drain(..) {
            running.operator.abort();
        }
        // A namespace with a finalizer in it that nobody answers for stays for ever.
        let greetings = lab.greetings();
        for greeting in greetings.list(&ListParams::default()).await.into_iter().flatten() {
            let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
            let _ = greetings
                .patch(&greeting.name_any(), &PatchParams::default(), &free)
                .await;
        }
        let _ = namespaces.delete(&lab.namespace, &DeleteParams::default()).await;
        if let Err(panic) = outcome {
            let warnings = lab.logs.with(&["WARN"]);
            let last = warnings.iter().skip(warnings.len().saturating_sub(20));
            last.for_each(|line| eprintln!("{line}"));
            std::panic::resume_unwind(panic);
        }
    }

    /// Starts an operator of the plain kind behind the proxy.
    pub fn start(&mut self) {
        self.start_with(Greetings, quick());
    }

    /// Starts one of the kind with handles.
    pub fn start_rigged(&mut self, settings: Settings) {
        self.start_with(Rigged(self.rig.clone()), settings);
    }

    /// Starts one, and has the note of Greeting `x` written while its echo does not come.
    pub async fn write_unseen(&mut self) {
        self.start_rigged(quick());
        self.until_calm("before").await;
        self.proxy.hold_watches("/configmaps");
        self.greet("x", json!({"to": "world"})).await;
        eventually("the note is written", async || self.creations("x").1 == 1).await;
    }

    pub fn start_with(&mut self, kind: impl Kind, settings: Settings) {
        let settings = Settings {
            namespace: Some(self.namespace.clone()),
            ..settings
        };
        let operator = Operator::new(&self.proxy.config(), vec![boxed(kind)], settings).unwrap();
        let (switch, stopping) = watch::channel(false);
        let operator = tokio::spawn(operator.run(stopping));
        self.running.push(Running { switch, operator });
    }

    /// Stops the operator started last, in order.
    pub async fn stop(&mut self) {
        self.take_running().stop().await;
    }

    pub fn take_running(&mut self) -> Running {
        self.running.pop().unwrap()
    }

    pub fn greetings(&self) -> Api<Greeting> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub fn notes(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub async fn greet(&self, name: &str, spec: Value) {
        let new =
            json!({"apiVersion": "test.usher.dev/v1", "kind": "Greeting", "metadata": {"name": name}, "spec": spec});
        let new = serde_json::from_value(new).unwrap();
        self.greetings().create(&PostParams::default(), &new).await.unwrap();
    }

    pub async fn greet_owned(&self, name: String) {
        self.greet(&name, json!({"to": "world"})).await;
    }

    /// Greets the world, and waits until it is so.
    pub async fn greeted(&self, name: &str) {
        self.greet(name, json!({"to": "world"})).await;
        self.until_says(name, "Hello, world!").await;
    }

    pub async fn change(&self, name: &str, patch: Value) {
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        self.greetings().patch(name, &params, &patch).await.unwrap();
    }

    /// Changes nothing that matters, and thereby wakes it.
    pub async fn poke(&self, name: &str, with: &str) {
        self.change(name, json!({"metadata": {"annotations": {"poked": with}}}))
            .await;
    }

    pub async fn condition(&self, name: &str, type_: &str) -> Option<Condition> {
        let status = self.greetings().get_opt(name).await.unwrap()?.status?;
        status.conditions.into_iter().find(|condition| condition.type_ == type_)
    }

    pub async fn reason(&self, name: &str) -> String {
        self.condition(name, "Ready")
            .await
            .map_or(String::new(), |ready| ready.reason)
    }

    pub async fn until_reason(&self, name: &str, reason: &str) {
        let what = format!("Greeting {name} is {reason}");
        eventually(&what, async || self.reason(name).await == reason).await;
    }

    /// Ready for its present generation, and the note says so.
    pub async fn until_says(&self, name: &str, text: &str) {
        let what = format!("Greeting {name} says {text:?}");
        eventually(&what, async || {
            let Some(greeting) = self.greetings().get_opt(name).await.unwrap() else {
                return false;
            };
            let generation = greeting.metadata.generation;
            let status = greeting.status.unwrap_or_default();
            let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready");
            let note = self.note(name).await;
            status.observed_generation == generation
                && ready.is_some_and(|r| r.status == ConditionStatus::True && r.message == text)
                && note.as_deref() == Some(text)
        })
        .await;
    }

    pub async fn note(&self, name: &str) -> Option<String> {
        let note = self.notes().get_opt(name).await.unwrap()?;
        note.data?.get("text").cloned()
    }

    pub async fn delete(&self, name: &str) {
        self.greetings().delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub async fn until_gone(&self, name: &str) {
        let what = format!("Greeting {name} is gone");
        eventually(&what, async || self.greetings().get_opt(name).await.unwrap().is_none()).await;
        assert_eq!(
            self.notes().get_opt(name).await.unwrap(),
            None,
            "and its note before it"
        );
    }

    /// Reason and note of the events on a Greeting.
    pub async fn events(&self, name: &str) -> Vec<(String, String)> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        let list = events.list(&ListParams::default()).await.unwrap();
        let about = |event: &Event| {
            event
                .regarding
                .as_ref()
                .is_some_and(|o| o.name.as_deref() == Some(name))
        };
        let said = |event: Event| (event.reason.unwrap_or_default(), event.note.unwrap_or_default());
        list.into_iter().filter(about).map(said).collect()
    }

    /// What the operator did to one object, in order: method and the end of the path.
    pub fn deeds(&self, name: &str) -> Vec<String> {
        let writes = self.proxy.effects(&When::default());
        let of = |request: &&super::proxy::Seen| {
            let named = request.body.pointer("/metadata/name").and_then(Value::as_str) == Some(name);
            request.agent.contains("(writer)") && (named || request.path.contains(&format!("/{name}")))
        };
        let deed = |request: &super::proxy::Seen| {
            let path = request.path.split('?').next().unwrap();
            format!("{} {}", request.method, path.rsplit_once(&*self.namespace).unwrap().1)
        };
        writes.iter().filter(of).map(deed).collect()
    }

    /// Creations of a Greeting's note: those asked for, and those that took effect.
    pub fn creations(&self, name: &str) -> (usize, usize) {
        let asked = self.proxy.seen(&on("POST", "/configmaps").named(name));
        (asked.len(), asked.iter().filter(|seen| seen.took_effect()).count())
    }

    /// Waits until everything the operator was woken for so far has been looked at: a Greeting made now is served after
    /// what was due before it, and with these settings every back-off has had time for many more tries.
    pub async fn until_calm(&self, marker: &str) {
        self.greeted(marker).await;
    }
}

/// The API server of `USHER_TEST_KUBECONFIG`, with the test kind's CRD in it.
async fn connect() -> kube::Client {
    static READY: OnceCell<()> = OnceCell::const_new();
    let path = std::env::var("USHER_TEST_KUBECONFIG")
        .expect("this test needs a real API server: set USHER_TEST_KUBECONFIG to the path of a kubeconfig");
    let kubeconfig = Kubeconfig::read_from(&path).unwrap_or_else(|e| panic!("USHER_TEST_KUBECONFIG={path}: {e}"));
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let client = kube::Client::try_from(config.unwrap()).unwrap();
    // Left in place: other test programs use it at the same time, and applying it again changes nothing.
    READY
        .get_or_init(async || {
            let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
            let params = PatchParams::apply("usher-tests").force();
            let crd = Greeting::crd();
            crds.patch(&crd.name_any(), &params, &Patch::Apply(&crd)).await.unwrap();
            let greetings: Api<Greeting> = Api::all(client.clone());
            eventually("the CRD is served", async || {
                greetings.list(&ListParams::default().limit(1)).await.is_ok()
            })
            .await;
        })
        .await;
    client
}
