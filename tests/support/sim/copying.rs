//! Replicas that copy what their master writes, each write with a delay of its own, and WAIT, which tells how
//! many of them have what a connection wrote last.
//!
//! As in Redis from 7.2 on: a master numbers what it writes, a replica tells to which number it has come, and
//! a connection keeps the number of its own last write. A replica that stands still copies nothing, and its
//! master counts it among its own all the same (INFO). One that has another master begins anew, with all
//! that this one has.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;

use super::carry::{Copied, copy, keys_where, paste};
use super::net::{Item, Net};
use super::plan::Copies;
use super::questions::read;
use super::run::World;
use super::server::{Connection, Server, Tell};
use crate::Random;
use crate::history::Ms;

/// A server looks so often whether the time of a WAIT is over.
const CRON: Ms = 100;
/// What a script begins with that writes and changes nothing.
const TOUCH: &str = "[Looks for holds, and writes";
const NO_WAIT: &str = "-ERR WAIT cannot be used with replica instances.\r\n";
const DEMOTED: &str =
    "-UNBLOCKED force unblock from blocking operation, instance state changed\r\n";

/// All keys of a server.
type Keys = Arc<Vec<Copied>>;

/// What a server knows of those that copy from it.
pub(super) struct Copying {
    /// The number of its last write, and its keys after that.
    offset: u64,
    keys: Keys,
    replicas: BTreeMap<usize, Feed>,
    /// Nothing reaches them any more.
    pub(super) is_cut: bool,
    delay: Ms,
    random: Random,
}

/// The way to one replica.
struct Feed {
    /// What is on its way there, by when it arrives.
    on_the_way: VecDeque<Write>,
    /// What it has, as far as it comes from this master.
    offset: u64,
    keys: Keys,
    /// What it says of that, by when that arrives.
    said: VecDeque<(Ms, u64)>,
    /// What the master has heard.
    heard: u64,
}

#[derive(Clone)]
struct Write {
    arrives: Ms,
    written: Ms,
    offset: u64,
    keys: Keys,
}

/// A connection that waits for replicas.
pub(super) struct Wait {
    replicas: usize,
    until: Ms,
}

fn all(server: &Server) -> Keys {
    Arc::new(copy(server, &keys_where(server, |_| true)))
}

impl Copying {
    pub(super) fn new(of: Copies, seed: u64) -> Self {
        Self {
            offset: 1,
            keys: Keys::default(),
            replicas: BTreeMap::new(),
            is_cut: false,
            delay: of.delay,
            random: Random::new(seed ^ 0x636f_7079),
        }
    }

    pub(super) fn replicas(&self) -> usize {
        self.replicas.len()
    }

    /// Whether this one has been given all keys once; and what of them it has.
    pub(super) fn offset_of(&self, replica: usize) -> Option<u64> {
        let feed = self.replicas.get(&replica)?;
        Some(feed.offset).filter(|offset| *offset > 0)
    }

    /// Begins to feed a replica, which has these keys.
    fn attach(&mut self, replica: usize, has: Keys, now: Ms) {
        let all = self.write(now);
        let feed = Feed {
            on_the_way: VecDeque::from([all]),
            offset: 0,
            keys: has,
            said: VecDeque::new(),
            heard: 0,
        };
        self.replicas.insert(replica, feed);
    }

    fn write(&mut self, now: Ms) -> Write {
        Write {
            arrives: now + self.way(),
            written: now,
            offset: self.offset,
            keys: Arc::clone(&self.keys),
        }
    }

    fn way(&mut self) -> Ms {
        1 + self.random.bits() % (self.delay + 1)
    }

    /// Something was written.
    fn feed(&mut self, now: Ms) {
        self.offset += 1;
        if self.is_cut {
            return;
        }
        let mut replicas = std::mem::take(&mut self.replicas);
        for feed in replicas.values_mut() {
            let mut write = self.write(now);
            let last = feed.on_the_way.back().map_or(0, |last| last.arrives);
            write.arrives = write.arrives.max(last);
            feed.on_the_way.push_back(write);
        }
        self.replicas = replicas;
    }

