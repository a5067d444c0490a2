//! The faults: each is done, lasts, and is healed.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tests::{Cluster, Loss, Matcher, RedisServer, Replicated, Sentinels, Which};
use tokio::time::{sleep, timeout};

use super::{
    crew::Crew,
    event::now,
    topology::{Servers, Topology},
    worker::lease,
};

/// For what depends on several servers to be well again.
const RECOVERY: Duration = Duration::from_secs(30);
/// Longer than the lease.
const LONG: Duration = Duration::from_millis(1500);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    PauseClientShort,
    PauseClientLong,
    KillClient,
    Cut,
    HalfOpen,
    Refuse,
    Slow,
    LateReplies,
    LostRequests,
    LostReplies,
    LostMessages,
    PauseServer,
    KillServer,
    Flush,
    ScriptFlush,
    DebugSleep,
    BusyScript,
    ClientPause,
    ClientKill,
    Denied,
    MaxClients,
    OutOfMemory,
    FailoverAsked,
    FailoverForced,
    FailoverBehind,
    FailoverAwake,
    Reshard,
}

use Fault::*;

/// What the master has acknowledged for a moment is nowhere else.
pub(crate) const BEHIND: &str = "failover, replicas behind";

/// With the words by which they are known.
const ALL: &[(Fault, &str)] = &[
    (None, "none"),
    (PauseClientShort, "pause a client for less than its lease"),
    (PauseClientLong, "pause a client for more than its lease"),
    (KillClient, "kill a client"),
    (Cut, "cut connections"),
    (HalfOpen, "half-open connections"),
    (Refuse, "refused connections"),
    (Slow, "slow link"),
    (LateReplies, "replies later than the lease"),
    (LostRequests, "lost requests"),
    (LostReplies, "lost replies"),
    (LostMessages, "lost messages"),
    (PauseServer, "pause a server"),
    (KillServer, "kill and restart a server"),
    (Flush, "FLUSHALL"),
    (ScriptFlush, "SCRIPT FLUSH"),
    (DebugSleep, "DEBUG SLEEP"),
    (BusyScript, "busy script"),
    (ClientPause, "CLIENT PAUSE"),
    (ClientKill, "CLIENT KILL"),
    (Denied, "rights taken and given back"),
    (MaxClients, "maxclients"),
    (OutOfMemory, "out of memory"),
    (FailoverAsked, "failover, asked for"),
    (FailoverForced, "failover, forced"),
    (FailoverBehind, BEHIND),
    (FailoverAwake, "failover, the old master wakes up"),
    (Reshard, "slots moved"),
];

impl Fault {
    pub(crate) fn name(self) -> &'static str {
        let known = ALL.iter().find(|(fault, _)| *fault == self);
        known.map_or("", |(_, name)| name)
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        ALL.iter()
            .find(|(_, known)| *known == name)
            .map(|(fault, _)| *fault)
    }

    /// Those that a topology can have.
    pub(crate) fn of(topology: &Topology) -> Vec<Self> {
        let has = |fault: Self| match fault {
            Cut | HalfOpen | Refuse | Slow | LateReplies | LostRequests | LostReplies
            | LostMessages => !topology.proxies.is_empty(),
            FailoverAsked | FailoverForced => {
                matches!(topology.servers, Servers::Watched(..) | Servers::Cluster(_))
            }
            FailoverBehind | FailoverAwake => matches!(topology.servers, Servers::Watched(..)),
            Reshard => matches!(topology.servers, Servers::Cluster(_)),
            // There a server that is down for long is replaced: that is the forced failover.
            KillServer => matches!(topology.servers, Servers::One(_) | Servers::Five(_)),
            _ => true,
        };
        ALL.iter()
            .map(|(fault, _)| *fault)
            .filter(|fault| has(*fault))
            .collect()
    }
}

