//! The faults: each is done, lasts, and is healed.

use std::{path::Path, process::Command, time::Duration};

use redis::aio::MultiplexedConnection;
use tests::{Loss, Matcher, RedisServer, Which, has_clocks, step_clock};
use tokio::time::sleep;

use super::{
    crew::Crew,
    event::now,
    masters::{fail_over, reshard},
    topology::{Servers, Topology},
    worker::lease,
};

/// Longer than the lease.
const LONG: Duration = Duration::from_millis(1500);
/// How many requests or replies are lost meanwhile behind each server.
const LOSSES: u32 = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    PauseClientShort,
    PauseClientLong,
    KillClient,
    ClientAhead,
    ClientBehind,
    Cut,
    HalfOpen,
    Refuse,
    Slow,
    LateReplies,
    LostRequests,
    LostReplies,
    LostMessages,
    NoRequests,
    NoReplies,
    PauseServer,
    KillServer,
    FullDisk,
    ServerAhead,
    ServerBehind,
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
    FailoverFresh,
    FreshReplica,
    Reshard,
}

use Fault::*;

/// What the master has acknowledged for a moment is nowhere else.
pub(crate) const BEHIND: &str = "failover, replicas behind";
/// A failover that nobody planned, while the clock of a server is another one, or right behind that.
pub(crate) const CLOCKS_DIFFER: &str = "failover, unplanned, clocks differ";
/// Leases end early, when the clock goes forward: at the begin or at the end.
pub(crate) const SERVER_AHEAD: &str = "a server's clock 10 s ahead";
pub(crate) const SERVER_BEHIND: &str = "a server's clock 10 s behind";

/// With the words by which they are known.
const ALL: &[(Fault, &str)] = &[
    (None, "none"),
    (PauseClientShort, "pause a client for less than its lease"),
    (PauseClientLong, "pause a client for more than its lease"),
    (KillClient, "kill a client"),
    (ClientAhead, "a client's clock 10 s ahead"),
    (ClientBehind, "a client's clock 10 s behind"),
    (Cut, "cut connections"),
    (HalfOpen, "half-open connections"),
    (Refuse, "refused connections"),
    (Slow, "slow link"),
    (LateReplies, "replies later than the lease"),
    (LostRequests, "lost requests"),
    (LostReplies, "lost replies"),
    (LostMessages, "lost messages"),
    (NoRequests, "one-way link, no requests"),
    (NoReplies, "one-way link, no replies"),
    (PauseServer, "pause a server"),
    (KillServer, "kill and restart a server"),
    (FullDisk, "full disk"),
    (ServerAhead, SERVER_AHEAD),
    (ServerBehind, SERVER_BEHIND),
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
    (FailoverFresh, "failover, to a new node"),
    (FreshReplica, "a replica replaced"),
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
        if !has_clocks() {
            println!("no C compiler: clocks go on as they are");
        }
        let has = |fault: Self| match fault {
            Cut | HalfOpen | Refuse | Slow | LateReplies | LostRequests | LostReplies
            | LostMessages | NoRequests | NoReplies => !topology.proxies.is_empty(),
            ClientAhead | ClientBehind | ServerAhead | ServerBehind => has_clocks(),
            // It syncs, so that it ends.
            FullDisk => {
                topology.all()[0].directory().join("appendonlydir").exists()
                    && !topology.proxies.is_empty()
            }
            FailoverAsked | FailoverForced => {
                matches!(topology.servers, Servers::Watched(..) | Servers::Cluster(_))
            }
            FailoverBehind | FailoverAwake | FreshReplica => {
                matches!(topology.servers, Servers::Watched(..))
            }
            FailoverFresh | Reshard => matches!(topology.servers, Servers::Cluster(_)),
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
pub(crate) async fn strike(fault: Fault, topology: &mut Topology, crew: &mut Crew) -> u64 {
    let from = now();
    match fault {
        None => sleep(LONG).await,
        PauseClientShort => crew.pause(lease(&topology.spec).mul_f64(0.4)).await,
        PauseClientLong => crew.pause(lease(&topology.spec) * 2).await,
        KillClient => crew.replace(),
        ClientAhead => stepped(crew.clock(), 10).await,
        ClientBehind => stepped(crew.clock(), -10).await,
        Cut => {
            for proxy in &topology.proxies {
                proxy.cut_all();
            }
        }
        HalfOpen | Refuse | Slow | LateReplies | LostRequests | LostReplies | LostMessages
        | NoRequests | NoReplies => link(fault, topology).await,
        FailoverAsked | FailoverForced | FailoverBehind | FailoverAwake | FailoverFresh
        | FreshReplica => {
            let healed = fail_over(fault, topology).await;
            crew.serve(&topology.spec);
            return healed;
        }
        Reshard => reshard(topology).await,
        _ => at_servers(fault, &topology.all()).await,
    }
    if fault == None { from } else { now() }
}

async fn at_servers(fault: Fault, servers: &[&RedisServer]) {
    // One of five, or the only one; where servers are replaced, any.
    let up: Vec<_> = servers.iter().filter(|server| server.is_up()).collect();
    let server: &RedisServer = up[fastrand::usize(..up.len())];
    match fault {
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
        FullDisk => fill(server).await,
        ServerAhead => {
            stepped(&server.clock(), 10).await;
            // Until the clock is past the tokens that it has given.
            sleep(Duration::from_secs(10)).await;
        }
        ServerBehind => stepped(&server.clock(), -10).await,
        Flush => ask_all(servers, &["FLUSHALL"]).await,
        ScriptFlush => ask_all(servers, &["SCRIPT", "FLUSH"]).await,
        DebugSleep => ask(server, &["DEBUG", "SLEEP", "0.7"]).await,
        BusyScript => {
            ask(server, &["CONFIG", "SET", "busy-reply-threshold", "50"]).await;
            // Shorter than the silence after which sentinels replace a server.
            let busy = "local function now() local t = redis.call('TIME') return t[1] + t[2] / 1000000 end \
                        local till = now() + 0.7 while now() < till do end";
            ask(server, &["EVAL", busy, "0"]).await;
        }
        ClientPause => ask(server, &["CLIENT", "PAUSE", "700", "ALL"]).await,
        ClientKill => ask_all(servers, &["CLIENT", "KILL", "TYPE", "normal"]).await,
        Denied => {
            let less = ["ACL SETUSER default -@scripting -restore -hdel"];
            around(servers, &less, "ACL SETUSER default +@all").await;
        }
        MaxClients => {
            let less = ["CONFIG SET maxclients 1", "CLIENT KILL TYPE normal"];
            around(servers, &less, "CONFIG SET maxclients 10000").await;
        }
        OutOfMemory => {
            let less = ["CONFIG SET maxmemory 1"];
            around(servers, &less, "CONFIG SET maxmemory 0").await;
        }
        _ => unreachable!("not at servers: {fault:?}"),
    }
}

/// Steps a clock, and back.
async fn stepped(clock: &Path, seconds: i8) {
    step_clock(clock, seconds);
    sleep(LONG).await;
    step_clock(clock, 0);
}

/// Its file of data cannot grow, as on a full disk. A server that syncs each write ends then.
async fn fill(server: &RedisServer) {
    let limit = |size: &str| {
        let (pid, limit) = (server.pid().to_string(), format!("--fsize={size}:"));
        let mut prlimit = Command::new("prlimit");
        let done = prlimit.args(["--pid", &pid, &limit]).status();
        assert!(done.is_ok_and(|done| done.success()), "no prlimit");
    };
    let info: String = server.ask(&["INFO", "persistence"]).await;
    let size = info
        .lines()
        .find_map(|line| line.strip_prefix("aof_current_size:"));
    limit(size.expect("it writes a file").trim());
    sleep(Duration::from_millis(700)).await;
    match server.connect().await {
        Ok(_) => limit("unlimited"),
        Err(_) => server.restart(),
    }
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
            LostRequests | LostReplies => {}
            // All connections, new ones too; what is held arrives in the end, as it would behind such a link.
            NoRequests => gates.push(proxy.hold_request(Matcher::any())),
            NoReplies => gates.extend([
                proxy.hold_reply(Matcher::any()),
                proxy.hold_message(Matcher::any()),
            ]),
            _ => proxy.swallow_message(Matcher::any(), 50),
        }
    }
    let loss = match fault {
        LostRequests => Some(Loss::Request),
        LostReplies => Some(Loss::Reply),
        _ => Option::None,
    };
    for _ in 0..LOSSES {
        for proxy in &topology.proxies {
            // A connection is silent from then on, so each loses one: of whatever call comes next.
            let links = proxy.connections(Which::Scripts).into_iter();
            if let Some((loss, link)) = loss.zip(fastrand::choice(links)) {
                proxy.lose(loss, Matcher::any().on(Which::Connection(link)), 1);
            }
        }
        sleep(LONG / LOSSES).await;
    }
    drop(gates);
    topology.proxies.iter().for_each(|proxy| proxy.clear());
}

