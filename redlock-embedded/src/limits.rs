//! How much clients may make the engine keep, and for how long they may occupy it. The numbers are
//! in the documentation of [`Engine`](super::Engine).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The longest request in bytes.
pub(super) const MAX_REQUEST: usize = 64 * 1024 * 1024;
/// The most arguments of a request.
pub(super) const MAX_ITEMS: i64 = 1024 * 1024;
/// The same before a client has given the password, as in Redis.
pub(super) const MAX_ITEMS_UNKNOWN: i64 = 10;
pub(super) const MAX_BULK_UNKNOWN: i64 = 16 * 1024;

/// The longest reply. A session that leaves this much unread may not send more commands for now.
pub(super) const REPLY_LIMIT: usize = 64 * 1024 * 1024;
/// A subscriber that leaves this much unread is cut off, as Redis does.
pub(super) const PUSH_LIMIT: usize = 32 * 1024 * 1024;
/// If the requests and replies of all clients together take more, the largest client is cut off.
pub(super) const LOAD_LIMIT: usize = 128 * 1024 * 1024;

/// If all subscriptions take about this much, there are no more.
pub(super) const SUBSCRIPTION_LIMIT: usize = 64 * 1024 * 1024;

/// The number of connections of a listener, unless another is set.
pub(super) const MOST_CLIENTS: usize = 10_000;
/// A connection that accepts no byte for this long is closed.
pub(super) const WRITE_PATIENCE: Duration = Duration::from_secs(60);
/// A connection that is silent for this long is closed, unless it has subscriptions.
pub(super) const IDLE: Duration = Duration::from_secs(3600);
/// The same before a client has given the password.
pub(super) const IDLE_UNKNOWN: Duration = Duration::from_secs(10);
/// The interval between answers to wrong passwords, for all connections together.
pub(super) const GUESS: Duration = Duration::from_millis(100);

/// The longest pattern of KEYS, SCAN, PSUBSCRIBE and PUBSUB.
pub(super) const MAX_PATTERN: usize = 1024;

/// The steps that one command may take to compare names with patterns: about half a second.
pub(super) const MOST_STEPS: usize = 200_000_000;

/// The memory of Lua, with the scripts that are kept.
pub(super) const LUA_MEMORY: usize = 64 * 1024 * 1024;
/// If this many scripts are kept, all are forgotten.
pub(super) const MOST_SCRIPTS: usize = 1000;
/// A script that runs longer is stopped, since it blocks every client.
pub(super) const SCRIPT_TIME: Duration =
    Duration::from_millis(if cfg!(any(fuzzing, test)) { 100 } else { 5000 });
/// The most items that a script may return, in all of its tables together.
pub(super) const MOST_RETURNED: usize = 256 * 1024;

/// The memory of the requests and replies of all clients.
#[derive(Debug, Default)]
pub(super) struct Load(AtomicUsize);

impl Load {
    pub(super) fn add(&self, bytes: usize) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn remove(&self, bytes: usize) {
        self.0.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(super) fn is_too_much(&self) -> bool {
        self.0.load(Ordering::Relaxed) > LOAD_LIMIT
    }
}
