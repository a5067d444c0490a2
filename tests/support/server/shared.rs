//! One server for all tests of a binary, unless they flush or disturb it.

use std::{ops::Deref, sync::OnceLock};

use super::RedisServer;

/// The server shared by the tests of this binary, started at the first call.
///
/// For tests that use [`unique`](crate::unique) names and do not flush, kill or pause. The server ends
/// with the process, in whatever way.
pub fn shared_server() -> SharedServer {
    static SERVER: OnceLock<RedisServer> = OnceLock::new();
    SharedServer(SERVER.get_or_init(RedisServer::start))
}

/// A test's use of the shared server: prints the server's log when the test fails.
#[derive(Clone, Debug)]
pub struct SharedServer(&'static RedisServer);

impl Deref for SharedServer {
    type Target = RedisServer;

    fn deref(&self) -> &RedisServer {
        self.0
    }
}

impl Drop for SharedServer {
    fn drop(&mut self) {
        self.show_log_on_failure();
    }
}
