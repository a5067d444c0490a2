//! A real Redis Cluster: masters with replicas, whose slots can move while a test runs.

use std::{
    cell::Cell,
    collections::HashMap,
    future::Future,
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

use redis::{FromRedisValue, RedisError, Value};

use crate::{Proxy, RedisServer, ServerOptions, eventually};

/// All slots of a cluster.
pub(crate) const SLOTS: u16 = 16_384;
/// For what a cluster does by itself: it may have to vote twice.
const DEADLINE: Duration = Duration::from_secs(60);
/// Longer than Redis tries to carry out a failover by hand.
const ATTEMPT: Duration = Duration::from_secs(6);
/// How long a node may take for a key that moves.
const MOVING: &str = "10000";

/// The slot of a key: CRC16 (XMODEM) of its hash tag, or of all of it.
pub fn slot_of(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| {
        let (tag, _) = rest.split_once('}')?;
        (!tag.is_empty()).then_some(tag)
    });
    let crc = tag.unwrap_or(key).bytes().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| match crc >> 15 {
            0 => crc << 1,
            _ => (crc << 1) ^ 0x1021,
        })
    });
    crc % SLOTS
}

/// How a cluster is to be started.
#[derive(Clone, Debug)]
#[must_use]
pub struct ClusterOptions {
    masters: usize,
    replicas: usize,
    spares: usize,
    node_timeout: Duration,
    server: ServerOptions,
}

impl ClusterOptions {
    /// The number of masters, which share the slots evenly; 3 by default.
    pub fn masters(mut self, masters: usize) -> Self {
        self.masters = masters;
        self
    }

    /// The number of replicas of each master; 1 by default.
    pub fn replicas(mut self, replicas: usize) -> Self {
        self.replicas = replicas;
        self
    }

    /// The number of further nodes, which have no slots at first and no master; none by default. They
    /// have the last numbers.
    pub fn spares(mut self, spares: usize) -> Self {
        self.spares = spares;
        self
    }

    /// After this time without an answer the other nodes give a node up, and a replica of it takes its
    /// place. 2 s by default.
    pub fn node_timeout(mut self, timeout: Duration) -> Self {
        self.node_timeout = timeout;
        self
    }

    /// Other slots are served while those of one node are not.
    pub fn partial_coverage(mut self) -> Self {
        self.server = self.server.args(["--cluster-require-full-coverage", "no"]);
        self
    }

    /// Clients are led to a port of each node at which nobody listens before
    /// [`proxies`](Cluster::proxies). So are replicas.
    pub fn behind_proxies(self) -> Self {
        self.each(ServerOptions::announced)
    }

    /// Options of each node, for instance a password.
    pub fn each(mut self, options: impl FnOnce(ServerOptions) -> ServerOptions) -> Self {
        self.server = options(self.server);
        self
    }

    /// Starts the nodes, and waits until each of them knows all others and says that all is well.
    ///
    /// Blocks the thread for some seconds.
    pub fn start(self) -> Cluster {
        let timeout = self.node_timeout.as_millis().to_string();
        let server = self.server.args(["--cluster-node-timeout", &timeout]);
        // A replica that was cut off for long takes over too, and stays with its master.
        let server = server.args(["--cluster-replica-validity-factor", "0"]);
        let server = server
            .args(["--cluster-migration-barrier", "100"])
            .cluster();
        let server = match server.tls {
            true => server.args(["--tls-cluster", "yes", "--tls-replication", "yes"]),
            false => server,
        };
        let count = self.masters * (1 + self.replicas) + self.spares;
        let mut nodes: Vec<RedisServer> = Vec::new();
        for _ in 0..count {
            let server = match nodes.first() {
                // They trust each other.
                Some(first) if server.tls => server.clone().certificates_of(first),
                _ => server.clone(),
            };
            nodes.push(server.start());
        }
        let mut cluster = Cluster {
            nodes,
            ids: Vec::new(),
            masters: self.masters,
            spares: self.spares,
        };
        blocking(|| cluster.form());
        cluster
    }
}

/// The masters of a cluster and their replicas, each killed when dropped.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<RedisServer>,
    ids: Vec<String>,
    /// So many of the nodes were masters at the start, the first ones.
    masters: usize,
    /// So many of the last ones had no slots, and were no replicas.
    spares: usize,
}

impl Cluster {
    /// Three masters with a replica each.
    pub fn options() -> ClusterOptions {
        ClusterOptions {
            masters: 3,
            replicas: 1,
            spares: 0,
            node_timeout: Duration::from_secs(2),
            server: ServerOptions::default(),
        }
    }