    fn have(&self, mark: u64) -> usize {
        let feeds = self.replicas.values();
        feeds.filter(|feed| feed.heard >= mark).count()
    }
}

impl Server {
    /// Notes what is not what it was, for those that copy; `touched`: something was written all the same.
    fn copies(&mut self, now: Ms, touched: bool) -> bool {
        let keys = match self.copying {
            Some(_) => all(self),
            None => return false,
        };
        let Some(copying) = &mut self.copying else {
            return false;
        };
        let written = touched || *copying.keys != *keys;
        if written {
            copying.keys = keys;
            copying.feed(now);
        }
        written
    }

    /// A connection has run a call: keeps the number of its last write.
    pub(super) fn keep_mark(
        &mut self,
        net: &mut Net,
        id: u64,
        connection: &mut Connection,
        request: &[Bytes],
    ) {
        if self.copying.is_none() {
            return;
        }
        let touches = self
            .name_of(request)
            .is_some_and(|name| name.starts_with(TOUCH));
        let mut found = false;
        if touches && let Some(reply) = read(&mut connection.session) {
            found = reply.windows(4).any(|part| part == b":1\r\n");
            net.reply(id, Item::Data(reply));
        }
        if self.copies(net.now, found)
            && let Some(copying) = &self.copying
        {
            connection.mark = copying.offset;
        }
    }

    /// What a server with replicas, or a replica, makes of WAIT.
    pub(super) fn waits(&self, request: &[Bytes], now: Ms) -> Option<Result<Wait, &'static str>> {
        self.copying.as_ref()?;
        let [command, replicas, time] = request else {
            return None;
        };
        if !command.eq_ignore_ascii_case(b"WAIT") {
            return None;
        }
        if !self.slots.as_ref()?.is_master() {
            return Some(Err(NO_WAIT));
        }
        let number = |word: &Bytes| std::str::from_utf8(word).ok()?.parse::<u64>().ok();
        let until = now + number(time)?;
        Some(Ok(Wait {
            replicas: usize::try_from(number(replicas)?).unwrap_or(usize::MAX),
            until: until.next_multiple_of(CRON),
        }))
    }

    /// Answers those that have waited for replicas, and goes on with what came behind.
    pub(super) fn answer_waits(&mut self, net: &mut Net, tell: &mut Tell<'_>) {
        let Some(copying) = &self.copying else { return };
        let master = self
            .slots
            .as_ref()
            .is_some_and(super::slots::Slots::is_master);
        let waiting = self.sessions.iter().filter_map(|(id, connection)| {
            let wait = connection.waits.as_ref()?;
            let have = copying.have(connection.mark);
            let over = have >= wait.replicas || net.now >= wait.until;
            (over || !master).then_some((*id, have))
        });
        for (id, have) in waiting.collect::<Vec<_>>() {
            let Some(mut connection) = self.sessions.remove(&id) else {
                continue;
            };
            connection.waits = None;
            let text = match master {
                true => format!(":{have}\r\n"),
                false => DEMOTED.to_owned(),
            };
            let of = net.links.get(&id).map(|link| (link.host, link.process));
            if let Some((host, process)) = of {
                tell(host, format!("   {id}< {}", text.trim_end()));
                net.reply(id, Item::Data(Bytes::from(text)));
                let fed = self.feed(net, (id, host, process), connection, &[], tell);
                self.sessions.extend(fed.map(|connection| (id, connection)));
            }
        }
    }
}

/// Makes the keys of a replica those of its master.
fn follow(server: &mut Server, before: &[Copied], after: &[Copied]) {
    for gone in before
        .iter()
        .filter(|key| !after.iter().any(|new| new.is_of(key)))
    {
        server.ask(&["DEL", gone.key()]);
    }
    let new = after.iter().filter(|key| !before.contains(key));
    let new: Vec<Copied> = new.cloned().collect();
    paste(server, &new);
}

