//! What a process has of the library: a client for each server, and their quorum.

use std::time::Duration;

use futures::future::join_all;
use redlock_rt::{Client, Error, Quorum, Shutdown};

use super::act::Host;
use super::sentinel::SERVICE;
use super::slots::{PORT, port};
use super::stream::SimStream;
use crate::lock;

/// See the module.
#[derive(Clone)]
pub(super) struct Clients {
    pub(super) process: u32,
    /// In the order of the servers.
    pub(super) all: Vec<Client>,
    /// Where there are several servers.
    pub(super) quorum: Option<Quorum>,
}

impl Clients {
    /// The client of what is no `RedLock`.
    pub(super) fn first(&self) -> &Client {
        &self.all[0]
    }

    /// Shuts all of them down at the same time.
    pub(super) async fn shut_down(&self, how: Shutdown) -> Result<(), Error> {
        let all = self.all.iter().map(|client| client.shutdown(how));
        join_all(all).await.into_iter().collect()
    }
}

impl Host {
    /// The host's clients, made when they are first used.
    pub(super) fn clients(&self) -> Clients {
        let mut slot = lock(&self.slot);
        if let Some(clients) = &*slot {
            return clients.clone();
        }
        let process = self.next_process();
        let servers = match self.plan.masters() {
            Some(_) => 1,
            None => self.nets.len(),
        };
        let all = (0..servers).map(|server| self.make(server, process));
        let all: Vec<Client> = all.collect();
        let quorum = self.plan.quorum.map(|servers| {
            let quorum = Quorum::new(all.clone()).expect("all servers have other names");
            quorum.server_timeout(Duration::from_millis(servers.timeout))
        });
        self.log.lock().hosts.push((process, self.place));
        let clients = Clients {
            process,
            all,
            quorum,
        };
        *slot = Some(clients.clone());
        clients
    }

    /// A number for the next process.
    pub(super) fn next_process(&self) -> u32 {
        let mut last = lock(&self.processes);
        *last += 1;
        *last
    }

    /// The host's client of the first server, and its process.
    pub(super) fn client(&self) -> (Client, u32) {
        let clients = self.clients();
        (clients.first().clone(), clients.process)
    }

    /// Whether there is a client, of an earlier runtime.
    pub(super) fn has_client(&self) -> bool {
        lock(&self.slot).is_some()
    }

    fn make(&self, server: usize, process: u32) -> Client {
        let ms = Duration::from_millis;
        let terms = self.terms();
        let (net, place) = (self.nets[server].clone(), self.place);
        // Some round trips take longer than the shortest of these.
        let hand_over = 10 + 30 * (place as u64 % 8);
        let (name, told) = match server {
            0 => ("sim".to_owned(), String::new()),
            _ => (format!("sim{server}"), format!(" at s{server}")),
        };
        let number = u128::from(self.plan.seed) << 64
            | (server as u128) << 48
            | u128::from(process) << 16
            | 0x5151;
        let urls = |servers: std::ops::Range<usize>| {
            servers.map(|at| format!("redis://n{at}:{}", port(at)))
        };
        let builder = Client::builder();
        let builder = match (self.plan.cluster, self.plan.watched) {
            (Some(of), _) => builder.cluster(urls(0..of.masters)),
            (None, Some(_)) => {
                let sentinels = self.plan.first_sentinel()..self.nets.len();
                builder.sentinels(urls(sentinels), SERVICE)
            }
            (None, None) => {
                builder.connector(move || SimStream::connect(net.clone(), place, process))
            }
        };
        let nets = self.nets.clone();
        let builder = builder.node_connector(move |_, port| {
            let net = nets[usize::from(port - PORT)].clone();
            SimStream::connect(net, place, process)
        });
        let builder = match self.plan.copies() {
            Some(of) => builder.replica_timeout(ms(of.timeout)),
            None => builder,
        };
        let made = builder
            .server_name(name)
            .fixed_id(number)
            .lease(ms(terms.lease))
            .response_timeout(ms(terms.response))
            .connect_timeout(ms(terms.connect))
            .poll_interval(ms(terms.poll))
            .linger(ms(terms.linger))
            .waiter_timeout(ms(terms.waiter))
            .hand_over(ms(hand_over))
            .build();
        let client = made.expect("the plan's terms are valid");
        let mut written = self.log.lock();
        written
            .history
            .clients
            .push((client.uuid().to_owned(), process));
        if server == 0 {
            written.history.hand_over.push((process, hand_over));
        }
        let line = format!("h{place} is process {process}{told}, {}", client.uuid());
        written.lines.push((self.clock.now(), line));
        client
    }
}
