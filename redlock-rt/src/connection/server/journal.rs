//! Log lines about a client's connections and rights; see `docs/observability.md`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::info::Info;
use crate::clock;
use crate::connection::fault::{Cause, Fault};
use crate::limit::Limit;
use crate::meter::{self, Event, News, ServerEvent};
use crate::shim::lock_std;

/// The target of its lines. They are about the client, so outside the span of the noticing caller.
const TARGET: &str = "redlock_rt::connection";
const RIGHTS: &str = "redlock_rt::rights";

/// Whether the server can be reached, for all connections of a client together. Pure state.
#[derive(Debug, Default)]
struct Presence {
    outage: Option<Outage>,
    /// Whether a connection was ever made.
    reached: bool,
    /// Another server has its slots.
    replaced: bool,
    limit: Limit,
}

#[derive(Debug)]
struct Outage {
    since: Instant,
    told: bool,
    /// The server that was lost, if this one has its slots now.
    of: Option<Arc<str>>,
    /// There is a connection again, but no call on it was answered yet.
    connected: bool,
    /// When it ended for callers, unless they were refused since.
    ended: Option<Instant>,
}

/// A line about an outage.
#[derive(Debug, PartialEq, Eq)]
struct OutageLine {
    message: &'static str,
    of: Option<Arc<str>>,
    down_for: Duration,
    left_out: u64,
}

/// A number for a log field.
fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Presence {
    /// A connection was lost, or could not be made. If this must be logged (once per outage), returns
    /// the duration of the outage and how many short ones were left out before it.
    fn lost(&mut self, now: Instant) -> Option<OutageLine> {
        if self.replaced {
            return None;
        }
        let outage = self.outage.get_or_insert(Outage {
            since: now,
            told: false,
            of: None,
            connected: false,
            ended: None,
        });
        outage.connected = false;
        if outage.told || !self.limit.is_open(now) {
            return None;
        }
        outage.told = true;
        let left_out = self.limit.pass(now)?;
        Some(OutageLine {
            message: match self.reached {
                true => "connection to redis lost",
                false => "cannot connect to redis",
            },
            of: None,
            down_for: now.saturating_duration_since(outage.since),
            left_out,
        })
    }

    /// A connection was made. Returns whether an outage ends with the first call that is answered.
    fn connected(&mut self, now: Instant) -> bool {
        let Some(outage) = &mut self.outage else {
            self.reached = true;
            return false;
        };
        outage.connected = true;
        outage.ended = Some(now);
        true
    }

    /// A call was refused with a reason that concerns all calls.
    fn refused(&mut self) {
        if let Some(outage) = &mut self.outage {
            outage.ended = None;
        }
    }

    /// A call was answered. Returns how long there was no connection, if the loss was logged.
    fn back(&mut self, now: Instant) -> Option<OutageLine> {
        let outage = self.outage.take_if(|outage| outage.connected)?;
        let again = std::mem::replace(&mut self.reached, true);
        if !outage.told {
            self.limit.left_out += 1;
            return None;
        }
        Some(OutageLine {
            message: match (&outage.of, again) {
                (Some(_), _) => "another node serves the slots",
                (None, true) => "connection to redis is back",
                (None, false) => "connected to redis at last",
            },
            of: outage.of,
            down_for: outage
                .ended
                .unwrap_or(now)
                .saturating_duration_since(outage.since),
            left_out: 0,
        })
    }

    /// Another server, which answers, has taken over all slots of this one, and so the outage.
    fn replaced(&mut self) -> Option<Outage> {
        let outage = self.outage.take()?;
        self.replaced = true;
        Some(outage)
    }
}

/// A command that an ACL may forbid, with the effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Right(&'static str, &'static str);

impl Right {
    pub(crate) const PUBLISH: Self = Self(
        "PUBLISH",
        "releases wake nobody: those who wait find out by polling",
    );
    pub(crate) const SUBSCRIBE: Self = Self(
        "SUBSCRIBE",
        "nobody is woken here: those who wait find out by polling",
    );
    pub(crate) const TRACKING: Self = Self(
        "CLIENT TRACKING",
        "a lock that is deleted or taken by others is noticed at its next renewal",
    );
    pub(crate) const CLIENT_ID: Self = Self("CLIENT ID", RUNS_LATE);
    pub(crate) const CLIENT_KILL: Self = Self("CLIENT KILL", RUNS_LATE);
    pub(crate) const INFO: Self = Self(
        "INFO",
        "a failover is not recognised: commands lost in a dead connection may run late, and \
         connections may lead to different servers",
    );
}

