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

/// The last fencing token given for a lock.
pub(crate) fn lock_token(name: &LockName) -> String {
    prefixed("redisson_lock_token", name)
}

/// The last fencing token seen for a value of this key.
pub(crate) fn fence(key: &LockName) -> String {
    prefixed("redlock_fence", key)
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
