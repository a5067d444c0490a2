//! What is to happen in one run, all of it: drawn from a seed, or read from a text.

use serde::{Deserialize, Serialize};

use crate::history::{Ack, Ms};

/// One run. The same plan gives the same history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Of all that is still drawn while it runs: the ways of messages, the order of hosts, pauses of
    /// the library.
    pub seed: u64,
    /// What all have in common.
    pub terms: Terms,
    /// What is shared.
    pub things: Vec<Thing>,
    /// What each host does: a list of steps for each of its tasks.
    pub hosts: Vec<Vec<Vec<Step>>>,
    /// Which hosts have a Redisson client instead of the library; never the first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub java: Vec<usize>,
    /// What goes wrong.
    pub faults: Vec<Fault>,
    /// Several servers, for a plan in which a `RedLock` occurs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quorum: Option<Servers>,
    /// The servers are the nodes of a Redis Cluster, which all clients share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<Shards>,
    /// The servers are a master and its replicas, and sentinels that name the master.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watched: Option<Watched>,
    /// More is wanted than the server can serve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flood: Option<Flood>,
}

/// A server that takes a while for each command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flood {
    /// When what it serves is judged.
    pub from: Ms,
    /// Until when.
    pub until: Ms,
    /// How long a command takes.
    pub each: Ms,
}

/// A master that sentinels watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watched {
    /// How many replicas it has.
    pub replicas: usize,
    /// How many sentinels there are. They are the last of the servers.
    pub sentinels: usize,
    /// How long it takes at most until one of them knows of another master.
    pub lag: Ms,
    /// How the replicas copy; `None`: what they have is drawn when one of them becomes the master.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copies: Option<Copies>,
}

/// Replicas that copy from their master.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copies {
    /// How long a write takes at most on its way to one of them.
    pub delay: Ms,
    /// `ClientBuilder::replica_timeout`.
    pub timeout: Ms,
}

/// The nodes of a Redis Cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shards {
    /// How many masters share the slots.
    pub masters: usize,
    /// How many others there are to take the place of one.
    pub spares: usize,
}

/// The servers of a plan that has several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Servers {
    /// How many.
    pub count: usize,
    /// `Quorum::server_timeout`.
    pub timeout: Ms,
}

/// The network's, and how clients are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// The shortest and the longest way of a message.
    pub latency: (Ms, Ms),
    /// `ClientBuilder::lease`.
    pub lease: Ms,
    /// `ClientBuilder::response_timeout`.
    pub response: Ms,
    /// `ClientBuilder::connect_timeout`.
    pub connect: Ms,
    /// `ClientBuilder::poll_interval`.
    pub poll: Ms,
    /// `ClientBuilder::linger`.
    pub linger: Ms,
    /// `ClientBuilder::waiter_timeout`.
    pub waiter: Ms,
    /// By how many in a hundred thousand the clock of each host is fast, in turn; negative: slow.
    pub skew: [i64; 3],
}

/// Something that is shared, by its place in the plan: its kind, and a number that its kind needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Thing {
    /// An `RLock`.
    Reentrant,
    /// A `FairLock`.
    Fair,
    /// A `FencedLock`.
    Fenced,
    /// A `SpinLock`.
    Spin,
    /// A `ReadWriteLock`.
    ReadWrite,
    /// A `MultiLock` of two names of its own.
    Multi,
    /// A `Semaphore` of so many permits.
    Semaphore(u32),
    /// A `PermitExpirableSemaphore` of so many permits.
    Permits(u32),
    /// A `CountDownLatch` of this count.
    Latch(u64),
    /// A `CyclicBarrier` for so many.
    Barrier(u32),
    /// A `RedLock`, on all servers.
    RedLock,
    /// A `LeaderElection`.
    Leader,
    /// A `Once` of so many attempts; 0: any number.
    Fire(u32),
}

impl Plan {
    /// One server, and nothing that goes wrong.
    pub(super) fn without_faults(
        seed: u64,
        terms: Terms,
        things: Vec<Thing>,
        hosts: Vec<Vec<Vec<Step>>>,
    ) -> Self {
        Self {
            seed,
            terms,
            things,
            hosts,
            java: Vec::new(),
            faults: Vec::new(),
            quorum: None,
            cluster: None,
            watched: None,
            flood: None,
        }
    }

    /// How many servers there are.
    pub fn servers(&self) -> usize {
        let nodes = self.cluster.map(|of| of.masters + of.spares);
        let watched = self.watched.map(|of| self.first_sentinel() + of.sentinels);
        let several = nodes.or(watched);
        several.unwrap_or_else(|| self.quorum.map_or(1, |quorum| quorum.count))
    }

    /// The place of the first sentinel among the servers, if there are any.
    pub(super) fn first_sentinel(&self) -> usize {
        self.watched.map_or(usize::MAX, |of| 1 + of.replicas)
    }