const RUNS_LATE: &str =
    "a command that was lost in a dead connection may run late; its lock ends with its lease";

/// A connection in addition to that for commands, and the effect if it cannot be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Beside(&'static str);

impl Beside {
    pub(crate) const RENEWALS: Self = Self("locks are renewed over the connection for commands");
    pub(crate) const REPLICAS: Self = Self("locks that wait for replicas are not given");
    pub(crate) const ANNOUNCEMENTS: Self = Self("those who wait find out by polling");
}

/// The lines of one client.
pub(crate) struct Journal {
    server: Arc<str>,
    pub(in crate::connection) news: Option<Arc<News>>,
    state: Mutex<JournalState>,
    /// The end of an outage is reported with the next answered call.
    returning: AtomicBool,
}

#[derive(Debug, Default)]
struct JournalState {
    presence: Presence,
    /// Whether the line about the first connection was logged.
    introduced: bool,
    /// Limits the lines about tries to connect.
    tries: Limit,
    /// Limits the lines about failures to listen to sentinels.
    listening: Limit,
    /// Limits the lines about repeated calls.
    repeats: Limit,
    /// Whether the line about blocked releases was logged in this outage.
    held_up: bool,
    hold_ups: Limit,
    /// Limits the lines about releases that were refused.
    refusals: Limit,
    /// Limits the lines about other servers at the address.
    moves: Limit,
    missing: Vec<Right>,
    /// The missing connections that were logged, until they are made, and the limit of these lines.
    without: Vec<Beside>,
    /// Whether it was logged that replicas are missing, until there are enough.
    few: bool,
    lacks: Limit,
}

/// Writes a line, with how many were left out before it, unless the limit forbids it.
macro_rules! limited {
    ($journal:ident.$limit:ident => $level:ident [$($fields:tt)*] $message:literal) => {
        let passed = lock_std(&$journal.state).$limit.pass(clock::now());
        if let Some(left_out) = passed {
            tracing::$level!(
                target: TARGET, parent: None,
                server = &*$journal.server, $($fields)*, left_out,
                $message
            );
        }
    };
}

impl Journal {
    pub(super) fn new(server: Arc<str>) -> Self {
        Self {
            server,
            news: None,
            state: Mutex::default(),
            returning: AtomicBool::new(false),
        }
    }

    /// A connection ended that was not closed by this client.
    pub(crate) fn lost(&self, why: &str) {
        let mut state = lock_std(&self.state);
        let is_new = state.presence.outage.is_none();
        let told = state.presence.lost(clock::now_in_drop());
        if is_new && state.presence.outage.is_some() {
            self.says(ServerEvent::Lost);
        }
        drop(state);
        if let Some(told) = told {
            tracing::warn!(
                target: TARGET, parent: None,
                server = &*self.server, reason = why, down_for_ms = millis(told.down_for),
                left_out = told.left_out,
                "{}", told.message
            );
        }
    }

    fn says(&self, what: ServerEvent) {
        if what == ServerEvent::Back {
            meter::reconnected();
        }
        if let Some(news) = &self.news {
            news.tell(|| Event::Server {
                server: Arc::clone(&self.server),
                what,
            });
        }
    }

    /// A connection could not be made; `beside`: while the connection for commands works.
    pub(crate) fn failed(&self, beside: Option<Beside>, fault: &Fault) {
        if fault.cause == Cause::Closed {
            return;
        }
        if let Some(lane) = beside {
            return self.is_without(lane, fault);
        }
        let reason = fault.reason();
        self.lost(&reason);
        limited!(self.tries => debug [reason] "could not connect");
    }

    fn is_without(&self, lane: Beside, fault: &Fault) {
        let mut state = lock_std(&self.state);
        let is_new = !state.without.contains(&lane);
        let Some(left_out) = is_new.then(|| state.lacks.pass(clock::now())).flatten() else {
            return;
        };
        state.without.push(lane);
        drop(state);
        tracing::warn!(
            target: TARGET, parent: None,
            server = &*self.server, reason = fault.reason(), effect = lane.0, left_out,
            "a connection is missing"
        );
    }

