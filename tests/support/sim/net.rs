//! The simulated network: connections between hosts and the server, as queues of what is on its way.
//!
//! Time is whole milliseconds. What is sent at one moment arrives at a later one, so whatever all do
//! at the same moment cannot depend on the order in which they are run.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;

use bytes::{Bytes, BytesMut};

use super::plan::{Flood, Place};
use crate::Random;
use crate::history::Ms;
use crate::lock;
use crate::proxy::take_frame;

/// Something that arrives on a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Item {
    Data(Bytes),
    /// The other side has closed it.
    End,
    /// The connection is gone.
    Reset,
}

/// One connection.
#[derive(Default)]
pub(super) struct Link {
    pub(super) host: usize,
    pub(super) process: u32,
    /// What is on its way to the server, by when it arrives.
    pub(super) up: VecDeque<(Ms, Item)>,
    /// What is on its way to the host.
    down: VecDeque<(Ms, Item)>,
    /// What has arrived at the host.
    inbox: VecDeque<Item>,
    reader: Option<Waker>,
    /// Nothing that is sent from now on arrives, and nobody hears of it.
    silent: bool,
    /// Nothing that the server says arrives any more; what was sent to it still does.
    severed: bool,
    /// The host has let it go.
    closed: bool,
    /// The server has heard of it.
    pub(super) known: bool,
}

/// What holds for all connections of one host.
#[derive(Clone, Debug, Default)]
pub(super) struct Path {
    /// Nothing gets through, in either direction.
    pub(super) up_blocked: bool,
    pub(super) down_blocked: bool,
    /// By how much at most each message is late.
    pub(super) slow: Ms,
    /// The host is off: whatever still runs there reaches nobody.
    pub(super) off: bool,
    /// Fresh connections are refused.
    pub(super) refuses: bool,
    /// The connection of the next message is lost, and the message arrives so much later.
    pub(super) stray: Option<Ms>,
    /// Connections to be cut: after so many messages, where.
    pub(super) cuts: Vec<(u32, Place)>,
}

/// The network.
pub(super) struct Net {
    pub(super) now: Ms,
    pub(super) links: BTreeMap<u64, Link>,
    pub(super) paths: Vec<Path>,
    /// The server is down: nobody listens, or nobody is there to say so.
    pub(super) server: Listening,
    latency: (Ms, Ms),
    random: Random,
    opened: u64,
    /// Each command is a message of its own.
    pub(super) flood: Option<Flood>,
    /// The most messages that were on their way to the server, or waited there, on one connection.
    pub(super) most: usize,
    /// Hosts whose connections were cut, and for how long something of them is still on its way.
    pub(super) cut: Vec<(usize, Ms)>,
}

/// What a dial meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listening {
    Yes,
    Refuses,
    Silent,
}

/// What became of a dial.
pub(super) enum Dialed {
    Open(u64),
    Refused,
    /// Nobody answers; to be tried again.
    Nothing,
}

/// Shared by the hosts' streams and whoever moves the time.
#[derive(Clone)]
pub(super) struct Shared(Arc<Mutex<Net>>);

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, Net> {
        lock(&self.0)
    }
}

impl Net {
    /// A network in which nothing is under way yet.
    pub(super) fn shared(hosts: usize, latency: (Ms, Ms), seed: u64) -> Shared {
        Shared(Arc::new(Mutex::new(Self {
            now: 0,
            links: BTreeMap::new(),
            paths: vec![Path::default(); hosts],
            server: Listening::Yes,
            latency,
            random: Random::new(seed),
            opened: 0,
            flood: None,
            most: 0,
            cut: Vec::new(),
        })))
    }

    /// How long the next message takes.
    pub(super) fn way(&mut self, host: usize) -> Ms {
        let (shortest, longest) = self.latency;
        let slow = self.paths[host].slow;
        let more = if slow > 0 {
            self.random.bits() % (slow + 1)
        } else {
            0
        };
        shortest + self.random.bits() % (longest - shortest + 1) + more
    }

    pub(super) fn dial(&mut self, host: usize, process: u32) -> Dialed {
        let path = &self.paths[host];
        if path.off || path.up_blocked || path.down_blocked {
            return Dialed::Nothing;
        }
        match self.server {
            Listening::Silent => return Dialed::Nothing,
            Listening::Refuses => return Dialed::Refused,
            Listening::Yes if path.refuses => return Dialed::Refused,
            Listening::Yes => {}
        }
        self.opened += 1;
        let link = Link {
            host,
            process,
            ..Link::default()
        };
        self.links.insert(self.opened, link);
        Dialed::Open(self.opened)
    }

    /// Sends to the server; `false` where the connection is known to be gone.
    pub(super) fn send(&mut self, id: u64, item: Item) -> bool {
        let Some(link) = self.links.get(&id) else {
            return false;
        };
        let host = link.host;
        if link.inbox.contains(&Item::Reset) {
            return false;
        }
        if link.silent || link.severed || self.paths[host].off {
            return true;
        }
        let arrives = self.now + self.way(host);
        if let Some(link) = self.links.get_mut(&id) {
            let last = link.up.back().map_or(0, |(at, _)| *at);
            let items = if self.flood.is_some() {
                split(item)
            } else {
                vec![item]
            };
            let items = items.into_iter().map(|item| (arrives.max(last), item));
            link.up.extend(items);
            self.most = self.most.max(link.up.len());
        }
        if let Some(later) = self.paths[host].stray.take() {
            self.stray(id, later);
            self.cut.push((host, later));
        }
        true
    }

