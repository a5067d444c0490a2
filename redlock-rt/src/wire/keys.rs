//! The only module that builds the names of keys and channels.

use crate::name::{ClientId, LockName};

/// `PREFIX:{NAME}`; a name that contains `{` anywhere is not wrapped. So the names `a` and `{a}` share
/// these keys, as in Redisson, whose clients must find them.
fn prefixed(prefix: &str, name: &LockName) -> String {
    let [open, name, close] = wrapped(name);
    [prefix, ":", open, name, close].concat()
}

/// The parts of `{NAME}`; a name that contains `{` anywhere is not wrapped.
fn wrapped(name: &LockName) -> [&str; 3] {
    let name = name.as_str();
    match name.contains('{') {
        true => ["", name, ""],
        false => ["{", name, "}"],
    }
}

/// The parts of the text of a channel of a lock or a latch. The text is made on demand, so that a held lock does
/// not store it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Channel<'a>(pub(super) [&'a str; 4]);

impl<'a> Channel<'a> {
    /// `prefix`: with the separator before the name.
    fn of(prefix: &'static str, name: &'a LockName) -> Self {
        let [open, name, close] = wrapped(name);
        Self([prefix, open, name, close])
    }
}

impl From<Channel<'_>> for String {
    fn from(channel: Channel<'_>) -> Self {
        channel.0.concat()
    }
}

/// The same for a key that Redisson does not know, which no two names share: names that look like
/// another name in braces have their own prefix. The prefix has no brace, so the key is in the same
/// slot. All other names keep the common form.
fn own(prefix: &str, name: &LockName) -> String {
    if is_in_braces(name.as_str()) {
        format!("{prefix}_braced:{}", name.as_str())
    } else {
        prefixed(prefix, name)
    }
}

/// Whether the name looks like another name in braces, which has no `{` inside.
fn is_in_braces(name: &str) -> bool {
    let inner = name
        .strip_prefix('{')
        .and_then(|rest| rest.strip_suffix('}'));
    inner.is_some_and(|inner| !inner.contains('{'))
}

/// The channel on which the release of a lock is announced.
pub(crate) fn lock_channel(name: &LockName) -> Channel<'_> {
    Channel::of("redisson_lock__channel:", name)
}

/// The owners that wait for a fair lock. The text of this key and of the next two is made on demand,
/// since each waiter may have its own handle.
pub(crate) fn fair_queue(name: &LockName) -> String {
    prefixed("redisson_lock_queue", name)
}

/// The deadlines of these owners.
pub(crate) fn fair_deadlines(name: &LockName) -> String {
    prefixed("redisson_lock_timeout", name)
}

/// The notes of our clients on the queue of a fair lock. Not Redisson's, but about the entries of
/// Redisson's queue: two names that share that queue must share the notes too.
pub(crate) fn fair_notes(name: &LockName) -> String {
    prefixed("redlock_fair", name)
}

/// The start of the names of our clients' channels. Not Redisson's.
pub(crate) const WAKE: &str = "redlock_wake";

/// Redis' own channel, on which a server reports writes to watched keys.
pub(crate) const INVALIDATED: &str = "__redis__:invalidate";

/// Whether a channel is in a slot of a cluster, with the keys of its lock.
pub(crate) fn is_in_a_slot(channel: &str) -> bool {
    let own = channel.strip_prefix(WAKE);
    !own.is_some_and(|rest| rest.starts_with(':'))
}

/// The name of the key with the identity of a client. Not Redisson's.
pub(crate) fn client_key(client: &str) -> String {
    format!("redlock_client:{{{client}}}")
}

/// The channel on which a client is told which of its waiters for fair locks is next. It is for all
/// names, so it has no hash tag.
pub(crate) fn wake_channel(client: &ClientId) -> String {
    format!("{WAKE}:{}", client.as_str())
}

/// The other name with the same queue.
pub(crate) fn fair_twin(name: &str) -> Option<String> {
    if is_in_braces(name) {
        Some(name[1..name.len() - 1].to_owned())
    } else if name.contains('{') {
        None
    } else {
        Some(format!("{{{name}}}"))
    }
}