/// Does it, and undoes it. Returns since when all should be well.
pub(crate) async fn strike(fault: Fault, topology: &Topology, crew: &mut Crew) -> u64 {
    let from = now();
    let servers = topology.all();
    // One of five, or the only one; where servers are replaced, any.
    let up: Vec<_> = servers.iter().filter(|server| server.is_up()).collect();
    let server: &RedisServer = up[fastrand::usize(..up.len())];
    match fault {
        None => sleep(LONG).await,
        PauseClientShort => crew.pause(lease(&topology.spec).mul_f64(0.4)).await,
        PauseClientLong => crew.pause(lease(&topology.spec) * 2).await,
        KillClient => crew.replace(),
        Cut => {
            for proxy in &topology.proxies {
                proxy.cut_all();
            }
        }
        HalfOpen | Refuse | Slow | LateReplies | LostRequests | LostReplies | LostMessages => {
            link(fault, topology).await
        }
        PauseServer => {
            server.pause();
            // A replacement of a server is another fault.
            sleep(Duration::from_millis(700)).await;
            server.resume();
        }
        KillServer => {
            server.kill();
            sleep(Duration::from_millis(fastrand::u64(50..800))).await;
            server.restart();
        }
        Flush => ask_all(&servers, &["FLUSHALL"]).await,
        ScriptFlush => ask_all(&servers, &["SCRIPT", "FLUSH"]).await,
        DebugSleep => ask(server, &["DEBUG", "SLEEP", "0.7"]).await,
        BusyScript => {
            ask(server, &["CONFIG", "SET", "busy-reply-threshold", "50"]).await;
            // Shorter than the silence after which sentinels replace a server.
            let busy = "local function now() local t = redis.call('TIME') return t[1] + t[2] / 1000000 end \
                        local till = now() + 0.7 while now() < till do end";
            ask(server, &["EVAL", busy, "0"]).await;
        }
        ClientPause => ask(server, &["CLIENT", "PAUSE", "700", "ALL"]).await,
        ClientKill => ask_all(&servers, &["CLIENT", "KILL", "TYPE", "normal"]).await,
        Denied => {
            around(
                &servers,
                &[&[
                    "ACL",
                    "SETUSER",
                    "default",
                    "-@scripting",
                    "-restore",
                    "-hdel",
                ]],
                &["ACL", "SETUSER", "default", "+@all"],
            )
            .await;
        }
        MaxClients => {
            let less: [&[&str]; 2] = [
                &["CONFIG", "SET", "maxclients", "1"],
                &["CLIENT", "KILL", "TYPE", "normal"],
            ];
            around(&servers, &less, &["CONFIG", "SET", "maxclients", "10000"]).await;
        }
        OutOfMemory => {
            around(
                &servers,
                &[&["CONFIG", "SET", "maxmemory", "1"]],
                &["CONFIG", "SET", "maxmemory", "0"],
            )
            .await;
        }
        FailoverAsked | FailoverForced | FailoverBehind | FailoverAwake => {
            return fail_over(fault, topology).await;
        }
        Reshard => reshard(topology).await,
    }
    if fault == None { from } else { now() }
}

async fn link(fault: Fault, topology: &Topology) {
    let mut gates = Vec::new();
    for proxy in &topology.proxies {
        match fault {
            HalfOpen => proxy.go_silent(),
            Refuse => {
                proxy.refuse();
                proxy.cut_all();
            }
            Slow => proxy.delay(Matcher::any(), Duration::from_millis(60)),
            LateReplies => {
                // Of some of the clients.
                let links = proxy.connections(Which::Scripts).into_iter();
                let links = links.filter(|_| fastrand::bool()).map(Which::Connection);
                gates.extend(links.map(|link| proxy.hold_reply(Matcher::any().on(link))));
            }
            LostRequests => proxy.lose(Loss::Request, Matcher::any(), 20),
            LostReplies => proxy.lose(Loss::Reply, Matcher::any(), 20),
            _ => proxy.swallow_message(Matcher::any(), 50),
        }
    }
    sleep(LONG).await;
    drop(gates);
    topology.proxies.iter().for_each(|proxy| proxy.clear());
}

