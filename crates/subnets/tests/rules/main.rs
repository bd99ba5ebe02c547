//! Rules of the spec, each on values: the shipped decisions on the model's API server, without faults. [`sharing`]: several claims of
//! one Subnet. [`children`]: pools from pools. [`two`]: a second operator. [`queue`]: grants, targets and promises. [`pools`]: the rest.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod children;
mod pools;
mod queue;
mod sharing;
mod two;
#[path = "../world/mod.rs"]
mod world;

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use jiff::SignedDuration;
use serde_json::{Value, json};
use usher_engine::ObjectKey;
use usher_operator::view::View;
use usher_subnets::api::{PARENT_LABEL, SubnetPhase};
use usher_subnets::kinds::{CLAIM, POOL, POOL_CLAIM, SUBNET};
use usher_subnets::ledger::{Account, Ledger};
use usher_subnets::observe;
use usher_subnets::plan::pool::{GRANTS_OUTSTANDING, Limits, PoolStep};
use usher_subnets::plan::{self, PoolState, Request};
use usher_subnets::records::{Ask, CLAIMS, ClaimRecord, POOL_CLAIMS, POOLS, PoolRecord, SUBNETS, SubnetRecord};
use world::{Call, Operator, Server, key, text};

struct Lab {
    server: Server,
    operator: Operator,
}

impl Lab {
    fn new() -> Self {
        let mut server = Server::default();
        server.pass_time(1_700_000_000);
        let operator = Operator::start(&server);
        Self { server, operator }
    }

    fn pool(&mut self, name: &str, spec: Value) {
        self.server.create_pool(name, spec);
    }

    /// A claim, a second younger than the one before.
    fn claim(&mut self, name: &str, spec: Value) {
        let mut spec = spec;
        if spec.get("clusterID").is_none() {
            spec["clusterID"] = json!(name);
        }
        self.server.create_claim(name, spec);
        self.server.pass_time(1);
    }

    fn by_hand(&mut self, name: &str, pool: &str, cidr: &str) {
        let object = json!({"metadata": {"name": name}, "spec": {"poolRef": pool, "clusterID": name, "cidr": cidr}});
        self.server.create(SUBNETS, object).unwrap();
    }

    fn label(&mut self, pool: &str, parent: Option<&str>) {
        let labels: BTreeMap<_, _> = parent.map(|parent| (PARENT_LABEL, parent)).into_iter().collect();
        self.server
            .edit(POOLS, pool, |o| o["metadata"]["labels"] = json!(labels));
    }

    /// Until nothing is left to do.
    fn run(&mut self) {
        for _ in 0..200 {
            let news = self.operator.news(&self.server);
            if news.is_empty() {
                return;
            }
            for (kind, key) in news {
                self.pass(kind, &key);
            }
        }
        panic!("no calm");
    }

    fn pass(&mut self, kind: &'static str, key: &ObjectKey) {
        if let Some(mut flight) = self.operator.pass(kind, key, self.server.now()) {
            flight.finish(&mut self.server);
        }
    }

    fn view<T>(&self, look: impl FnOnce(&View) -> T) -> T {
        look(&self.operator.memory().view)
    }

    fn account<T>(&self, pool: &str, look: impl FnOnce(&Account) -> T) -> T {
        self.view(|view| look(view.derived::<Ledger>().unwrap().account(&key(pool)).unwrap()))
    }

    fn claim_now(&self, name: &str) -> (String, String) {
        let claim = self.server.get(CLAIMS, name).unwrap();
        (
            text(claim, "/status/phase").to_owned(),
            text(claim, "/status/allocatedCIDR").to_owned(),
        )
    }

    fn pool_status(&self, name: &str) -> Value {
        self.server.get(POOLS, name).unwrap()["status"].clone()
    }

    fn steps(&self, pool: &str) -> Vec<PoolStep> {
        let now = self.server.now();
        self.view(|view| {
            let record = view.get::<PoolRecord>(&key(pool)).unwrap();
            let seen = observe::pool(view, record, Limits::default()).unwrap();
            plan::pool::plan(record, &seen, now).steps
        })
    }
}

fn record(spec: Value) -> PoolRecord {
    let mut server = Server::default();
    server.create_pool("p", spec);
    server.all::<PoolRecord>().remove(0)
}

fn names(lab: &Lab) -> Vec<String> {
    let subnets = lab.server.all::<SubnetRecord>();
    subnets.iter().map(|subnet| subnet.meta.key.name().to_owned()).collect()
}
