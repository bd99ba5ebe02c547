//! Real servers, each a process with an address of its own below 127, and everything that is done to them here.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use usher_engine::{ObjectKey, Uid};
use usher_operator::error::Failure;
use usher_valkey::act::{self, reach::Reach};
use usher_valkey::observe::client::{Clients, PORT, Target, Trouble, command};
use usher_valkey::observe::reply::Reply;
use usher_valkey::observe::{Answer, Link, Memory, RoleSaid, Says, ask};
use usher_valkey::plan::step::{ClusterStep, Server};
use usher_valkey::words::{Epoch, NodeId, Ordinal, ShardId, Slot, SlotRange, SlotSet};

/// Every version that `cargo xtask setup` gets.
pub(crate) const VERSIONS: [&str; 4] = ["9.0.0", "9.1.0", "9.1.1", "9.1.2"];
/// The last of them.
pub(crate) const NEWEST: &str = "9.1.2";

/// What servers of ours are configured with (spec 3.2).
const SETTINGS: [(&str, &str); 11] = [
    ("port", "6379"),
    ("cluster-enabled", "yes"),
    ("cluster-allow-replica-migration", "no"),
    ("cluster-require-full-coverage", "no"),
    ("cluster-node-timeout", "5000"),
    ("repl-diskless-sync", "yes"),
    ("repl-diskless-sync-delay", "0"),
    ("slot-migration-max-failover-repl-bytes", "1048576"),
    ("shutdown-on-sigterm", "failover"),
    ("appendonly", "yes"),
    ("save", ""),
];

/// Times are what an idle machine needs; one that builds something else meanwhile is given so many times more.
const PATIENCE: u64 = 4;

/// Where `cargo xtask setup` puts a version.
fn program(version: &str) -> PathBuf {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let cache = variable("USHER_CACHE")
        .or_else(|| variable("XDG_CACHE_HOME").map(|base| base.join("usher")))
        .or_else(|| variable("HOME").map(|home| home.join(".cache/usher")))
        .expect("HOME");
    let program = cache.join(format!("tools/valkey-{version}/valkey-server"));
    assert!(
        program.is_file(),
        "{} is missing: run `cargo xtask setup`",
        program.display()
    );
    program
}

/// 127.A.B.0/24, ours as long as the file is locked.
fn block() -> (File, [u8; 3]) {
    for number in 0..50 * 256u32 {
        let number = (number + std::process::id() * 7) % (50 * 256);
        let (a, b) = (200 + (number / 256) as u8, (number % 256) as u8);
        let path = std::env::temp_dir().join(format!("usher-facts-127-{a}-{b}.lock"));
        let file = File::create(path).unwrap();
        let is_free = |last| TcpListener::bind(SocketAddr::from(([127, a, b, last], PORT))).is_ok();
        if file.try_lock().is_ok() && (1..20).all(is_free) {
            return (file, [127, a, b]);
        }
    }
    panic!("no addresses are free")
}