    /// `redis+cluster://` URL of all the nodes.
    pub fn url(&self) -> String {
        let url = self.nodes[0].url();
        let first = url.strip_prefix("redis://").expect("it is one");
        let others = self.nodes[1..].iter().map(|node| node.address());
        others.fold(format!("redis+cluster://{first}"), |url, other| {
            format!("{url},{other}")
        })
    }

    /// `rediss+cluster://` URL of all the nodes, which were started with
    /// [`tls`](ServerOptions::tls).
    pub fn tls_url(&self) -> String {
        let nodes = self.nodes.iter();
        let nodes: Vec<_> = nodes
            .map(|node| format!("127.0.0.1:{}", node.tls_port()))
            .collect();
        format!("rediss+cluster://{}", nodes.join(","))
    }

    /// A node by its number; the first ones were the masters at the start.
    pub fn node(&self, at: usize) -> &RedisServer {
        &self.nodes[at]
    }

    /// The number of nodes.
    pub fn count(&self) -> usize {
        self.nodes.len()
    }

    /// The masters and replicas at the start, by their numbers.
    pub fn all(&self) -> std::ops::Range<usize> {
        0..self.nodes.len()
    }

    /// Sends a command to one of the nodes.
    ///
    /// # Panics
    /// When it fails.
    pub async fn command<T: FromRedisValue>(&self, at: usize, words: &[&str]) -> T {
        let reply = self.try_command(at, words).await;
        reply.unwrap_or_else(|error| panic!("{words:?} at node {at}: {error}"))
    }

    /// Sends a command to one of the nodes.
    ///
    /// # Errors
    /// When it does not answer, or refuses.
    pub async fn try_command<T>(&self, at: usize, words: &[&str]) -> Result<T, RedisError>
    where
        T: FromRedisValue,
    {
        let mut redis = self.nodes[at].connect().await?;
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command.query_async(&mut redis).await
    }

    /// Sends a command about this key to the master of its slot.
    ///
    /// # Panics
    /// When it fails.
    pub async fn of_key<T: FromRedisValue>(&self, key: &str, words: &[&str]) -> T {
        let master = self.master_of(key).await;
        self.command(master, words).await
    }

    /// The node that is the master of this key's slot, as that node says itself.
    pub async fn master_of(&self, key: &str) -> usize {
        let slot = slot_of(key);
        eventually(DEADLINE, async || {
            for at in self.all() {
                if self.nodes[at].is_up() && self.has_slot(at, slot).await {
                    return Some(at);
                }
            }
            None
        })
        .await
    }

    /// The replicas of a master, as a node says that still answers.
    pub async fn replicas_of(&self, master: usize) -> Vec<usize> {
        let lines = self.table().await;
        let mut replicas: Vec<usize> = lines
            .iter()
            .filter(|line| line.master.as_ref() == Some(&self.ids[master]))
            .filter_map(|line| self.ids.iter().position(|id| *id == line.id))
            .collect();
        replicas.sort_unstable();
        replicas
    }

    /// A name, beginning with `prefix`, in a slot of this node, which is a master.
    pub async fn name_at(&self, node: usize, prefix: &str) -> String {
        let slots = self.slots_of(node).await;
        let mut names = (0..100_000_u32).map(|number| format!("{prefix}:{number}"));
        let name = names.find(|name| slots.contains(&slot_of(name)));
        name.expect("it has a slot of some name")
    }

    /// A proxy in front of each node of a cluster that was started
    /// [for them](ClusterOptions::behind_proxies).
    pub fn proxies(&self) -> Vec<Proxy> {
        self.nodes.iter().map(Proxy::announced_by).collect()
    }

    /// Whether a node has sharded channels, as from Redis 7.0.
    pub async fn has_sharded_channels(&self, at: usize) -> bool {
        let words = ["COMMAND", "INFO", "SSUBSCRIBE"];
        let known: Vec<Value> = self.command(at, &words).await;
        known.iter().any(|known| *known != Value::Nil)
    }

    /// Kills a node with SIGKILL.
    pub fn kill(&self, at: usize) {
        self.nodes[at].kill();
    }

    /// Starts a killed node again, empty but with its identity.
    pub fn restart(&self, at: usize) {
        self.nodes[at].restart();
    }

