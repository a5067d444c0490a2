//! For each rule: options that break it, with the message, and similar options that do not.

use super::super::tests::{check_with, messages};

const FUNCTION: &str = "async fn place(from: u64, to: u64) -> Result<(), E> {}";

fn refused(args: &str, expected: &str) {
    assert_eq!(messages(args, FUNCTION), [expected], "{args}");
}

fn accepted(args: &str) {
    check_with(args, FUNCTION).expect(args);
}

#[test]
fn max_hold_is_at_least_the_lease() {
    refused(
        r#"key = "k", lease = "1m", max_hold = "59s""#,
        "`max_hold` is shorter than `lease`: the lock would outlive it; make `lease` at most \
         `max_hold`",
    );
    accepted(r#"key = "k", lease = "1m", max_hold = "60s""#);
    // Neither the client's lease nor the value of an expression is known here.
    accepted(r#"key = "k", max_hold = "1s""#);
    accepted(r#"key = "k", lease = LEASE, max_hold = "1s""#);
    accepted(r#"key = "k", lease = "1m", max_hold = limit()"#);
}

#[test]
fn max_hold_can_be_reached() {
    refused(
        r#"key = "k", lease = "1m", max_hold = "2m", renew = false"#,
        "`max_hold` is never reached: with `renew = false` the lock ends with its shorter `lease`; \
         leave out `max_hold`, or `renew`",
    );
    accepted(r#"key = "k", lease = "1m", max_hold = "1m", renew = false"#);
    accepted(r#"key = "k", lease = "1m", max_hold = "2m", renew = true"#);
    accepted(r#"key = "k", max_hold = "2m", renew = false"#);
}

#[test]
fn renewal_is_in_time() {
    let expected = "`renew` is not shorter than `lease` without its margin: the lock would end \
                    before it is renewed; leave it out for every third of the lease";
    refused(r#"key = "k", lease = "10s", renew = "10s""#, expected);
    refused(r#"key = "k", lease = "10s", renew = "1m""#, expected);
    refused(r#"key = "k", lease = "10s", renew = "9898ms""#, expected);
    accepted(r#"key = "k", lease = "10s", renew = "9897ms""#);
    refused(r#"key = "k", lease = "10ms", renew = "9ms""#, expected);
    accepted(r#"key = "k", lease = "10ms", renew = "8ms""#);
    accepted(r#"key = "k", renew = "1h""#);
}

#[test]
fn min_hold_is_at_most_max_hold() {
    refused(
        r#"key = "k", min_hold = "11s", max_hold = "10s""#,
        "`min_hold` is longer than `max_hold`: make it at most as long",
    );
    accepted(r#"key = "k", min_hold = "10s", max_hold = "10s""#);
    accepted(r#"key = "k", min_hold = a, max_hold = "10s""#);
}

#[test]
fn min_hold_needs_a_lock_of_one_holder() {
    let kinds = "`min_hold` needs a lock that one caller holds alone: it goes only with the kinds \
                 `reentrant`, `write`, `fair`, `fenced` and `spin`";
    refused(r#"key = "k", min_hold = "1s", kind = read"#, kinds);
    refused(
        r#"key = "k", min_hold = "1s", kind = semaphore(limit = 2)"#,
        kinds,
    );
    refused(
        r#"keys = ["a", "b"], min_hold = "1s""#,
        "`min_hold` goes only with one `key`, not with `keys`: leave it out",
    );
    for kind in ["reentrant", "write", "fair", "fenced", "spin"] {
        accepted(&format!(r#"key = "k", min_hold = "1s", kind = {kind}"#));
    }
}

#[test]
fn a_time_out_needs_a_time() {
    let expected = "`on_timeout` never happens with `wait = forever`: leave it out, or wait for a \
                    duration";
    refused(r#"key = "k", wait = forever, on_timeout = skip"#, expected);
    refused(r#"key = "k", on_timeout = error, wait = forever"#, expected);
    accepted(r#"key = "k", wait = forever, on_unavailable = skip"#);
    accepted(r#"key = "k", wait = patience, on_timeout = skip"#);
    accepted(r#"key = "k", on_timeout = skip"#);
}

#[test]
fn one_key_or_several() {
    refused(
        r#"key = "a", keys = ["b", "c"]"#,
        "`key` and `keys` are both set: one lock has a `key`, several that are taken together have \
         `keys`; write all of them into `keys`",
    );
    accepted(r#"keys = ["b"]"#);
    accepted("keys = names");
}

#[test]
fn no_key_is_among_the_keys_twice() {
    let expected = "this is among the `keys` already, and a lock is taken once: leave it out";
    refused(r#"keys = ["a:<from>", "a:<to>", "a:<from>"]"#, expected);
    refused(r#"keys = [A, b, A]"#, expected);
    refused(r#"keys = [self_.a, self_.a]"#, expected);
    // Two calls may return two keys.
    accepted(r#"keys = [next(), next()]"#);
    accepted(r#"keys = ["<from>", from]"#);
    accepted(r#"keys = ["<from>", "<from:?>"]"#);
}

#[test]
fn one_mistake_hides_no_other() {
    // A key that is no key, and one with a placeholder that is no parameter.
    let expected = messages(r#"keys = ["<", "<id>", "a", "a"]"#, FUNCTION);
    assert_eq!(expected.len(), 3, "{expected:?}");
    // An option that is repeated without a value.
    let expected = messages(
        r#"key = "k", lease = "2s", max_hold = "1s", lease"#,
        FUNCTION,
    );
    assert_eq!(expected.len(), 2, "{expected:?}");
}

#[test]
fn permits_of_several_semaphores_cannot_be_taken() {
    refused(
        r#"keys = ["a", "b"], kind = semaphore(limit = 2)"#,
        "`keys` are locks, and permits of several semaphores cannot be taken together: use one \
         `key`, or another kind",
    );
    for kind in ["reentrant", "fair", "read", "write", "fenced", "spin"] {
        accepted(&format!(r#"keys = ["a", "b"], kind = {kind}"#));
    }
}

#[test]
fn permits_have_no_owner() {
    refused(
        r#"key = "k", owner = me, kind = semaphore(limit = 2)"#,
        "`owner` does not go with a semaphore: permits belong to nobody; leave it out",
    );
    accepted(r#"key = "k", owner = me, kind = read"#);
}

#[test]
fn tokens_are_of_one_fenced_lock() {
    let fenced = "only a fenced lock has a fencing token: add `kind = fenced`";
    refused(r#"key = "k", token = t"#, fenced);
    refused(r#"key = "k", token = t, kind = fair"#, fenced);
    accepted(r#"key = "k", token = t, kind = fenced"#);
    let one = "`token` goes only with one `key`: the locks of `keys` have no fencing token \
               together; leave it out";
    refused(r#"keys = ["a", "b"], token = t, kind = fenced"#, one);
    refused(r#"keys = ["a", "b"], token = t"#, one);
    accepted(r#"keys = ["a", "b"], guard = g"#);
}

#[test]
fn a_kind_that_is_wrong_breaks_no_other_rule() {
    for rest in ["token = t", r#"min_hold = "1s""#, "owner = me"] {
        let messages = messages(&format!(r#"key = "k", kind = mutex, {rest}"#), FUNCTION);
        assert_eq!(messages.len(), 1, "{rest}: {messages:?}");
    }
}

#[test]
fn names_in_the_body_are_different() {
    refused(
        r#"key = "k", kind = fenced, guard = held, token = held"#,
        "`guard` and `token` are both called `held`: give them different names",
    );
    refused(
        r##"key = "k", kind = fenced, guard = held, token = r#held"##,
        "`guard` and `token` are both called `r#held`: give them different names",
    );
    accepted(r#"key = "k", kind = fenced, guard = held, token = number"#);
}

#[test]
fn without_a_lock_nothing_is_bound() {
    let without = |option: &str| {
        format!(
            "`{option}` does not go with `when`: where that is false, the body runs without a lock \
             and there is no {option}; leave one of them out"
        )
    };
    refused(
        r#"key = "k", when = from > 0, guard = g"#,
        &without("guard"),
    );
    refused(
        r#"key = "k", when = from > 0, kind = fenced, token = t"#,
        &without("token"),
    );
}

#[test]
fn fsync_of_replicas_waits_for_some() {
    refused(
        r#"key = "k", replica_ack = none, fsync = replicas"#,
        "`fsync = replicas` waits for the replicas of `replica_ack`, which is `none`: say there \
         how many, or use `fsync = all` for the master alone",
    );
    accepted(r#"key = "k", replica_ack = 1, fsync = replicas"#);
    accepted(r#"key = "k", replica_ack = none, fsync = all"#);
    accepted(r#"key = "k", replica_ack = none, fsync = { fsync }"#);
    // The client may ask for some.
    accepted(r#"key = "k", fsync = replicas"#);
}
