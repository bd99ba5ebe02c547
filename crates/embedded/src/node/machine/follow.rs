//! From the store's log to those whom a change concerns: pods to their node, config objects to all pods, Services and
//! endpoints to the relay and to the pods' names (W5, W6), image tables to pods that wait for an image.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Service;
use tokio::sync::Notify;

use super::Machine;
use crate::controllers::hand::reference;
use crate::controllers::recorder::Happening;
use crate::node::net::block::load_balancer;
use crate::node::net::endpoints::not_relayed;
use crate::node::net::relay::{PORT_NOT_AVAILABLE, PROTOCOL_NOT_RELAYED};
use crate::node::net::{Names, Relay};
use crate::store::{LogEntry, Prefix};

/// Changes of Services come in bursts; names have to be there after 200 ms (W6).
const BURST: Duration = Duration::from_millis(15);
/// How often the image tables are looked at. A change is to be seen soon, and looking costs one `stat` per file.
const TABLES: Duration = Duration::from_millis(500);
/// After the log could not be read.
const RETRY: Duration = Duration::from_millis(100);

impl Machine {
    /// Keeps the mirror, for ever. `begun` is told once it holds the whole state.
    pub(super) async fn follow(self: &Arc<Self>, begun: &Notify) {
        loop {
            let store = &self.hand.registry.store;
            let everything = Prefix::everything();
            let Ok(state) = store.list(&everything, None, None, 0) else {
                tokio::time::sleep(RETRY).await;
                continue;
            };
            let Ok(mut watcher) = store.watch(everything, state.revision) else {
                continue;
            };
            self.hand.mirror.begin(&state.entries);
            drop(state);
            for agent in self.agents() {
                agent.all_changed();
            }
            self.config.send_modify(|count| *count += 1);
            self.net_changed.notify_one();
            begun.notify_one();
            while let Some(Ok(line)) = watcher.next().await {
                self.notice(&line);
            }
            // Fallen behind, or the store is closed.
            tokio::time::sleep(RETRY).await;
        }
    }

    fn notice(&self, line: &LogEntry) {
        let key = &line.key;
        let mirror = &self.hand.mirror;
        match (key.group(), key.resource()) {
            ("", "pods") => {
                let namespace = key.namespace().unwrap_or_default();
                let node = || {
                    let pod = mirror.pods.get(Some(namespace), key.name())?;
                    pod.spec.as_ref()?.node_name.clone()
                };
                let before = node();
                mirror.see(line);
                let after = node();
                let slots = self.slots();
                let mut names: Vec<String> = before.into_iter().chain(after).collect();
                names.dedup();
                for name in names {
                    if let Some((agent, _)) = slots.get(&name).and_then(|slot| slot.running.as_ref()) {
                        agent.pod_changed(namespace, key.name());
                    }
                }
            }
            ("", "configmaps" | "secrets" | "persistentvolumeclaims" | "persistentvolumes") => {
                mirror.see(line);
                self.config.send_modify(|count| *count += 1);
            }
            ("", "services") | ("discovery.k8s.io", "endpointslices") => {
                mirror.see(line);
                self.net_changed.notify_one();
            }
            _ => mirror.see(line),
        }
    }

    /// Feeds the relay and the names, for ever.
    pub(super) async fn serve_names(self: &Arc<Self>, relay: Option<Relay>) {
        // Of which Services, by their uids, it was told what is not relayed.
        let mut told = BTreeSet::new();
        loop {
            self.net_changed.notified().await;
            tokio::time::sleep(BURST).await;
            let mirror = &self.hand.mirror;
            let services: Vec<Service> = mirror.services.list(None).iter().map(|one| (**one).clone()).collect();
            let slices: Vec<_> = mirror.slices.list(None).iter().map(|one| (**one).clone()).collect();
            let names = Names::new(&services, &slices);
            self.names.send_replace(Arc::new(names));
            if let Some(relay) = &relay {
                for refused in relay.set(&services, &slices).await {
                    self.tell_port(&services, &refused).await;
                }
            }
            let unserved: BTreeSet<(Option<String>, String)> = services
                .iter()
                .filter_map(|service| Some((service.metadata.uid.clone(), not_relayed(service)?)))
                .collect();
            for service in &services {
                self.balance(service).await;
                let news = unserved.difference(&told).find(|(uid, _)| *uid == service.metadata.uid);
                if let Some((_, message)) = news {
                    self.tell_service(service, PROTOCOL_NOT_RELAYED, message.clone()).await;
                }
            }
            told = unserved;
        }
    }

    async fn tell_port(&self, services: &[Service], refused: &crate::node::net::PortNotAvailable) {
        let subject = services.iter().find(|service| {
            let meta = &service.metadata;
            let key = &refused.service;
            meta.namespace.as_deref() == Some(key.namespace.as_str()) && meta.name.as_deref() == Some(key.name.as_str())
        });
        if let Some(service) = subject {
            self.tell_service(service, PORT_NOT_AVAILABLE, refused.message.clone())
                .await;
        }
    }

    async fn tell_service(&self, service: &Service, reason: &str, message: String) {
        let happening = Happening {
            component: "kube-proxy",
            host: "",
            about: reference(service),
            kind: "Warning",
            reason,
            message,
        };
        self.hand.tell(happening).await;
    }

    /// A Service of type LoadBalancer is reached at its cluster IP (W5).
    async fn balance(&self, service: &Service) {
        let wanted = load_balancer(service);
        let has = service.status.as_ref().and_then(|status| status.load_balancer.clone());
        if wanted.is_none() || wanted == has {
            return;
        }
        let mut new = service.clone();
        new.status.get_or_insert_default().load_balancer = wanted;
        let meta = &service.metadata;
        let name = meta.name.as_deref().unwrap_or_default();
        if let Err(fault) = self.hand.put(meta.namespace.as_deref(), name, "status", &new).await {
            tracing::debug!(%fault, service = name, "a load balancer's address could not be written");
        }
    }

    /// Tells pods that wait for an image when a table changed, for ever.
    pub(super) async fn watch_tables(self: &Arc<Self>) {
        loop {
            let this = self.clone();
            let version = tokio::task::spawn_blocking(move || this.images.version()).await;
            if let Ok(version) = version {
                self.tables
                    .send_if_modified(|known| std::mem::replace(known, version) != version);
            }
            tokio::time::sleep(TABLES).await;
        }
    }
}