    /// How many masters there are at a time, where another node may take the place of one.
    pub(super) fn masters(&self) -> Option<usize> {
        let cluster = self.cluster.map(|of| of.masters);
        cluster.or_else(|| self.watched.map(|_| 1))
    }

    /// How replicas copy from the master.
    pub(super) fn copies(&self) -> Option<Copies> {
        self.watched.and_then(|of| of.copies)
    }

    /// Whether the server refuses this for a while.
    pub fn refuses(&self, what: Refusal) -> bool {
        let mut all = self.faults.iter();
        all.any(|fault| matches!(fault.what, Trouble::Refuse { with, .. } if with == what))
    }
}

impl Thing {
    /// Whether it is a lock with one key.
    pub fn is_lock(self) -> bool {
        let other = matches!(
            self,
            Self::Multi | Self::Semaphore(_) | Self::Permits(_) | Self::Latch(_) | Self::Barrier(_)
        );
        !other
    }

    /// The key of the thing at this place.
    pub fn key(self, place: usize) -> String {
        let kind = match self {
            Self::Reentrant => "lock",
            Self::Fair => "fair",
            Self::Fenced => "fenced",
            Self::Spin => "spin",
            Self::ReadWrite => "rw",
            Self::Multi => "multi",
            Self::Semaphore(_) => "semaphore",
            Self::Permits(_) => "permits",
            Self::Latch(_) => "latch",
            Self::Barrier(_) => "barrier",
            Self::RedLock => "red",
            Self::Leader => "leader",
            // At as many milliseconds as its place says.
            Self::Fire(_) => "once:fire",
        };
        format!("{kind}:{place}")
    }

    /// The names of the locks that it consists of.
    pub fn names(self, place: usize) -> Vec<String> {
        let key = self.key(place);
        match self {
            Self::Multi => vec![format!("{key}:a"), format!("{key}:b")],
            _ => vec![key],
        }
    }
}

/// One thing that a task does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// Takes and gives back a lock or permits.
    Turn(Turn),
    /// Adopts the last ticket of a lock, and goes on with a turn.
    Adopt(Turn),
    /// Counts a latch down.
    CountDown {
        /// Which.
        thing: usize,
        /// After how long.
        after: Ms,
        /// Whether by a guard that is dropped.
        by_guard: bool,
    },
    /// Waits for a latch.
    Await {
        /// Which.
        thing: usize,
        /// After how long.
        after: Ms,
        /// For how long at most.
        wait: Option<Ms>,
    },
    /// Waits at a barrier.
    Arrive {
        /// Which.
        thing: usize,
        /// After how long.
        after: Ms,
        /// For how long at most.
        wait: Ms,
    },
    /// Looks at the count of a latch, or whether a lock is locked.
    Look {
        /// At which.
        thing: usize,
        /// After how long.
        after: Ms,
    },
    /// Shuts the client of its host down; the next step uses a new one.
    ShutDown {
        /// After how long.
        after: Ms,
        /// How long it may drain; `None`: at once.
        drain: Option<Ms>,
    },
}

/// One turn with a lock or with permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    /// With which.
    pub thing: usize,
    /// After how long.
    pub after: Ms,
    /// Of a read-write lock: to write. Of a semaphore: to take two permits.
    pub strong: bool,
    /// For how long to wait; `None`: for ever, 0: not at all.
    pub wait: Option<Ms>,
    /// The lease, where it is not the client's.
    pub lease: Option<Ms>,
    /// Whether it is renewed.
    pub renew: bool,
    /// When the acquisition is dropped.
    pub cut: Option<Cut>,
    /// For how long it is held.
    pub hold: Ms,
    /// What is done meanwhile.
    pub meanwhile: Meanwhile,
    /// How it ends.
    pub end: Ending,
    /// How many replicas must have it, where there are some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ack: Option<Ack>,
}

/// When a call is dropped, if it has not returned before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cut {
    /// After it was polled so often.
    Polls(u32),
    /// After so long.
    After(Ms),
}

/// What is done under a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Meanwhile {
    /// Nothing.
    Nothing,
    /// `extend` to so long.
    Extend(Ms),
    /// `reenter`, the second guard dropped.
    Reenter,
    /// `run`, whose body takes the same lock again.
    Nest,
    /// The hold is that of a function under the attribute.
    Body,
    /// `downgrade` of a writer, `try_upgrade` of a reader.
    Convert,
}

/// How a hold ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ending {
    /// `unlock`.
    Unlock,
    /// `unlock`, dropped after so many polls.
    Cut(u32),
    /// The guard is dropped.
    Drop,
    /// Of an `RLock` and a `FencedLock`: a ticket, for whoever adopts it.
    Ticket,
}

/// Something that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// When.
    pub at: Ms,
    /// What.
    pub what: Trouble,
    /// At which server, or on the way to which; in a cluster, the master of which shard; where there are
    /// sentinels, 0 is the master, and others are these. A host's own troubles ask for none.
    #[serde(default, skip_serializing_if = "is_first")]
    pub server: usize,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // Serde asks with a reference.
