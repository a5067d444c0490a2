//! The server process to which the connections of a client lead: one for all of them.
//!
//! After a failover behind one address, connections that are still open lead to the old server, and new ones
//! to the new server. A lock that is renewed on the old one and free on the new one has two holders. So
//! every connection reports its server (`run_id`) before it is used.
//!
//! # Invariants
//!
//! 1. All live connections with a known server lead to the current server. If a connection leads to
//!    another server, the others are abandoned before it is used, and every hold is verified.
//! 2. The connection that was dialed last decides which server is the current one.
//! 3. An abandoned server is refused for a while, long enough to verify every hold on the new one. Otherwise
//!    an address that alternates between two servers could lead back to the old server before the new one
//!    was asked. A hold that only the old server has would then stay valid.
//!
//! A connection with an unknown server (an ACL forbids INFO) changes none of this.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::greeting::Identity;
use super::info::{Info, Unfit};
use super::journal::{Journal, Right};
use crate::clock;
use crate::connection::address::Address;
use crate::connection::fault::Fault;
use crate::shim::lock_std;

/// The number of abandoned servers to remember.
const MOST_LEFT: usize = 8;

/// The current server, as far as connections have reported it. Pure state.
#[derive(Debug, Default)]
struct View {
    /// The number of dials so far.
    dials: u64,
    current: Option<Current>,
    /// The abandoned servers, with the time.
    left: Vec<(String, Instant)>,
}

#[derive(Debug)]
struct Current {
    run_id: String,
    /// The last dial that led there.
    dial: u64,
}

/// The effect of a new connection on the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arrival {
    /// The others lead to the same server.
    Joined,
    /// The others lead to a server that is now abandoned.
    Moved,
    /// The new connection is useless: it leads to an abandoned server, or to one that is older than
    /// the current one.
    Outdated,
}

impl View {
    fn dial(&mut self) -> u64 {
        self.dials += 1;
        self.dials
    }

    /// Records that the dial of this number led to `run_id`. A server that was abandoned less than
    /// `refused_for` ago is refused.
    fn arrive(&mut self, dial: u64, run_id: &str, now: Instant, refused_for: Duration) -> Arrival {
        let next = || Current {
            run_id: run_id.to_owned(),
            dial,
        };
        let Some(current) = &mut self.current else {
            self.current = Some(next());
            return Arrival::Joined;
        };
        if current.run_id == run_id {
            current.dial = current.dial.max(dial);
            return Arrival::Joined;
        }
        self.left
            .retain(|(_, since)| now.saturating_duration_since(*since) < refused_for);
        if dial < current.dial || self.left.iter().any(|(left, _)| left == run_id) {
            return Arrival::Outdated;
        }
        let before = std::mem::replace(current, next());
        if self.left.len() == MOST_LEFT {
            self.left.remove(0);
        }
        self.left.push((before.run_id, now));
        Arrival::Moved
    }
}

/// The part of one connection that depends on the others.
pub(in crate::connection) struct Tie {
    left: AtomicBool,
    pub(in crate::connection) at: Option<Address>,
    end: Box<dyn Fn() + Send + Sync>,
}

impl Tie {
    /// `at`: where the connection leads to, if that is known. `end`: ends it; called with no lock
    /// held.
    pub(in crate::connection) fn new(
        at: Option<Address>,
        end: impl Fn() + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            left: AtomicBool::new(false),
            at,
            end: Box::new(end),
        })
    }

    /// Whether the connection was abandoned for another server: no reply on it counts any more.
    pub(in crate::connection) fn is_left(&self) -> bool {
        self.left.load(Ordering::Acquire)
    }
}

/// The connection that is told there of writes to the keys of locks.
#[derive(Debug, Default)]
pub(in crate::connection) enum Listener {
    /// No connection has listened yet.
    #[default]
    Nobody,
    /// The connection that listens, or did last.
    At(Identity),
    /// The server reports to no connection, or the connection is unknown.
    Refused,
}

