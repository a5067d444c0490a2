//! Plain requests to an engine, which answers at once.

use futures::FutureExt;
use redlock_rt::embedded::Session;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// The reply to this request.
#[track_caller]
pub(crate) fn answered(session: &mut Session, request: &str) -> String {
    let written = session.write_all(request.as_bytes()).now_or_never();
    assert!(matches!(written, Some(Ok(()))), "{request}");
    let mut reply = Vec::with_capacity(64 * 1024);
    let read = session.read_buf(&mut reply).now_or_never();
    read.unwrap().unwrap();
    String::from_utf8_lossy(&reply).into_owned()
}
