//! Distributed locks and synchronisers on Redis for async Rust, wire-compatible with Redisson.
//!
//! A Java service on Redisson 4.x and a Rust service on this crate can share a lock, at the same
//! time, in the same Redis. A lock is held by a guard that tells the truth about it.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), redlock_rt::Error> {
//! use std::time::Duration;
//! use redlock_rt::{Client, LockOptions, Shutdown};
//!
//! let redis = redlock_rt::embedded::Engine::new();
//! // For a real one .url("redis://localhost") in place of .embedded(…).
//! let client = Client::builder().embedded(&redis).namespace("shop").connect().await?;
//! // A name is a Redis key: this one is `shop:order:7`.
//! let lock = client.rlock("order:7");
//!
//! let guard = lock.lock_with(LockOptions::new().wait(Duration::from_secs(1))).await?;
//! // Cancelled as soon as the lock is lost.
//! let receipt = guard.run(async { "paid" }).await?;
//! guard.unlock().await?;
//! # assert_eq!(receipt, "paid");
//!
//! // What was dropped instead is released before the process ends.
//! client.shutdown(Shutdown::Drain(Duration::from_secs(5))).await
//! # }
//! ```
//!
#![cfg_attr(
    feature = "macros",
    doc = r#"Or put it on a function:

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
//! | one at a time, across processes | [`RLock`] |
//! | the same, around a function | `#[distributed_lock]` |
//! | the same, and overlaps would do harm: a token that the resource compares | [`FencedLock`] |
//! | first come, first served, across processes | [`FairLock`] |
//! | many readers or one writer | [`ReadWriteLock`] |
//! | the same, for holds of milliseconds, with nothing but polling | [`SpinLock`] |
//! | at most N at a time, across processes | [`PermitExpirableSemaphore`] |
//! | the same, shared with an `RSemaphore`; a crash keeps its permits | [`Semaphore`] |
//! | several locks at once, without deadlock | [`MultiLock`] |
//! | to wait until a number of parties are done, across processes | [`CountDownLatch`] |
//! | a lock that outlives the loss of a server | [`RedLock`] |
//!
//! # What is guaranteed
//!
//! While clocks run at nearly the same speed and Redis keeps the key, at most one guard reports
//! [held](GuardState). A guard never reports held past its local deadline, whether or not Redis
//! can be reached. A crashed holder's lock is free after its lease (a
//! [`Semaphore`] has none). Cancelled, dropped and failed
//! calls leave nothing behind, in Redis or in the process (a subscription: after it lingered).
//! The tokens of a [`FencedLock`] only grow for a name, while the clock of the (new) master is not
//! behind the last one.
//!
//! # What is not
//!
//! * A failover, or a restart of a Redis without persistence, can lose a lock that is held: the
//!   guard finds out at its next renewal. Whoever acquires meanwhile overlaps with it.
//! * A process that is paused (SIGSTOP, a long stall of its runtime) cannot look at its guard. What
//!   it had under way when it was paused goes on when it wakes. Only the resource can refuse that.
//! * Redis must not evict: use `maxmemory-policy noeviction`, or a `volatile-*` policy with room.
//! * A command that was lost in a dead connection is kept from running late by `CLIENT KILL ID`.
//!   Where an ACL forbids that, such a ghost of an acquisition ends with its lease.
//! * Clusters, sentinels and replicas are not supported: a client talks to one master, and is told
//!   [`Misconfigured`](ErrorKind::Misconfigured) where it finds another thing at its address.
//! * After a failover behind one address, all connections of a client follow the first one that
//!   reaches the new server, and every lock is verified there. Where an ACL forbids INFO, servers
//!   are not told apart: a lock that is renewed over a connection to the old server stays valid
//!   until that connection ends.
//! * Off Linux, the time for which the machine was suspended is not seen by a guard.
//!
//! # The end of a program
//!
//! [`Client::shutdown`] at the end of `main` is what makes sure that nothing is left: it waits until
//! Redis has answered the releases of what was dropped.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), redlock_rt::Error> {
//! # use std::time::Duration;
//! # use redlock_rt::{Client, Shutdown};
//! # let client = Client::embedded();
//! // Guards that still live have so long to end; what is left then is released.
//! client.shutdown(Shutdown::Drain(Duration::from_secs(5))).await?;
//! # Ok(())
//! # }
//! ```
//!
//! Without it: a guard that is dropped at the end of `main`, or before
//! [`exit`](std::process::exit), is released if its connection is up and no other command of its
//! lock is under way, since the drop writes the release to the socket. Of several dropped in a row
//! the server may read only the first: it stops where it cannot send an answer any more. What
//! a runtime drops with its tasks, a call that was cancelled at that moment, and all of it while
//! Redis is away, ends with its lease; permits of a [`Semaphore`] and counts of a
//! [`CountDownGuard`], which have none, are never made good. A program that may leave `main` at any
//! place can use [`ClientBuilder::flush_on_drop`].
//!
//! # Permissions
//!
//! The least that an ACL user needs: `+evalsha +script|load +client|id +client|kill +info +ping
//! +select +subscribe +unsubscribe` (and `+client|setinfo` from Redis 7.2 on), what the scripts call
//! (`+pttl +hget +hset +hdel +hlen +hexists +hgetall +exists +pexpire +del +publish`; for read-write
//! locks also `+set +zrange +zrem`, `+hrandfield` so that with many readers the end of one stays cheap,
//! and where writers are preferred `+time +zadd +zremrangebyscore`;
//! for latches `+decr +get +set +pexpireat +time`;
//! for fencing tokens `+incr +get +set +time`; for fair locks `+time +hmget +lindex +llen +lpos
//! +lrange +lrem +rpush +zadd +zrange +zrem +zscore`; for semaphores `+get +set +incrby +decrby`, and
//! with leases `+time +zadd +zcard +zcount +zrange +zrangebyscore +zrem +zscore`), the keys, and
//! the channels `redisson_*`, for fair locks also `redlock_wake:*`. Without SUBSCRIBE waiters poll.
//!
//! # Logs
//!
//! Logged by `tracing`, each line at most once a second a client (docs/observability.md has all fields):
//!
//! * target `redlock_rt::connection`: WARN `connection to redis lost`, once an outage, and INFO
//!   `connection to redis is back`, with the server and how long it was away; WARN `releases wait until
//!   redis lets this client in`, for instance because of a wrong password;
//! * target `redlock_rt::lock`: WARN `lock lost`, with the name and the reason, and `more locks lost`
//!   for those of the second after it;
//! * target `redlock_rt::rights`: WARN `redis refuses a right`, once for each right that an ACL forbids
//!   (`PUBLISH`, `SUBSCRIBE`, `CLIENT ID`, `CLIENT KILL`, `INFO`), with what is lost by that.
//!
//! # Tests of your service
//!
//! Without a Redis server, in parallel, and without waiting: [testing your service](crate::testing).
//!
//! # Features
//!
//! * `macros` (default): the attribute.
//! * `tls` (default): `rediss://` URLs, with rustls and ring.
//! * `embedded`: an in-process engine for tests and demos; it compiles Lua 5.1 and needs a C
//!   compiler.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod client;
mod clock;
mod connection;
#[cfg(feature = "embedded")]
#[cfg_attr(docsrs, doc(cfg(feature = "embedded")))]
pub mod embedded;
mod engine;
mod error;
mod limit;
mod name;
mod shim;
mod sync;
mod wire;

