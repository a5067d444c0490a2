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

/// The token, or with the bug the one before it.
#[cfg(not(redlock_mutants))]
pub(crate) const fn earlier(_: &str, token: Option<u64>) -> Option<u64> {
    token
}

/// The token, or with the bug the one before it.
#[cfg(redlock_mutants)]
pub(crate) fn earlier(name: &str, token: Option<u64>) -> Option<u64> {
    thread_local!(static BEFORE: std::cell::Cell<Option<u64>> = const { std::cell::Cell::new(None) });
    match token {
        Some(token) if on(name) => BEFORE.replace(Some(token)).or(Some(token)),
        token => token,
    }
}

/// The replies as they are, or with the bug each in the place of another.
#[cfg(not(redlock_mutants))]
pub(crate) const fn shift<T>(_: &str, _: &mut [T]) {}

/// The replies as they are, or with the bug each in the place of another.
#[cfg(redlock_mutants)]
pub(crate) fn shift<T>(name: &str, replies: &mut [T]) {
    if on(name) && !replies.is_empty() {
        replies.rotate_left(1);
    }
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
            "redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0",
            "redis.call('DEL', KEYS[1]) == 0",
        ),
        "latch_count_down" if on("a_repeat_counts_again") => {
            replaced("if noted then", "if false then")
        }
        "semaphore_acquire" if on("a_repeat_takes_permits_again") => {
            replaced("redis.call('HEXISTS', KEYS[2], ARGV[1]) == 1", "false")
        }
        "semaphore_acquire" if on("a_withdrawn_acquisition_is_let_in") => {
            replaced("redis.call('EXISTS', KEYS[3]) == 1", "false")
        }
        "rlock_pass" | "fenced_pass" if on("a_pass_does_not_look_whose_the_lock_is") => {
            replaced("redis.call('HDEL', lock, from) == 1", "true")
        }
        "fair_acquire" if on("a_fair_lock_goes_to_whoever_asks") => {
            replaced("(not head or head == owner)", "true")
        }
        "fenced_acquire" | "fenced_pass" if on("a_token_does_not_follow_the_clock") => {
            replaced("time[1] .. string.sub('00000' .. time[2], -6)", "'1'")
        }
        "fair_release" if on("a_fair_lock_goes_to_a_waiter_that_is_not_next") => {
            replaced("if ARGV[at] == head then", "head = ARGV[at] do")
        }
        "fair_release" if on("a_fair_lock_is_given_by_whoever_had_it") => {
            replaced("if ended == 1 then", "if type(ended) == 'number' then")
        }
        "fair_acquire" | "fair_release" if on("a_deadline_of_redisson_is_not_brought_nearer") => {
            replaced("waiter.score - left.counts", "waiter.score")
        }
        _ if on("a_lease_of_a_reader_has_another_name") => {
            text.replace("rwlock_timeout", "rwlock_lease").leak()
        }
        _ => text,
    }
}
