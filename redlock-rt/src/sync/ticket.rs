//! A hold that goes to another process.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::convert::ConvertError;
use super::guard::LockGuard;
use super::kind::Adoptable;
use super::lock::Lock;
use super::options::LockOptions;
use crate::engine::{ClientEngine, GuardState, LostReason, Steal};
use crate::error::Error;
use crate::name::{HoldId, LockName};
use crate::wire::{FencedWire, LockRecipe, Named, RLockWire};

const ADOPT: &str = "adopt lock";
const LEAVE: &str = "make a ticket of lock";

/// The text has no other bytes. A dot ends a part of it, and `~` stands before the number of an escaped byte: `%`
/// would be decoded in a path.
const LEFT_AS_IT_IS: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b':');

/// A hold on its way to another process: for work that begins under a lock in one process, and ends in another.
///
/// [`LockGuard::into_ticket`] ends the guard and leaves the hold in Redis. [`Client::adopt`](crate::Client::adopt)
/// continues it. In between the lock stays taken for the rest of its lease, which is not renewed; then it is free.
///
/// # What is promised
///
/// * At most one side has the lock: the guard has ended before there is a ticket, and one adoption of a ticket
///   succeeds.
/// * A ticket whose lease is over is refused, also if the lock is free: another owner may have had the lock since.
/// * Work of the first process after it has made the ticket is not under the lock. If that does harm, let a store
///   compare the [tokens](crate::FencedLock): the adopter's is greater.
///
/// # Text
///
/// [`Display`](fmt::Display) writes a ticket with letters, digits and `-_:.~` only, for a header, a path or a message.
/// `parse` reads it ([`BadInput`](crate::ErrorKind::BadInput) if invalid). With the feature `serde` it is a string
/// with that text. It names the key with its namespace, so the adopting client may have another one. A process with
/// the text can take the lock. The text contains nothing that users of the same Redis cannot read.
///
/// # Round trips, fairness, cancel safety, errors
///
/// See [`LockGuard::into_ticket`] and [`Client::adopt`](crate::Client::adopt).
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), redlock_rt::Error> {
/// use redlock_rt::{Client, FencedLockGuard, Ticket};
///
/// # let redis = redlock_rt::embedded::Engine::new();
/// # let [web, worker] = [(); 2].map(|()| Client::builder().embedded(&redis).build().unwrap());
/// let guard = web.fenced_lock("export:7").lock().await?;
/// let first = guard.token();
/// let message = guard.into_ticket().map_err(|refused| refused.into_error())?.to_string();
///
/// // In another process:
/// let ticket: Ticket = message.parse()?;
/// let guard: FencedLockGuard = worker.adopt(&ticket).await?;
/// assert!(guard.is_valid() && guard.token() > first);
///
/// let again = worker.adopt::<redlock_rt::Fenced>(&ticket).await;
/// assert!(again.unwrap_err().is_not_owner());
/// guard.unlock().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Ticket {
    name: LockName,
    owner: HoldId,
    deadline: SystemTime,
    /// The token of a fenced lock.
    token: Option<NonZeroU64>,
    token_ttl: Option<Duration>,
}

impl Ticket {
    /// Returns the name of the lock in Redis, with the namespace.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// Returns the identity of the hold, as stored in Redis until it is adopted.
    #[must_use]
    pub fn owner(&self) -> &HoldId {
        &self.owner
    }

    /// Returns the fencing token of the hold; `None` for an [`RLock`](crate::RLock).
    #[must_use]
    pub fn token(&self) -> Option<u64> {
        self.token.map(NonZeroU64::get)
    }

    /// Returns the approximate end of the lease, by the clock of the machine that made the ticket.
    /// It is for people and queues; Redis decides.
    #[must_use]
    pub fn deadline(&self) -> SystemTime {
        self.deadline
    }