    /// Ends a replica for good, and puts an empty node in its place, which has another identity and another port.
    pub async fn replace(&mut self, replica: usize) {
        let mut own = self
            .table_of(replica)
            .await
            .expect("it answers")
            .into_iter();
        let master = own.find_map(|line| line.master.filter(|_| line.is_myself));
        let master = master.expect("it is a replica");
        self.nodes[replica] = self.nodes[replica].another();
        let fresh = self.command(replica, &["CLUSTER", "MYID"]).await;
        let old = std::mem::replace(&mut self.ids[replica], fresh);
        let others = self.all().filter(|at| *at != replica);
        for other in others.clone() {
            self.command::<()>(other, &["CLUSTER", "FORGET", &old])
                .await;
        }
        for other in others {
            self.meet(replica, other).await;
        }
        self.agree(|lines| lines.iter().all(|line| line.is_known))
            .await;
        let words = ["CLUSTER", "REPLICATE", &master];
        self.command::<()>(replica, &words).await;
        // Before that, no master would vote for it.
        let fresh = &self.ids[replica];
        self.agree(|lines| {
            lines
                .iter()
                .any(|line| line.id == *fresh && line.master.is_some())
        })
        .await;
        self.nodes[replica].follows(DEADLINE).await;
    }

    /// Stops a node with SIGSTOP.
    pub fn pause(&self, at: usize) {
        self.nodes[at].pause();
    }

    /// Lets a paused node go on.
    pub fn resume(&self, at: usize) {
        self.nodes[at].resume();
    }

    /// Makes a replica the master in place of its own, without loss, and waits until it is. Redis
    /// gives an attempt up after 5 s without a word, so it is asked again after that time.
    pub async fn fail_over_to(&self, replica: usize) {
        let asked = Cell::new(None::<Instant>);
        eventually(DEADLINE, async || {
            if self.is_master(replica).await {
                return true;
            }
            if asked.get().is_none_or(|at| at.elapsed() > ATTEMPT) {
                asked.set(Some(Instant::now()));
                // Refused if it has just become the master, or has lost its own for a moment.
                let words = ["CLUSTER", "FAILOVER"];
                let _: Result<(), _> = self.try_command(replica, &words).await;
            }
            false
        })
        .await;
    }

    /// Waits until this node is a master with slots.
    pub async fn is_promoted(&self, at: usize) {
        eventually(DEADLINE, async || {
            self.is_master(at).await && !self.slots_of(at).await.is_empty()
        })
        .await;
    }

    /// Waits until all nodes that run say that all slots are served.
    pub async fn is_well(&self) {
        for at in self.all().filter(|at| self.nodes[*at].is_up()) {
            eventually(DEADLINE, async || {
                let info: Result<String, _> = self.try_command(at, &["CLUSTER", "INFO"]).await;
                match info {
                    Ok(info) if info.contains("cluster_state:ok") => Ok(()),
                    Ok(info) => Err(format!("node {at}: {info}")),
                    Err(error) => Err(format!("node {at}: {error}")),
                }
            })
            .await;
        }
    }

    /// All keys of all masters that run.
    pub async fn keys(&self) -> Vec<String> {
        let mut keys = Vec::new();
        for at in self.all() {
            if self.nodes[at].is_up() && self.is_master(at).await {
                keys.extend(self.command::<Vec<String>>(at, &["KEYS", "*"]).await);
            }
        }
        keys.sort_unstable();
        keys
    }

    /// The channels of a node with subscribers, of both kinds.
    pub async fn channels(&self, at: usize) -> Vec<String> {
        let mut all: Vec<String> = self.command(at, &["PUBSUB", "CHANNELS"]).await;
        let shard = self.try_command(at, &["PUBSUB", "SHARDCHANNELS"]).await;
        // Unknown before Redis 7.0.
        all.extend(shard.unwrap_or_else(|_| Vec::<String>::new()));
        all
    }

    /// How often a node has run each command since its start.
    pub async fn calls(&self, at: usize) -> HashMap<String, u64> {
        let info: String = self.command(at, &["INFO", "commandstats"]).await;
        let calls = info.lines().filter_map(|line| {
            let (command, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            Some((command.to_owned(), rest.split(',').next()?.parse().ok()?))
        });
        calls.collect()
    }

    /// Begins to move a slot to another master: from now on both redirect some callers.
    pub async fn migrate(&self, slot: u16, to: usize) -> Migration<'_> {
        let from = {
            let mut from = None;
            for at in self.all() {
                if self.nodes[at].is_up() && self.has_slot(at, slot).await {
                    from = Some(at);
                }
            }
            from.expect("a master has the slot")
        };
        assert_ne!(from, to, "it is there already");
        let moving = slot.to_string();
        let importing = ["CLUSTER", "SETSLOT", &moving, "IMPORTING", &self.ids[from]];
        self.command::<()>(to, &importing).await;
        let migrating = ["CLUSTER", "SETSLOT", &moving, "MIGRATING", &self.ids[to]];
        self.command::<()>(from, &migrating).await;
        Migration {
            cluster: self,
            slot: moving,
            from,
            to,
        }
    }

