//! Deliberate bugs, one line each, by which the simulation shows that it finds bugs
//! (`./ci/test --mutants`). Without `--cfg redlock_mutants` there are none: [`on`] is then the
//! constant `false`.

/// Whether the bug of this name is to be there.
#[cfg(not(redlock_mutants))]
pub(crate) const fn on(_: &str) -> bool {
    false
}

/// Whether the bug of this name is to be there: the one that `REDLOCK_MUTANT` names.
#[cfg(redlock_mutants)]
pub(crate) fn on(name: &str) -> bool {
    use std::sync::LazyLock;

    static NAMED: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("REDLOCK_MUTANT").ok());
    NAMED.as_deref() == Some(name)
}

/// The text of a script, with the bug in it that is to be there.
#[cfg(redlock_mutants)]
pub(crate) fn script(name: &str, text: &'static str) -> &'static str {
    let replaced = |from: &str, to: &str| -> &'static str {
        assert!(text.contains(from), "{name} has no {from:?}");
        text.replace(from, to).leak()
    };
    match name {
        "renew" if on("a_renewal_recreates_a_lost_key") => replaced(
            "replies[i] = -redis.call('EXISTS', key)",
            "redis.call('HSET', key, field, 1) redis.call('PEXPIRE', key, lease) replies[i] = 1",
        ),
        "rlock_release" if on("a_release_does_not_look_whose_the_lock_is") => replaced(
            "redis.call('HDEL', KEYS[1], ARGV[1]) == 0",
            "redis.call('DEL', KEYS[1]) == 0",
        ),
        "latch_count_down" if on("a_repeat_counts_again") => {
            replaced("if noted then", "if false then")
        }
        "fair_acquire" if on("a_fair_lock_goes_to_whoever_asks") => {
            replaced("(not head or head == owner)", "true")
        }
        "fenced_acquire" if on("a_token_does_not_follow_the_clock") => {
            replaced("tonumber(token) < now", "false")
        }
        _ => text,
    }
}
