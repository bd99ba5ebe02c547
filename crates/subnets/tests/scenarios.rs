//! Scenario scripts: one file per story under `tests/scenarios/`, commands and comments; beside it, the plans step by step
//! as golden text. A change in behaviour shows as a readable diff. `INSTA_UPDATE=always` rewrites them.
//!
//! Commands: `pool NAME CIDR [key=value…]`, `claim NAME POOL [size=N|exact=CIDR] [id=ID]`, `subnet NAME POOL CIDR [id=ID]`,
//! `poolclaim NAME PARENT size=N`, `label POOL PARENT`, `unlabel POOL`, `edit pool|claim|subnet|poolclaim NAME key=value`,
//! `annotate NAME key=value`, `delete KIND NAME`, `force KIND NAME` (deletes, finalizers or not), `wait SECONDS`,
//! `policy refuses|allows` (an admission policy on new Subnets), `crash` (the operator loses its memory), `run` (until nothing is left to do), `get` (prints what there is),
//! `explain KIND NAME` (as `usher explain`).

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod world;

use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Value, json};
use usher_engine::{Next, ObjectKey};
use usher_operator::record::ApiType;
use usher_subnets::records::{
    CLAIMS, ClaimRecord, POOL_CLAIMS, POOLS, PoolClaimRecord, PoolRecord, SUBNETS, SubnetRecord,
};
use world::{Operator, Server};

struct Story {
    server: Server,
    operator: Operator,
    out: String,
}

fn spec(options: &[&str], into: &mut Value) {
    for option in options {
        let (name, value) = option
            .split_once('=')
            .unwrap_or_else(|| panic!("{option} is no key=value"));
        let name = match name {
            "size" => "blockSize",
            "exact" => "requestedCIDR",
            "max" => "maxBlockSize",
            "min" => "minBlockSize",
            "default" => "defaultBlockSize",
            "reuse" => "reuseDelaySeconds",
            "pool" => "poolRef",
            "id" => "clusterID",
            other => other,
        };
        into[name] = match value.parse::<i64>() {
            Ok(number) => json!(number),
            Err(_) if name == "exclude" => json!(value.split(',').collect::<Vec<_>>()),
            Err(_) => json!(value),
        };
    }
}

fn kind(word: &str) -> ApiType {
    match word {
        "pool" => POOLS,
        "claim" => CLAIMS,
        "subnet" => SUBNETS,
        "poolclaim" => POOL_CLAIMS,
        other => panic!("no kind {other}"),
    }
}

impl Story {
    fn new() -> Self {
        let mut server = Server::default();
        server.pass_time(1_700_000_000);
        let operator = Operator::start(&server);
        Self {
            server,
            operator,
            out: String::new(),
        }
    }

