//! How a client stands with its servers, for probes.

use std::time::Duration;

use super::Client;
use crate::clock;
use crate::error::Error;

/// How a client stands with its servers; see [`Client::health`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Health {
    /// The servers that have locks: one, or the masters of a cluster.
    pub servers: Vec<ServerHealth>,
    /// The locks whose renewals fail.
    pub suspect: usize,
    /// For how long the renewal that is due for longest has been; `None`: none is due. A few milliseconds
    /// are usual, a third of a lease is a warning, and locks are lost where it is two thirds.
    pub renewal_overdue: Option<Duration>,
    /// Background releases that are not yet sent or answered.
    pub releases: usize,
    /// Whether Redis tells this client at once when others delete or take one of its locks, as far as is
    /// known: it was [asked to](crate::ClientBuilder::tracking), and has not refused. Otherwise the next
    /// renewal notices it.
    pub told_of_losses: bool,
}

/// What a server has answered to a PING.
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
    /// Asks whether the servers answer, and says how renewals and releases stand.
    ///
    /// For a readiness probe. Let no liveness probe depend on it: a restart of the process mends no server,
    /// and gives up all locks.
    ///
    /// # Round trips
    ///
    /// One PING to each server that has locks, all at once, on a connection that the client has anyway. A
    /// client that has none connects. A call takes at most the
    /// [response time-out](crate::ClientBuilder::response_timeout).
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
