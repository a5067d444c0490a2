//! The check at the resource, which refuses a token older than one that it has seen.

use std::sync::Mutex;

use crate::shim::lock_std;

/// A gate that refuses a fencing token if a newer one was seen before.
///
/// Put the gate beside the resource that a [`FencedLock`](crate::FencedLock) protects, one gate per
/// lock name: in the process that writes, or in the server that all writers use. The gate's state
/// ends with its process. If the resource survives the process, store the token with the resource,
/// and create the gate with [`after`](Self::after).
///
/// The last token passes again, so a holder may write several times.
///
/// # Examples
///
/// ```
/// use redlock_rt::FenceGate;
///
/// let gate = FenceGate::new();
/// let mut written = Vec::new();
/// gate.run(7, || written.push("first"))?;
/// gate.run(9, || written.push("second"))?;
/// gate.run(9, || written.push("second, again"))?;
/// let refused = gate.run(7, || written.push("late")).unwrap_err();
/// assert_eq!((refused.token, refused.last), (7, 9));
/// assert_eq!(written, ["first", "second", "second, again"]);
/// # Ok::<(), redlock_rt::StaleToken>(())
/// ```
#[derive(Debug, Default)]
pub struct FenceGate {
    last: Mutex<u64>,
}

/// The error for a token that is older than one seen before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("fencing token {token} is older than {last}, which was seen before")]
#[non_exhaustive]
pub struct StaleToken {
    /// The token that was refused.
    pub token: u64,
    /// The newest token that was seen.
    pub last: u64,
}

impl FenceGate {
    /// Returns a gate that has seen no token.
    #[must_use]
    pub const fn new() -> Self {
        Self::after(0)
    }

    /// Returns a gate that has seen `last`.
    #[must_use]
    pub const fn after(last: u64) -> Self {
        Self {
            last: Mutex::new(last),
        }
    }

    /// Lets a token pass and remembers it, unless a newer one was seen.
    ///
    /// Another token may pass between this call and the caller's next step. If nothing else
    /// prevents that (`&mut` access, a transaction), use [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// [`StaleToken`] if a newer token was seen.
    pub fn check(&self, token: u64) -> Result<(), StaleToken> {
        self.run(token, || ())
    }

    /// Runs `write` unless a newer token was seen; no other token passes meanwhile.
    ///
    /// # Errors
    ///
    /// [`StaleToken`] if a newer token was seen; `write` was not run.
    ///
    /// # Panics
    ///
    /// If `write` panics, the call panics; the token counts as seen, and the gate stays usable. The
    /// call deadlocks or panics if `write` uses this gate.
    pub fn run<T>(&self, token: u64, write: impl FnOnce() -> T) -> Result<T, StaleToken> {
        let mut last = lock_std(&self.last);
        if token < *last {
            return Err(StaleToken { token, last: *last });
        }
        *last = token;
        let output = write();
        drop(last);
        Ok(output)
    }

    /// Returns the newest token that was seen; 0 if there was none.
    #[must_use]
    pub fn last(&self) -> u64 {
        *lock_std(&self.last)
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn older_tokens_are_refused_and_the_last_passes_again() {
        let gate = FenceGate::after(5);
        assert_eq!(gate.check(4), Err(StaleToken { token: 4, last: 5 }));
        for token in [5, 5, 8, 8] {
            assert_eq!(gate.check(token), Ok(()));
        }
        let stale = gate.check(7).unwrap_err();
        assert_eq!(stale, StaleToken { token: 7, last: 8 });
        let says = stale.to_string();
        assert!(says.contains("token 7 is older than 8"), "{says}");
        assert_eq!(gate.last(), 8);
        assert!(FenceGate::new().check(0).is_ok());
    }

    #[test]
    fn a_panic_under_the_gate_does_not_close_it() {
        let gate = FenceGate::new();
        let panics = || gate.run(3, || panic!("part of the test"));
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        assert_eq!(gate.check(2), Err(StaleToken { token: 2, last: 3 }));
        assert_eq!(gate.check(3), Ok(()));
    }

    /// The tokens of the writes increase, in every order of the threads.
    #[test]
    fn writes_under_the_gate_never_go_back() {
        const TOKENS: u64 = 400;
        let (gate, written) = (FenceGate::new(), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for part in 0..4 {
                let (gate, written) = (&gate, &written);
                scope.spawn(move || {
                    for token in (0..TOKENS).filter(|token| token % 4 == part) {
                        let write = || {
                            std::thread::yield_now();
                            written.lock().unwrap().push(token);
                        };
                        let passed = gate.run(token, write).is_ok();
                        assert!(passed || gate.last() > token);
                    }
                });
            }
        });
        let written = written.into_inner().unwrap();
        assert!(written.is_sorted());
        assert_eq!(written.last(), Some(&(TOKENS - 1)));
    }
}