    pub(crate) async fn adopt<K: Adoptable>(
        &self,
        engine: &Arc<ClientEngine>,
        options: &LockOptions,
    ) -> Result<LockGuard<K>, Error> {
        let refuse = |why: &'static str| Error::bad_input(ADOPT, why).named(self.name.as_arc());
        if K::FENCED != self.token.is_some() {
            return Err(refuse("the ticket is of another kind of lock"));
        }
        if options.owner.is_some() {
            return Err(refuse("an owner acquires its locks itself"));
        }
        let name = |named| engine.key(named, self.name());
        let wire: Arc<dyn LockRecipe> = match K::FENCED {
            false => Arc::new(RLockWire::new(name(Named::RLock)?)),
            true => Arc::new(FencedWire::new(name(Named::Fenced)?, self.token_ttl)),
        };
        let (from, why, lock) = (Some(&self.owner), None, Lock::of(engine, Ok(wire)));
        lock.take_from(ADOPT, Steal { from, why }, options).await
    }

    fn read(text: &str) -> Option<Self> {
        let parts: Vec<&str> = text.strip_prefix("ticket1.")?.splitn(6, '.').collect();
        let [name, owner, deadline, token, ttl] = parts[..] else {
            return None;
        };
        let name = name.replace('~', "%");
        let span = |millis: &str| millis.parse().ok().map(Duration::from_millis);
        let ticket = Self {
            name: LockName::new(None, &percent_decode_str(&name).decode_utf8().ok()?).ok()?,
            owner: HoldId::of_ours(owner)?,
            deadline: UNIX_EPOCH.checked_add(span(deadline)?)?,
            token: NonZeroU64::new(token.parse().ok()?),
            token_ttl: Some(span(ttl)?).filter(|ttl| !ttl.is_zero()),
        };
        Some(ticket).filter(|ticket| ticket.to_string() == text)
    }
}

/// A time with the precision of a ticket's text: whole milliseconds.
fn written(span: Duration) -> Duration {
    Duration::new(span.as_secs(), span.subsec_millis() * 1_000_000)
}

impl<K: Adoptable> LockGuard<K> {
    /// Ends the guard without a release, and returns a ticket by which another process can continue the hold; see
    /// [`Ticket`].
    ///
    /// The lock stays taken for the rest of its lease, usually two thirds of it or more. If the ticket needs longer,
    /// [`extend`](Self::extend) the lease before. A `max_hold` ends with the guard.
    ///
    /// # Round trips
    ///
    /// None.
    ///
    /// # Errors
    ///
    /// The error contains the guard. [`Lost`](crate::ErrorKind::Lost) if the lock is lost (`ShutDown` if by the
    /// client's shut-down). [`BadInput`](crate::ErrorKind::BadInput) while other guards share the hold, since they
    /// would have it together with the adopter, and during its [`min_hold`](LockOptions::min_hold).
    pub fn into_ticket(mut self) -> Result<Ticket, ConvertError<K>> {
        let Some(rest) = self.inner.leave_behind() else {
            let error = match self.state() {
                GuardState::Lost(reason) => Error::lost(LEAVE, reason),
                GuardState::Released => Error::lost(LEAVE, LostReason::ShutDown),
                _ => Error::bad_input(LEAVE, "it is shared with other guards, or has a min_hold"),
            };
            let error = error.named(self.inner.hold.recipe.name().as_arc());
            return Err(ConvertError { guard: self, error });
        };
        let hold = &self.inner.hold;
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let since = since.unwrap_or_default();
        Ok(Ticket {
            name: hold.recipe.name().clone(),
            owner: hold.hold_id().clone(),
            deadline: UNIX_EPOCH + written(since + rest),
            token: hold.token().and_then(NonZeroU64::new),
            token_ttl: hold.recipe.token_ttl().map(written),
        })
    }
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = utf8_percent_encode(self.name(), LEFT_AS_IT_IS)
            .to_string()
            .replace('%', "~");
        let owner = self.owner.as_str();
        let since = self.deadline.duration_since(UNIX_EPOCH).unwrap_or_default();
        let (deadline, token) = (since.as_millis(), self.token().unwrap_or(0));
        let ttl = self.token_ttl.unwrap_or_default().as_millis();
        write!(f, "ticket1.{name}.{owner}.{deadline}.{token}.{ttl}")
    }
}