    async fn form(&mut self) {
        for at in self.all() {
            let id = self.command(at, &["CLUSTER", "MYID"]).await;
            self.ids.push(id);
        }
        let each = usize::from(SLOTS).div_ceil(self.masters);
        let slots: Vec<String> = (0..SLOTS).map(|slot| slot.to_string()).collect();
        for (at, slots) in slots.chunks(each).enumerate() {
            let mut words = vec!["CLUSTER", "ADDSLOTS"];
            words.extend(slots.iter().map(String::as_str));
            self.command::<()>(at, &words).await;
        }
        for at in self.all() {
            let epoch = (at + 1).to_string();
            let words = ["CLUSTER", "SET-CONFIG-EPOCH", &epoch];
            self.command::<()>(at, &words).await;
        }
        // Each meets each, since gossip would take seconds.
        for at in self.all() {
            for other in self.all().filter(|other| *other != at) {
                self.meet(at, other).await;
            }
        }
        self.agree(|lines| lines.iter().all(|line| line.is_known))
            .await;
        let replicas = self.masters..self.nodes.len() - self.spares;
        for replica in replicas.clone() {
            let master = self.ids[replica % self.masters].clone();
            let words = ["CLUSTER", "REPLICATE", &master];
            self.command::<()>(replica, &words).await;
        }
        // They met each other at other ports.
        let announced = self.nodes.iter().filter_map(RedisServer::announced_port);
        let announced: Vec<u16> = announced.map(|port| port.number()).collect();
        let heard = |lines: &[Line], port| lines.iter().any(|line| line.port == Some(port));
        self.agree(|lines| announced.iter().all(|port| heard(lines, *port)))
            .await;
        let following = |lines: &[Line]| lines.iter().filter(|line| line.master.is_some()).count();
        self.agree(|lines| following(lines) == replicas.len()).await;
        self.is_well().await;
        for replica in replicas {
            self.nodes[replica].follows(DEADLINE).await;
        }
    }

    async fn meet(&self, at: usize, other: usize) {
        let port = self.nodes[other].node_port().to_string();
        let words = ["CLUSTER", "MEET", "127.0.0.1", &port];
        self.command::<()>(at, &words).await;
    }

    /// Waits until the tables of all nodes are complete and `as_wanted`.
    async fn agree(&self, as_wanted: impl Fn(&[Line]) -> bool) {
        for at in self.all() {
            eventually(DEADLINE, async || {
                let text: String = self.command(at, &["CLUSTER", "NODES"]).await;
                let lines: Vec<Line> = text.lines().filter_map(Line::read).collect();
                let complete = lines.len() == self.nodes.len() && as_wanted(&lines);
                complete.then_some(()).ok_or(text)
            })
            .await;
        }
    }

    /// Waits until all masters know the present claim of this one: its slots, and its epoch, which says
    /// how new the claim is.
    ///
    /// A master that takes over a slot gives itself the next epoch after those that it knows. If it did
    /// not know the newest one, the late news of that one would take the slot away from it again, and
    /// the two masters would name each other as the owner, for ever.
    async fn have_heard_of(&self, master: usize) {
        let claim = async |at: usize| {
            let lines = self.table_of(at).await.expect("the node answers");
            let line = lines.into_iter().find(|line| line.id == self.ids[master]);
            line.map(|line| (line.epoch, line.slots))
        };
        eventually(DEADLINE, async || {
            let own = claim(master).await;
            for at in self.all() {
                if self.nodes[at].is_up() && self.is_master(at).await && claim(at).await != own {
                    return Err(format!("node {at} has not heard of node {master}"));
                }
            }
            Ok(())
        })
        .await;
    }

    /// The table of a node that answers.
    async fn table(&self) -> Vec<Line> {
        for at in self.all().filter(|at| self.nodes[*at].is_up()) {
            if let Ok(lines) = self.table_of(at).await {
                return lines;
            }
        }
        panic!("no node answers");
    }

    async fn table_of(&self, at: usize) -> Result<Vec<Line>, RedisError> {
        let text: String = self.try_command(at, &["CLUSTER", "NODES"]).await?;
        Ok(text.lines().filter_map(Line::read).collect())
    }

    async fn is_master(&self, at: usize) -> bool {
        let role: Result<Vec<Value>, _> = self.try_command(at, &["ROLE"]).await;
        let role = role.ok().and_then(|role| role.into_iter().next());
        role.is_some_and(|role| matches!(role, Value::BulkString(role) if role == b"master"))
    }

