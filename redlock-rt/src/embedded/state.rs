//! Everything the engine knows apart from its Lua scripts.

use super::hash::{FastMap, FastSet};
use super::outbox::Outbox;
use super::resp::{Blob, Reply};
use super::store::Db;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, SystemTime};
use tokio::time::Instant;

pub(super) const DATABASES: usize = 16;

/// Tokio's clock, counted from the wall clock's reading at the start.
///
/// It adds up differences instead of measuring from one instant: an engine may be used from two
/// runtimes, and a paused clock that was advanced in the first must not stop time in the second.
#[derive(Debug)]
struct Clock {
    time: Duration,
    seen: Instant,
}

impl Clock {
    fn start() -> Self {
        let time = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        Self {
            time,
            seen: Instant::now(),
        }
    }

    fn read(&mut self) -> Duration {
        let now = Instant::now();
        self.time += now.saturating_duration_since(self.seen);
        self.seen = now;
        self.time
    }
}

/// The ways to subscribe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Channel,
    Pattern,
    Shard,
}

/// Names of one kind and their subscribers, in order of subscription.
pub(super) type Subscribers = FastMap<Blob, Vec<u64>>;

/// Commands held back between MULTI and EXEC.
#[derive(Debug, Default)]
pub(super) struct Transaction {
    pub(super) queue: Vec<Vec<Blob>>,
    /// A command was refused, so EXEC will refuse all of them.
    pub(super) aborted: bool,
}

#[derive(Debug)]
pub(super) struct Client {
    pub(super) id: u64,
    pub(super) out: Arc<Outbox>,
    pub(super) address: String,
    pub(super) local_address: String,
    pub(super) name: Blob,
    pub(super) library: Blob,
    pub(super) library_version: Blob,
    pub(super) db: usize,
    pub(super) resp3: bool,
    pub(super) authenticated: bool,
    pub(super) transaction: Option<Transaction>,
    pub(super) watched: Vec<(usize, Blob)>,
    pub(super) subscriptions: [FastSet<Blob>; 3],
    pub(super) monitor: bool,
    pub(super) no_evict: bool,
    /// Answer the present command, then end the session.
    pub(super) closing: bool,
    pub(super) since: Duration,
    pub(super) last_active: Duration,
    pub(super) last_command: &'static str,
}

impl Client {
    pub(super) fn subscriptions(&self, kind: Kind) -> &FastSet<Blob> {
        &self.subscriptions[kind as usize]
    }

    /// What a confirmation reports: channels and patterns are counted together.
    pub(super) fn subscription_count(&self, kind: Kind) -> usize {
        match kind {
            Kind::Shard => self.subscriptions(Kind::Shard).len(),
            _ => self.subscriptions(Kind::Channel).len() + self.subscriptions(Kind::Pattern).len(),
        }
    }

    pub(super) fn is_subscriber(&self) -> bool {
        self.subscriptions.iter().any(|names| !names.is_empty())
    }
}

/// The script that is running, as its commands see it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ScriptRun {
    pub(super) client: u64,
    pub(super) db: usize,
    pub(super) resp3: bool,
    pub(super) read_only: bool,
}

pub(super) struct State {
    pub(super) dbs: Vec<Db>,
    pub(super) clients: FastMap<u64, Client>,
    pub(super) subscribers: [Subscribers; 3],
    pub(super) monitors: Vec<u64>,
    pub(super) script: ScriptRun,
    /// Calls of each command of the table, those of scripts included, as in Redis.
    pub(super) calls: Vec<u64>,
    pub(super) connections: u64,
    pub(super) password: Option<Blob>,
    pub(super) run_id: String,
    pub(super) port: u16,
    pub(super) started: Duration,
    /// Time since the Unix epoch, frozen for the length of a command or a script.
    pub(super) now: Duration,
    /// To be woken once no lock is held: what they wake may come straight back.
    pub(super) wakers: Vec<Waker>,
    clock: Clock,
    random: u64,
}

impl State {
    pub(super) fn new(password: Option<Blob>, commands: usize) -> Self {
        let mut clock = Clock::start();
        let now = clock.read();
        let mut state = Self {
            dbs: (0..DATABASES).map(|_| Db::default()).collect(),
            clients: FastMap::default(),
            subscribers: Default::default(),
            monitors: Vec::new(),
            script: ScriptRun::default(),
            calls: vec![0; commands],
            connections: 0,
            password,
            run_id: String::new(),
            port: 0,
            started: now,
            now,
            wakers: Vec::new(),
            clock,
            random: random_seed(),
        };
        state.run_id = (0..40).map(|_| format!("{:x}", state.random(16))).collect();
        state
    }

    /// Reads the clock; the command or script that follows sees this time throughout.
    pub(super) fn tick(&mut self) {
        self.now = self.clock.read();
    }

    pub(super) fn db(&mut self, index: usize) -> &mut Db {
        let db = &mut self.dbs[index];
        db.now = i64::try_from(self.now.as_millis()).unwrap_or(i64::MAX);
        db
    }

    /// A number below the bound, for SPOP and the like: splitmix64.
    pub(super) fn random(&mut self, bound: usize) -> usize {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        usize::try_from(z % (bound.max(1) as u64)).unwrap_or(0)
    }