#[cfg(any(doc, doctest))]
#[doc = include_str!("../docs/testing.md")]
pub mod testing {}

#[doc(hidden)]
#[path = "private/mod.rs"]
pub mod __private;

pub use client::{
    Client, ClientBuilder, LateLoss, Shutdown, Stats, default_client, set_default_client,
    with_default_client,
};
pub use engine::{Backoff, GuardState, LostReason, Owner, Unlocked};
pub use error::{Error, ErrorKind};
pub use name::OwnerId;
#[cfg(feature = "macros")]
#[cfg_attr(docsrs, doc(cfg(feature = "macros")))]
pub use redlock_macros::distributed_lock;
pub use sync::{
    ConvertError, CountDownGuard, CountDownLatch, DowngradeError, Fair, FairLock, FairLockGuard,
    FenceGate, Fenced, FencedLock, FencedLockGuard, FencedValue, Kind, LeasedPermit, Lock,
    LockGuard, LockOptions, MultiLock, MultiLockGuard, Part, PermitExpirableSemaphore,
    PermitOptions, Quorum, RLock, RLockGuard, Read, ReadGuard, ReadLock, ReadWriteLock, RedLock,
    RedLockGuard, Reentrant, Renew, Semaphore, SemaphorePermit, Spin, SpinLock, SpinLockGuard,
    StaleToken, UpgradeError, Write, WriteGuard, WriteLock,
};
pub use wire::Reply;
