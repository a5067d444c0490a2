//! What a function returns whose body did not run, or was dropped.

use crate::error::Error;

/// Why a lock was not taken, as far as the function may say what then happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Because {
    /// Somebody else had it for as long as was waited.
    Timeout,
    /// Redis was not there, or did not answer.
    Unavailable,
    /// Something that the function does not decide upon: it is always an error.
    Other,
}

/// Why it was.
pub fn because(error: &Error) -> Because {
    if error.is_timed_out() || error.is_contended() {
        Because::Timeout
    } else if error.is_unavailable() || error.is_outcome_unknown() {
        Because::Unavailable
    } else {
        Because::Other
    }
}

/// Leaves a trace of what is not told to the caller.
pub fn skipped(error: &Error) {
    let because = because(error);
    let error = error.with_sources();
    match because {
        Because::Timeout => tracing::debug!(error, "a function was not run"),
        Because::Unavailable | Because::Other => tracing::warn!(error, "a function was not run"),
    }
}

/// Makes the function's error by the user's own hand.
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

// Else the compiler would say what `E` lacks, and not what for.
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
            (Kind::Contended, Because::Timeout),
            (Kind::TimedOut, Because::Timeout),
            (Kind::Unavailable, Because::Unavailable),
            (Kind::OutcomeUnknown, Because::Unavailable),
            (Kind::Lost, Because::Other),
            (Kind::NotOwner, Because::Other),
            (Kind::BadInput, Because::Other),
            (Kind::WrongType, Because::Other),
            (Kind::Denied, Because::Other),
            (Kind::ShutDown, Because::Other),
            (Kind::Protocol, Because::Other),
            (Kind::UpgradeWouldDeadlock, Because::Other),
        ];
        for (kind, reason) in reasons {
            assert_eq!(because(&Error::new(kind, "test")), reason, "{kind:?}");
        }
    }
}
