//! Distributed locks and synchronisers on Redis for async Rust, wire-compatible with Redisson.
//!
//! A Java service with Redisson 4.x and a Rust service with this crate can share a lock in the same
//! Redis at the same time. A guard holds the lock, and reports when the lock is lost.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), redlock_rt::Error> {
//! use std::time::Duration;
//! use redlock_rt::{Client, LockOptions, Shutdown};
//!
//! let redis = redlock_rt::embedded::Engine::new();
//! // For a real server, call .url("redis://localhost") instead of .embedded(…).
//! let client = Client::builder().embedded(&redis).namespace("shop").connect().await?;
//! // The name of a lock is a Redis key: this one is `shop:order:7`.
//! let lock = client.rlock("order:7");
//!
//! let guard = lock.lock_with(LockOptions::new().wait(Duration::from_secs(1))).await?;
//! // `run` cancels the body as soon as the lock is lost.
//! let receipt = guard.run(async { "paid" }).await?;
//! // Paid is paid, whatever becomes of the release, which goes on in the background.
//! drop(guard);
//! # assert_eq!(receipt, "paid");
//!
//! // Waits until Redis has released the locks of dropped guards.
//! client.shutdown(Shutdown::Drain(Duration::from_secs(5))).await
//! # }
//! ```
//!
#![cfg_attr(
    feature = "macros",
    doc = r#"Or use the attribute on a function:

