//! Names and identities, checked once where they are made.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::error::Error;

/// The longest name in bytes.
const MAX_NAME: usize = 512;

/// How keys that belong to another name begin, before `:` or `_braced:`.
const DERIVED: [&str; 15] = [
    "redisson_lock_queue",
    "redisson_lock_timeout",
    "redisson_lock_token",
    "redlock_barrier",
    "redlock_barrier_parties",
    "redlock_double_barrier",
    "redlock_double_barrier_parties",
    "redlock_fair",
    "redlock_fence",
    "redlock_latch_end",
    "redlock_once",
    "redlock_op",
    "redlock_rw_writers",
    "redlock_sem",
    "redlock_stolen",
];

/// The name of a lock in Redis: the client's namespace and the caller's name.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct LockName(Arc<str>);

impl LockName {
    /// Joins the namespace, if there is one, and checks the whole.
    pub(crate) fn new(namespace: Option<&str>, name: &str) -> Result<Self, BadName> {
        let refuse = |why: &'static str| Err(BadName::new(name, why));
        if name.trim().is_empty() {
            return refuse("the name is empty or blank");
        }
        let full: Arc<str> = match namespace {
            Some(namespace) => format!("{namespace}:{name}").into(),
            None => name.into(),
        };
        if full.contains('\0') {
            return refuse("the name contains a NUL character");
        }
        if full.len() > MAX_NAME {
            return refuse("the name is longer than 512 bytes");
        }
        if is_derived(&full) {
            return refuse("the name begins like a key that belongs to another lock");
        }
        Ok(Self(full))
    }

    /// The name of a part of the object with this name. No caller can give such a name.
    pub(crate) fn part(&self, number: u64) -> Self {
        Self(format!("{}\0{number}", self.0).into())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn as_arc(&self) -> &Arc<str> {
        &self.0
    }
}

fn is_derived(name: &str) -> bool {
    let begins_one = |rest: &str| rest.starts_with(':') || rest.starts_with("_braced:");
    let mut rests = DERIVED
        .iter()
        .filter_map(|prefix| name.strip_prefix(prefix));
    name.starts_with("red") && rests.any(begins_one)
}

/// Why a name is invalid. A handle stores it until its first use, since creating a handle cannot
/// fail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BadName {
    /// The beginning of the name, for the error.
    start: Arc<str>,
    why: Cow<'static, str>,
}

impl BadName {
    pub(crate) fn new(name: &str, why: impl Into<Cow<'static, str>>) -> Self {
        const SHOWN: usize = 40;
        let start = match name.char_indices().nth(SHOWN) {
            Some((end, _)) => format!("{}…", &name[..end]).into(),
            None => name.into(),
        };
        Self {
            start,
            why: why.into(),
        }
    }
}

impl From<BadName> for Error {
    fn from(BadName { start, why }: BadName) -> Self {
        Self::bad_input("name a lock", why).named(&start)
    }
}

impl std::borrow::Borrow<str> for LockName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// The identity of a client: a random UUID, as each Redisson instance has one, with a mark.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct ClientId(Arc<str>);

impl ClientId {
    /// The third group of the UUID of each client of ours, by which the scripts of fair locks
    /// recognise them: version 8 (custom). Redisson uses version 4.
    pub(crate) const MARK: &str = "8fa1";

    pub(crate) fn random() -> Self {
        let mut id = [0; 16];
        // Not a generator of the process: a forked child would continue the sequence of its parent.
        getrandom::fill(&mut id).expect("the system has random bytes");
        // The variant of RFC 9562.
        id[8] = id[8] & 0x3f | 0x80;
        Self::fixed(u128::from_be_bytes(id))
    }

