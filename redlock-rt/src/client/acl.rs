//! The rule of an ACL user for what a service uses.

use std::iter;

use super::Client;
use crate::engine::{Fsync, ReplicaAck};
use crate::wire::pattern_in;

/// What a service uses besides [`RLock`](crate::RLock), [`SpinLock`](crate::SpinLock),
/// [`MultiLock`](crate::MultiLock) and [`RedLock`](crate::RedLock), for [`Client::acl_rule`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AclKind {
    /// [`FencedLock`](crate::FencedLock), [`FencedValue`](crate::FencedValue) and
    /// [`LeaderElection`](crate::LeaderElection).
    FencedLock,
    /// [`FairLock`](crate::FairLock).
    FairLock,
    /// [`ReadWriteLock`](crate::ReadWriteLock).
    ReadWriteLock,
    /// [`Semaphore`](crate::Semaphore).
    Semaphore,
    /// [`PermitExpirableSemaphore`](crate::PermitExpirableSemaphore).
    PermitExpirableSemaphore,
    /// [`CountDownLatch`](crate::CountDownLatch).
    CountDownLatch,
    /// [`CyclicBarrier`](crate::CyclicBarrier) and [`DoubleBarrier`](crate::DoubleBarrier).
    Barrier,
    /// [`Once`](crate::Once) and [`Idempotent`](crate::Idempotent).
    Once,
    /// To [steal](crate::RLock::steal) locks, to free them by force with a reason, and to receive the reason.
    Steal,
    /// [`Client::inspect`] and [`Client::scan`].
    Inspect,
    /// To take a free [`RLock`](crate::RLock) or [`SpinLock`](crate::SpinLock) by one plain command instead of a
    /// script: `RESTORE`, which is in the category `@dangerous`
    /// ([SECURITY.md](https://github.com/redlock-rt/redlock-rt/blob/main/SECURITY.md#restore)).
    PlainCommands,
}

/// The commands of all connections, and of the scripts of locks.
const LOCKS: &str = "+evalsha +script|load +client|id +client|kill +client|setname +info +ping +select +subscribe \
                     +unsubscribe +pttl +hget +hset +hdel +hlen +hexists +hgetall +exists +pexpire +del +publish";
const CLUSTER: &str = "+cluster|slots +cluster|info +asking";
const SHARDED: &str = "+pubsub|shardnumsub +spublish +ssubscribe +sunsubscribe";
const TRACKING: &str = "+client|tracking +client|caching &__redis__:invalidate";
/// For locks, as [`AclKind::derived`]. The script that adopts a ticket declares the key with the reason of a theft.
const DERIVED: &str = "~redlock_stolen &redisson_lock__channel";

impl AclKind {
    fn commands(self) -> &'static str {
        match self {
            // HMGET is for the identity of a leader, and for the mark of a fire.
            Self::FencedLock | Self::Once => "+incr +get +set +time +hmget",
            Self::FairLock => {
                "+time +hmget +lindex +llen +lpos +lrange +lrem +rpush +zadd +zrange +zrem +zscore"
            }
            // Without HRANDFIELD the release by one of many readers is expensive.
            Self::ReadWriteLock => "+set +zrange +zrem +hrandfield +time +zadd +zremrangebyscore",
            Self::Semaphore => "+get +set +incrby +decrby",
            Self::PermitExpirableSemaphore => {
                "+get +set +incrby +decrby +persist +time +zadd +zcard +zcount +zrange +zrangebyscore +zrem +zscore"
            }
            Self::CountDownLatch => "+decr +get +set +pexpireat +time",
            Self::Barrier => "+get +set +hmget +time +zadd +zcard +zrange +zrem +zscore",
            Self::Steal => "+set +get",
            Self::Inspect => "+type +get +llen +time +zcard +zrangebyscore +pubsub +scan",
            Self::PlainCommands => "+restore",
        }
    }

    /// The prefixes of its keys and channels that belong to a name, as `wire::keys` makes them. Behind the prefix and a
    /// colon, a name that contains `{` is unchanged, and any other name is in braces.
    fn derived(self) -> &'static str {
        match self {
            Self::FencedLock => "~redisson_lock_token ~redlock_fence",
            Self::FairLock => "~redisson_lock_queue ~redisson_lock_timeout ~redlock_fair",
            Self::ReadWriteLock => "~redlock_rw_writers &redisson_rwlock",
            Self::Semaphore | Self::PermitExpirableSemaphore => {
                "~redlock_sem ~redlock_op &redisson_sc"
            }
            // `places` has its channel.
            Self::CountDownLatch => "~redlock_latch_end ~redlock_op",
            Self::Barrier => {
                "~redlock_barrier ~redlock_barrier_parties ~redlock_double_barrier ~redlock_double_barrier_parties \
                 ~redlock_op &redlock_barrier"
            }
            Self::Once => "~redisson_lock_token ~redlock_once",
            Self::Inspect => {
                "~redisson_lock_queue ~redisson_lock_token ~redlock_rw_writers ~redlock_sem ~redlock_latch_end"
            }
            Self::Steal | Self::PlainCommands => "",
        }
    }
}