    /// How many replicas had a lock in time, and how many were to have it.
    pub(crate) fn replicated(&self, acknowledged: u32, wanted: u32) {
        let mut state = lock_std(&self.state);
        let few = acknowledged < wanted;
        let is_new = few && !state.few;
        let Some(left_out) = is_new.then(|| state.lacks.pass(clock::now())).flatten() else {
            state.few &= few;
            return;
        };
        state.few = true;
        drop(state);
        tracing::warn!(
            target: TARGET, parent: None,
            server = &*self.server, acknowledged, wanted, left_out,
            "replicas are missing"
        );
    }

    /// Listening to a sentinel failed; another one is tried.
    pub(crate) fn failed_to_listen(&self, fault: &Fault) {
        limited!(self.listening => debug [reason = fault.reason()] "not listening to a sentinel");
    }

    /// A call failed that will be repeated.
    pub(crate) fn will_repeat(&self, name: &str, fault: &Fault) {
        limited!(
            self.repeats => debug [lock = name, reason = fault.reason()]
            "a call failed and is made again"
        );
    }

    /// A background call cannot be sent, and waiting does not help.
    pub(crate) fn holds_up(&self, name: &str, fault: &Fault) {
        meter::release_failed();
        let mut state = lock_std(&self.state);
        if state.held_up {
            return;
        }
        let passed = state.hold_ups.pass(clock::now());
        state.held_up = passed.is_some();
        drop(state);
        if let Some(left_out) = passed {
            tracing::warn!(
                target: TARGET, parent: None,
                server = &*self.server, lock = name, reason = fault.reason(), left_out,
                "releases wait until redis lets this client in"
            );
        }
    }

    /// Redis refuses a call that no caller waits for, with this effect.
    pub(crate) fn refuses(&self, name: &str, fault: &Fault, effect: &'static str) {
        meter::release_failed();
        limited!(
            self.refusals => warn [lock = name, reason = fault.reason(), effect]
            "redis refuses a release"
        );
    }

    /// The address leads to another server process than before.
    pub(super) fn moved(&self, run_id: &str) {
        self.says(ServerEvent::Failover);
        limited!(
            self.moves => warn [run_id]
            "the address leads to another server process than before; connections to the old \
             one are closed and every lock is verified"
        );
    }

    /// The sentinels name another master than that of these connections.
    pub(super) fn other_master(&self, master: &str) {
        limited!(
            self.moves => warn [master]
            "the sentinels name another master; connections to the old one are closed"
        );
    }

    /// The server of the first connection.
    pub(in crate::connection) fn introduce(&self, info: &Info, topology: &'static str) {
        if !std::mem::replace(&mut lock_std(&self.state).introduced, true) {
            tracing::info!(
                target: TARGET, parent: None,
                server = &*self.server, version = info.version.as_deref(),
                role = info.role.as_deref(), topology,
                "first connection to redis"
            );
        }
    }

    /// A connection was made; `None`: that for commands. An outage ends with the first answered call.
    pub(crate) fn connected(&self, lane: Option<Beside>) {
        let mut state = lock_std(&self.state);
        state.held_up = false;
        state.without.retain(|without| Some(*without) != lane);
        if state.presence.connected(clock::now()) {
            self.returning.store(true, Ordering::Relaxed);
        }
    }

    /// A call was answered; `refused`: with a reason that concerns all calls.
    pub(in crate::connection) fn answered(&self, refused: bool) {
        if !self.returning.load(Ordering::Relaxed) {
            return;
        }
        if refused {
            return lock_std(&self.state).presence.refused();
        }
        self.returning.store(false, Ordering::Relaxed);
        let mut state = lock_std(&self.state);
        if let Some(outage) = &state.presence.outage
            && outage.connected
        {
            self.says(match outage.of {
                Some(_) => ServerEvent::Failover,
                None => ServerEvent::Back,
            });
        }
        let told = state.presence.back(clock::now());
        drop(state);
        if let Some(told) = told {
            tracing::info!(
                target: TARGET, parent: None,
                server = &*self.server, lost = told.of.as_deref(),
                down_for_ms = millis(told.down_for),
                "{}", told.message
            );
        }
    }

    /// Takes over the outage of a server that may be lost, and whose slots this one has now.
    pub(in crate::connection) fn replaces(&self, lost: &Self) {
        let Some(outage) = lock_std(&lost.state).presence.replaced() else {
            return;
        };
        let of = outage.of.unwrap_or_else(|| Arc::clone(&lost.server));
        lock_std(&self.state).presence.outage = Some(Outage {
            of: Some(of),
            connected: true,
            ended: None,
            ..outage
        });
        self.returning.store(true, Ordering::Relaxed);
    }