    /// An identity that is the same in each run of a simulation.
    pub(crate) fn fixed(number: u128) -> Self {
        let mut id = format!("{number:032x}");
        for at in [8, 13, 18, 23] {
            id.insert(at, '-');
        }
        id.replace_range(14..18, Self::MARK);
        Self(id.into())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn hold_id(&self, number: u64) -> HoldId {
        HoldId::from_wire(&self.hold_text(number))
    }

    /// The text of [`hold_id`](Self::hold_id).
    pub(crate) fn hold_text(&self, number: u64) -> String {
        [&self.0, ":", itoa::Buffer::new().format(number)].concat()
    }

    /// The number of a hold of this client.
    pub(crate) fn number_of(&self, id: &HoldId) -> Option<u64> {
        let (client, number) = id.0.rsplit_once(':')?;
        (client == &*self.0).then_some(number)?.parse().ok()
    }
}

impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The identity of one hold in Redis: `<client uuid>:<number>`.
///
/// Every hold of this crate has a new number, so an identity belongs to one hold only. (A Redisson
/// client uses its thread id as the number.)
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct HoldId(Arc<str>);

impl HoldId {
    /// Reads an identity from Redis unchecked: the first part of another client's identity need not
    /// be a UUID.
    pub(crate) fn from_wire(text: &str) -> Self {
        Self(text.into())
    }

    /// Reads the identity of a hold of this crate.
    pub(crate) fn of_ours(text: &str) -> Option<Self> {
        let (client, number) = text.rsplit_once(':')?;
        number.parse::<u64>().ok()?;
        let mut bytes = client.bytes().enumerate();
        let uuid = bytes.all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        });
        let ours = uuid && client.len() == 36 && client[14..18] == *ClientId::MARK;
        ours.then(|| Self::from_wire(text))
    }

    /// Returns the identity as stored in Redis.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the part that identifies the client: a UUID, for Redisson and for this crate.
    #[must_use]
    pub fn client(&self) -> &str {
        self.0
            .rsplit_once(':')
            .map_or(&*self.0, |(client, _)| client)
    }
}

impl fmt::Display for HoldId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Shown(&self.0).fmt(f)
    }
}

impl fmt::Debug for HoldId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Shows a text from Redis, which may contain anything, such as what moves the cursor of a terminal: without control
/// characters, and not all of a long one.
pub(crate) struct Shown<'a>(pub(crate) &'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = self.0.chars().take(1100);
        shown.try_for_each(|c| match c.is_control() {
            true => write!(f, "{}", c.escape_default()),
            false => write!(f, "{c}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_names_are_refused() {
        for bad in ["", " ", "\t\n", "a\0b", &"x".repeat(513)] {
            let error = Error::from(LockName::new(None, bad).unwrap_err());
            assert!(error.is_bad_input(), "{bad:?}");
        }
        assert!(LockName::new(None, &"x".repeat(512)).is_ok());
        assert!(LockName::new(Some("svc"), &"x".repeat(509)).is_err());
        assert!(LockName::new(Some("s\0c"), "x").is_err());
    }

    #[test]
    fn the_namespace_is_joined_before_anything_is_derived() {
        assert_eq!(
            LockName::new(Some("svc"), "order").unwrap().as_str(),
            "svc:order"
        );
    }

    #[test]
    fn each_client_is_a_uuid_with_our_mark() {
        let ids = [(); 100].map(|()| ClientId::random());
        assert_eq!(std::collections::HashSet::from(ids.clone()).len(), 100);
        for id in ids {
            assert!(HoldId::of_ours(&id.hold_text(7)).is_some(), "{id:?}");
            assert!("89ab".contains(&id.as_str()[19..20]), "{id:?}");
        }
        let fixed = ClientId::fixed(0x0123_4567_89ab_cdef_fedc_ba98_7654_3210);
        assert_eq!(fixed.as_str(), "01234567-89ab-8fa1-fedc-ba9876543210");
        for other in [
            "01234567-89ab-4fa1-fedc-ba9876543210:1",
            "01234567-89ab-8fa1-fedc-ba987654321:1",
            "01234567-89ab-8fa1-fedc_ba9876543210:1",
            "01234567-89ab-8fa1-fedc-ba98765432zz:1",
            "01234567-89ab-8fa1-fedc-ba9876543210:x",
        ] {
            assert_eq!(HoldId::of_ours(other), None, "{other}");
        }
    }

    #[test]
    fn holds_of_a_client_differ_in_the_number() {
        let client = ClientId::random();
        let id = client.hold_id(7);
        assert_eq!(id.as_str(), format!("{}:7", client.as_str()));
        assert_eq!(id.client(), client.as_str());
        assert_eq!(client.number_of(&id), Some(7));
        assert_eq!(ClientId::random().number_of(&id), None);
        assert_ne!(ClientId::random(), client);
    }
}