fn is_first(server: &usize) -> bool {
    *server == 0
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Trouble {
    /// Nothing gets from the host to the server, or back, or both; it arrives when that is over.
    Partition {
        /// Which host.
        host: usize,
        /// To the server.
        up: bool,
        /// From the server.
        down: bool,
        /// For how long.
        lasts: Ms,
    },
    /// Messages of the host take longer.
    Slow {
        /// Which host.
        host: usize,
        /// By how much at most.
        more: Ms,
        /// For how long.
        lasts: Ms,
    },
    /// A connection is lost in the middle of something.
    Cut {
        /// Of which host.
        host: usize,
        /// After so many messages to the server.
        after: u32,
        /// Where.
        place: Place,
    },
    /// All connections of a host go silent: nothing arrives any more, and nobody hears of it.
    Silence {
        /// Which host.
        host: usize,
    },
    /// The connection of the host's next message is lost, and the message arrives all the same.
    Stray {
        /// Which host.
        host: usize,
        /// How much later.
        lasts: Ms,
    },
    /// The server refuses what a host asks.
    Refuse {
        /// Which host; `None`: all of them.
        host: Option<usize>,
        /// With which words.
        with: Refusal,
        /// For how long.
        lasts: Ms,
    },
    /// A host crashes, and starts again.
    CrashHost {
        /// Which host.
        host: usize,
        /// Whether the server hears of it.
        silent: bool,
        /// For how long it is away.
        lasts: Ms,
    },
    /// A host stands still.
    PauseHost {
        /// Which host.
        host: usize,
        /// For how long.
        lasts: Ms,
    },
    /// The runtime of a host ends, and its client lives on in another one.
    EndRuntime {
        /// Which host.
        host: usize,
    },
    /// The server crashes, and starts again.
    CrashServer {
        /// Whether it has its keys then.
        keeps: bool,
        /// Whether connections end without a word.
        silent: bool,
        /// For how long it is away.
        lasts: Ms,
    },
    /// The server stands still.
    PauseServer {
        /// For how long.
        lasts: Ms,
    },
    /// Another, empty server answers at the address; connections that are open lead to the old one.
    Replace {
        /// For how long they do.
        lasts: Ms,
    },
    /// The server's clock is set, forward or back.
    SetClock {
        /// By how much.
        by: i64,
    },
    /// The wall clock of a host is set, forward or back.
    SetWallClock {
        /// Which host.
        host: usize,
        /// By how much.
        by: i64,
    },
    /// The server takes so long for each message.
    Overload {
        /// How long.
        each: Ms,
        /// For how long.
        lasts: Ms,
    },
    /// Another program sets the time to live of a thing's key so far, or takes it off (PERSIST).
    SetTtl {
        /// Which.
        thing: usize,
        /// How far.
        to: Option<Ms>,
        /// After this time an operator deletes it, if it still lives for longer than any lease.
        lasts: Ms,
    },
    /// FLUSHALL.
    Flush,
    /// SCRIPT FLUSH.
    ForgetScripts,
    /// The key of a thing is evicted.
    Evict {
        /// Which.
        thing: usize,
    },
    /// The slot of a thing moves to another master, key by key.
    MoveSlot {
        /// Which.
        thing: usize,
        /// To the master of which shard.
        to: usize,
        /// For how long it is on its way.
        lasts: Ms,
    },
    /// The master of a thing's slot fails, and another node takes its place.
    FailOver {
        /// Of which.
        thing: usize,
        /// What it wrote last, for so long, is lost.
        lost: Ms,
        /// How long it takes until another node has its place.
        lasts: Ms,
        /// It stands still, rather than end, and goes on with what has arrived so long after that.
        late: Option<Ms>,
        /// Where there are sentinels: for how long it takes itself for a master when it is there again.
        #[serde(default, skip_serializing_if = "is_zero")]
        still: Ms,
    },
    /// A replica stands still.
    StopReplica {
        /// Which of them.
        replica: usize,
        /// For how long.
        lasts: Ms,
    },
    /// The sentinels make another one the master, although the old one is well.
    Switch {
        /// For how long that one takes itself for the master.
        still: Ms,
    },
}

#[allow(clippy::trivially_copy_pass_by_ref)] // Serde asks with a reference.
fn is_zero(ms: &Ms) -> bool {
    *ms == 0
}

/// Where a connection is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    /// Before the message.
    Before,
    /// In the middle of it.
    Middle,
    /// After it, before its reply.
    After,
    /// In the middle of the reply.
    Reply,
}

/// With which words a server refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// A script runs for too long.
    Busy,
    /// It reads its data.
    Loading,
    /// There is no memory; only what writes.
    OutOfMemory,
    /// There are too many clients; only fresh connections.
    MaxClients,
    /// Nobody listens; only fresh connections.
    Dial,
    /// An ACL forbids scripts.
    Forbidden,
    /// A fresh connection may do nothing: the password is another.
    Login,
    /// An ACL forbids to end other connections.
    Kill,
}
