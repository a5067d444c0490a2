//! Turns a panic during connecting into an error, so that the next try comes after a pause. A panic
//! can come from a connector or a source of credentials, or from Tokio in a runtime without I/O.

use std::any::Any;
use std::io;
use std::panic::AssertUnwindSafe;

use futures::FutureExt;

/// The result of `run`. A panic is reported as one of `what`. Boxed, since callers have these futures
/// on their stacks.
pub(super) fn caught<T, E: From<io::Error>>(
    what: &'static str,
    run: impl Future<Output = Result<T, E>> + Send,
) -> impl Future<Output = Result<T, E>> + Send {
    // Data that a panic interrupted is dropped here, and not used again.
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