    pub(super) fn register(
        &mut self,
        address: String,
        local_address: String,
    ) -> (u64, Arc<Outbox>) {
        self.tick();
        self.connections += 1;
        let id = self.connections;
        let out = Arc::new(Outbox::default());
        let empty = Blob::from(&b""[..]);
        let client = Client {
            id,
            out: Arc::clone(&out),
            address,
            local_address,
            name: Blob::clone(&empty),
            library: Blob::clone(&empty),
            library_version: empty,
            db: 0,
            resp3: false,
            authenticated: self.password.is_none(),
            transaction: None,
            watched: Vec::new(),
            subscriptions: Default::default(),
            monitor: false,
            no_evict: false,
            closing: false,
            since: self.now,
            last_active: self.now,
            last_command: "NULL",
        };
        self.clients.insert(id, client);
        (id, out)
    }

    pub(super) fn reply(&mut self, client: u64, reply: &Reply) {
        if let Some(client) = self.clients.get(&client) {
            self.wakers.extend(client.out.reply(reply, client.resp3));
        }
    }

    /// Forgets a client and all that it had; its stream ends.
    pub(super) fn disconnect(&mut self, id: u64, discard: bool) {
        self.unwatch(id);
        let Some(client) = self.clients.remove(&id) else {
            return;
        };
        for (names, subscribers) in client.subscriptions.iter().zip(&mut self.subscribers) {
            for name in names {
                remove_subscriber(subscribers, name, id);
            }
        }
        self.monitors.retain(|monitor| *monitor != id);
        self.wakers
            .extend(client.out.close(discard).into_iter().flatten());
    }

    pub(super) fn unwatch(&mut self, id: u64) {
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        for (db, key) in std::mem::take(&mut client.watched) {
            self.dbs[db].unwatch(&key, id);
        }
        for db in &mut self.dbs {
            db.take_dirty(id);
        }
    }

    // Publish and subscribe

    pub(super) fn subscribe(&mut self, id: u64, kind: Kind, name: &[u8]) -> usize {
        let Some(client) = self.clients.get_mut(&id) else {
            return 0;
        };
        if !client.subscriptions(kind).contains(name) {
            let name = Blob::from(name);
            let subscribers = self.subscribers[kind as usize].entry(Blob::clone(&name));
            subscribers.or_default().push(id);
            client.subscriptions[kind as usize].insert(name);
        }
        client.subscription_count(kind)
    }

    pub(super) fn unsubscribe(&mut self, id: u64, kind: Kind, name: &[u8]) -> usize {
        let Some(client) = self.clients.get_mut(&id) else {
            return 0;
        };
        if client.subscriptions[kind as usize].remove(name) {
            remove_subscriber(&mut self.subscribers[kind as usize], name, id);
        }
        client.subscription_count(kind)
    }

    /// Sends a message; gives the number of subscribers that it went to.
    pub(super) fn publish(&mut self, kind: Kind, channel: &[u8], message: &[u8]) -> usize {
        let mut sent = 0;
        let mut stuck = Vec::new();
        let mut deliver = |ids: &[u64], push: &Reply| {
            for id in ids {
                let Some(client) = self.clients.get(id) else {
                    continue;
                };
                match client.out.push(push, client.resp3) {
                    Ok(waker) => self.wakers.extend(waker),
                    Err(()) => stuck.push(*id),
                }
                sent += 1;
            }
        };
        let bulk = |bytes: &[u8]| Reply::Bulk(Blob::from(bytes));
        if let Some(ids) = self.subscribers[kind as usize].get(channel) {
            let word = if kind == Kind::Shard {
                "smessage"
            } else {
                "message"
            };
            deliver(
                ids,
                &Reply::Push(vec![Reply::Text(word), bulk(channel), bulk(message)]),
            );
        }
        if kind == Kind::Channel {
            for (pattern, ids) in &self.subscribers[Kind::Pattern as usize] {
                if super::glob::matches(pattern, channel) {
                    let pattern = Reply::Bulk(Blob::clone(pattern));
                    let word = Reply::Text("pmessage");
                    deliver(
                        ids,
                        &Reply::Push(vec![word, pattern, bulk(channel), bulk(message)]),
                    );
                }
            }
        }
        for id in stuck {
            self.disconnect(id, true);
        }
        sent
    }
}

fn remove_subscriber(subscribers: &mut Subscribers, name: &[u8], id: u64) {
    if let Some(ids) = subscribers.get_mut(name) {
        ids.retain(|subscriber| *subscriber != id);
        if ids.is_empty() {
            subscribers.remove(name);
        }
    }
}

/// Differs from engine to engine and from process to process.
fn random_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn time_follows_a_paused_clock() {
        let mut state = State::new(None, 0);
        let start = state.now;
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(state.now, start, "time stands still within a command");
        state.tick();
        assert_eq!(state.now, start + Duration::from_secs(60));
    }

    #[test]
    fn a_disconnected_client_leaves_nothing() {
        let mut state = State::new(None, 0);
        let (id, _out) = state.register(String::new(), String::new());
        for kind in [Kind::Channel, Kind::Pattern, Kind::Shard] {
            assert!(state.subscribe(id, kind, b"a*") > 0);
        }
        assert_eq!(state.publish(Kind::Channel, b"a*", b"m"), 2);
        state.disconnect(id, true);
        assert!(state.clients.is_empty());
        assert!(state.subscribers.iter().all(FastMap::is_empty));
        assert_eq!(state.publish(Kind::Channel, b"a*", b"m"), 0);
    }
}
