//! The object of any kind under a name.

use std::time::Duration;

use super::keys;
use super::reply::{Malformed, Reply, ttl_of};
use super::script::{Call, script};
use crate::name::{HoldId, LockName};

script!(INSPECT = "undeclared_keys" + "lock_hash" + "rw_leases" + "inspect");
script!(SCAN = "scan");

/// About how many keys the server looks at for one page of a scan.
const PAGE: u64 = 200;

/// A lock, semaphore or latch as Redis has it at one moment; see
/// [`Client::inspect`](crate::Client::inspect).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspection {
    /// The name, without the client's namespace.
    pub name: String,
    /// Its kind, as far as Redis shows it.
    pub kind: FoundKind,
    /// Its holders, at most 1000 of them. Permits that no client of this crate took are not among them.
    pub holders: Vec<Holding>,
    /// When the key expires; `None`: never, or there is no key. Each holder has its own lease.
    pub ttl: Option<Duration>,
    /// The free permits of a semaphore, or the count of a latch.
    pub count: Option<i64>,
    /// The last fencing token given, as text: Redisson's may be of any size.
    pub token: Option<String>,
    /// The waiters in Redis: those of a fair lock, and preferred writers.
    pub queued: u64,
    /// The clients that listen for a release. A client listens while any of its tasks waits, and for a
    /// moment after that. `None`: an ACL forbids the question (`+pubsub`).
    pub listening: Option<u64>,
}

/// The kind of an object under a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FoundKind {
    /// A re-entrant lock or a spin lock, or a lock that looks the same: a fair lock without waiters.
    Lock,
    /// A fair lock with waiters.
    FairLock,
    /// A lock that has given out fencing tokens.
    FencedLock,
    /// A read-write lock.
    ReadWriteLock,
    /// A semaphore.
    Semaphore,
    /// A semaphore whose permits have leases.
    PermitExpirableSemaphore,
    /// A latch that is closed.
    CountDownLatch,
    /// A semaphore or a latch, without holders of permits and without waiters.
    Number,
}

/// A hold that Redis has.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holding {
    /// The owner; for a permit with a lease, its id.
    pub id: HoldId,
    /// How often it has the lock, or how many permits. 0: the hold has ended, and a
    /// [`min_hold`](crate::LockOptions::min_hold) keeps the lock.
    pub count: u64,
    /// The rest of its lease; `None`: it has no lease.
    pub ttl: Option<Duration>,
    /// Whether it is a writer of a read-write lock.
    pub is_writer: bool,
}

/// [`Inspection::decode`] reads the reply.
pub(crate) fn inspect(name: &LockName) -> Call {
    Call::new(&INSPECT)
        .key(name.as_str())
        .key(&keys::fair_queue(name))
        .key(&keys::rw_waiting_writers(name))
        .key(&keys::lock_token(name))
        .key(&keys::semaphore_holds(name))
        .key(&keys::permit_leases(name))
        .key(&keys::latch_mark(name))
        .arg(&keys::rw_leases(name))
        .channel_arg(keys::lock_channel(name))
        .channel_arg(keys::rw_channel(name))
        .channel_arg(keys::semaphore_channel(name))
        .channel_arg(keys::latch_channel(name))
        .publishing()
        .reading_more()
}

/// One page of the names that match `pattern`; [`page`] reads the reply.
pub(crate) fn scan(cursor: &str, pattern: &str) -> Call {
    Call::new(&SCAN).arg(cursor).arg(pattern).number(PAGE)
}

/// The pattern of all names in this namespace that match `pattern`.
pub(crate) fn pattern_in(namespace: Option<&str>, pattern: &str) -> String {
    let Some(namespace) = namespace else {
        return pattern.to_owned();
    };
    let special = |char| matches!(char, '*' | '?' | '[' | '\\');
    let escaped = namespace.chars().flat_map(|char| {
        let escape = special(char).then_some('\\');
        escape.into_iter().chain([char])
    });
    format!("{}:{pattern}", escaped.collect::<String>())
}

/// A page of names.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NamePage {
    /// The run id of the server: another process does not know the cursor.
    pub(crate) process: String,
    /// The cursor of the next page.
    pub(crate) next: Option<String>,
    /// The names that are text.
    pub(crate) names: Vec<String>,
}

/// Reads the reply to [`scan`].
pub(crate) fn page(reply: Reply) -> Result<NamePage, Malformed> {
    reply.read(|items| {
        let texts = items.iter().map(|item| match item {
            Reply::Text(text) => Some(text),
            _ => None,
        });
        let mut texts = texts.collect::<Option<Vec<_>>>()?.into_iter();
        let process = texts.next()?.clone();
        let next = Some(texts.next()?).filter(|cursor| *cursor != "0");
        let names = texts.filter_map(|digits| text_of(digits));
        Some(NamePage {
            process,
            next: next.cloned(),
            names: names.collect(),
        })
    })
}