impl FromStr for Ticket {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::read(text).ok_or_else(|| Error::bad_input("read a ticket", "the text is none"))
    }
}

#[cfg(feature = "serde")]
#[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
impl serde::Serialize for Ticket {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(feature = "serde")]
#[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
impl<'de> serde::Deserialize<'de> for Ticket {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: &str = "00000000-0000-8fa1-8000-000000000000:7";

    fn ticket(name: &str, token: u64, token_ttl: Option<Duration>) -> Ticket {
        Ticket {
            name: LockName::new(None, name).unwrap(),
            owner: HoldId::from_wire(OWNER),
            deadline: UNIX_EPOCH + Duration::from_millis(1_764_333_333_123),
            token: NonZeroU64::new(token),
            token_ttl,
        }
    }

    #[test]
    fn a_ticket_is_read_as_it_is_written() {
        let day = Some(Duration::from_secs(86_400));
        for name in ["shop:order-7_a", "{a}.b/\"ä\r\n, ;%.~", &"x".repeat(512)] {
            for (token, ttl) in [(0, None), (1 << 50, None), (1 << 50, day)] {
                let ticket = ticket(name, token, ttl);
                let text = ticket.to_string();
                let is_safe = |c: char| c.is_ascii_alphanumeric() || "-_:.~".contains(c);
                assert!(text.chars().all(is_safe), "{text}");
                assert_eq!(text.parse::<Ticket>().unwrap(), ticket);
            }
        }
        let text = ticket("a.b", 1 << 50, day).to_string();
        let rest = "1764333333123.1125899906842624.86400000";
        assert_eq!(text, format!("ticket1.a~2Eb.{OWNER}.{rest}"));
    }

    #[test]
    fn a_ticket_was_of_another_name_where_the_path_it_came_in_had_been_decoded() {
        for name in ["report.csv", "{a}.b/ä", "a%41", "50%20off", "~41"] {
            let ticket = ticket(name, 0, None);
            let text = ticket.to_string();
            let decoded = percent_decode_str(&text).decode_utf8().unwrap();
            assert_eq!(decoded.parse::<Ticket>().unwrap(), ticket);
        }
    }

    #[test]
    fn other_texts_are_bad_input() {
        let good = format!("ticket1.a.{OWNER}.1.2.3");
        assert!(good.parse::<Ticket>().is_ok());
        let mut texts = vec![String::new(), format!("{good}."), format!("{good}.4")];
        let parts: Vec<&str> = good.split('.').collect();
        let wrong: [&[&str]; 6] = [
            &["", "ticket2", "rlock"],
            &[
                "",
                "a~00",
                "a~ff",
                "a~4",
                "a~41",
                "a%41",
                "redlock_once:a",
                &"x".repeat(513),
            ],
            // Fields of other hashes, and a Redisson client, which makes no tickets.
            &[
                "",
                "mode",
                "item:42",
                "00000000-0000-4000-8000-000000000000:7",
            ],
            &["", "-1", "99999999999999999999"],
            &["", "-1", "x"],
            &["", "-1", "x"],
        ];
        for (place, wrong) in wrong.iter().enumerate() {
            texts.push(parts[..place].join("."));
            for wrong in *wrong {
                let mut parts = parts.clone();
                parts[place] = wrong;
                texts.push(parts.join("."));
            }
        }
        texts.push(good.replace(OWNER, &format!("{OWNER}:write")));
        for text in texts {
            let error = text.parse::<Ticket>().unwrap_err();
            assert!(error.is_bad_input(), "{text}");
        }
    }

    #[cfg(feature = "serde")]
    #[test]
    fn a_ticket_in_json_is_its_text() {
        let ticket = ticket("a.b", 7, None);
        let json = serde_json::to_string(&ticket).unwrap();
        assert_eq!(json, format!("\"{ticket}\""));
        assert_eq!(serde_json::from_str::<Ticket>(&json).unwrap(), ticket);
        assert!(serde_json::from_str::<Ticket>("\"x\"").is_err());
    }
}