/// The state of the current server that the connections of a client share.
pub(crate) struct CurrentServer {
    pub(crate) place: Arc<str>,
    refused_for: Duration,
    /// Whether it is a node of a cluster, which may become a replica and a master again.
    pub(in crate::connection) clustered: bool,
    on_move: Box<dyn Fn() + Send + Sync>,
    /// Whether a connection was ever made: the configuration is, or was, correct.
    reached: AtomicBool,
    /// The server that is known to let this client renew locks, and whether it executes HDEL; see
    /// `call::needed_rights`.
    proof: Mutex<Option<(Option<String>, bool)>>,
    listener: Mutex<Listener>,
    /// The master that the sentinels named last.
    named: watch::Sender<Option<Address>>,
    pub(crate) journal: Journal,
    state: Mutex<ServerState>,
}

#[derive(Default)]
struct ServerState {
    view: View,
    /// The connections that lead to the current server. A connection with an unknown server is included if
    /// its address is known.
    ties: Vec<Weak<Tie>>,
}

impl ServerState {
    fn join(&mut self, tie: &Arc<Tie>) {
        self.ties.retain(|tie| tie.strong_count() > 0);
        self.ties.push(Arc::downgrade(tie));
    }

    /// Removes the connections that must be closed. No reply on them counts from now on.
    fn leave(&mut self, is_to_close: impl Fn(&Tie) -> bool) -> Vec<Arc<Tie>> {
        let mut left = Vec::new();
        self.ties.retain(|tie| match tie.upgrade() {
            Some(tie) if is_to_close(&tie) => {
                tie.left.store(true, Ordering::Release);
                left.push(tie);
                false
            }
            Some(_) => true,
            None => false,
        });
        left
    }
}

impl CurrentServer {
    /// `place`: the server's name in logs and errors. `refused_for`: how long an abandoned server
    /// is refused. `on_move` is called after connections were abandoned for another server, before
    /// that server is used, and when sentinels name another master.
    pub(crate) fn new(
        place: Arc<str>,
        refused_for: Duration,
        on_move: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        Self {
            journal: Journal::new(Arc::clone(&place)),
            place,
            refused_for,
            clustered: false,
            on_move: Box::new(on_move),
            reached: AtomicBool::new(false),
            proof: Mutex::default(),
            listener: Mutex::default(),
            named: watch::Sender::new(None),
            state: Mutex::default(),
        }
    }

    /// Whether the server with this `run_id` executes HDEL; `None`: not known.
    pub(in crate::connection) fn deletes(&self, run_id: Option<&String>) -> Option<bool> {
        let proof = lock_std(&self.proof);
        let (of, deletes) = proof.as_ref()?;
        (of.as_ref() == run_id).then_some(*deletes)
    }

    pub(in crate::connection) fn is_proven(&self, run_id: Option<&String>, deletes: bool) {
        *lock_std(&self.proof) = Some((run_id.cloned(), deletes));
    }

