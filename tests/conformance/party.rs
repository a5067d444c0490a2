//! Who takes locks: a process, as it were.

use std::{ops::Deref, time::Duration};

use redlock_rt::{Client, Quorum, Stats};

/// What a server may take for an answer: more than threads have to wait for a processor.
const ANSWERS: Duration = Duration::from_secs(2);

/// A client of each server, and the quorum of them. Where there is one server it is its client.
#[derive(Clone)]
pub(crate) struct Party {
    clients: Vec<Client>,
    pub(crate) quorum: Quorum,
}

impl Party {
    pub(crate) fn new(clients: Vec<Client>) -> Self {
        let quorum = Quorum::new(clients.clone()).unwrap();
        Self {
            quorum: quorum.server_timeout(ANSWERS),
            clients,
        }
    }

    /// What all of its clients count.
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
        // They queue before the servers are asked.
        all.waiting += self.quorum.waiting();
        all
    }

    /// Whether this is what one of its clients is known by.
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
