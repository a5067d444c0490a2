//! The return value of a function that runs once.

use super::guard::Held;

/// The return type of a function with `once`.
#[diagnostic::on_unimplemented(
    message = "a function with `once` must return a `Result<Option<T>, E>`",
    label = "cannot say that nothing was run",
    note = "return `Ok(Some(..))` where it has run: `Ok(None)` is what a call returns whose fire others run, or have done"
)]
pub trait RunsOnce: Sized {
    /// The value of a call that has run nothing.
    fn nothing() -> Self;

    /// Whether the fire is done: not after an error.
    fn is_done(&self) -> bool;
}

#[diagnostic::do_not_recommend]
impl<T, E> RunsOnce for Result<Option<T>, E> {
    fn nothing() -> Self {
        Ok(None)
    }

    fn is_done(&self) -> bool {
        self.is_ok()
    }
}

/// The value of a call that has run nothing, and whether a call that has run has done the job. Required
/// in one place, so that a wrong type is one error.
#[allow(
    clippy::type_complexity,
    reason = "expanded code takes it apart at once"
)]
pub fn fires<R: RunsOnce>() -> (fn() -> R, fn(&R) -> bool) {
    (R::nothing, R::is_done)
}

impl Held {
    /// Makes the release mark the fire, if the fire is done.
    pub fn marks(&self, is_done: bool) {
        if is_done {
            self.once().will_be_done(&[]);
        }
    }
}