/// Returns since when all clients should be at the new master.
async fn fail_over(fault: Fault, topology: &Topology) -> u64 {
    let mut awake = Option::None;
    match &topology.servers {
        Servers::Watched(replicated, sentinels) => {
            let master = async || master(replicated, sentinels).await;
            let Some(before) = master().await else {
                return now();
            };
            let is_moved = async || master().await.is_some_and(|now| now != before);
            let old = replicated.server(before);
            match fault {
                FailoverAwake => {
                    old.pause();
                    until(is_moved).await;
                    sleep(lease(&topology.spec)).await;
                    // It is a master for some seconds yet.
                    old.resume();
                    awake = Some(now());
                }
                FailoverAsked => {
                    let _ = sentinels.ask::<redis::Value>(0, "FAILOVER").await;
                    until(is_moved).await;
                }
                _ => {
                    let behind = (0..3).filter(|at| *at != before && fault == FailoverBehind);
                    let behind: Vec<_> = behind.map(|at| replicated.server(at)).collect();
                    if !behind.is_empty() {
                        behind.iter().for_each(|replica| replica.pause());
                        // What is written from now on is nowhere else.
                        ask(old, &["CONFIG", "SET", "min-replicas-to-write", "0"]).await;
                        ask(old, &["CLIENT", "KILL", "TYPE", "replica"]).await;
                        // Less than a renewal interval.
                        sleep(lease(&topology.spec).mul_f64(0.3)).await;
                    }
                    old.kill();
                    behind.iter().for_each(|replica| replica.resume());
                    if !behind.is_empty() {
                        // At once, so that the lost locks are not over.
                        let _ = sentinels.ask::<redis::Value>(0, "FAILOVER").await;
                    }
                    until(is_moved).await;
                    old.restart();
                }
            }
            // Until then, another failover has nowhere to go.
            until(async || {
                let Some(now) = master().await else {
                    return false;
                };
                let Ok(mut connection) = replicated.server(now).connect().await else {
                    return false;
                };
                let mut info = redis::cmd("INFO");
                let info = info
                    .arg("replication")
                    .query_async::<String>(&mut connection);
                info.await
                    .is_ok_and(|info| info.matches("state=online").count() == 2)
            })
            .await;
        }
        Servers::Cluster(cluster) => {
            let masters = masters(cluster).await;
            let master = masters[fastrand::usize(..masters.len())];
            let Some(replica) = cluster.replicas_of(master).await.first().copied() else {
                return now();
            };
            let is_promoted = async || is_master(cluster, replica).await;
            match fault {
                FailoverAsked => {
                    let words = ["CLUSTER", "FAILOVER"];
                    let _ = cluster.try_command::<redis::Value>(replica, &words).await;
                    until(is_promoted).await;
                }
                _ => {
                    cluster.kill(master);
                    until(is_promoted).await;
                    cluster.restart(master);
                }
            }
            until(async || {
                let mut well = true;
                for at in cluster.all() {
                    let info = cluster
                        .try_command::<String>(at, &["CLUSTER", "INFO"])
                        .await;
                    let is_ok = info.is_ok_and(|info| info.contains("cluster_state:ok"));
                    let link = cluster
                        .try_command::<String>(at, &["INFO", "replication"])
                        .await;
                    well &= is_ok && link.is_ok_and(|link| !link.contains("link_status:down"));
                }
                well
            })
            .await;
        }
        _ => {}
    }
    awake.unwrap_or_else(now)
}

async fn reshard(topology: &Topology) {
    if let Servers::Cluster(cluster) = &topology.servers {
        for kind in ["rlock", "fair", "fenced"] {
            let key = super::crew::name(kind);
            let from = cluster.master_of(&key).await;
            let others = masters(cluster).await;
            let to = others
                .into_iter()
                .find(|at| *at != from)
                .expect("three masters");
            let migration = cluster.migrate(tests::slot_of(&key), to).await;
            sleep(Duration::from_millis(200)).await;
            migration.finish().await;
        }
    }
}

/// Which servers are masters, where that changes.
pub(crate) async fn present(topology: &Topology) -> Vec<usize> {
    match &topology.servers {
        Servers::Watched(replicated, sentinels) => {
            let master = master(replicated, sentinels).await;
            master.into_iter().collect()
        }
        Servers::Cluster(cluster) => masters(cluster).await,
        _ => Vec::new(),
    }
}

async fn master(replicated: &Replicated, sentinels: &Sentinels) -> Option<usize> {
    let at: Vec<String> = sentinels.ask(0, "GET-MASTER-ADDR-BY-NAME").await.ok()?;
    Some(replicated.at(at.get(1)?.parse().ok()?))
}

async fn masters(cluster: &Cluster) -> Vec<usize> {
    let mut masters = Vec::new();
    for at in cluster.all() {
        if is_master(cluster, at).await {
            masters.push(at);
        }
    }
    masters
}

async fn is_master(cluster: &Cluster, at: usize) -> bool {
    let role = cluster
        .try_command::<String>(at, &["INFO", "replication"])
        .await;
    role.is_ok_and(|info| info.contains("role:master"))
}

/// Waits until it is so, or goes on without.
async fn until(is_so: impl AsyncFn() -> bool) {
    let is_so = async {
        while !is_so().await {
            sleep(Duration::from_millis(50)).await;
        }
    };
    if timeout(RECOVERY, is_so).await.is_err() {
        println!("the servers are not well after {RECOVERY:?}");
    }
}

/// Does `first`, and `then` after a while, on the same connections: a server may refuse new ones meanwhile.
async fn around(servers: &[&RedisServer], first: &[&[&str]], then: &[&str]) {
    let mut connections = Vec::new();
    for server in servers {
        if let Ok(mut connection) = server.connect().await {
            for words in first {
                command(&mut connection, words).await;
            }
            connections.push(connection);
        }
    }
    sleep(Duration::from_millis(700)).await;
    for mut connection in connections {
        command(&mut connection, then).await;
    }
}

async fn ask_all(servers: &[&RedisServer], words: &[&str]) {
    for server in servers {
        ask(server, words).await;
    }
}

/// A server may be down.
async fn ask(server: &RedisServer, words: &[&str]) {
    if let Ok(mut connection) = server.connect().await {
        command(&mut connection, words).await;
    }
}

/// A replica may refuse.
async fn command(connection: &mut MultiplexedConnection, words: &[&str]) {
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    if let Err(error) = command.query_async::<redis::Value>(connection).await {
        println!("{words:?}: {error}");
    }
}