    /// Sends to the host.
    pub(super) fn reply(&mut self, id: u64, item: Item) {
        let Some(link) = self
            .links
            .get(&id)
            .filter(|link| !link.silent && !link.severed)
        else {
            return;
        };
        let arrives = self.now + self.way(link.host);
        if let Some(link) = self.links.get_mut(&id) {
            let last = link.down.back().map_or(0, |(at, _)| *at);
            link.down.push_back((arrives.max(last), item));
        }
    }

    /// Ends a connection at the host, at once.
    pub(super) fn reset(&mut self, id: u64) {
        if let Some(link) = self.links.get_mut(&id) {
            link.down.clear();
            link.inbox.push_back(Item::Reset);
            if let Some(reader) = link.reader.take() {
                reader.wake();
            }
        }
    }

    /// The connection goes silent, in both directions.
    pub(super) fn silence(&mut self, id: u64) {
        if let Some(link) = self.links.get_mut(&id) {
            link.silent = true;
            link.down.clear();
            link.up.clear();
        }
    }

    /// The host hears that the connection is gone; what it sent arrives so much later.
    fn stray(&mut self, id: u64, later: Ms) {
        self.reset(id);
        if let Some(link) = self.links.get_mut(&id) {
            link.severed = true;
            for (at, _) in &mut link.up {
                *at += later;
            }
        }
    }

    /// The host lets the connection go.
    pub(super) fn close(&mut self, id: u64) {
        self.send(id, Item::End);
        if let Some(link) = self.links.get_mut(&id) {
            link.closed = true;
            link.reader = None;
            link.inbox.clear();
        }
    }

    /// Moves what has arrived into the hosts, and wakes who reads it.
    pub(super) fn arrive(&mut self) {
        let now = self.now;
        for link in self.links.values_mut() {
            let path = &self.paths[link.host];
            if path.down_blocked || path.off {
                continue;
            }
            while link.down.front().is_some_and(|(at, _)| *at <= now) {
                if let Some((_, item)) = link.down.pop_front() {
                    link.inbox.push_back(item);
                }
            }
            if !link.inbox.is_empty()
                && let Some(reader) = link.reader.take()
            {
                reader.wake();
            }
        }
    }

    /// Takes what a host has received; `None` where nothing is there, and then its reader is woken.
    pub(super) fn receive(&mut self, id: u64, room: usize, reader: &Waker) -> Option<Item> {
        let Some(link) = self.links.get_mut(&id) else {
            return Some(Item::Reset);
        };
        match link.inbox.front_mut() {
            Some(Item::Data(bytes)) if bytes.len() > room => Some(Item::Data(bytes.split_to(room))),
            Some(Item::Data(_)) => link.inbox.pop_front(),
            Some(end) => Some(end.clone()),
            None => {
                link.reader = Some(reader.clone());
                None
            }
        }
    }

    /// The next message that arrives at the server by now: the earliest, by the number of its
    /// connection.
    pub(super) fn next_up(&mut self) -> Option<(u64, Item)> {
        let now = self.now;
        let paths = &self.paths;
        let waiting = self.links.iter().filter_map(|(id, link)| {
            let (at, _) = link.up.front()?;
            let through = link.severed || !paths[link.host].up_blocked;
            (*at <= now && through).then_some((*at, *id))
        });
        let (_, id) = waiting.min()?;
        let (_, item) = self.links.get_mut(&id)?.up.pop_front()?;
        Some((id, item))
    }

    /// Whether anything is on its way.
    pub(super) fn is_quiet(&self) -> bool {
        let mut links = self.links.values();
        links.all(|link| link.up.is_empty() && link.down.is_empty() && link.inbox.is_empty())
    }

    /// The connections of a host, or of all.
    pub(super) fn of(&self, host: Option<usize>) -> Vec<u64> {
        let all = self.links.iter();
        let of = all.filter(|(_, link)| host.is_none_or(|host| link.host == host));
        of.map(|(id, _)| *id).collect()
    }

    /// Forgets connections that both sides have let go.
    pub(super) fn forget(&mut self, id: u64) {
        if self.links.get(&id).is_some_and(|link| link.closed) {
            self.links.remove(&id);
        }
    }
}

/// Commands, each by itself; what is not whole stays together.
fn split(item: Item) -> Vec<Item> {
    let Item::Data(bytes) = item else {
        return vec![item];
    };
    let mut rest = BytesMut::from(&*bytes);
    let mut items = Vec::new();
    while let Ok(Some(frame)) = take_frame(&mut rest) {
        items.push(Item::Data(frame));
    }
    if !rest.is_empty() {
        items.push(Item::Data(rest.freeze()));
    }
    items
}
