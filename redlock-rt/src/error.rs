//! The one error type of the crate.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use crate::name::Shown;

/// The kind of an error: what went wrong, as far as a caller can act on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Another owner holds the lock, and the call does not wait.
    Contended,
    /// The wait ended while another owner held the lock, before the latch opened, or behind a caller of the same
    /// client whose future [is not polled](crate::Lock#futures-that-are-not-polled). A wait of a few
    /// milliseconds can also end before the client has asked Redis, because it lets other clients try first.
    TimedOut,
    /// Redis could not be reached, or did not answer, within the given time.
    Unavailable,
    /// Less than a majority of the servers answered within the given time.
    Quorum,
    /// The command was sent, and it is unknown whether it took effect.
    OutcomeUnknown,
    /// The lock was lost before the operation: it expired, was deleted or was taken over.
    /// [`lost_reason`](Error::lost_reason) returns the reason.
    Lost,
    /// The caller would wait for itself for ever: it holds the lock for reading, or runs this
    /// [job](crate::Once).
    UpgradeWouldDeadlock,
    /// Too few servers acknowledged the lock in time, by [`replica_ack`](crate::LockOptions::replica_ack) or
    /// [`fsync`](crate::LockOptions::fsync). The lock was released. [`replicas`](Error::replicas) returns how
    /// many servers acknowledged it.
    NotReplicated,
    /// A newer fencing token was seen: the caller's lock was lost before, and another owner has
    /// held it since.
    StaleToken,
    /// The latch was deleted, not counted down.
    LatchDeleted,
    /// The latch's TTL was over before it was counted down.
    LatchExpired,
    /// A party of the barrier died. No party passes the barrier until it is reset.
    BarrierBroken,
    /// The barrier was reset while parties waited, or were inside.
    BarrierReset,
    /// The caller does not hold the lock.
    NotOwner,
    /// The key was used for another request: the fingerprints differ.
    OtherRequest,
    /// An argument is invalid. As a rule nothing was sent. If the answer to an [`Idempotent`](crate::Idempotent)
    /// request is too long, its body has run.
    BadInput,
    /// The key holds something else: a value of another type, a string that is not a number, or a
    /// hash that is not a lock; see [names](crate::Lock#names). Nothing was changed.
    WrongType,
    /// Redis refuses the credentials, or an ACL forbids the command.
    Denied,
    /// The server at the address is unsuitable (a replica, a sentinel, a node of a cluster, not
    /// Redis), or the client cannot talk to it (an unknown host name, an untrusted certificate). No
    /// call succeeds until the configuration changes.
    Misconfigured,
    /// The server runs no Lua scripts, which renewals need: it does not know `SCRIPT` or `EVALSHA`, or Lua is
    /// disabled there. No call succeeds until that changes.
    NoScripts,
    /// The client was shut down. It acquires no more locks, and has released its locks although guards and
    /// bodies still existed. Or the client was created before this process was
    /// [forked](crate::recipes#processes-that-fork).
    ShutDown,
    /// The reply is invalid for the command, or is an error that has no kind of its own. After an invalid reply
    /// it is unknown whether the command took effect: a lock that it may have acquired is released in the
    /// background.
    Protocol,
}

impl ErrorKind {
    fn text(self) -> &'static str {
        match self {
            Self::Contended => "held by another owner",
            Self::TimedOut => "timed out while held by another owner",
            Self::Unavailable => "redis is unavailable",
            Self::Quorum => "fewer than a majority of the servers answered",
            Self::OutcomeUnknown => "the reply was lost, the outcome is unknown",
            Self::Lost => "lost",
            Self::UpgradeWouldDeadlock => "held for reading by the caller itself",
            Self::NotReplicated => "too few replicas have the lock",
            Self::StaleToken => "a newer fencing token was seen",
            Self::LatchDeleted => "the latch was deleted",
            Self::LatchExpired => "the latch expired",
            Self::BarrierBroken => "a party of the barrier died",
            Self::BarrierReset => "the barrier was reset",
            Self::NotOwner => "not held by this owner",
            Self::OtherRequest => "the key was used for another request",
            Self::BadInput => "bad input",
            Self::WrongType => "the key holds another type of value",
            Self::Denied => "redis denied access",
            Self::Misconfigured => "the address does not lead to a server to lock on",
            Self::NoScripts => "redis runs no scripts there",
            Self::ShutDown => "the client is shut down",
            Self::Protocol => "unexpected reply",
        }
    }
}