    async fn has_slot(&self, at: usize, slot: u16) -> bool {
        self.slots_of(at).await.contains(&slot)
    }

    /// The slots that a node says are its own.
    async fn slots_of(&self, at: usize) -> Vec<u16> {
        let lines = self.table_of(at).await.unwrap_or_default();
        let own = lines.into_iter().find(|line| line.is_myself);
        own.map_or_else(Vec::new, |own| own.slots)
    }
}

/// A slot on its way from one master to another.
#[derive(Debug)]
pub struct Migration<'a> {
    cluster: &'a Cluster,
    slot: String,
    from: usize,
    to: usize,
}

impl Migration<'_> {
    /// The master that has had the slot.
    pub fn from(&self) -> usize {
        self.from
    }

    /// The keys of the slot that have not moved.
    pub async fn left(&self) -> Vec<String> {
        let words = ["CLUSTER", "GETKEYSINSLOT", &self.slot, "1000"];
        self.cluster.command(self.from, &words).await
    }

    /// Moves these keys.
    pub async fn carry(&self, keys: &[&str]) {
        let server = self.cluster.node(self.to);
        let port = server.node_port().to_string();
        let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", MOVING];
        if let Some(password) = server.password() {
            words.extend(["AUTH", password]);
        }
        words.push("KEYS");
        words.extend(keys);
        // NOKEY: they were gone before.
        let _: String = self.cluster.command(self.from, &words).await;
    }

    /// Moves all keys that are left.
    pub async fn carry_all(&self) {
        loop {
            let left = self.left().await;
            if left.is_empty() {
                return;
            }
            let keys: Vec<&str> = left.iter().map(String::as_str).collect();
            self.carry(&keys).await;
        }
    }

    /// Moves the rest, tells all masters whose slot it is, and waits until they have heard so from its
    /// new master.
    pub async fn finish(self) {
        let cluster = self.cluster;
        let words = [
            "CLUSTER",
            "SETSLOT",
            &self.slot,
            "NODE",
            &cluster.ids[self.to],
        ];
        loop {
            self.carry_all().await;
            cluster.command::<()>(self.to, &words).await;
            // Refused while keys are left, which came since.
            if cluster.try_command::<()>(self.from, &words).await.is_ok() {
                break;
            }
        }
        for at in cluster.all() {
            if cluster.node(at).is_up() && cluster.is_master(at).await {
                cluster.command::<()>(at, &words).await;
            }
        }
        cluster.have_heard_of(self.to).await;
    }
}

/// A line of CLUSTER NODES.
struct Line {
    id: String,
    port: Option<u16>,
    is_myself: bool,
    /// Its name is known, and it has answered.
    is_known: bool,
    master: Option<String>,
    epoch: u64,
    slots: Vec<u16>,
}

impl Line {
    fn read(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [id, address, flags, master, _, _, epoch, link, slots @ ..] = words.as_slice() else {
            return None;
        };
        let has = |flag: &str| flags.split(',').any(|other| other == flag);
        let ranges = slots.iter().filter(|range| !range.starts_with('['));
        let ranges = ranges.filter_map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            Some(first.parse::<u16>().ok()?..=last.parse().ok()?)
        });
        Some(Self {
            id: (*id).to_owned(),
            port: port_of(address),
            is_myself: has("myself"),
            is_known: !has("handshake") && !has("noaddr") && *link == "connected",
            master: (*master != "-").then(|| (*master).to_owned()),
            epoch: epoch.parse().ok()?,
            slots: ranges.flatten().collect(),
        })
    }
}

/// The port in HOST:PORT@BUS, behind which there may be a name.
fn port_of(address: &str) -> Option<u16> {
    let (at, _) = address.split_once('@')?;
    let (_, port) = at.rsplit_once(':')?;
    port.parse().ok()
}

/// The cluster shared by the tests of this binary, started at the first call: three masters without
/// replicas.
///
/// For tests that use [`unique`](crate::unique) names and do not flush, kill, pause or move slots.
pub fn shared_cluster() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(|| {
        let options = Cluster::options().replicas(0);
        // Nothing is to be given up on a busy machine.
        options.node_timeout(Duration::from_secs(30)).start()
    })
}

/// Runs this on a thread of its own, also inside a runtime.
pub(crate) fn blocking<F: Future<Output: Send>>(task: impl FnOnce() -> F + Send) -> F::Output {
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().build();
        runtime.expect("a runtime starts").block_on(task())
    };
    thread::scope(|scope| {
        let thread = scope.spawn(run);
        thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
