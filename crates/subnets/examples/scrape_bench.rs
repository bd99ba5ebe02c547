//! What a scrape costs with 1,000 pools, 300,000 Subnets and 300,000 claims:
//! `cargo run --release -p usher-subnets --example scrape_bench`.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::time::Instant;

use jiff::Timestamp;
use serde_json::{Value, json};
use usher_operator::record::ApiType;
use usher_operator::view::{Event, View};
use usher_subnets::records::{CLAIMS, POOLS, SUBNETS};
use usher_subnets::{metrics, wake};

const POOLS_THERE: usize = 1_000;
const CLAIMS_EACH: usize = 300;

fn main() {
    let mut view = View::default();
    wake::register(&mut view);
    metrics::register(&mut view);
    let now = Timestamp::UNIX_EPOCH;
    let mut revision = 0;
    let mut put = |of: ApiType, name: String, spec: Value, status: Value| {
        revision += 1;
        let object = json!({
            "apiVersion": of.api_version(), "kind": of.kind, "spec": spec, "status": status,
            "metadata": {"namespace": "ns", "name": name, "uid": format!("{}-{revision}", of.kind), "generation": 1,
                "resourceVersion": revision.to_string(), "creationTimestamp": now},
        });
        view.apply(of, Event::Applied(Box::new(serde_json::from_value(object).unwrap())));
    };
    for pool in 0..POOLS_THERE {
        let (name, base) = (format!("pool-{pool}"), format!("10.{}.{}", pool / 256, pool % 256));
        put(
            POOLS,
            name.clone(),
            json!({"cidr": format!("{base}.0/8"), "defaultBlockSize": 28}),
            json!({}),
        );
        for n in 0..CLAIMS_EACH {
            let cidr = format!("10.{}.{}.0/28", n / 256, n % 256);
            let of = json!({"poolRef": name, "clusterID": "x"});
            let mut subnet = of.clone();
            subnet["cidr"] = json!(cidr);
            let held = json!({"phase": "Allocated", "observedGeneration": 1});
            put(SUBNETS, format!("s-{pool}-{n}"), subnet, held);
            let bound = json!({"phase": "Bound", "allocatedCIDR": cidr});
            put(CLAIMS, format!("c-{pool}-{n}"), of, bound);
        }
    }
    let mut took = Vec::new();
    let mut bytes = 0;
    for _ in 0..21 {
        let begun = Instant::now();
        bytes = metrics::text(&view, now).unwrap().len();
        took.push(begun.elapsed());
    }
    took.sort();
    println!(
        "{POOLS_THERE} pools, {} claims and Subnets: a scrape of {bytes} bytes takes {:?} (median), {:?} (slowest)",
        POOLS_THERE * CLAIMS_EACH,
        took[took.len() / 2],
        took[took.len() - 1]
    );
}