/// The patterns of the keys and channels of locks and these kinds.
fn places(namespace: Option<&str>, kinds: &[AclKind]) -> Vec<String> {
    let has = |kind| kinds.contains(&kind);
    let turns = has(AclKind::FairLock).then(|| "&redlock_wake:*".to_owned());
    if namespace.is_none() {
        let all = ["~*", "&redisson_*"].map(str::to_owned).into_iter();
        let barriers = has(AclKind::Barrier).then(|| "&redlock_barrier:*".to_owned());
        return all.chain(turns).chain(barriers).collect();
    }
    // A pattern cannot contain a space.
    let is_space = |char| matches!(char, ' ' | '\t'..='\r');
    let all = pattern_in(namespace, "*").replace(is_space, "?");
    let derived = iter::once(DERIVED).chain(kinds.iter().map(|kind| kind.derived()));
    let starts = derived.flat_map(str::split_whitespace);
    let derived = starts.flat_map(|start| ["", "{"].map(|open| format!("{start}:{open}{all}")));
    // Those of readers and of permits.
    let leases = has(AclKind::ReadWriteLock)
        || has(AclKind::PermitExpirableSemaphore)
        || has(AclKind::Inspect);
    let leases = leases.then(|| format!("~{{{all}"));
    let latches = has(AclKind::CountDownLatch);
    let latches = latches.then(|| format!("&redisson_countdownlatch__channel__{{{all}"));
    let keys = iter::once(format!("~{all}")).chain(derived).chain(leases);
    keys.chain(turns).chain(latches).collect()
}

impl Client {
    /// Returns an ACL rule for what this client does with these kinds, and no more: commands, keys and channels.
    /// Append it to `ACL SETUSER <name> on ><password>`. Does no I/O.
    ///
    /// The rule depends on these settings of the client: namespace, servers,
    /// [`replica_ack`](crate::ClientBuilder::replica_ack), [`fsync`](crate::ClientBuilder::fsync),
    /// [`identity`](crate::ClientBuilder::identity), [`tracking`](crate::ClientBuilder::tracking) and
    /// [`sharded_pubsub`](crate::ClientBuilder::sharded_pubsub). For locks with their own options for replicas add
    /// `+wait` and `+waitaof`. Without a namespace the user may write to all keys. With one, add the keys of each
    /// [`FencedValue`](crate::FencedValue), which has none. A space in the namespace matches any character. Names with
    /// `{` have separate patterns for keys and channels. docs/topologies.md has the rights of a user of sentinels.
    ///
    /// Redis 7.2 and later record the name of the library with `+client|setinfo`: add it there. Older servers do not
    /// know it. Redis 6.2 has no sharded channels: in a cluster of such servers set `sharded_pubsub` to `false`, and
    /// replace `+cluster|…` by `+cluster`.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redlock_rt::Error> {
    /// use redlock_rt::{AclKind, Client};
    ///
    /// let client = Client::builder().url("redis://localhost").namespace("shop").build()?;
    /// assert_eq!(
    ///     client.acl_rule([AclKind::FencedLock]),
    ///     "nocommands resetkeys resetchannels ~shop:* ~redlock_stolen:shop:* ~redlock_stolen:{shop:* \
    ///      &redisson_lock__channel:shop:* &redisson_lock__channel:{shop:* ~redisson_lock_token:shop:* \
    ///      ~redisson_lock_token:{shop:* ~redlock_fence:shop:* ~redlock_fence:{shop:* \
    ///      +evalsha +script|load +client|id +client|kill +client|setname +info +ping +select +subscribe \
    ///      +unsubscribe +pttl +hget +hset +hdel +hlen +hexists +hgetall +exists +pexpire +del +publish \
    ///      +incr +get +set +time +hmget"
    /// );
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn acl_rule(&self, kinds: impl IntoIterator<Item = AclKind>) -> String {
        let (config, is_of_cluster) = (&self.engine.config, self.engine.is_of_cluster());
        let kinds: Vec<_> = kinds.into_iter().collect();
        let settings = [
            (config.identity.is_some(), "+time +hmget"),
            (config.replica_ack != ReplicaAck::None, "+wait"),
            (config.fsync != Fsync::None, "+waitaof"),
            (config.tracking, TRACKING),
            (is_of_cluster, CLUSTER),
            (is_of_cluster && config.sharded_pubsub, SHARDED),
        ];
        let mut words = places(config.namespace.as_deref(), &kinds);
        let of_settings = settings.iter().filter(|(set, _)| *set);
        let rights = iter::once(LOCKS)
            .chain(kinds.iter().map(|kind| kind.commands()))
            .chain(of_settings.map(|(_, rights)| *rights));
        words.extend(rights.flat_map(|rights| rights.split(' ').map(str::to_owned)));
        let mut rule = "nocommands resetkeys resetchannels".to_owned();
        for word in &words {
            if !rule.split(' ').any(|known| known == word) {
                rule.push(' ');
                rule.push_str(word);
            }
        }
        rule
    }
}
