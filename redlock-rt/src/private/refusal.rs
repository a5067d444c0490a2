//! The return value of a function whose body did not run, or was dropped.

use crate::error::Error;
use crate::limit::SharedLimit;

/// Why a lock was not acquired: for the first two the function may choose what it returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalKind {
    /// Another owner held the lock for the whole wait.
    Timeout,
    /// Redis could not be reached, or did not reply.
    Unavailable,
    /// Anything else; it is always an error.
    Other,
}

/// Tells why the acquisition failed.
pub fn refusal_kind(error: &Error) -> RefusalKind {
    if error.is_timed_out() || error.is_contended() {
        RefusalKind::Timeout
    } else if error.is_unavailable() || error.is_outcome_unknown() {
        RefusalKind::Unavailable
    } else {
        RefusalKind::Other
    }
}

/// Logs an error that the caller does not receive. In an outage each call has one.
pub fn skipped(error: &Error) {
    static LIMIT: SharedLimit = SharedLimit::new();
    match refusal_kind(error) {
        RefusalKind::Timeout => {
            tracing::debug!(error = error.with_sources(), "a function was not run");
        }
        RefusalKind::Unavailable | RefusalKind::Other => {
            if let Some(left_out) = LIMIT.pass() {
                tracing::warn!(
                    error = error.with_sources(),
                    left_out,
                    "a function was not run"
                );
            }
        }
    }
}

/// Converts the error by the user's function.
pub fn map_err<E>(error: Error, map: impl FnOnce(Error) -> E) -> E {
    map(error)
}

/// How the annotated function's return type takes a lock error.
#[diagnostic::on_unimplemented(
    message = "a function under `#[distributed_lock]` must return a `Result` whose error can be made from `redlock_rt::Error`",
    label = "cannot hold a `redlock_rt::Error`",
    note = "return `Result<T, E>` and implement `From<redlock_rt::Error>` for `E`, or make the error with `map_err = ..`"
)]
pub trait FromLockError: Sized {
    /// Makes the return value of a function whose body did not run, or was dropped.
    fn from_lock_error(error: Error) -> Self;
}

// Otherwise the compiler would name what `E` lacks, without the purpose.
#[diagnostic::do_not_recommend]
impl<T, E: From<Error>> FromLockError for Result<T, E> {
    fn from_lock_error(error: Error) -> Self {
        Err(error.into())
    }
}

/// How the annotated function's return type is without the body.
#[diagnostic::on_unimplemented(
    message = "`skip` needs a `Result<T, E>` whose `T` has a default value",
    label = "no value is known for a call that is skipped",
    note = "implement `Default` for `T`, or name a value: `value(Ok(..))`"
)]
pub trait Skip: Sized {
    /// See [`skip`].
    fn skipped() -> Self;
}

#[diagnostic::do_not_recommend]
impl<T: Default, E> Skip for Result<T, E> {
    fn skipped() -> Self {
        Ok(T::default())
    }
}

/// Makes the return value of a function that is skipped.
pub fn skip<R: Skip>() -> R {
    R::skipped()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn only_contention_and_outages_have_fallbacks() {
        use ErrorKind as Kind;
        let reasons = [
            (Kind::Contended, RefusalKind::Timeout),
            (Kind::TimedOut, RefusalKind::Timeout),
            (Kind::Unavailable, RefusalKind::Unavailable),
            (Kind::OutcomeUnknown, RefusalKind::Unavailable),
            (Kind::Lost, RefusalKind::Other),
            (Kind::NotOwner, RefusalKind::Other),
            (Kind::BadInput, RefusalKind::Other),
            (Kind::WrongType, RefusalKind::Other),
            (Kind::Denied, RefusalKind::Other),
            (Kind::ShutDown, RefusalKind::Other),
            (Kind::Protocol, RefusalKind::Other),
            (Kind::UpgradeWouldDeadlock, RefusalKind::Other),
        ];
        for (kind, reason) in reasons {
            assert_eq!(refusal_kind(&Error::new(kind, "test")), reason, "{kind:?}");
        }
    }
}