/// The channel on which the release of a read-write lock is announced.
pub(crate) fn rw_channel(name: &LockName) -> Channel<'_> {
    Channel::of("redisson_rwlock:", name)
}

/// The set of writers that wait for a read-write lock and are preferred. Not Redisson's.
pub(crate) fn rw_waiting_writers(name: &LockName) -> String {
    own("redlock_rw_writers", name)
}

/// The start of the names of all keys that carry the leases of a read-write lock's readers.
pub(crate) fn rw_leases(name: &LockName) -> String {
    wrapped(name).concat()
}

/// The start of the names of the keys that carry the leases of one reader; the scripts build it
/// likewise for the others.
pub(crate) fn rw_leases_of(leases: &str, owner: &str) -> String {
    format!("{leases}:{owner}:rwlock_timeout")
}

/// The channel on which permits are announced.
pub(crate) fn semaphore_channel(name: &LockName) -> Channel<'_> {
    Channel::of("redisson_sc:", name)
}

/// The permits of each of our holds of a semaphore without leases. Not Redisson's.
pub(crate) fn semaphore_holds(name: &LockName) -> String {
    own("redlock_sem", name)
}

/// The note of one operation, for its repeats. Not Redisson's. The ids of operations are unique across
/// all names.
pub(crate) fn operation(name: &LockName, id: &str) -> String {
    format!("{}:{id}", &*prefixed("redlock_op", name))
}

/// The note for a holder that loses the lock by force. Not Redisson's. The owners of holds are unique
/// across all names. Scripts build this key in the same way.
pub(crate) fn theft(name: &LockName, owner: &str) -> String {
    format!("{}:{owner}", &*prefixed("redlock_stolen", name))
}

/// The end of the lease of each permit.
pub(crate) fn permit_leases(name: &LockName) -> String {
    format!("{}:timeout", wrapped(name).concat())
}

/// The mark of a job that is done once. Not Redisson's.
pub(crate) fn once_mark(name: &LockName) -> String {
    own("redlock_once", name)
}

/// The last fencing token given for a lock.
pub(crate) fn lock_token(name: &LockName) -> String {
    prefixed("redisson_lock_token", name)
}

/// The last fencing token seen for a value of this key.
pub(crate) fn fence(key: &LockName) -> String {
    own("redlock_fence", key)
}

/// The channel of a count-down latch. Redisson wraps every name here, and uses underscores.
pub(crate) fn latch_channel(name: &LockName) -> Channel<'_> {
    let prefix = "redisson_countdownlatch__channel__";
    Channel([prefix, "{", name.as_str(), "}"])
}

/// How the last latch of a name ended. Not Redisson's.
pub(crate) fn latch_mark(name: &LockName) -> String {
    own("redlock_latch_end", name)
}

/// The state of a barrier of this kind, and its parties that have arrived. Not Redisson's.
pub(crate) fn barrier(kind: &str, name: &LockName) -> [String; 2] {
    ["", "_parties"].map(|what| own(&format!("redlock_{kind}{what}"), name))
}