    /// It has slots again.
    pub(in crate::connection) fn returns(&self) {
        lock_std(&self.state).presence.replaced = false;
    }

    /// Redis refuses a command because of an ACL; logged once per client.
    pub(crate) fn is_missing(&self, right: Right) {
        let mut state = lock_std(&self.state);
        if state.missing.contains(&right) {
            return;
        }
        state.missing.push(right);
        drop(state);
        tracing::warn!(
            target: RIGHTS, parent: None,
            server = &*self.server, right = right.0, effect = right.1,
            "redis refuses a right"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn told(message: &'static str, down_for: Duration, left_out: u64) -> Option<OutageLine> {
        Some(OutageLine {
            message,
            of: None,
            down_for,
            left_out,
        })
    }

    #[test]
    fn an_outage_is_told_once_and_its_end_too() {
        let start = Instant::now();
        let mut presence = Presence::default();
        assert!(!presence.connected(start));
        let lost = || told("connection to redis lost", Duration::ZERO, 0);
        assert_eq!(presence.lost(start), lost());
        for second in 0..100 {
            assert_eq!(presence.lost(start + second * S), None);
        }
        let back = told("connection to redis is back", 100 * S, 0);
        assert_eq!(presence.back(start + 99 * S), None, "no connection");
        assert!(presence.connected(start + 90 * S));
        // As by a server that is loading: its callers still feel it.
        presence.refused();
        assert_eq!(presence.back(start + 100 * S), back);
        assert_eq!(presence.back(start + 100 * S), None);
        assert_eq!(presence.lost(start + 100 * S), lost());
    }

    #[test]
    fn what_was_never_there_is_not_lost() {
        let start = Instant::now();
        let mut presence = Presence::default();
        let never = told("cannot connect to redis", Duration::ZERO, 0);
        assert_eq!(presence.lost(start), never);
        let at_last = told("connected to redis at last", S, 0);
        assert!(presence.connected(start + S));
        // The first call may come much later.
        assert_eq!(presence.back(start + 50 * S), at_last);
        let lost = told("connection to redis lost", Duration::ZERO, 0);
        assert_eq!(presence.lost(start + 2 * S), lost);
    }

    /// Its end was reported when the node returned, with the whole time of its absence.
    #[test]
    fn the_outage_of_a_node_ends_where_another_one_serves_its_slots() {
        let (lost, other) = (Journal::new("a:1".into()), Journal::new("b:1".into()));
        lost.connected(None);
        lost.lost("it hung up");
        other.replaces(&lost);
        assert!(other.returning.swap(false, Ordering::Relaxed));
        other.replaces(&lost);
        assert!(!other.returning.load(Ordering::Relaxed));
        // A task that still tries to connect there reports nothing.
        lost.lost("it hung up");
        assert!(lock_std(&lost.state).presence.outage.is_none());
        let told = lock_std(&other.state).presence.back(clock::now()).unwrap();
        assert_eq!(told.message, "another node serves the slots");
        assert_eq!(told.of.as_deref(), Some("a:1"));
        lost.connected(None);
        assert!(!lost.returning.load(Ordering::Relaxed));
        lost.returns();
        lost.lost("it hung up");
        assert!(lock_std(&lost.state).presence.outage.is_some());
    }

    #[test]
    fn outages_that_follow_each_other_are_counted() {
        let start = Instant::now();
        let mut presence = Presence::default();
        let back = |presence: &mut Presence, now| {
            presence.connected(now);
            presence.back(now)
        };
        assert!(presence.lost(start).is_some() && back(&mut presence, start).is_some());
        for _ in 0..5 {
            assert_eq!(presence.lost(start + S / 2), None);
            assert_eq!(back(&mut presence, start + S / 2), None);
        }
        // A lasting outage is logged as soon as the limit allows it.
        assert_eq!(presence.lost(start + S / 2), None);
        let lost = told("connection to redis lost", S / 2, 5);
        assert_eq!(presence.lost(start + S), lost);
        let end = told("connection to redis is back", 3 * S / 2, 0);
        assert_eq!(back(&mut presence, start + 2 * S), end);
    }
}