/// Deletes the semaphore without leases, and wakes its waiters: its number is set again by the next one.
pub(crate) async fn renew_permits(servers: &[&RedisServer]) {
    let script = "redis.call('DEL', KEYS[1], KEYS[2]) \
                  redis.pcall('PUBLISH', ARGV[1], 2) redis.pcall('SPUBLISH', ARGV[1], 2)";
    let name = super::crew::name("semaphore");
    let [holds, channel] = ["redlock_sem", "redisson_sc"].map(|of| format!("{of}:{{{name}}}"));
    for server in servers {
        let Ok(mut connection) = server.connect().await else {
            continue;
        };
        let mut renew = redis::cmd("EVAL");
        renew.arg(script).arg(2).arg(&[&name, &holds, &channel]);
        // All but one of a cluster's masters refuse, and all replicas.
        let _ = renew.query_async::<redis::Value>(&mut connection).await;
    }
}

/// Does `first`, and `then` after a while, on the same connections: a server may refuse new ones meanwhile.
async fn around(servers: &[&RedisServer], first: &[&str], then: &str) {
    let mut connections = Vec::new();
    for server in servers {
        if let Ok(mut connection) = server.connect().await {
            for words in first {
                command(&mut connection, &words.split(' ').collect::<Vec<_>>()).await;
            }
            connections.push(connection);
        }
    }
    sleep(Duration::from_millis(700)).await;
    for mut connection in connections {
        command(&mut connection, &then.split(' ').collect::<Vec<_>>()).await;
    }
}

async fn ask_all(servers: &[&RedisServer], words: &[&str]) {
    for server in servers {
        ask(server, words).await;
    }
}

/// A server may be down.
pub(crate) async fn ask(server: &RedisServer, words: &[&str]) {
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