/// Why a lock was lost.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LostReason {
    /// The lease ran out by the local clock before it was renewed.
    Expired,
    /// The lock is no longer in Redis: deleted, evicted, flushed, or lost in a restart or failover.
    Deleted,
    /// Another owner holds it.
    Taken,
    /// The guard's `max_hold` is over.
    MaxHold,
    /// Another client took or freed the lock by force, and gave a reason.
    Stolen(Arc<Theft>),
    /// The client was shut down and released it.
    ShutDown,
}

/// The client that took a lock from its holder by force, and its reason.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Theft {
    /// The [identity](crate::ClientBuilder::identity) of that client; without one, the id of the new hold or of
    /// the client.
    pub by: String,
    /// The reason that the client gave.
    pub why: String,
}

/// How many replicas were to acknowledge a lock, and how many did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Replicas {
    /// How many were to acknowledge it.
    pub wanted: u32,
    /// How many did, as far as the client knows: the time limit may have ended before the count.
    pub got: u32,
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stolen(theft) => {
                return write!(f, "stolen by {}: {}", Shown(&theft.by), Shown(&theft.why));
            }
            Self::Expired => "the lease ran out before it was renewed",
            Self::Deleted => "the key is gone from redis",
            Self::Taken => "somebody else holds it",
            Self::MaxHold => "the longest hold time is over",
            Self::ShutDown => "the client was shut down",
        })
    }
}

/// An error of any operation of this crate.
///
/// The type is opaque: programs branch on [`kind`](Self::kind) or on the predicates; the message is
/// for people. The message names the lock and the action. The cause, if there is one (the reply of
/// Redis, for example), is the [`source`](StdError::source) and not part of the message. Print
/// both, as `{:#}` of `anyhow` does.
pub struct Error {
    repr: Box<Repr>,
}

