//! The state of an engine, without its Lua scripts.

use super::glob::Matcher;
use super::hash::{FastMap, FastSet};
use super::limits::{Load, PUSH_LIMIT, REPLY_LIMIT, SUBSCRIPTION_LIMIT};
use super::outbox::{Flooded, Outbox};
use super::resp::{Blob, Fail, RespReply};
use super::store::Db;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;
use std::time::{Duration, SystemTime};
use tokio::time::Instant;

pub(super) const DATABASES: usize = 16;

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the time since the Unix epoch.
type Clock = dyn FnMut() -> Duration + Send;

/// The source of an engine's time and random numbers.
pub(super) struct TimeAndRandom {
    pub(super) clock: Box<Clock>,
    /// One history of random numbers for each seed.
    pub(super) seed: u64,
}

impl TimeAndRandom {
    /// Tokio's clock, counted from the wall clock's reading at the start, and random numbers of the process.
    ///
    /// The clock adds up differences instead of measuring from one instant: an engine may be used from two
    /// runtimes, and a paused clock that was advanced in the first must not stop time in the second.
    pub(super) fn of_process() -> Self {
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let (mut time, mut seen) = (since_epoch.unwrap_or_default(), Instant::now());
        let clock = Box::new(move || {
            let now = Instant::now();
            time += now.saturating_duration_since(seen);
            seen = now;
            time
        });
        let seed = random_seed();
        Self { clock, seed }
    }
}

/// The ways to subscribe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SubscriptionKind {
    Channel,
    Pattern,
}

/// Names of one kind and their subscribers, in order of subscription.
pub(super) type Subscribers = FastMap<Blob, Vec<u64>>;

#[derive(Debug)]
pub(super) struct ConnectedClient {
    out: Arc<Outbox>,
    pub(super) db: usize,
    pub(super) authenticated: bool,
    subscriptions: [FastSet<Blob>; 2],
}

impl ConnectedClient {
    pub(super) fn subscriptions(&self, kind: SubscriptionKind) -> &FastSet<Blob> {
        &self.subscriptions[kind as usize]
    }

    /// The number in a confirmation, which counts channels and patterns together.
    pub(super) fn subscription_count(&self) -> usize {
        self.subscriptions.iter().map(FastSet::len).sum()
    }

    pub(super) fn is_subscriber(&self) -> bool {
        self.subscription_count() > 0
    }
}

/// The script that is running, as its commands see it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ScriptRun {
    pub(super) client: u64,
    pub(super) db: usize,
}

pub(super) struct ServerState {
    dbs: Vec<Db>,
    pub(super) clients: FastMap<u64, ConnectedClient>,
    /// The outboxes of disconnected clients that may have unread replies.
    ended: Vec<Weak<Outbox>>,
    pub(super) subscribers: [Subscribers; 2],
    /// The approximate memory of all subscriptions.
    subscribed: usize,
    pub(super) script: ScriptRun,
    connections: u64,
    load: Arc<Load>,
    pub(super) password: Option<Blob>,
    pub(super) run_id: String,
    pub(super) port: u16,
    /// Time since the Unix epoch, frozen for the length of a command or a script.
    pub(super) now: Duration,
    /// Woken when no lock is held, since a woken task may use the engine at once.
    pub(super) wakers: Vec<Waker>,
    clock: Box<Clock>,
    random: u64,
}

impl ServerState {
    pub(super) fn new(password: Option<Blob>, source: TimeAndRandom) -> Self {
        let mut clock = source.clock;
        let now = clock();
        let mut state = Self {
            dbs: (0..DATABASES).map(|_| Db::default()).collect(),
            clients: FastMap::default(),
            ended: Vec::new(),
            subscribers: Default::default(),
            subscribed: 0,
            script: ScriptRun::default(),
            connections: 0,
            load: Arc::default(),
            password,
            run_id: String::new(),
            port: 0,
            now,
            wakers: Vec::new(),
            clock,
            random: source.seed,
        };
        state.name_process();
        state
    }

    fn name_process(&mut self) {
        self.run_id = (0..40).map(|_| format!("{:x}", self.random(16))).collect();
    }

    /// Starts like a new process: without clients, with a new `run_id`. Keeps the keys.
    pub(super) fn restart(&mut self) {
        let mut clients: Vec<u64> = self.clients.keys().copied().collect();
        clients.sort_unstable();
        for client in clients {
            self.disconnect(client, true);
        }
        self.connections = 0;
        self.name_process();
    }

    /// Reads the clock; the command or script that follows sees this time throughout.
    pub(super) fn tick(&mut self) {
        self.now = (self.clock)();
    }

    pub(super) fn db(&mut self, index: usize) -> &mut Db {
        let db = &mut self.dbs[index];
        db.now = i64::try_from(self.now.as_millis()).unwrap_or(i64::MAX);
        db
    }

    /// A number below the bound, for HRANDFIELD: splitmix64.
    pub(super) fn random(&mut self, bound: usize) -> usize {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        usize::try_from(z % (bound.max(1) as u64)).unwrap_or(0)
    }

    pub(super) fn register(&mut self) -> (u64, Arc<Outbox>) {
        self.connections += 1;
        let id = self.connections;
        let out = Arc::new(Outbox::new(&self.load));
        let client = ConnectedClient {
            out: Arc::clone(&out),
            db: 0,
            authenticated: self.password.is_none(),
            subscriptions: Default::default(),
        };
        self.clients.insert(id, client);
        (id, out)
    }

    pub(super) fn reply(&mut self, client: u64, reply: &RespReply) {
        let Some(out) = self.clients.get(&client).map(|client| &client.out) else {
            return;
        };
        match out.append(reply, REPLY_LIMIT) {
            Ok(waker) => self.wakers.extend(waker),
            Err(Flooded) => self.cut_off(client, "a reply is longer than it may be"),
        }
    }