#[derive(Debug)]
struct Node {
    ip: IpAddr,
    version: &'static str,
    settings: Vec<(String, String)>,
    folder: PathBuf,
    child: Option<Child>,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Node {
    fn start(&mut self) {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.folder.join("log"))
            .unwrap();
        let mut command = Command::new(program(self.version));
        command.current_dir(&self.folder).arg("--dir").arg(&self.folder);
        for (name, value) in &self.settings {
            let value = value.replace("{ip}", &self.ip.to_string());
            command.arg(format!("--{name}")).arg(value);
        }
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        self.child = Some(command.spawn().unwrap());
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

/// Some servers of one version.
#[derive(Debug)]
pub(crate) struct Town {
    version: &'static str,
    nodes: Vec<Node>,
    clients: Clients,
    settings: Vec<(String, String)>,
    addresses: [u8; 3],
    next_address: u8,
    // After the nodes, whose folders it is.
    folder: TempDir,
    _lock: File,
}

impl Town {
    pub(crate) fn new(version: &'static str) -> Self {
        let (lock, addresses) = block();
        let settings = SETTINGS.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let mut town = Self {
            version,
            nodes: Vec::new(),
            // Machines that build something else meanwhile are slow.
            clients: Clients::new(Duration::from_secs(10), Duration::from_secs(10)),
            settings: settings.to_vec(),
            addresses,
            next_address: 1,
            folder: tempfile::tempdir().unwrap(),
            _lock: lock,
        };
        for name in ["bind", "cluster-announce-ip", "replica-announce-ip"] {
            town.set(name, Some("{ip}"));
        }
        town
    }

    /// For servers that are started from now on. `None`: the server's own default.
    pub(crate) fn set(&mut self, name: &str, value: Option<&str>) {
        self.settings.retain(|(known, _)| known != name);
        self.settings
            .extend(value.map(|value| (name.to_owned(), value.to_owned())));
    }

    fn address(&mut self) -> IpAddr {
        let [a, b, c] = self.addresses;
        self.next_address += 1;
        Ipv4Addr::new(a, b, c, self.next_address - 1).into()
    }

    /// One more server, which answers.
    pub(crate) async fn spawn(&mut self) -> usize {
        let number = self.nodes.len();
        let folder = self.folder.path().join(number.to_string());
        std::fs::create_dir(&folder).unwrap();
        let ip = self.address();
        self.nodes.push(Node {
            ip,
            version: self.version,
            settings: self.settings.clone(),
            folder,
            child: None,
        });
        self.start(number).await;
        number
    }

    pub(crate) async fn start(&mut self, number: usize) {
        self.nodes[number].start();
        let town = &*self;
        eventually("a server answers", 20, async || town.try_says(number).await.is_some()).await;
    }

    pub(crate) fn kill(&mut self, number: usize) {
        self.nodes[number].kill();
    }

    /// SIGTERM; returns when the process has ended.
    pub(crate) async fn terminate(&mut self, number: usize) {
        let mut child = self.nodes[number].child.take().unwrap();
        kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM).unwrap();
        while child.try_wait().unwrap().is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Another address from the next start on.
    pub(crate) fn readdress(&mut self, number: usize) {
        self.nodes[number].ip = self.address();
    }

    pub(crate) fn ip(&self, number: usize) -> IpAddr {
        self.nodes[number].ip
    }

    pub(crate) fn folder(&self, number: usize) -> PathBuf {
        self.nodes[number].folder.clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.nodes.len()
    }

    /// Where its clients begin.
    pub(crate) fn seeds(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(|node| SocketAddr::new(node.ip, PORT)).collect()
    }

    fn target(&self, number: usize) -> Target {
        Target {
            pod: uid(number),
            address: self.nodes[number].ip,
        }
    }

    pub(crate) async fn try_says(&self, number: usize) -> Option<Says> {
        let targets = [self.target(number)];
        let now = jiff::Timestamp::UNIX_EPOCH;
        // Another cluster's name for each: asking one must not let go of the wires to others.
        let answers = ask::everyone(&self.clients, &uid(number), &targets, None, &Memory::default(), now).await;
        match answers.into_values().next() {
            Some(Answer::Says(says)) => Some(*says),
            _ => None,
        }
    }

    pub(crate) async fn says(&self, number: usize) -> Says {
        self.try_says(number).await.expect("the server answers")
    }

    /// One command to one server, in its own words.
    pub(crate) async fn ask(&self, number: usize, words: &str) -> Result<Reply, Trouble> {
        let asked = self
            .clients
            .question(&uid(number), &self.target(number), None, &[command("PING")])
            .await;
        let (wire, _) = asked?;
        wire.ask(&command(words)).await
    }

    pub(crate) async fn tell(&self, number: usize, words: &str) {
        let told = self.ask(number, words).await;
        assert!(told.is_ok(), "{words}: {told:?}");
    }

    /// Several commands in one write.
    pub(crate) async fn tell_all(&self, number: usize, commands: &[&str]) {
        let commands: Vec<_> = commands.iter().map(|words| command(words)).collect();
        let (cluster, target) = (uid(number), self.target(number));
        let asked = self.clients.question(&cluster, &target, None, &commands).await;
        let (_, replies) = asked.unwrap();
        assert!(replies.iter().all(|reply| reply.refusal().is_none()), "{replies:?}");
    }

    pub(crate) async fn server(&self, number: usize) -> Server {
        Server {
            ordinal: Ordinal(u16::try_from(number).unwrap()),
            pod: uid(number),
            id: self.says(number).await.id,
        }
    }

    pub(crate) async fn id(&self, number: usize) -> NodeId {
        self.says(number).await.id
    }

    /// Performs a step as the operator would.
    pub(crate) async fn perform(&self, step: &ClusterStep) -> Result<(), Failure> {
        let running = (0..self.count()).filter(|number| self.nodes[*number].child.is_some());
        let reach = Reach {
            clients: &self.clients,
            key: ObjectKey::new("facts", "town").unwrap(),
            cluster: "town".into(),
            password: None,
            pods: running.map(|number| (uid(number), self.nodes[number].ip)).collect(),
            leads: &|| true,
        };
        act::perform(&reach, step).await
    }

    /// Performs a step until its guards let it.
    pub(crate) async fn insist(&self, step: &ClusterStep) {
        let began = Instant::now();
        while let Err(failure) = self.perform(step).await {
            assert!(
                began.elapsed() < Duration::from_secs(30 * PATIENCE),
                "{step:?}: {failure}"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// A cluster of so many primaries with slots and so many replicas each; shard m has m, and replicas from `primaries` on.
    pub(crate) async fn form(version: &'static str, primaries: usize, replicas: usize) -> Self {
        let mut town = Self::new(version);
        town.grow(primaries, replicas).await;
        town
    }

    pub(crate) async fn grow(&mut self, primaries: usize, replicas: usize) {
        for _ in 0..primaries * (1 + replicas) {
            self.spawn().await;
        }
        for number in 0..self.count() {
            let on = self.server(number).await;
            let epoch = Epoch(number as u64 + 1);
            self.insist(&ClusterStep::SetConfigEpoch { on, epoch }).await;
        }
        for number in 1..self.count() {
            let (from, to) = (self.server(0).await, self.server(number).await);
            self.insist(&ClusterStep::Meet { from, to }).await;
        }
        self.until_known().await;
        for number in 0..primaries {
            let to = self.server(number).await;
            self.insist(&ClusterStep::AddSlots {
                to,
                slots: share(number, primaries),
            })
            .await;
        }
        for number in primaries..self.count() {
            let primary = self.id((number - primaries) / replicas).await;
            let on = self.server(number).await;
            self.insist(&ClusterStep::Replicate { on, primary }).await;
        }
        self.until_whole().await;
    }

    /// Until everybody that runs knows everybody that runs.
    pub(crate) async fn until_known(&self) {
        let town = self;
        eventually("all know each other", 30, async || {
            let ids = town.ids().await;
            for number in town.running() {
                let Some(says) = town.try_says(number).await else {
                    return false;
                };
                let reaches = |id: &NodeId| says.view.get(id).is_some_and(act::reach::is_well);
                if !ids.iter().filter(|id| **id != says.id).all(reaches) {
                    return false;
                }
            }
            true
        })
        .await;
    }

    /// Until all links are up, everybody says that all is well, and all slots have one owner in every view.
    pub(crate) async fn until_whole(&self) {
        let town = self;
        eventually("the cluster is whole", 40, async || town.is_whole().await).await;
    }

    pub(crate) async fn is_whole(&self) -> bool {
        let mut maps = Vec::new();
        for number in self.running() {
            let Some(says) = self.try_says(number).await else {
                return false;
            };
            let linked = match says.role {
                RoleSaid::Primary { .. } => true,
                RoleSaid::Replica { link, .. } => link == Link::Up,
            };
            let owners = says.view.iter().filter(|(_, peer)| !peer.slots.is_empty());
            let owners: BTreeMap<_, _> = owners.map(|(id, peer)| (id.clone(), peer.slots.clone())).collect();
            let all: u32 = owners.values().map(|slots| u32::from(slots.count())).sum();
            if !linked || !says.state_ok || all != 16_384 {
                return false;
            }
            maps.push(owners);
        }
        maps.windows(2).all(|pair| pair[0] == pair[1])
    }

    fn running(&self) -> impl Iterator<Item = usize> {
        (0..self.count()).filter(|number| self.nodes[*number].child.is_some())
    }

    async fn ids(&self) -> Vec<NodeId> {
        let mut ids = Vec::new();
        for number in self.running() {
            ids.extend(self.try_says(number).await.map(|says| says.id));
        }
        ids
    }

    pub(crate) async fn is_primary(&self, number: usize) -> bool {
        let says = self.try_says(number).await;
        says.is_some_and(|says| matches!(says.role, RoleSaid::Primary { .. }))
    }

    /// A planned failover, and its end.
    pub(crate) async fn hand_over(&self, from: usize, to: usize) {
        let step = self.failover(from, to).await;
        self.insist(&step).await;
        let town = self;
        eventually("it has taken over", 15, async || town.is_primary(to).await).await;
        self.until_whole().await;
    }

    pub(crate) async fn failover(&self, from: usize, to: usize) -> ClusterStep {
        let says = self.says(from).await;
        ClusterStep::Failover {
            shard: says.shard.clone(),
            epoch: says.myself().unwrap().epoch,
            from: self.server(from).await,
            to: self.server(to).await,
        }
    }

    pub(crate) async fn migration(&self, from: usize, to: usize, slots: SlotSet) -> ClusterStep {
        let says = self.says(from).await;
        ClusterStep::MigrateSlots {
            shard: says.shard.clone(),
            epoch: says.myself().unwrap().epoch,
            from: self.server(from).await,
            to: self.server(to).await,
            slots,
        }
    }

    /// Moves slots atomically, and waits until all views say so.
    pub(crate) async fn migrate(&self, from: usize, to: usize, slots: &SlotSet) {
        let step = self.migration(from, to, slots.clone()).await;
        self.insist(&step).await;
        let town = self;
        eventually("the slots have moved", 30, async || {
            let owned = town.says(to).await.own_slots();
            slots.minus(&owned).is_empty() && town.is_whole().await
        })
        .await;
    }

    /// One more member, a primary without slots, which is ready for some.
    pub(crate) async fn join(&mut self) -> usize {
        let number = self.spawn().await;
        self.introduce(number).await;
        self.until_known().await;
        self.until_whole().await;
        number
    }

    pub(crate) async fn introduce(&self, number: usize) {
        let on = self.server(number).await;
        let epoch = Epoch(100 + number as u64);
        self.insist(&ClusterStep::SetConfigEpoch { on, epoch }).await;
        let (from, to) = (self.server(0).await, self.server(number).await);
        self.insist(&ClusterStep::Meet { from, to }).await;
    }

    pub(crate) async fn replicate(&self, on: usize, primary: usize) {
        let step = ClusterStep::Replicate {
            on: self.server(on).await,
            primary: self.id(primary).await,
        };
        self.insist(&step).await;
        self.until_whole().await;
    }

    pub(crate) async fn shard(&self, number: usize) -> ShardId {
        self.says(number).await.shard
    }

    /// A key of a slot that this server owns, and the slot.
    pub(crate) async fn key_of(&self, number: usize) -> (String, Slot) {
        let slots = self.says(number).await.own_slots();
        let keys = (0..).map(|n| format!("key:{n}"));
        let with_slot = |key: String| {
            let slot = usher_valkey::load::slot_of(key.as_bytes());
            (key, slot)
        };
        keys.map(with_slot).find(|(_, slot)| slots.contains(*slot)).unwrap()
    }
}

fn uid(number: usize) -> Uid {
    format!("pod-{number}").as_str().into()
}

/// The slots of the nth of so many.
pub(crate) fn share(n: usize, of: usize) -> SlotSet {
    let bound = |n: usize| u16::try_from(n * 16_384 / of).unwrap();
    range(bound(n), bound(n + 1) - 1)
}

pub(crate) fn range(first: u16, last: u16) -> SlotSet {
    SlotSet::of([SlotRange {
        first: Slot(first),
        last: Slot(last),
    }])
}

/// Looks until it is so.
pub(crate) async fn eventually(what: &str, seconds: u64, mut look: impl AsyncFnMut() -> bool) {
    let (began, seconds) = (Instant::now(), seconds * PATIENCE);
    while !look().await {
        assert!(
            began.elapsed() < Duration::from_secs(seconds),
            "not within {seconds} s: {what}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
