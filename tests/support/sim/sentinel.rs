//! Sentinels: servers that name the master, and tell those who listen when it is another one.

use std::borrow::Cow;

use bytes::Bytes;

use super::cluster::{AGAIN, Next};
use super::net::{Item, Net};
use super::node::Node;
use super::run::World;
use super::server::Server;
use super::slots::{Asker, bulk, port};
use crate::Random;
use crate::history::Ms;

/// What the clients call the master.
pub(super) const SERVICE: &str = "sim";
const CHANNEL: &str = "+switch-master";

/// See the module.
pub(super) struct Sentinel {
    /// Which server is the master, as far as it knows, and since which epoch.
    master: usize,
    epoch: u64,
    /// The connections that listen.
    listeners: Vec<u64>,
    /// To which process it told of which epoch, and when.
    pub(super) told: Vec<(Ms, u32, u64)>,
}

impl Sentinel {
    pub(super) fn new() -> Self {
        Self {
            master: 0,
            epoch: 1,
            listeners: Vec::new(),
            told: Vec::new(),
        }
    }
}

impl Server {
    /// What a sentinel answers in place of the engine.
    pub(super) fn as_sentinel(
        &mut self,
        id: u64,
        by: Asker,
        request: &[Bytes],
    ) -> Option<Cow<'static, str>> {
        let sentinel = self.sentinel.as_mut()?;
        let word = |place: usize| {
            let word = request.get(place);
            word.map(|word| String::from_utf8_lossy(word).to_ascii_uppercase())
        };
        Some(match &*word(0)? {
            "SUBSCRIBE" => {
                if !sentinel.listeners.contains(&id) {
                    sentinel.listeners.push(id);
                }
                format!("*3\r\n{}{}:1\r\n", bulk("subscribe"), bulk(CHANNEL)).into()
            }
            "SENTINEL" if word(1).as_deref() == Some("MASTER") => {
                let (name, epoch) = (bulk("config-epoch"), bulk(&sentinel.epoch.to_string()));
                format!("*2\r\n{name}{epoch}").into()
            }
            "SENTINEL" => {
                sentinel.told.push((by.now, by.process, sentinel.epoch));
                let (host, port) = place_of(sentinel.master);
                format!("*2\r\n{}{}", bulk(&host), bulk(&port)).into()
            }
            _ => "-ERR unknown command\r\n".into(),
        })
    }

    /// It learns of another master, and tells who listens.
    fn switches(&mut self, net: &mut Net, (master, epoch): (usize, u64)) {
        let Some(sentinel) = self.sentinel.as_mut().filter(|of| of.epoch < epoch) else {
            return;
        };
        let before = std::mem::replace(&mut sentinel.master, master);
        sentinel.epoch = epoch;
        let ((old, old_port), (new, new_port)) = (place_of(before), place_of(master));
        let text = format!("{SERVICE} {old} {old_port} {new} {new_port}");
        let push = format!("*3\r\n{}{}{}", bulk("message"), bulk(CHANNEL), bulk(&text));
        for id in &sentinel.listeners {
            if let Some(link) = net.links.get(id) {
                sentinel.told.push((net.now, link.process, epoch));
                net.reply(*id, Item::Data(Bytes::from(push.clone())));
            }
        }
    }
}

impl World {
    /// Each sentinel will know of the present master, each in its time; answers when most of them do.
    pub(super) fn spread_to_sentinels(&mut self) -> Ms {
        let Some(watched) = self.plan.watched else {
            return self.now;
        };
        let first = self.plan.first_sentinel();
        let mut random = Random::new(self.plan.seed ^ self.now);
        let mut known = Vec::new();
        for node in first..first + watched.sentinels {
            let lag = random.bits() % (watched.lag + 1);
            known.push(self.now + lag);
            self.then(lag, Next::Tell { node });
        }
        known.sort_unstable();
        known.get(known.len() / 2).copied().unwrap_or(self.now)
    }

    pub(super) fn tell(&mut self, node: usize) {
        if !self.is_well(node) {
            return self.then(AGAIN, Next::Tell { node });
        }
        let roles = self.roles();
        let named = (roles.shards[0], roles.view.epoch);
        let now = self.now;
        let Node { net, server, .. } = &mut self.nodes[node];
        let mut net = net.lock();
        net.now = now;
        server.switches(&mut net, named);
        let line = format!("## s{node} names s{}", named.0);
        self.log.line(now, line);
    }
}

fn place_of(node: usize) -> (String, String) {
    (format!("n{node}"), port(node).to_string())
}