    /// While clients together take too much memory, cuts off the one that takes most.
    pub(super) fn relieve(&mut self) {
        if self.load.is_too_much() {
            // Otherwise other clients would be disconnected for the unread replies of these.
            let ended = self.ended.drain(..).filter_map(|out| out.upgrade());
            let wakers = ended.flat_map(|out| out.close(true)).flatten();
            self.wakers.extend(wakers);
        }
        while self.load.is_too_much() {
            let sizes = self
                .clients
                .iter()
                .map(|(id, client)| (client.out.size(), *id));
            let Some((_, largest)) = sizes.max() else {
                return;
            };
            self.cut_off(largest, "requests and replies take too much memory");
        }
    }

    pub(super) fn cut_off(&mut self, client: u64, why: &'static str) {
        tracing::warn!(client, why, "embedded engine cuts a client off");
        self.disconnect(client, true);
    }

    /// Forgets a client and all its state; its stream ends.
    pub(super) fn disconnect(&mut self, id: u64, discard: bool) {
        let Some(client) = self.clients.remove(&id) else {
            return;
        };
        for (names, subscribers) in client.subscriptions.iter().zip(&mut self.subscribers) {
            for name in names {
                self.subscribed -= taken_by(name);
                remove_subscriber(subscribers, name, id);
            }
        }
        if !discard {
            self.ended.retain(|out| out.strong_count() > 0);
            self.ended.push(Arc::downgrade(&client.out));
        }
        self.wakers
            .extend(client.out.close(discard).into_iter().flatten());
    }

    // Publish and subscribe

    pub(super) fn subscribe(
        &mut self,
        id: u64,
        kind: SubscriptionKind,
        name: &[u8],
    ) -> Result<usize, Fail> {
        let Some(client) = self.clients.get_mut(&id) else {
            return Ok(0);
        };
        if !client.subscriptions(kind).contains(name) {
            if self.subscribed > SUBSCRIPTION_LIMIT {
                return Err("ERR too many subscriptions for the embedded engine".into());
            }
            self.subscribed += taken_by(name);
            let name = Blob::from(name);
            let subscribers = self.subscribers[kind as usize].entry(Blob::clone(&name));
            subscribers.or_default().push(id);
            client.subscriptions[kind as usize].insert(name);
        }
        Ok(client.subscription_count())
    }

    pub(super) fn unsubscribe(&mut self, id: u64, kind: SubscriptionKind, name: &[u8]) -> usize {
        let Some(client) = self.clients.get_mut(&id) else {
            return 0;
        };
        if client.subscriptions[kind as usize].remove(name) {
            self.subscribed -= taken_by(name);
            remove_subscriber(&mut self.subscribers[kind as usize], name, id);
        }
        client.subscription_count()
    }

    /// Sends a message; returns the number of its receivers. Sends none if it takes too long to find
    /// them.
    pub(super) fn publish(&mut self, channel: &[u8], message: &[u8]) -> Result<usize, Fail> {
        let mut matcher = Matcher::new();
        let [channels, patterns] = &self.subscribers;
        let of_channel = channels.get(channel).into_iter().flatten();
        let mut receivers: Vec<_> = of_channel.map(|id| (*id, None)).collect();
        let matching = patterns.iter();
        let matching = matching.filter(|(pattern, _)| matcher.matches(pattern, channel));
        for (pattern, ids) in matching {
            receivers.extend(ids.iter().map(|id| (*id, Some(Blob::clone(pattern)))));
        }
        matcher.end()?;
        let [channel, message] = [channel, message].map(|bytes| RespReply::Bulk(Blob::from(bytes)));
        let sent = receivers.len();
        for (id, pattern) in receivers {
            let mut push = match pattern {
                None => vec![RespReply::Text("message")],
                Some(pattern) => vec![RespReply::Text("pmessage"), RespReply::Bulk(pattern)],
            };
            push.extend([channel.clone(), message.clone()]);
            let pushed = self
                .clients
                .get(&id)
                .map(|to| to.out.append(&RespReply::Array(push), PUSH_LIMIT));
            match pushed {
                Some(Ok(waker)) => self.wakers.extend(waker),
                Some(Err(Flooded)) => self.cut_off(id, "it does not read its messages"),
                // It was cut off meanwhile.
                None => {}
            }
            // Not only after the last one: a long message to many would take all memory until then.
            self.relieve();
        }
        Ok(sent)
    }
}

/// The approximate memory of a subscription, here and at its client.
fn taken_by(name: &[u8]) -> usize {
    name.len() + 200
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
        let mut state = ServerState::new(None, TimeAndRandom::of_process());
        let start = state.now;
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(state.now, start, "time stands still within a command");
        state.tick();
        assert_eq!(state.now, start + Duration::from_secs(60));
    }

    #[test]
    fn a_disconnected_client_leaves_nothing() {
        let mut state = ServerState::new(None, TimeAndRandom::of_process());
        let (id, _out) = state.register();
        for kind in [SubscriptionKind::Channel, SubscriptionKind::Pattern] {
            assert!(
                state
                    .subscribe(id, kind, b"a*")
                    .is_ok_and(|count| count > 0)
            );
        }
        assert_eq!(state.publish(b"a*", b"m"), Ok(2));
        state.disconnect(id, true);
        assert!(state.clients.is_empty());
        assert!(state.subscribers.iter().all(FastMap::is_empty));
        assert_eq!(state.subscribed, 0);
        assert_eq!(state.publish(b"a*", b"m"), Ok(0));
    }
}