```
use redlock_rt::distributed_lock;

#[distributed_lock(key = "order:<user_id>", wait = "1s")]
async fn place_order(user_id: u64) -> Result<&'static str, redlock_rt::Error> {
    Ok("paid")
}

# #[tokio::main(flavor = "current_thread")]
# async fn main() -> Result<(), redlock_rt::Error> {
redlock_rt::set_default_client(redlock_rt::Client::embedded());
assert_eq!(place_order(7).await?, "paid");
# Ok(())
# }
```
"#
)]
//!
//! # Which primitive
//!
//! | You need | Use |
//! |---|---|
//! | one holder at a time, across processes | [`RLock`] |
//! | the same, around a function | `#[distributed_lock]` |
//! | the same, where an overlap does harm: a token that the resource compares | [`FencedLock`] |
//! | a lock that begins in one process and ends in another | [`Ticket`] |
//! | one leader among the instances of a service, in terms | [`LeaderElection`] |
//! | first come, first served, across processes | [`FairLock`] |
//! | many readers or one writer | [`ReadWriteLock`] |
//! | one holder at a time, for holds of milliseconds; waiters poll | [`SpinLock`] |
//! | at most N holders at a time, across processes | [`PermitExpirableSemaphore`] |
//! | the same, shared with an `RSemaphore`; a crashed process keeps its permits | [`Semaphore`] |
//! | a job that several instances start, done once for each of its times | [`Once`] |
//! | a request that its client repeats, answered once | [`Idempotent`] |
//! | several locks at once, without deadlock | [`MultiLock`] |
//! | to wait until a number of parties are done, across processes | [`CountDownLatch`] |
//! | parties that wait for each other, again and again, across processes | [`CyclicBarrier`] |
//! | parties that enter and leave a piece of work together | [`DoubleBarrier`] |
//! | a lock that survives the loss of a server | [`RedLock`] |
//!
//! # What is guaranteed
//!
//! * At most one guard reports [held](GuardState), while clocks run at nearly the same speed and
//!   Redis keeps the key.
//! * A guard never reports held after its local deadline, whether or not Redis can be reached.
//! * The lock of a crashed holder is free after its lease, unless after the last renewal the server's clock was set
//!   back or another program removed the TTL. (A [`Semaphore`] has no lease.)
//! * Cancelled, dropped and failed calls leave nothing behind, in Redis or in the process. The exception is a
//!   subscription, for its linger time.
//! * The tokens of one [`FencedLock`] name only increase, on two conditions: the clock of the (new) master is 1 ms past
//!   the last token, and no Redisson client is the first to take the lock after a loss of the counter.
//!
//! # What is not guaranteed
//!
//! * A failover, or a restart of a Redis without persistence, can lose a lock that is held. The
//!   guard notices at its next renewal. Another client may acquire the lock before that.
//! * A paused process (SIGSTOP, a long stall of its runtime) cannot check its guard. When it
//!   continues, its unfinished work continues too. Only the resource can refuse that work.
//! * The work under a lost lock need not stop in time. A body is cancelled at its next `.await`. Tasks that it has
//!   spawned, and code that does not await, continue. If data must be correct even then, the data store has to enforce
//!   that: with a conditional update, a unique index, or a fencing token that it compares.
//! * Redis must not evict keys: use `maxmemory-policy noeviction`, or a `volatile-*` policy with
//!   room.
//! * `CLIENT KILL ID` prevents a command in a broken connection from running late. Where an ACL forbids `CLIENT KILL`,
//!   a late acquisition can take the lock for one lease.
//! * A client talks to one master, or to the masters of a cluster ([`Client::connect`]). Sentinels may name the one
//!   master, or the client finds it among several servers. A server of another kind than the URL says is the error
//!   [`Misconfigured`](ErrorKind::Misconfigured).
//! * After a failover, also behind one address, all connections of a client follow the first one that reaches the new
//!   server, and the client verifies every lock there. Where an ACL forbids INFO, the client cannot distinguish the
//!   servers. A lock that is renewed over a connection to the old server then stays valid until that connection ends.
//! * On systems other than Linux, a guard does not count the time for which the machine was
//!   suspended.
//!
//! # The end of a program
//!
//! Call [`Client::shutdown`] at the end of `main`, so that nothing is left in Redis: it waits until
//! Redis has answered the releases of dropped guards.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), redlock_rt::Error> {
//! # use std::time::Duration;
//! # use redlock_rt::{Client, Shutdown};
//! # let client = Client::embedded();
//! // Waits up to 5 s for live guards to end, then releases what is still held.
//! client.shutdown(Shutdown::Drain(Duration::from_secs(5))).await?;
//! # Ok(())
//! # }
//! ```
//!
//! Without a shutdown:
//!
//! * A guard that is dropped at the end of `main`, or before [`exit`](std::process::exit), is
//!   released if its connection is up and no other command of its lock is in progress: the drop
//!   writes the release to the socket.
//! * Of several guards dropped in a row, the server may read only the first release: it stops
//!   reading when it can no longer send a reply.
//! * Three kinds of locks end only with their lease: locks of guards that a runtime drops with its tasks, locks of
//!   calls cancelled at that moment, and all locks while Redis is not reachable. Permits of a [`Semaphore`] and counts
//!   of a [`CountDownGuard`] have no lease: the permits stay taken, and the counts are not made.
//!
//! A program that may leave `main` at any place can use [`ClientBuilder::flush_on_drop`].
//!
//! # Permissions
//!
//! [`Client::acl_rule`] returns the ACL rule for the kinds of objects that a service uses: all commands that the client
//! sends and that its scripts call, the keys, and the channels. Without SUBSCRIBE the waiters of the user poll. Without
//! PUBLISH the waiters of other clients poll for what the user releases.
//!
//! With `+restore` and `+hdel`, a free [`RLock`] or [`SpinLock`] is taken by one plain command. HDEL releases them and
//! a [`FencedLock`], with a PUBLISH behind it where waiters are told. Without one of the two rights scripts do all
//! that, in three times the server time, as with [`ClientBuilder::plain_commands`]`(false)`. RESTORE is in the category
//! `@dangerous`: a user with this right may send any payload, and the parsers of some servers have vulnerabilities
//! ([SECURITY.md](https://github.com/redlock-rt/redlock-rt/blob/main/SECURITY.md#restore)). The client never needs
//! RESTORE.
//!
//! Where the user may not track keys ([`ClientBuilder::tracking`]), a holder notices at its next renewal that another
//! client has deleted or taken its lock.
//!
//! A user without a [namespace](ClientBuilder::namespace), or with the channels `&redisson_*`, can read the messages to
//! the waiters of other tenants, and wake these waiters. `+client|kill` lets it end the connections of all tenants, and
//! `+restore` lets it write any value into its keys. A user with the same rights as a holder can release its lock, or
//! forge an owner: the protocol does not authenticate owners.
//!
//! The first connection to a server checks what each renewal needs (`SCRIPT LOAD`, `EVALSHA`, and HGET, PTTL and
//! PEXPIRE of the key `redlock_probe`; the key itself needs no right), and changes nothing. Without one of them,
//! [`Client::connect`] and each call fail at once with [`NoScripts`](ErrorKind::NoScripts),
//! [`Misconfigured`](ErrorKind::Misconfigured) or [`Denied`](ErrorKind::Denied), and the error names the command. The
//! connection also checks HDEL: without it, dropped guards send scripts.
//!
//! A missing right to INCR shows late. Without `+incr` a [`FencedLock`] is refused only if its last token is ahead of
//! the server's clock.
//!
//! # Logs
//!
//! The crate logs with `tracing`. A client logs each line at most once a second
//! (docs/observability.md lists all fields):
//!
//! * target `redlock_rt::connection`: WARN `connection to redis lost`, once per outage, and INFO
//!   `connection to redis is back`, with the server and the duration of the outage; `cannot connect to
//!   redis` and `connected to redis at last` before there was a connection; WARN `a connection is
//!   missing` if not all can be made; WARN `releases wait until redis lets this client in`, for example because of a wrong password, and `redis refuses a release`;
//! * target `redlock_rt::lock`: WARN `lock lost`, with the name and the reason, and `more locks
//!   lost` for locks that are lost in the second after it;
//! * target `redlock_rt::rights`: WARN `redis refuses a right`, once for each right that an ACL
//!   forbids (`PUBLISH`, `SUBSCRIBE`, `CLIENT ID`, `CLIENT KILL`, `INFO`, `CLIENT TRACKING`), with the effect.
//!
//! # Recipes
//!
//! See [recipes]: [after the work](crate::recipes#after-the-work) (why not `unlock().await?`), N a second, names from
//! what users write, processes that fork.
//!
//! # Other executors, and none
//!
//! A client with [a dedicated thread](ClientBuilder::dedicated_thread) works under `smol` and any other executor. With
//! [`blocking`], threads without a runtime can wait.
//!
//! # Tests of your service
//!
//! Tests can run without a Redis server, in parallel, and without waiting for real time: see
//! [testing your service](crate::testing).
//!
//! # Features
//!
//! * `macros` (default): the attribute.
//! * `tls` (default): `rediss://` URLs, with rustls and ring, which compiles C.
//! * `metrics`: numbers for the `metrics` facade, as docs/observability.md lists them.
//! * `redis-1`: [`ClientBuilder::redis`], which takes the settings of the `redis` crate, version 1.
//! * `serde`: [`Idempotent::run_json`], whose answers are stored as JSON; a [`Ticket`] in a message; [`ClientConfig`],
//!   settings from a file.
//! * `embedded`: an in-process engine for tests and demos. The build compiles Lua 5.1 and needs a C
//!   compiler.
//!
//! [Stability](https://github.com/redlock-rt/redlock-rt/blob/main/docs/stability.md) says what may change. The format
//! in Redis stays the same, so different versions can share locks.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(clippy::unwrap_used)]

