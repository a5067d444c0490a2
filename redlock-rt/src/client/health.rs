//! The state of a client and of its servers, for probes.

use std::time::Duration;

use super::Client;
use crate::clock;
use crate::error::Error;

/// The state of a client and of its servers; see [`Client::health`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Health {
    /// The servers that have locks: one, or the masters of a cluster.
    pub servers: Vec<ServerHealth>,
    /// The locks whose renewals fail.
    pub suspect: usize,
    /// For how long the oldest due renewal has been due; `None` if none is due. A few milliseconds are
    /// usual, a third of a lease is a warning, and at two thirds locks are lost.
    pub renewal_overdue: Option<Duration>,
    /// Background releases that are not yet sent or answered.
    pub releases: usize,
    /// Whether Redis reports at once when other clients delete or take a lock of this client, as far as is
    /// known: it was [asked to](crate::ClientBuilder::tracking), and has not refused. Otherwise the next
    /// renewal notices it.
    pub told_of_losses: bool,
}

/// The answer of a server to a PING.
#[derive(Debug)]
#[non_exhaustive]
pub struct ServerHealth {
    /// Its name, as in errors and log lines.
    pub server: String,
    /// How long the reply took, or why there is none.
    pub round_trip: Result<Duration, Error>,
    /// Its version of Redis, if the client may know it and the server has answered.
    pub version: Option<String>,
    /// `master`, if the client may know it and the server has answered.
    pub role: Option<String>,
}

impl Health {
    /// Returns whether all servers have answered.
    #[must_use]
    pub fn is_reachable(&self) -> bool {
        self.servers.iter().all(|server| server.round_trip.is_ok())
    }
}

impl Client {
    /// Asks whether the servers answer, and returns the state of renewals and releases.
    ///
    /// Use it for a readiness probe, not for a liveness probe: a restart of the process repairs no server,
    /// and loses all locks.
    ///
    /// # Round trips
    ///
    /// One PING to each server that has locks, all at once, on an existing connection. A client without a
    /// connection connects. A call takes at most the [response
    /// time-out](crate::ClientBuilder::response_timeout).
    ///
    /// # Cancel safety
    ///
    /// Nothing is left.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let client = redlock_rt::Client::embedded();
    /// let health = client.health().await;
    /// assert!(health.is_reachable() && health.suspect == 0);
    /// # }
    /// ```
    pub async fn health(&self) -> Health {
        let answers = self.engine.ping().await.into_iter();
        let servers = answers.map(|(server, pong)| {
            let (round_trip, version, role) = match pong {
                Ok(pong) => (Ok(pong.round_trip), pong.version, pong.role),
                Err(error) => (Err(error), None, None),
            };
            ServerHealth {
                server: (*server).to_owned(),
                round_trip,
                version,
                role,
            }
        });
        let servers = servers.collect();
        let (suspect, renewal_overdue) = self.engine.watchdog.overdue(clock::now());
        Health {
            servers,
            suspect,
            renewal_overdue,
            releases: self.engine.releases.len(),
            told_of_losses: self.engine.is_told_of_losses(),
        }
    }
}
