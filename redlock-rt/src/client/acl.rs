//! The rule of an ACL user for what a service uses.

use super::Client;
use crate::engine::{Fsync, ReplicaAck};

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
    /// To [steal](crate::RLock::steal) locks and to free them by force with a reason, and to be told the reason.
    Steal,
    /// [`Client::inspect`] and [`Client::scan`].
    Inspect,
    /// A free [`RLock`](crate::RLock) or [`SpinLock`](crate::SpinLock) by one plain command instead of a script:
    /// `RESTORE`, which is in the category `@dangerous`
    /// ([SECURITY.md](https://github.com/redlock-rt/redlock-rt/blob/main/SECURITY.md#restore)).
    PlainCommands,
}

/// What all connections send, and the scripts of locks.
const LOCKS: &str = "+evalsha +script|load +client|id +client|kill +client|setname +info +ping +select +subscribe \
                     +unsubscribe +pttl +hget +hset +hdel +hlen +hexists +hgetall +exists +pexpire +del +publish";
const CLUSTER: &str =
    "+cluster|slots +cluster|info +asking +pubsub|shardnumsub +spublish +ssubscribe +sunsubscribe";
const TRACKING: &str = "+client|tracking +client|caching &__redis__:invalidate";

impl AclKind {
    fn commands(self) -> &'static str {
        match self {
            // HMGET for the identity of a leader, and for what was done.
            Self::FencedLock | Self::Once => "+incr +get +set +time +hmget",
            Self::FairLock => {
                "+time +hmget +lindex +llen +lpos +lrange +lrem +rpush +zadd +zrange +zrem +zscore"
            }
            // Without HRANDFIELD the end of one of many readers is dear.
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
}

impl Client {
    /// Returns the rule of an ACL user that may do what this client does with these kinds, and no more: commands,
    /// keys and channels, to be put behind `ACL SETUSER <name> on ><password>`. Does no I/O.
    ///
    /// The settings of the client count: namespace, servers, [`replica_ack`](crate::ClientBuilder::replica_ack),
    /// [`fsync`](crate::ClientBuilder::fsync), [`identity`](crate::ClientBuilder::identity) and
    /// [`tracking`](crate::ClientBuilder::tracking); locks with options of their own for replicas need `+wait` and
    /// `+waitaof`, too. Without a namespace the user may write to all keys; with one, the keys of a
    /// [`FencedValue`](crate::FencedValue), which has no namespace, are to be added. What a user of sentinels needs is in
    /// docs/topologies.md.
    ///
    /// Redis 7.2 and later record the name of the library with `+client|setinfo`, which older servers do not know;
    /// add it there. Redis 6.2 has no shard channels: in a cluster of such servers leave out the last four rights of
    /// the rule, and write `+cluster` for `+cluster|…`.
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
    ///     "nocommands resetkeys resetchannels ~shop:* ~*{shop:* &redisson_*{shop:* \
    ///      +evalsha +script|load +client|id +client|kill +client|setname +info +ping +select +subscribe \
    ///      +unsubscribe +pttl +hget +hset +hdel +hlen +hexists +hgetall +exists +pexpire +del +publish \
    ///      +incr +get +set +time +hmget"
    /// );
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn acl_rule(&self, kinds: impl IntoIterator<Item = AclKind>) -> String {
        let config = &self.engine.config;
        let (keys, tag, barriers) = match &config.namespace {
            Some(namespace) => {
                let tag = format!("{{{namespace}:*");
                (format!("~{namespace}:* ~*{tag}"), tag.clone(), tag)
            }
            None => ("~*".to_owned(), String::new(), "*".to_owned()),
        };
        let mut rule = format!("nocommands resetkeys resetchannels {keys} &redisson_*{tag}");
        let mut words = vec![LOCKS];
        for kind in kinds {
            words.push(kind.commands());
            match kind {
                AclKind::FairLock => rule.push_str(" &redlock_wake:*"),
                AclKind::Barrier => rule.push_str(&format!(" &redlock_barrier:{barriers}")),
                _ => {}
            }
        }
        let settings = [
            (config.identity.is_some(), "+time +hmget"),
            (config.replica_ack != ReplicaAck::None, "+wait"),
            (config.fsync != Fsync::None, "+waitaof"),
            (config.tracking, TRACKING),
            (self.engine.is_of_cluster(), CLUSTER),
        ];
        let set = settings.iter().filter(|(set, _)| *set);
        words.extend(set.map(|(_, words)| *words));
        for word in words.iter().flat_map(|words| words.split(' ')) {
            if !rule.split(' ').any(|known| known == word) {
                rule.push(' ');
                rule.push_str(word);
            }
        }
        rule
    }
}