    pub(in crate::connection) fn listener(&self) -> MutexGuard<'_, Listener> {
        lock_std(&self.listener)
    }

    /// The server refuses to report writes to keys. It is not asked until another connection listens.
    pub(crate) fn tells_nobody(&self) {
        *self.listener() = Listener::Refused;
        self.journal.is_missing(Right::TRACKING);
    }

    /// Whether the server has refused to report writes to keys, since a connection listens.
    pub(crate) fn refuses_to_tell(&self) -> bool {
        matches!(*self.listener(), Listener::Refused)
    }

    /// Numbers a dial that begins now.
    pub(super) fn dial(&self) -> u64 {
        lock_std(&self.state).view.dial()
    }

    /// Whether a connection was ever made.
    pub(in crate::connection) fn was_reached(&self) -> bool {
        self.reached.load(Ordering::Relaxed)
    }

    /// The servers were reached in another way.
    pub(in crate::connection) fn is_reached(&self) {
        self.reached.store(true, Ordering::Relaxed);
    }

    /// Records the INFO of this dial's server.
    ///
    /// # Errors
    ///
    /// The connection may not be used: the server is unsuitable, or was abandoned. After the first
    /// connection, a replica is a temporary fault: during a failover the address may lead to one for a
    /// while.
    pub(in crate::connection) fn arrive(
        &self,
        dial: u64,
        info: &Info,
        tie: &Arc<Tie>,
    ) -> Result<(), Fault> {
        match info.unfit(self.clustered) {
            Some(Unfit::Replica(why)) if self.was_reached() || self.clustered => {
                return Err(Fault::unreachable(std::io::Error::other(why)));
            }
            Some(Unfit::Replica(why) | Unfit::Always(why)) => {
                return Err(Fault::misconfigured(std::io::Error::other(why)));
            }
            None => {}
        }
        match &info.run_id {
            Some(run_id) if !self.follow(dial, run_id, tie) => return Err(Fault::outdated()),
            None if tie.at.is_some() => lock_std(&self.state).join(tie),
            _ => {}
        }
        self.reached.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Returns whether the connection of this dial, which leads to `run_id`, may be used.
    fn follow(&self, dial: u64, run_id: &str, tie: &Arc<Tie>) -> bool {
        let now = clock::now();
        let mut state = lock_std(&self.state);
        let arrival = state.view.arrive(dial, run_id, now, self.refused_for);
        if arrival == Arrival::Outdated {
            drop(state);
            let server = &*self.place;
            tracing::debug!(server, run_id, "the address led to a server that was left");
            return false;
        }
        let mut left: Vec<Arc<Tie>> = Vec::new();
        if arrival == Arrival::Moved {
            // Under the mutex: when the next connection arrives, no connection to the old server is in use.
            left = state.leave(|_| true);
        }
        state.join(tie);
        drop(state);
        left.iter().for_each(|tie| (tie.end)());
        if arrival == Arrival::Moved {
            self.journal.moved(run_id);
            (self.on_move)();
        }
        true
    }

    /// The sentinels name this master. Connections to another one are closed, and nothing waits for it any
    /// more.
    pub(super) fn is_named(&self, master: &Address) {
        let left = lock_std(&self.state).leave(|tie| {
            let at = tie.at.as_ref();
            at.is_some_and(|at| at != master)
        });
        left.iter().for_each(|tie| (tie.end)());
        if !left.is_empty() {
            self.journal.other_master(&master.place());
        }
        let mut before = None;
        self.named.send_if_modified(|named| {
            let differs = named.as_ref() != Some(master);
            if differs {
                before = named.replace(master.clone());
            }
            differs
        });
        if before.is_some() {
            // Also if no connection is left, so that nothing waits for the next renewal.
            (self.on_move)();
        }
    }

    /// Waits for the sentinels to name another master. Names after this call are not missed.
    pub(in crate::connection) fn switches(&self) -> Switches {
        Switches(self.named.subscribe())
    }
}

/// Waits for the sentinels to name another master.
pub(in crate::connection) struct Switches(watch::Receiver<Option<Address>>);

