#![doc = include_str!("../README.md")]
//!
//! # Inside
//!
//! ```text
//! Session::poll_write ─▶ Parser ─▶ serve ─▶ table ─▶ commands ─▶ State ─▶ Outbox ─▶ poll_read
//!                                    └────▶ scripts (Lua) ─▶ commands ─┘     ▲
//!                                                    messages of other sessions
//! ```
//!
//! # Lock order
//!
//! 1. `scripts`: held while the whole requests of one write are served, which makes each of them atomic. So requests of
//!    several sessions never run at the same time, whatever keys they have. It also owns the Lua state.
//! 2. `state`: held for one command; a script takes it again for each command that it calls.
//! 3. The lock of one `Outbox`: innermost.
//!
//! Wakers are collected under the locks and woken after all locks are released, since a woken task
//! may write to a session, or drop one, before `wake` returns.
//!
//! # What a script costs
//!
//! * It is compiled on its first use, and kept until scripts are forgotten. `EVAL` computes the digest of its text each
//!   time.
//! * A word of a request is copied when it arrives, and once into Lua's memory, as one of `KEYS` or `ARGV`.
//!   `redis.call` reads it there, and a command copies the words that it stores.
//! * The reply of a command is copied once, from the keyspace into Lua's memory. The result of the script is copied
//!   three times: out of that memory, to the replies of its session, and to its reader.

#![warn(clippy::unwrap_used)]

mod collections;
mod commands;
mod glob;
mod hash;
mod limits;
mod listener;
mod lua;
mod num;
mod outbox;
mod parser;
mod resp;
mod scripts;
mod scripts_lib;
mod serve;
mod session;
mod state;
mod store;
#[cfg(test)]
mod tests;

pub use self::listener::Listener;
pub use self::session::Session;

use self::serve::SharedServer;
use self::state::TimeAndRandom;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::ToSocketAddrs;

/// An in-process server for development and tests.
///
/// Clones share one keyspace. The engine ends with its last clone, session and listener.
///
/// The [crate's page](crate) lists its commands.
///
/// # Limits
///
/// A client that is broken, or hostile, does not stop the process or the other clients, except that a script may block
/// them for its time limit. The limit is checked every 1000 instructions of Lua, and between functions that process
/// long texts or lists. One instruction or function with texts of many MiB (`..`, `string.format`, `tonumber`) has no
/// closer limit, and takes some 0.1 s each. Of the limits, only the number of clients can be changed.
///
/// | of | limit | what happens beyond it |
/// | --- | --- | --- |
/// | a request | 64 MiB, 1 048 576 arguments, an inline command 64 KiB | an error, and the connection is closed |
/// | a request before `AUTH`, if there is a password | 10 arguments of 16 KiB | the same |
/// | replies that a client does not read | 64 MiB | its further commands wait |
/// | one reply | 64 MiB | the connection is closed |
/// | messages that a subscriber does not read | 32 MiB | the connection is closed |
/// | the requests and replies of all clients | 128 MiB | unread replies of disconnected clients are dropped, else the largest client is disconnected |
/// | subscriptions of all clients | 64 MiB, each with 200 bytes and its name | an error |
/// | connections of a [`Listener`] | [10 000](Listener::max_clients) | an error, and the connection is closed |
/// | a peer that accepts no byte of its replies | 60 s | the connection is closed |
/// | a connection of a [`Listener`] that sends nothing, and has no subscriptions | 1 h, 10 s before a password | the same |
/// | wrong passwords at [`Listener`]s | 10 a second for all connections together | answers wait; each is logged |
/// | the commands `POST` and `Host:`, of HTTP | | the connection is closed, as in Redis |
/// | the time of a script | 5 s | an error; what it has written stays |
/// | the memory of scripts | 64 MiB | an error |
/// | the result of a script | 64 MiB, 262 144 items | an error |
/// | scripts that are kept | 1000 | all are forgotten, as by SCRIPT FLUSH |
/// | a pattern of `KEYS` and the like | 1024 bytes, and 200 million steps for all names together | an error |
/// | lists that Lua's functions take, and positions in them | 4 194 304 items; 7 900 results | an error |
/// | a pattern of Lua | 1000 bytes, and where it repeats, text so short that matching takes seconds at most; plain text likewise | an error |
///
/// Buffers may take twice the memory of their contents. Keys have no limit: a client that may write can fill the
/// memory.
///
/// # Examples
///
/// ```
/// use redlock_embedded::Engine;
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// let engine = Engine::new();
/// let mut session = engine.connect();
/// session.write_all(b"SET greeting hello\r\nGET greeting\r\n").await?;
/// let mut replies = [0; 16];
/// session.read_exact(&mut replies).await?;
/// assert_eq!(&replies, b"+OK\r\n$5\r\nhello\r\n");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Engine {
    shared: Arc<SharedServer>,
}

impl Engine {
    /// Starts an empty engine.
    #[must_use]
    pub fn new() -> Self {
        Self::start(None, TimeAndRandom::of_process())
    }

    /// Starts an empty engine that requires a password, as with `requirepass`.
    #[must_use]
    pub fn with_password(password: impl AsRef<[u8]>) -> Self {
        Self::start(Some(password.as_ref()), TimeAndRandom::of_process())
    }

    /// Starts an empty engine for a deterministic simulation.
    /// `time` returns its time since the Unix epoch, and its random numbers follow from `seed`.
    ///
    /// The time must not go back. Each command or script calls `time` once.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicU64, Ordering};
    /// use std::time::Duration;
    ///
    /// use redlock_embedded::Engine;
    ///
    /// let clock = Arc::new(AtomicU64::new(1_700_000_000_000));
    /// let time = Arc::clone(&clock);
    /// let engine = Engine::simulated(7, move || Duration::from_millis(time.load(Ordering::Relaxed)));
    /// // Leases end by this time.
    /// clock.fetch_add(30_000, Ordering::Relaxed);
    /// # drop(engine);
    /// ```
    #[must_use]
    pub fn simulated(seed: u64, time: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        let clock = Box::new(time);
        Self::start(None, TimeAndRandom { clock, seed })
    }

    /// Restarts the engine as a server that keeps its keys: every connection ends, scripts are
    /// forgotten, and its `run_id` changes. [`Listener`]s continue.
    pub fn restart(&self) {
        self.shared.restart();
    }

    fn start(password: Option<&[u8]>, source: TimeAndRandom) -> Self {
        tracing::warn!(
            "embedded engine started: in memory only, for development and tests, not a database"
        );
        Self {
            shared: Arc::new(SharedServer::new(password, source)),
        }
    }

    /// Opens a connection: a byte stream that speaks the Redis protocol.
    ///
    /// Dropping it disconnects the client. After the client is killed, reads return end of file and
    /// writes fail.
    #[must_use]
    pub fn connect(&self) -> Session {
        Session::open(Arc::clone(&self.shared))
    }

    /// Returns a name that is unique in this process, and the same for all clones of this engine.
    #[must_use]
    pub fn name(&self) -> String {
        format!("embedded {:p}", Arc::as_ptr(&self.shared))
    }

    /// Serves this engine on a TCP address too, until the listener is dropped.
    ///
    /// # Errors
    ///
    /// When the address cannot be resolved or bound, or when other machines can reach it and the engine has [no
    /// password](Self::with_password).
    pub async fn listen(&self, address: impl ToSocketAddrs) -> io::Result<Listener> {
        Listener::start(Arc::clone(&self.shared), address).await
    }
}

impl Default for Engine {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}
