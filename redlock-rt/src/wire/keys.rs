//! The only place where names of keys and channels are built.

use crate::name::LockName;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_wrapped_as_redisson_does() {
        let channel = |name| lock_channel(&LockName::new(None, name).unwrap());
        assert_eq!(channel("order"), "redisson_lock__channel:{order}");
        assert_eq!(channel("{a}b"), "redisson_lock__channel:{a}b");
        assert_eq!(channel("x{y"), "redisson_lock__channel:x{y");
        assert_eq!(channel("x}y"), "redisson_lock__channel:{x}y}");
    }
}