/// The text of these bytes.
fn text_of(digits: &str) -> Option<String> {
    let bytes = digits.as_bytes().chunks(2);
    let bytes = bytes.map(|pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok());
    String::from_utf8(bytes.collect::<Option<_>>()?).ok()
}

impl Inspection {
    /// `None`: there is no object.
    pub(crate) fn decode(name: &str, reply: Reply) -> Result<Option<Self>, Malformed> {
        reply.read(|items| match items {
            [] => Some(None),
            _ => Self::read(name, items).map(Some),
        })
    }

    fn read(name: &str, items: &[Reply]) -> Option<Self> {
        let [
            Reply::Text(kind),
            Reply::Int(ttl),
            Reply::Int(listening),
            Reply::Int(queued),
            Reply::Text(count),
            Reply::Text(token),
            holders @ ..,
        ] = items
        else {
            return None;
        };
        let holders = holders.chunks(4).map(Holding::read);
        Some(Self {
            name: name.to_owned(),
            kind: FoundKind::read(kind)?,
            holders: holders.collect::<Option<_>>()?,
            ttl: ttl_of(*ttl),
            count: count.parse().ok(),
            token: Some(token).filter(|token| !token.is_empty()).cloned(),
            queued: u64::try_from(*queued).ok()?,
            listening: u64::try_from(*listening).ok(),
        })
    }
}

impl Holding {
    fn read(items: &[Reply]) -> Option<Self> {
        let [
            Reply::Text(id),
            Reply::Int(count),
            Reply::Int(ttl),
            Reply::Int(writes),
        ] = items
        else {
            return None;
        };
        Some(Self {
            id: HoldId::from_wire(id),
            count: u64::try_from(*count).unwrap_or(0),
            ttl: ttl_of(*ttl),
            is_writer: *writes == 1,
        })
    }
}

impl FoundKind {
    fn read(text: &str) -> Option<Self> {
        Some(match text {
            "lock" => Self::Lock,
            "fair" => Self::FairLock,
            "fenced" => Self::FencedLock,
            "read-write" => Self::ReadWriteLock,
            "semaphore" => Self::Semaphore,
            "permits" => Self::PermitExpirableSemaphore,
            "latch" => Self::CountDownLatch,
            "number" => Self::Number,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::script::headers::assert_agrees;
    use super::*;

    #[test]
    fn calls_agree_with_their_headers() {
        let name = LockName::new(None, "a").unwrap();
        assert_agrees(&inspect(&name));
        assert_agrees(&scan("0", "*"));
    }

    #[test]
    fn a_namespace_is_no_pattern() {
        assert_eq!(pattern_in(None, "a*"), "a*");
        assert_eq!(pattern_in(Some("s*[c]?"), "a*"), r"s\*\[c]\?:a*");
    }

    #[test]
    fn pages() {
        let text = |text: &str| Reply::Text(text.to_owned());
        let read = |items: &[&str]| page(Reply::List(items.iter().copied().map(text).collect()));
        let some = |next: Option<&str>, names: &[&str]| {
            Ok(NamePage {
                process: "f00".to_owned(),
                next: next.map(str::to_owned),
                names: names.iter().map(ToString::to_string).collect(),
            })
        };
        assert_eq!(read(&["f00", "0"]), some(None, &[]));
        assert_eq!(
            read(&["f00", "7", "61c3a4", "ff", "zz"]),
            some(Some("7"), &["aä"])
        );
        assert!(read(&["f00"]).is_err());
        assert!(page(Reply::Nil).is_err());
    }

    #[test]
    fn replies_that_say_something_else_are_malformed() {
        let decode = |items: &[Reply]| Inspection::decode("a", Reply::List(items.to_vec()));
        let (text, int) = (|text: &str| Reply::Text(text.to_owned()), Reply::Int);
        let lock = [text("lock"), int(5), int(-1), int(0), text(""), text("")];
        let holder = [text("u:1"), int(1), int(5), int(0)];
        assert_eq!(decode(&[]), Ok(None));
        let found = decode(&[&lock[..], &holder].concat()).unwrap().unwrap();
        assert_eq!(
            (found.listening, found.token, found.count),
            (None, None, None)
        );
        assert_eq!(found.holders[0].id.as_str(), "u:1");
        assert!(decode(&lock[..5]).is_err());
        assert!(decode(&[&lock[..], &holder[..3]].concat()).is_err());
        let mut odd = lock;
        odd[0] = text("?");
        assert!(decode(&odd).is_err());
        assert!(Inspection::decode("a", Reply::Nil).is_err());
    }
}