/// The channel on which the ends of the generations of barriers are announced. Not Redisson's.
pub(crate) fn barrier_channel(name: &LockName) -> Channel<'_> {
    Channel::of("redlock_barrier:", name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Slot;

    #[test]
    fn the_channel_of_a_latch_is_always_wrapped() {
        let channel = |name| String::from(latch_channel(&LockName::new(None, name).unwrap()));
        assert_eq!(channel("n"), "redisson_countdownlatch__channel__{n}");
        assert_eq!(
            channel("a{b}c"),
            "redisson_countdownlatch__channel__{a{b}c}"
        );
    }

    #[test]
    fn names_are_wrapped_as_redisson_does() {
        let channel = |name| String::from(lock_channel(&LockName::new(None, name).unwrap()));
        assert_eq!(channel("order"), "redisson_lock__channel:{order}");
        assert_eq!(channel("{a}b"), "redisson_lock__channel:{a}b");
        assert_eq!(channel("x{y"), "redisson_lock__channel:x{y");
        assert_eq!(channel("x}y"), "redisson_lock__channel:{x}y}");
    }

    #[test]
    fn a_lock_was_named_like_the_token_of_another() {
        for name in ["a", "{a}", "{a}b"].map(|name| LockName::new(None, name).unwrap()) {
            let texts = [fair_queue, fair_deadlines, fair_notes].map(|key| key(&name));
            let owns = [
                rw_waiting_writers,
                semaphore_holds,
                fence,
                latch_mark,
                once_mark,
                lock_token,
            ];
            let keys = texts.into_iter().chain(owns.map(|key| key(&name)));
            for key in keys.chain([operation(&name, "1"), theft(&name, "u:1")]) {
                assert!(LockName::new(None, &key).is_err(), "{key}");
                assert!(LockName::new(Some("svc"), &key).is_ok(), "{key}");
            }
        }
        assert!(LockName::new(Some("redlock_sem"), "{a}").is_err());
        assert!(LockName::new(None, "redlock_semaphores:a").is_ok());
    }

    #[test]
    fn no_two_names_share_a_key_that_is_ours_alone() {
        let names = [
            "a",
            "{a}",
            "{{a}}",
            "{a}}",
            "a}",
            "{a}b",
            "b{a}",
            "{a",
            "{}",
            "{a}{b}",
            "{a}{a}",
            "a}:timeout",
            "_braced:{a}",
        ];
        let names = names.map(|name| LockName::new(None, name).unwrap());
        let forms: [fn(&LockName) -> String; 7] = [
            rw_waiting_writers,
            semaphore_holds,
            fence,
            latch_mark,
            once_mark,
            |name| barrier("barrier", name)[0].clone(),
            |name| barrier("barrier", name)[1].clone(),
        ];
        let mut keys = std::collections::HashMap::new();
        for name in &names {
            for form in forms {
                let key = form(name);
                assert_eq!(keys.insert(key.clone(), name), None, "{key}");
                // A name with a brace that is no hash tag has its derived keys in another slot, as in
                // Redisson.
                if matches!(
                    name.as_str(),
                    "a" | "{a}" | "{a}b" | "b{a}" | "{a}{b}" | "{a}}"
                ) {
                    assert_eq!(Slot::of(&key), Slot::of("a"), "{key}");
                }
            }
        }
    }

    #[test]
    fn twins_are_the_names_that_share_a_queue() {
        for (name, twin) in [
            ("a", Some("{a}")),
            ("a}", Some("{a}}")),
            ("{a}b", None),
            ("{{a}}", None),
        ] {
            assert_eq!(fair_twin(name).as_deref(), twin, "{name}");
            let Some(twin) = twin else { continue };
            assert_eq!(fair_twin(twin).as_deref(), Some(name));
            let queue = |name| fair_queue(&LockName::new(None, name).unwrap());
            assert_eq!(queue(name), queue(twin));
        }
    }

    #[test]
    fn names_that_were_never_in_doubt_keep_their_keys() {
        let holds = |name| semaphore_holds(&LockName::new(None, name).unwrap());
        assert_eq!(holds("order"), "redlock_sem:{order}");
        assert_eq!(holds("order:{42}"), "redlock_sem:order:{42}");
        assert_eq!(holds("svc:{42}"), "redlock_sem:svc:{42}");
        assert_eq!(holds("{42}"), "redlock_sem_braced:{42}");
    }

    #[test]
    fn keys_of_a_semaphore_have_its_hash_tag() {
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
        let owner = "u:7";
        let of = |name| rw_leases_of(&rw_leases(&LockName::new(None, name).unwrap()), owner);
        assert_eq!(of("order"), "{order}:u:7:rwlock_timeout");
        assert_eq!(of("{a}b"), "{a}b:u:7:rwlock_timeout");
    }
}