    fn command(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["pool", name, cidr, options @ ..] => {
                let mut body = json!({"cidr": cidr});
                spec(options, &mut body);
                self.server.create_pool(name, body);
            }
            ["claim", name, pool, options @ ..] => {
                let mut body = json!({"poolRef": pool, "clusterID": name});
                spec(options, &mut body);
                self.server.create_claim(name, body);
                // Creation times have whole seconds: the next claim is younger.
                self.server.pass_time(1);
            }
            ["subnet", name, pool, cidr] => {
                let body = json!({"poolRef": pool, "clusterID": "by-hand", "cidr": cidr});
                self.server
                    .create(SUBNETS, json!({"metadata": {"name": name}, "spec": body}))
                    .unwrap();
            }
            ["subnet", name, pool, cidr, id] => {
                let id = id.strip_prefix("id=").unwrap();
                let body = json!({"poolRef": pool, "clusterID": id, "cidr": cidr});
                self.server
                    .create(SUBNETS, json!({"metadata": {"name": name}, "spec": body}))
                    .unwrap();
            }
            ["poolclaim", name, parent, size] => {
                let size: i64 = size.strip_prefix("size=").unwrap().parse().unwrap();
                let body = json!({"parentPoolRef": parent, "desiredBlockSize": size});
                self.server
                    .create(POOL_CLAIMS, json!({"metadata": {"name": name}, "spec": body}))
                    .unwrap();
            }
            // Somebody takes an object away with its finalizers.
            ["force", what, name] => {
                self.server
                    .edit(kind(what), name, |object| object["metadata"]["finalizers"] = json!([]));
                let _ = self.server.delete(kind(what), name, None);
            }
            ["label", name, parent] => self.server.edit(POOLS, name, |object| {
                object["metadata"]["labels"]["plexaubnet.io/parent"] = json!(parent)
            }),
            ["unlabel", name] => self
                .server
                .edit(POOLS, name, |object| object["metadata"]["labels"] = json!({})),
            ["edit", what, name, options @ ..] => self
                .server
                .edit(kind(what), name, |object| spec(options, &mut object["spec"])),
            ["annotate", name, option] => {
                let (key, value) = option.split_once('=').unwrap();
                self.server.edit(POOLS, name, |object| {
                    object["metadata"]["annotations"][key] = json!(value)
                });
            }
            ["delete", what, name] => drop(self.server.delete(kind(what), name, None).unwrap()),
            ["wait", seconds] => self.wait(seconds.parse().unwrap()),
            ["policy", verdict] => self.server.refuses_subnets = *verdict == "refuses",
            ["crash"] => self.operator = Operator::start(&self.server),
            ["run"] => self.run(),
            ["get"] => self.print(),
            ["explain", what, name] => self.explain(kind(what).kind, name),
            _ => panic!("no such command: {line}"),
        }
    }

    /// Time passes; whoever asked to look again does.
    fn wait(&mut self, seconds: i64) {
        self.server.pass_time(seconds);
        for (kind, key) in self.keys() {
            self.pass(kind, &key);
        }
    }

    fn keys(&self) -> Vec<(&'static str, ObjectKey)> {
        let pools = self
            .server
            .all::<PoolRecord>()
            .into_iter()
            .map(|p| ("SubnetPool", p.meta.key));
        let subnets = self
            .server
            .all::<SubnetRecord>()
            .into_iter()
            .map(|s| ("Subnet", s.meta.key));
        let claims = self
            .server
            .all::<ClaimRecord>()
            .into_iter()
            .map(|c| ("SubnetClaim", c.meta.key));
        let pool_claims = self
            .server
            .all::<PoolClaimRecord>()
            .into_iter()
            .map(|c| ("SubnetPoolClaim", c.meta.key));
        pools.chain(subnets).chain(claims).chain(pool_claims).collect()
    }

    fn run(&mut self) {
        for _ in 0..100 {
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
        let Some(mut flight) = self.operator.pass(kind, key, self.server.now()) else {
            return;
        };
        // What is merely waited for is told once by `get`; here only what happens.
        let quiet = flight.call().is_none() && !flight.lines.iter().any(|l| l.starts_with("step:"));
        if !quiet {
            let again = match flight.next {
                Some(Next::After(wait)) => format!(" (again after {} s)", wait.as_secs_f64()),
                _ => String::new(),
            };
            writeln!(self.out, "  {kind} {}{again}", key.name()).unwrap();
            for line in &flight.lines {
                writeln!(self.out, "    {line}").unwrap();
            }
        }
        flight.finish(&mut self.server);
    }

    fn explain(&mut self, kind: &str, name: &str) {
        let (key, now) = (world::key(name), self.server.now());
        let memory = self.operator.memory();
        let explanation = usher_subnets::explain::explain(&memory.view, kind, &key, now).unwrap();
        for line in explanation.text().lines() {
            writeln!(self.out, "  {line}").unwrap();
        }
    }

    fn print(&mut self) {
        for pool in self.server.all::<PoolRecord>() {
            let status = &pool.status;
            let gone = if pool.meta.deleting.is_some() {
                " terminating"
            } else {
                ""
            };
            let free: Vec<String> = status
                .free_count_by_size
                .iter()
                .filter(|(k, _)| !k.starts_with('/'))
                .map(|(k, v)| format!("/{k}:{v}"))
                .collect();
            writeln!(
                self.out,
                "  pool {} {}{gone} allocated {} waiting {} outside {} free {}",
                pool.meta.key.name(),
                pool.cidr,
                status.allocated_count,
                status.waiting_claims,
                status.out_of_range,
                free.join(" ")
            )
            .unwrap();
        }
        for claim in self.server.all::<ClaimRecord>() {
            let status = claim.status();
            let phase = status.phase.map_or("(none)".into(), |p| format!("{p:?}"));
            let rest = status
                .allocated_cidr
                .clone()
                .or_else(|| status.message.clone())
                .unwrap_or_default();
            writeln!(self.out, "  claim {} {phase} {rest}", claim.meta.key.name()).unwrap();
        }
        for subnet in self.server.all::<SubnetRecord>() {
            let phase = subnet.phase().map_or("(none)".into(), |p| format!("{p:?}"));
            let gone = if subnet.meta.deleting.is_some() {
                " terminating"
            } else {
                ""
            };
            let why = subnet.message().unwrap_or_default();
            writeln!(
                self.out,
                "  subnet {} {} {phase}{gone} {why}",
                subnet.meta.key.name(),
                subnet.cidr
            )
            .unwrap();
        }
        for claim in self.server.all::<PoolClaimRecord>() {
            let status = &claim.status;
            let phase = status.phase.map_or("(none)".into(), |p| format!("{p:?}"));
            let rest = status
                .bound_pool_name
                .clone()
                .or_else(|| status.message.clone())
                .unwrap_or_default();
            let gone = if claim.meta.deleting.is_some() {
                " terminating"
            } else {
                ""
            };
            writeln!(self.out, "  poolclaim {} {phase}{gone} {rest}", claim.meta.key.name()).unwrap();
        }
        self.operator.audit();
    }
}

#[test]
fn every_story_goes_as_written() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let mut stories: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|f| f.unwrap().path()).collect();
    stories.retain(|path| path.extension().is_some_and(|e| e == "txt"));
    stories.sort();
    assert!(stories.len() >= 8, "stories are missing: {stories:?}");
    for path in stories {
        let mut story = Story::new();
        for line in std::fs::read_to_string(&path).unwrap().lines().map(str::trim) {
            if line.is_empty() || line.starts_with('#') {
                writeln!(story.out, "{line}").unwrap();
            } else {
                writeln!(story.out, "> {line}").unwrap();
                story.command(line);
            }
        }
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        insta::with_settings!({prepend_module_to_snapshot => false, snapshot_path => "scenarios", omit_expression => true}, {
            insta::assert_snapshot!(name, story.out);
        });
    }
}
