//! The only place where names of keys and channels are built.

use crate::name::{LockName, OwnerId};

/// `PREFIX:{NAME}`; a name that contains `{` anywhere is not wrapped, as in Redisson.
fn prefixed(prefix: &str, name: &LockName) -> String {
    let name = name.as_str();
    if name.contains('{') {
        format!("{prefix}:{name}")
    } else {
        format!("{prefix}:{{{name}}}")
    }
}

/// The channel on which the release of a lock is announced.
pub(crate) fn lock_channel(name: &LockName) -> String {
    prefixed("redisson_lock__channel", name)
}

/// The owners that wait for a fair lock.
pub(crate) fn fair_queue(name: &LockName) -> String {
    prefixed("redisson_lock_queue", name)
}

/// Until when each of them counts as waiting.
pub(crate) fn fair_deadlines(name: &LockName) -> String {
    prefixed("redisson_lock_timeout", name)
}

/// Which clients of ours wait for a fair lock, and are alive.
pub(crate) fn fair_clients(name: &LockName) -> String {
    prefixed("redlock_fair", name)
}

/// The channel on which the release of a read-write lock is announced.
pub(crate) fn rw_channel(name: &LockName) -> String {
    prefixed("redisson_rwlock", name)
}

/// The set of writers that wait for a read-write lock and are preferred. Not Redisson's.
pub(crate) fn rw_waiting_writers(name: &LockName) -> String {
    prefixed("redlock_rw_writers", name)
}

/// The start of the names of all keys that carry the leases of a read-write lock's readers.
pub(crate) fn rw_leases(name: &LockName) -> String {
    let name = name.as_str();
    if name.contains('{') {
        name.to_owned()
    } else {
        format!("{{{name}}}")
    }
}

/// The start of the names of the keys that carry the leases of one reader; the scripts build it
/// likewise for the others.
pub(crate) fn rw_leases_of(leases: &str, owner: &OwnerId) -> String {
    format!("{leases}:{owner}:rwlock_timeout")
}

/// The channel on which permits are announced.
pub(crate) fn semaphore_channel(name: &LockName) -> String {
    prefixed("redisson_sc", name)
}

/// Who of our clients has how many permits of a semaphore without leases. Not Redisson's.
pub(crate) fn semaphore_holds(name: &LockName) -> String {
    prefixed("redlock_sem", name)
}

/// What is known of one operation, for a repeat of it. Not Redisson's.
pub(crate) fn operation(name: &LockName, id: &str) -> String {
    format!("{}:{id}", prefixed("redlock_op", name))
}

/// Until when each permit is held.
pub(crate) fn permit_leases(name: &LockName) -> String {
    let name = name.as_str();
    if name.contains('{') {
        format!("{name}:timeout")
    } else {
        format!("{{{name}}}:timeout")
    }
}

/// The last fencing token given for a lock.
pub(crate) fn lock_token(name: &LockName) -> String {
    prefixed("redisson_lock_token", name)
}

/// The last fencing token seen for a value of this key.
pub(crate) fn fence(key: &LockName) -> String {
    prefixed("redlock_fence", key)
}

/// The channel of a count-down latch. Redisson wraps every name here, and with underscores.
pub(crate) fn latch_channel(name: &LockName) -> String {
    format!("redisson_countdownlatch__channel__{{{}}}", name.as_str())
}

/// How the last latch of a name ended. Not Redisson's.
pub(crate) fn latch_mark(name: &LockName) -> String {
    prefixed("redlock_latch_end", name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_channel_of_a_latch_is_always_wrapped() {
        let channel = |name| latch_channel(&LockName::new(None, name).unwrap());
        assert_eq!(channel("n"), "redisson_countdownlatch__channel__{n}");
        assert_eq!(
            channel("a{b}c"),
            "redisson_countdownlatch__channel__{a{b}c}"
        );
    }

    #[test]
    fn names_are_wrapped_as_redisson_does() {
        let channel = |name| lock_channel(&LockName::new(None, name).unwrap());
        assert_eq!(channel("order"), "redisson_lock__channel:{order}");
        assert_eq!(channel("{a}b"), "redisson_lock__channel:{a}b");
        assert_eq!(channel("x{y"), "redisson_lock__channel:x{y");
        assert_eq!(channel("x}y"), "redisson_lock__channel:{x}y}");
    }

    #[test]
    fn what_belongs_to_a_semaphore_is_beside_it() {
        let of = |name| {
            let name = LockName::new(None, name).unwrap();
            (permit_leases(&name), operation(&name, "u:7"))
        };
        let named = |leases: &str, operation: &str| (leases.to_owned(), operation.to_owned());
        assert_eq!(of("n"), named("{n}:timeout", "redlock_op:{n}:u:7"));
        assert_eq!(of("{a}b"), named("{a}b:timeout", "redlock_op:{a}b:u:7"));
    }

    #[test]
    fn the_leases_of_readers_are_beside_the_lock() {
        let owner = OwnerId::from_wire("u:7");
        let of = |name| rw_leases_of(&rw_leases(&LockName::new(None, name).unwrap()), &owner);
        assert_eq!(of("order"), "{order}:u:7:rwlock_timeout");
        assert_eq!(of("{a}b"), "{a}b:u:7:rwlock_timeout");
    }
}
