//! The clients of one simulated process.

use std::{ops::Deref, time::Duration};

use redlock_rt::{Client, Quorum, Stats};

/// The time-out of a server: longer than threads wait for a processor.
const ANSWERS: Duration = Duration::from_secs(2);

/// A client of each server, and their quorum. With one server it acts as the client of that server.
#[derive(Clone)]
pub(crate) struct Party {
    clients: Vec<Client>,
    /// Not over a cluster.
    quorum: Option<Quorum>,
}

impl Party {
    pub(crate) fn new(clients: Vec<Client>) -> Self {
        let quorum = Quorum::new(clients.clone()).ok();
        Self {
            quorum: quorum.map(|quorum| quorum.server_timeout(ANSWERS)),
            clients,
        }
    }

    pub(crate) fn quorum(&self) -> &Quorum {
        self.quorum.as_ref().expect("the servers are independent")
    }

    /// The sums of the counts of its clients.
    pub(crate) fn stats(&self) -> Stats {
        let mut all = self.clients[0].stats();
        for stats in self.clients[1..].iter().map(Client::stats) {
            all.held += stats.held;
            all.waiting += stats.waiting;
            all.subscriptions += stats.subscriptions;
            all.renewals += stats.renewals;
            all.releases += stats.releases;
            all.names += stats.names;
        }
        // Tasks queue before the servers are asked.
        all.waiting += self.quorum.as_ref().map_or(0, Quorum::waiting);
        all
    }

    /// Whether this is the UUID of one of its clients.
    pub(crate) fn has(&self, uuid: &str) -> bool {
        self.clients.iter().any(|client| client.uuid() == uuid)
    }
}

impl Deref for Party {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.clients[0]
    }
}