struct Repr {
    kind: ErrorKind,
    /// Replaces the text of the kind.
    text: Option<&'static str>,
    action: &'static str,
    name: Option<Arc<str>>,
    detail: Option<Cow<'static, str>>,
    lost: Option<LostReason>,
    replicas: Option<Replicas>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, action: &'static str) -> Self {
        let repr = Repr {
            kind,
            text: None,
            action,
            name: None,
            detail: None,
            lost: None,
            replicas: None,
            source: None,
        };
        Self {
            repr: Box::new(repr),
        }
    }

    /// For a lock that is no longer held. If the shut-down of the client ended the lock, the kind is `ShutDown`.
    pub(crate) fn lost(action: &'static str, reason: LostReason) -> Self {
        let mut error = match reason {
            LostReason::ShutDown => Self::new(ErrorKind::ShutDown, action),
            _ => Self::new(ErrorKind::Lost, action).detail(reason.to_string()),
        };
        error.repr.lost = Some(reason);
        error
    }

    /// For a lock that too few replicas have.
    pub(crate) fn replicas_of(action: &'static str, wanted: u32, got: u32) -> Self {
        let detail = format!("{got} of {wanted} acknowledged it in time; it was released");
        let mut error = Self::new(ErrorKind::NotReplicated, action).detail(detail);
        error.repr.replicas = Some(Replicas { wanted, got });
        error
    }

    /// The same error for another action.
    pub(crate) fn trying(mut self, action: &'static str) -> Self {
        self.repr.action = action;
        self
    }

    /// Sets the text, unless one was set already.
    pub(crate) fn saying_unless_said(mut self, text: &'static str) -> Self {
        self.repr.text.get_or_insert(text);
        self
    }

    pub(crate) fn bad_input(action: &'static str, detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::BadInput, action).detail(detail)
    }

    pub(crate) fn named(mut self, name: &Arc<str>) -> Self {
        self.repr.name = Some(Arc::clone(name));
        self
    }

    pub(crate) fn detail(mut self, detail: impl Into<Cow<'static, str>>) -> Self {
        self.repr.detail = Some(detail.into());
        self
    }

    /// Adds to the detail.
    pub(crate) fn and(mut self, more: &str) -> Self {
        self.repr.detail = Some(match self.repr.detail {
            Some(detail) => format!("{detail}; {more}").into(),
            None => more.to_owned().into(),
        });
        self
    }

    /// Replaces the text of the kind, for operations that are not about a lock.
    pub(crate) fn saying(mut self, text: &'static str) -> Self {
        self.repr.text = Some(text);
        self
    }

    /// The same error with another kind, for a caller that knows more.
    pub(crate) fn known_as(mut self, kind: ErrorKind) -> Self {
        self.repr.kind = kind;
        self
    }

    /// For a call that changes nothing: "outcome unknown" becomes "unavailable".
    pub(crate) fn of_no_change(self) -> Self {
        match self.is_outcome_unknown() {
            true => self.known_as(ErrorKind::Unavailable),
            false => self,
        }
    }

    /// For a field of a log line, so that the line has the sources too: the message does not repeat
    /// them.
    pub(crate) fn with_sources(&self) -> &(dyn StdError + 'static) {
        self
    }

    pub(crate) fn caused_by(mut self, source: Arc<dyn StdError + Send + Sync>) -> Self {
        self.repr.source = Some(source);
        self
    }

    /// Returns what went wrong.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.repr.kind
    }

    /// Returns the name of the lock in Redis, with the namespace; of an invalid name only the beginning.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.repr.name.as_deref()
    }

    /// Returns whether another owner held the lock: at once, or for as long as the call could wait.
    #[must_use]
    pub fn is_contended(&self) -> bool {
        matches!(self.kind(), ErrorKind::Contended | ErrorKind::TimedOut)
    }

    /// Returns whether the wait ran out while another owner held the lock, or before the latch
    /// opened.
    #[must_use]
    pub fn is_timed_out(&self) -> bool {
        self.kind() == ErrorKind::TimedOut
    }

    /// Returns whether Redis could not be reached in time: the server, or a majority of several.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        matches!(self.kind(), ErrorKind::Unavailable | ErrorKind::Quorum)
    }

    /// Returns whether the command may or may not have taken effect.
    #[must_use]
    pub fn is_outcome_unknown(&self) -> bool {
        self.kind() == ErrorKind::OutcomeUnknown
    }

    /// Returns whether the lock was lost.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.kind() == ErrorKind::Lost
    }

    /// Returns why the lock was lost, for errors that say that the lock is no longer held:
    /// [`Lost`](ErrorKind::Lost), or [`ShutDown`](ErrorKind::ShutDown) for a lock that the
    /// shut-down of the client has ended.
    #[must_use]
    pub fn lost_reason(&self) -> Option<LostReason> {
        self.repr.lost.clone()
    }

    /// Returns whether too few replicas had the lock in time.
    #[must_use]
    pub fn is_not_replicated(&self) -> bool {
        self.kind() == ErrorKind::NotReplicated
    }

    /// Returns how many replicas were to acknowledge the lock, and how many did, for
    /// [`NotReplicated`](ErrorKind::NotReplicated).
    #[must_use]
    pub fn replicas(&self) -> Option<Replicas> {
        self.repr.replicas
    }

    /// Returns whether the caller holds the lock for reading and would wait for itself for ever.
    #[must_use]
    pub fn is_upgrade_would_deadlock(&self) -> bool {
        self.kind() == ErrorKind::UpgradeWouldDeadlock
    }

    /// Returns whether a newer fencing token was seen.
    #[must_use]
    pub fn is_stale_token(&self) -> bool {
        self.kind() == ErrorKind::StaleToken
    }

    /// Returns whether the barrier was broken, by the death of a party or by a reset.
    #[must_use]
    pub fn is_barrier_broken(&self) -> bool {
        let kind = self.kind();
        matches!(kind, ErrorKind::BarrierBroken | ErrorKind::BarrierReset)
    }

    /// Returns whether the latch ended without being counted down: it was deleted, or it expired.
    #[must_use]
    pub fn is_latch_gone(&self) -> bool {
        let kind = self.kind();
        matches!(kind, ErrorKind::LatchDeleted | ErrorKind::LatchExpired)
    }

    /// Returns whether the caller was not the holder.
    #[must_use]
    pub fn is_not_owner(&self) -> bool {
        self.kind() == ErrorKind::NotOwner
    }

    /// Returns whether the key was used for another request before.
    #[must_use]
    pub fn is_other_request(&self) -> bool {
        self.kind() == ErrorKind::OtherRequest
    }

    /// Returns whether an argument is invalid, as [`ErrorKind::BadInput`] says.
    #[must_use]
    pub fn is_bad_input(&self) -> bool {
        self.kind() == ErrorKind::BadInput
    }

    /// Returns whether no call can succeed until the address, or the server behind it, changes.
    ///
    /// Such an error is returned at once, also by calls with an unlimited wait. After the client
    /// was connected once, a replica and an unknown host name count as an outage: both may appear
    /// for a while during a failover.
    #[must_use]
    pub fn is_misconfigured(&self) -> bool {
        matches!(self.kind(), ErrorKind::Misconfigured | ErrorKind::NoScripts)
    }

    /// Returns whether the client had been shut down.
    #[must_use]
    pub fn is_shut_down(&self) -> bool {
        self.kind() == ErrorKind::ShutDown
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.repr.action)?;
        if let Some(name) = &self.repr.name {
            write!(f, " {name:?}")?;
        }
        let text = self.repr.text.unwrap_or_else(|| self.kind().text());
        write!(f, ": {text}")?;
        if let Some(detail) = &self.repr.detail {
            write!(f, ": {detail}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Repr {
            kind,
            text: _,
            action,
            name,
            detail,
            lost,
            replicas,
            source,
        } = &*self.repr;
        f.debug_struct("Error")
            .field("kind", kind)
            .field("action", action)
            .field("name", name)
            .field("detail", detail)
            .field("lost", lost)
            .field("replicas", replicas)
            .field("source", source)
            .finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.repr
            .source
            .as_deref()
            .map(|source| source as &(dyn StdError + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_names_the_lock_and_what_was_tried() {
        let name: Arc<str> = Arc::from("order:7");
        let error = Error::new(ErrorKind::TimedOut, "acquire lock")
            .named(&name)
            .detail("waited 1s");
        assert_eq!(
            error.to_string(),
            r#"acquire lock "order:7": timed out while held by another owner: waited 1s"#
        );
        assert!(error.is_timed_out() && error.is_contended() && !error.is_unavailable());
    }

    /// The message, then those of its sources.
    fn chain(error: &Error) -> Vec<String> {
        let sources = std::iter::successors(error.source(), |&source| source.source());
        let texts = sources.map(ToString::to_string);
        std::iter::once(error.to_string()).chain(texts).collect()
    }

    #[test]
    fn each_kind_has_its_text_and_leaves_the_cause_to_the_source() {
        let table = [
            (ErrorKind::Contended, "held by another owner"),
            (ErrorKind::TimedOut, "timed out while held by another owner"),
            (ErrorKind::Unavailable, "redis is unavailable"),
            (
                ErrorKind::Quorum,
                "fewer than a majority of the servers answered",
            ),
            (
                ErrorKind::OutcomeUnknown,
                "the reply was lost, the outcome is unknown",
            ),
            (ErrorKind::Lost, "lost"),
            (
                ErrorKind::UpgradeWouldDeadlock,
                "held for reading by the caller itself",
            ),
            (ErrorKind::NotReplicated, "too few replicas have the lock"),
            (ErrorKind::StaleToken, "a newer fencing token was seen"),
            (ErrorKind::LatchDeleted, "the latch was deleted"),
            (ErrorKind::LatchExpired, "the latch expired"),
            (ErrorKind::BarrierBroken, "a party of the barrier died"),
            (ErrorKind::BarrierReset, "the barrier was reset"),
            (ErrorKind::NotOwner, "not held by this owner"),
            (
                ErrorKind::OtherRequest,
                "the key was used for another request",
            ),
            (ErrorKind::BadInput, "bad input"),
            (ErrorKind::WrongType, "the key holds another type of value"),
            (ErrorKind::Denied, "redis denied access"),
            (
                ErrorKind::Misconfigured,
                "the address does not lead to a server to lock on",
            ),
            (ErrorKind::NoScripts, "redis runs no scripts there"),
            (ErrorKind::ShutDown, "the client is shut down"),
            (ErrorKind::Protocol, "unexpected reply"),
        ];
        let name: Arc<str> = Arc::from("order:7");
        for (kind, text) in table {
            let bare = format!("try lock \"order:7\": {text}");
            let error = Error::new(kind, "try lock").named(&name);
            assert_eq!(chain(&error), std::slice::from_ref(&bare));
            let cause = Arc::new(std::io::Error::other("the cause"));
            assert_eq!(chain(&error.caused_by(cause)), [bare, "the cause".into()]);
        }
    }

    #[test]
    fn each_predicate_is_of_its_kinds_alone() {
        use super::ErrorKind::*;
        type Predicate = fn(&Error) -> bool;
        let table: [(Predicate, &[ErrorKind]); 15] = [
            (Error::is_contended, &[Contended, TimedOut]),
            (Error::is_timed_out, &[TimedOut]),
            (Error::is_unavailable, &[Unavailable, Quorum]),
            (Error::is_outcome_unknown, &[OutcomeUnknown]),
            (Error::is_lost, &[Lost]),
            (Error::is_upgrade_would_deadlock, &[UpgradeWouldDeadlock]),
            (Error::is_not_replicated, &[NotReplicated]),
            (Error::is_stale_token, &[StaleToken]),
            (Error::is_latch_gone, &[LatchDeleted, LatchExpired]),
            (Error::is_barrier_broken, &[BarrierBroken, BarrierReset]),
            (Error::is_not_owner, &[NotOwner]),
            (Error::is_other_request, &[OtherRequest]),
            (Error::is_bad_input, &[BadInput]),
            (Error::is_misconfigured, &[Misconfigured, NoScripts]),
            (Error::is_shut_down, &[ShutDown]),
        ];
        let others = [WrongType, Denied, Protocol];
        let all = table.iter().flat_map(|(_, kinds)| *kinds).chain(&others);
        for &kind in all {
            let error = Error::new(kind, "try lock");
            for (row, (predicate, kinds)) in table.iter().enumerate() {
                let expected = kinds.contains(&kind);
                assert_eq!(predicate(&error), expected, "row {row} {kinds:?}: {kind:?}");
            }
        }
    }

    #[test]
    fn an_error_tells_why_the_lock_was_lost() {
        let name: Arc<str> = Arc::from("order:7");
        let table = [
            (
                LostReason::Expired,
                ErrorKind::Lost,
                "lost: the lease ran out before it was renewed",
            ),
            (
                LostReason::Deleted,
                ErrorKind::Lost,
                "lost: the key is gone from redis",
            ),
            (
                LostReason::Taken,
                ErrorKind::Lost,
                "lost: somebody else holds it",
            ),
            (
                LostReason::MaxHold,
                ErrorKind::Lost,
                "lost: the longest hold time is over",
            ),
            (
                LostReason::Stolen(Arc::new(Theft {
                    by: "me".into(),
                    why: "stuck".into(),
                })),
                ErrorKind::Lost,
                "lost: stolen by me: stuck",
            ),
            (
                LostReason::ShutDown,
                ErrorKind::ShutDown,
                "the client is shut down",
            ),
        ];
        for (reason, kind, text) in table {
            let error = Error::lost("extend lock", reason.clone()).named(&name);
            assert_eq!((error.kind(), error.lost_reason()), (kind, Some(reason)));
            assert_eq!(
                error.to_string(),
                format!("extend lock \"order:7\": {text}")
            );
            assert_eq!(error.is_lost(), kind == ErrorKind::Lost);
        }
        assert_eq!(Error::new(ErrorKind::TimedOut, "x").lost_reason(), None);
    }

    #[test]
    fn the_cause_is_kept_as_source() {
        let cause = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let error = Error::new(ErrorKind::Unavailable, "connect").caused_by(Arc::new(cause));
        assert!(
            error
                .source()
                .is_some_and(|source| source.is::<std::io::Error>())
        );
    }
}
