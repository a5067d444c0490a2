//! A panic while a connection is made is an error, so that the next try comes after a pause: in a
//! connector or a source of credentials, or of Tokio in a runtime without I/O.

use std::any::Any;
use std::io;
use std::panic::AssertUnwindSafe;

use futures::FutureExt;

/// The result of `run`; `what` is to be blamed for a panic. Boxed, since callers have these futures on
/// their stacks.
pub(super) fn caught<T, E: From<io::Error>>(
    what: &'static str,
    run: impl Future<Output = Result<T, E>> + Send,
) -> impl Future<Output = Result<T, E>> + Send {
    // What a panic interrupted is dropped here, and not looked at again.
    let ended = AssertUnwindSafe(Box::pin(run)).catch_unwind();
    ended.map(move |ended| {
        ended.unwrap_or_else(|panic| {
            let error = format!("{what} panicked: {}", message(&*panic));
            Err(io::Error::other(error).into())
        })
    })
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&'static str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
}
