//! RLock on the wire: a hash `NAME` with one field `owner -> hold count` and a TTL.

use std::time::Duration;

use super::reply::{Malformed, Reply, ttl_of};
use super::script::{Call, millis, script};
use super::{Recipe, keys};
use crate::name::{LockName, OwnerId};

script!(ACQUIRE = "rlock_acquire");
script!(UPDATE = "rlock_update");
script!(RELEASE = "rlock_release");
script!(RENEW = "rlock_renew");
script!(FORCE_RELEASE = "rlock_force_release");
script!(INSPECT = "rlock_inspect");

/// Outside a cluster releases are announced by PUBLISH.
const PUBLISH: &str = "PUBLISH";

/// The calls of an RLock.
#[derive(Debug)]
pub(crate) struct RLockWire {
    name: LockName,
    channel: String,
}

impl RLockWire {
    pub(crate) fn new(name: LockName) -> Self {
        let channel = keys::lock_channel(&name);
        Self { name, channel }
    }

    /// Lengthens many leases in one call; a lease of zero only looks. Answered by a list of
    /// [`HoldReply`](super::HoldReply).
    pub(crate) fn renew<'a>(
        holds: impl Iterator<Item = (&'a str, &'a str, Duration)> + Clone,
    ) -> Call {
        let mut call = Call::new(&RENEW);
        for (key, _, _) in holds.clone() {
            call = call.key(key);
        }
        for (_, field, lease) in holds {
            call = call.number(millis(lease)).arg(field);
        }
        call
    }
}

impl Recipe for RLockWire {
    fn kind(&self) -> &'static str {
        "rlock"
    }

    fn name(&self) -> &LockName {
        &self.name
    }

    fn channel(&self) -> Option<&str> {
        Some(&self.channel)
    }

    fn acquire(&self, owner: &OwnerId, lease: Duration) -> Call {
        Call::new(&ACQUIRE)
            .key(self.name.as_str())
            .number(millis(lease))
            .arg(owner.as_str())
    }

    fn update(&self, owner: &OwnerId, lease: Duration, count: u32) -> Call {
        Call::new(&UPDATE)
            .key(self.name.as_str())
            .number(millis(lease))
            .arg(owner.as_str())
            .number(count.into())
    }

    fn release(&self, owner: &OwnerId) -> Call {
        Call::new(&RELEASE)
            .key(self.name.as_str())
            .arg(owner.as_str())
            .arg(&self.channel)
            .arg(PUBLISH)
    }

    fn force_release(&self) -> Call {
        Call::new(&FORCE_RELEASE)
            .key(self.name.as_str())
            .arg(&self.channel)
            .arg(PUBLISH)
    }

    fn inspect(&self) -> Call {
        Call::new(&INSPECT).key(self.name.as_str())
    }
}

/// Who holds a lock, how often, and for how long still.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Holder {
    pub(crate) owner: OwnerId,
    pub(crate) count: u64,
    /// `None` where the key has no TTL.
    pub(crate) ttl: Option<Duration>,
}

impl Holder {
    pub(crate) fn decode(reply: Reply) -> Result<Option<Self>, Malformed> {
        match &reply {
            Reply::List(items) => match items.as_slice() {
                [] => Ok(None),
                [Reply::Text(owner), Reply::Int(count), Reply::Int(ttl)] => Ok(Some(Self {
                    owner: OwnerId::from_wire(owner),
                    count: u64::try_from(*count).unwrap_or(0),
                    ttl: ttl_of(*ttl),
                })),
                _ => Err(Malformed(reply)),
            },
            _ => Err(Malformed(reply)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The header of each script says what it is called with; the calls must agree.
    #[test]
    fn calls_agree_with_the_headers() {
        let wire = RLockWire::new(LockName::new(None, "n").unwrap());
        let owner = OwnerId::from_wire("u:1");
        let lease = Duration::from_secs(1);
        let calls = [
            wire.acquire(&owner, lease),
            wire.update(&owner, lease, 2),
            wire.release(&owner),
            wire.force_release(),
            wire.inspect(),
        ];
        for call in calls {
            let header = |what: &str| {
                let prefix = format!("-- {what}: ");
                let text = call.script().text();
                let line = text
                    .lines()
                    .find_map(|line| line.strip_prefix(&*prefix))
                    .unwrap();
                line.split(", ")
                    .filter(|item| item.starts_with(char::is_numeric))
                    .count()
            };
            let name = call.script().name();
            assert_eq!(call.key_count(), header("KEYS"), "keys of {name}");
            assert_eq!(
                call.words().count() - call.key_count(),
                header("ARGV"),
                "args of {name}"
            );
        }
    }

    #[test]
    fn renew_puts_keys_first() {
        let holds = [
            ("a", "u:1", Duration::from_secs(30)),
            ("b", "u:2", Duration::ZERO),
        ];
        let call = RLockWire::renew(holds.into_iter());
        assert_eq!(
            call.words().collect::<Vec<_>>(),
            ["a", "b", "30000", "u:1", "0", "u:2"]
        );
        assert_eq!(call.key_count(), 2);
    }

    #[test]
    fn holder_is_decoded() {
        let reply = |items| Holder::decode(Reply::List(items));
        assert_eq!(reply(vec![]), Ok(None));
        let holder = reply(vec![
            Reply::Text("u:7".into()),
            Reply::Int(2),
            Reply::Int(-1),
        ]);
        let holder = holder.unwrap().unwrap();
        assert_eq!(
            (holder.owner.as_str(), holder.count, holder.ttl),
            ("u:7", 2, None)
        );
        assert!(reply(vec![Reply::Nil]).is_err());
        assert!(Holder::decode(Reply::Nil).is_err());
    }
}