impl Switches {
    /// Waits for another master than `master`; `None`: than the one that was named last.
    pub(in crate::connection) async fn other_than(&mut self, master: Option<&Address>) {
        // The sender lives as long as the client.
        while self.0.changed().await.is_ok() {
            if master.is_none() || self.0.borrow_and_update().as_ref() != master {
                return;
            }
        }
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::atomic::AtomicUsize;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn the_connection_dialed_last_decides() {
        let now = Instant::now();
        let mut view = View::default();
        let dials = [view.dial(), view.dial(), view.dial()];
        assert_eq!(view.arrive(dials[1], "a", now, S), Arrival::Joined);
        // Dialed earlier, and slow: the address may lead elsewhere since.
        assert_eq!(view.arrive(dials[0], "b", now, S), Arrival::Outdated);
        assert_eq!(view.arrive(dials[0], "a", now, S), Arrival::Joined);
        assert_eq!(view.arrive(dials[2], "b", now, S), Arrival::Moved);
    }

    #[test]
    fn a_server_that_was_left_is_refused_for_a_while() {
        let now = Instant::now();
        let mut view = View::default();
        let mut arrive = |run_id, at| {
            let dial = view.dial();
            view.arrive(dial, run_id, at, 6 * S)
        };
        assert_eq!(arrive("a", now), Arrival::Joined);
        assert_eq!(arrive("b", now + S), Arrival::Moved);
        assert_eq!(arrive("a", now + 6 * S), Arrival::Outdated);
        assert_eq!(arrive("b", now + 6 * S), Arrival::Joined);
        // A failover back: by then it is a server like any other.
        assert_eq!(arrive("a", now + 7 * S), Arrival::Moved);
        assert_eq!(arrive("b", now + 7 * S), Arrival::Outdated);
    }

    #[test]
    fn the_others_are_left_before_the_new_one_may_be_used() {
        let (moves, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let count = |counter: &Arc<AtomicUsize>| {
            let counter = Arc::clone(counter);
            move || {
                counter.fetch_add(1, Ordering::Relaxed);
            }
        };
        let server = CurrentServer::new("here".into(), S, count(&moves));
        let ties = [(); 4].map(|()| Tie::new(None, count(&ended)));
        assert!(server.follow(server.dial(), "a", &ties[0]));
        assert!(server.follow(server.dial(), "a", &ties[1]));
        assert!(server.follow(server.dial(), "b", &ties[2]));
        assert!(!server.follow(server.dial(), "a", &ties[3]), "it was left");
        let left = [0, 1, 2, 3].map(|at: usize| ties[at].is_left());
        assert_eq!(left, [true, true, false, false]);
        assert_eq!(ended.load(Ordering::Relaxed), 2);
        assert_eq!(moves.load(Ordering::Relaxed), 1);
    }

    /// Some proxies and forks leave the run id out of INFO.
    #[test]
    fn a_master_without_a_run_id_is_left_when_sentinels_name_another() {
        let server = CurrentServer::new("here".into(), S, || {});
        let at = |port| Address::tcp("10.0.0.1", port);
        let ties = [Some(at(1)), Some(at(2)), None].map(|at| Tie::new(at, || {}));
        for tie in &ties {
            let arrived = server.arrive(server.dial(), &Info::default(), tie);
            assert!(arrived.is_ok(), "{arrived:?}");
        }
        server.is_named(&at(2));
        assert_eq!(ties.map(|tie| tie.is_left()), [true, false, false]);
    }

    #[test]
    fn a_slow_dial_to_the_server_before_is_refused() {
        let server = CurrentServer::new("here".into(), S, || {});
        let (first, second) = (server.dial(), server.dial());
        let tie = || Tie::new(None, || {});
        assert!(server.follow(second, "b", &tie()));
        assert!(!server.follow(first, "a", &tie()));
    }

    proptest! {
        /// An address that leads to two servers in turn changes the current one at most once in
        /// the time for which one that was left is refused.
        #[test]
        fn two_servers_in_turn_change_the_current_one_only_so_often(
            steps in proptest::collection::vec((any::<bool>(), 0u64..400), 1..200),
        ) {
            let mut now = Instant::now();
            let mut view = View::default();
            let mut last_move = None;
            for (to_b, millis) in steps {
                now += Duration::from_millis(millis);
                let dial = view.dial();
                let run_id = if to_b { "b" } else { "a" };
                if view.arrive(dial, run_id, now, S) == Arrival::Moved {
                    let since = last_move.replace(now).map(|last| now - last);
                    prop_assert!(since.is_none_or(|since| since >= S), "{since:?}");
                }
            }
        }
    }
}