pub mod blocking;
mod client;
mod clock;
mod connection;
mod engine;
mod error;
#[cfg(any(fuzzing, test))]
#[doc(hidden)]
pub mod fuzz;
mod limit;
mod meter;
mod name;
mod pause;
mod shim;
mod sync;
mod wire;

#[cfg(any(doc, doctest))]
#[doc = include_str!("../docs/recipes.md")]
pub mod recipes {}

#[cfg(any(doc, doctest))]
#[doc = include_str!("../docs/testing.md")]
pub mod testing {}

#[doc(hidden)]
#[path = "private/mod.rs"]
pub mod __private;

#[cfg(feature = "serde")]
#[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
pub use client::ClientConfig;
pub use client::{
    AclKind, Client, ClientBuilder, Health, LateLoss, ServerHealth, Shutdown, Stats,
    default_client, set_default_client, with_default_client,
};
pub use connection::{Credentials, RetryPolicy};
pub use engine::{Backoff, Fsync, GuardState, LostReason, Owner, ReplicaAck, Unlocked};
pub use error::{Error, ErrorKind, Replicas, Theft};
pub use meter::{Event, Events, LockEvent, ServerEvent};
pub use name::HoldId;
#[cfg(feature = "embedded")]
#[cfg_attr(docsrs, doc(cfg(feature = "embedded")))]
#[doc(inline)]
pub use redlock_embedded as embedded;
#[cfg(feature = "macros")]
#[cfg_attr(docsrs, doc(cfg(feature = "macros")))]
pub use redlock_macros::distributed_lock;
pub use sync::{
    Adoptable, Answer, Arrival, ConvertError, CountDownGuard, CountDownLatch, CyclicBarrier,
    DoubleBarrier, DoubleBarrierGuard, DowngradeError, Fair, FairLock, FairLockGuard, FenceGate,
    Fenced, FencedLock, FencedLockGuard, FencedValue, Fire, FireGuard, Fires, Idempotent, Kind,
    Leader, LeaderElection, Leadership, LeasedPermit, Lock, LockGuard, LockOptions, MultiLock,
    MultiLockGuard, OnLost, Once, Part, PermitExpirableSemaphore, PermitOptions, Quorum, RLock,
    RLockGuard, Read, ReadGuard, ReadLock, ReadWriteLock, RedLock, RedLockGuard, Reentrant, Renew,
    Semaphore, SemaphorePermit, Spin, SpinLock, SpinLockGuard, StaleToken, Ticket, UpgradeError,
    Write, WriteGuard, WriteLock,
};
pub use wire::{ClientIdentity, FoundKind, Holding, Inspection, Reply};