impl World {
    /// Has what was written arrive at replicas, and what these say of it at their masters.
    pub(super) fn copy_along(&mut self) {
        let now = self.now;
        for master in 0..self.nodes.len() {
            let server = &mut self.nodes[master].server;
            if server.copying.is_none() {
                continue;
            }
            // What calls write is noted with them.
            if server.changed {
                server.at(now);
                server.copies(now, false);
            }
            self.arrive(master, now);
        }
    }

    /// What has come by then is there.
    fn arrive(&mut self, master: usize, by: Ms) {
        let now = self.now;
        let Some(mut copying) = self.nodes[master].server.copying.take() else {
            return;
        };
        let mut replicas = std::mem::take(&mut copying.replicas);
        for (replica, feed) in &mut replicas {
            let node = &mut self.nodes[*replica];
            if node.stands {
                continue;
            }
            node.server.at(now);
            while feed
                .on_the_way
                .front()
                .is_some_and(|write| write.arrives <= by)
                && let Some(write) = feed.on_the_way.pop_front()
            {
                follow(&mut node.server, &feed.keys, &write.keys);
                (feed.offset, feed.keys) = (write.offset, write.keys);
                feed.said.push_back((now + copying.way(), feed.offset));
                node.sights.look(&node.server, &self.log, now, false);
            }
            if node.sights.is_due(now) {
                node.sights.look(&node.server, &self.log, now, true);
            }
            while feed.said.front().is_some_and(|(at, _)| *at <= now)
                && let Some((_, offset)) = feed.said.pop_front()
            {
                feed.heard = feed.heard.max(offset);
            }
        }
        copying.replicas = replicas;
        self.nodes[master].server.copying = Some(copying);
    }

    /// A master is about to be replaced: unless its replicas were cut off, what is on its way to those
    /// that can take it arrives. Answers since when the next one has not got what was written.
    pub(super) fn hand_on(&mut self, master: usize, next: usize, well: bool) -> Option<Ms> {
        let is_cut = self.copying(master).is_cut;
        if !is_cut && !well {
            self.arrive(master, Ms::MAX);
        }
        let feed = self.copying(master).replicas.get(&next)?;
        feed.on_the_way.front().map(|write| write.written)
    }

    /// All others copy from this one from now on.
    pub(super) fn copy_from(&mut self, master: usize, before: usize) {
        let now = self.now;
        let others: Vec<usize> = match before == master {
            true => (1..self.plan.first_sentinel()).collect(),
            false => self.copying(before).replicas.keys().copied().collect(),
        };
        self.copying(before).replicas.clear();
        let has = all(&self.nodes[master].server);
        self.nodes[master].sights.forget(&self.log, now);
        let copying = self.copying(master);
        (copying.is_cut, copying.keys) = (false, has);
        for other in others.into_iter().filter(|other| *other != master) {
            self.attach(master, other);
        }
        self.count_replicas(master);
    }

    /// One more copies from the master.
    pub(super) fn copy_also(&mut self, replica: usize) {
        let master = self.roles().shards[0];
        if replica != master {
            self.attach(master, replica);
            self.count_replicas(master);
        }
    }

    fn attach(&mut self, master: usize, replica: usize) {
        let (now, has) = (self.now, all(&self.nodes[replica].server));
        self.copying(master).attach(replica, has, now);
    }

    fn count_replicas(&mut self, master: usize) {
        let count = self.copying(master).replicas();
        self.log.lock().history.replicas.push((self.now, count));
    }

    fn copying(&mut self, node: usize) -> &mut Copying {
        let copying = self.nodes[node].server.copying.as_mut();
        copying.expect("only masters and replicas have a part in it")
    }
}
