//! Waiting until replicas have a lock.
//!
//! An acquired lock is written to on another connection, followed by WAIT (`touch.lua` says why). That
//! connection blocks while replicas do not answer. No other connection does, and each way to wait has its own.
//! All locks that are ready together at one server share one WAIT. One caller sends it for all; there is no
//! task.
//!
//! * Before Redis 7.2 any command moved the offset of a connection that WAIT looks at. Since 7.2 only a
//!   replicated command does. So there is a write, which changes nothing and also checks that the hold is in
//!   the key: after a failover in between, the lock may have another owner.
//! * A caller that wants one replica, which is available, must not wait behind a WAIT for two, one of which is
//!   not. CLIENT UNBLOCK would end that WAIT, but needs one more right. Only numbers above two share a
//!   connection.
//! * In a cluster too, one WAIT follows the writes to all slots of a master: a call for each slot, and for at
//!   most 100 locks. An error in one slot concerns only its own locks. While a slot is being moved, each of
//!   its locks is written to separately: at its master, and then at the next one if the key is there already.
//! * If the caller that sends is cancelled, the next one sends again. A turn ends when the first of its
//!   callers has no time left, and after about 250 ms in any case. If the turn does not end, because its
//!   caller is not polled, the next caller sends too.
//! * For `Majority` and `All` the same write asks for the number of replicas (INFO). The highest number of the
//!   connection counts, since a replica that has disconnected may be the one that is promoted.
//! * If a lock cannot be released within the wait, because the server has stopped meanwhile, it is released in
//!   the background.
//! * A refusal of WAIT or WAITAOF is remembered for that connection: later acquisitions that need the command
//!   fail before they take the lock. A master without an append-only file is not remembered, since the file
//!   may be turned on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use slab::Slab;
use tokio::sync::SetOnce;

use super::ClientEngine;
use super::guard::HoldGuard;
use super::hold::LostReason;
use crate::clock;
use crate::connection::{AckLane, Caller, Fault, Had, Hint, Node, Nodes, Until};
use crate::error::Error;
use crate::name::HoldId;
use crate::shim::{Mutex, lock};
use crate::wire::{Call, Recipe, Slot, touch, touched};

/// How many replicas must have a lock before its guard is returned.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReplicaAck {
    /// No wait for replicas: a failover may lose a lock that was just acquired.
    #[default]
    None,
    /// This many; zero is the same as `None`.
    AtLeast(u32),
    /// Enough replicas that more than half of the servers (the master and its replicas) have the lock. At
    /// least one.
    Majority,
    /// All existing replicas. At least one.
    All,
    /// At most this many, of those that the master has in step at that moment.
    ///
    /// **If the master has none, no replica has the lock**, and a failover loses it as with `None`. So there
    /// is no copy exactly when the next failure would lose the lock. Use it for work that must continue
    /// meanwhile, and that a fencing token, for example, protects.
    BestEffort(u32),
}

impl ReplicaAck {
    /// Whether this depends on the number of replicas.
    fn counts(self) -> bool {
        matches!(self, Self::Majority | Self::All | Self::BestEffort(_))
    }

    /// Whether a disconnected replica still counts.
    fn misses(self) -> bool {
        !matches!(self, Self::BestEffort(_))
    }

    /// `replicas`: the number of replicas, if that is known.
    fn wanted(self, replicas: Option<u32>) -> Option<u32> {
        match self {
            Self::None => Some(0),
            Self::AtLeast(wanted) => Some(wanted),
            Self::Majority => replicas.map(|replicas| replicas.div_ceil(2).max(1)),
            Self::All => replicas.map(|replicas| replicas.max(1)),
            Self::BestEffort(most) => replicas.map(|replicas| replicas.min(most)),
        }
    }
}

/// Which servers must have a lock on disk, and not only in memory, before its guard is returned.
///
/// On disk means in the append-only file, after fsync (`appendonly yes`). With `appendfsync everysec`
/// that takes up to two seconds, so set a longer
/// [`replica_timeout`](crate::ClientBuilder::replica_timeout).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fsync {
    /// None: memory is enough.
    #[default]
    None,
    /// The replicas that [`ReplicaAck`] asks for; the master need not.
    Replicas,
    /// The master, and the replicas that [`ReplicaAck`] asks for; with `ReplicaAck::None` the master
    /// alone.
    All,
}

/// Which servers must have a lock, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ack {
    pub(crate) replicas: ReplicaAck,
    pub(crate) fsync: Fsync,
}

impl Ack {
    pub(super) fn is_none(self) -> bool {
        use self::ReplicaAck::{AtLeast, BestEffort, None};
        let replicas = matches!(self.replicas, None | AtLeast(0) | BestEffort(0));
        replicas && self.fsync != Fsync::All
    }

    /// The number of replicas that must have it, as far as that is known.
    fn wanted(self, lane: &AckLane) -> Option<u32> {
        let there = lane.connection.replicas(self.replicas.misses());
        self.replicas.wanted(there)
    }

    /// The index of the connection of a server on which it waits. No caller waits there behind a WAIT for more
    /// servers, except behind one for more than two by number.
    pub(super) fn lane(self) -> usize {
        let replicas = match self.replicas {
            ReplicaAck::None => 0,
            ReplicaAck::AtLeast(wanted) => wanted.min(3) as usize,
            ReplicaAck::Majority => 4,
            ReplicaAck::All => 5,
            ReplicaAck::BestEffort(_) => 6,
        };
        3 * replicas + self.fsync as usize
    }

    pub(super) fn disk(self) -> bool {
        self.fsync != Fsync::None
    }

    /// The maximum time of a turn, about. Callers that come later wait for the next turn.
    fn turn(self) -> Duration {
        match self.disk() {
            true => DISK_TURN,
            false => TURN,
        }
    }

    fn missed(self, action: &'static str, wanted: u32, had: Had) -> Error {
        let got = had.replicas;
        let error = Error::replicas_of(action, wanted, got);
        if !self.disk() {
            return error;
        }
        let master = match had.local {
            true => "",
            false => "the master did not write it to disk in time, ",
        };
        let detail = format!("{master}{got} of {wanted} replicas did; it was released");
        error
            .saying("too few servers have the lock on disk")
            .detail(detail)
    }
}

/// How late the reply of WAIT may be: an idle server notices every 100 ms that the time is over.
const LATE: Duration = Duration::from_millis(150);
/// See [`Ack::turn`].
const TURN: Duration = Duration::from_millis(250);
/// The same where servers write to disk, which most do once a second.
const DISK_TURN: Duration = Duration::from_millis(1250);
/// One call touches at most this many locks, so that other clients need not wait for all of them.
const TOUCHED_AT_ONCE: usize = 100;

/// A lock that waits for replicas.
struct AckRequest {
    /// Its slot, in a cluster.
    slot: Slot,
    recipe: Arc<dyn Recipe>,
    owner: HoldId,
    ack: Ack,
    until: Instant,
    outcome: SetOnce<AckOutcome>,
}

#[derive(Debug, Clone)]
enum AckOutcome {
    /// So many replicas were wanted.
    Counted(u32, Had),
    /// The key is gone.
    Gone,
    Failed(Fault),
}

/// The locks of one client that wait for replicas.
#[derive(Default)]
pub(crate) struct Acks {
    ready: Mutex<Slab<Arc<AckRequest>>>,
}

/// Removes a caller's lock again when dropped.
struct Ready<'a> {
    acks: &'a Acks,
    at: usize,
}

impl Acks {
    fn ready(&self, entry: &Arc<AckRequest>) -> Ready<'_> {
        let at = lock(&self.ready).insert(Arc::clone(entry));
        Ready { acks: self, at }
    }

    /// The locks that wait in this way at this server, by slot.
    fn waiting(&self, nodes: &Nodes, node: &Arc<Node>, ack: Ack) -> Vec<Arc<AckRequest>> {
        let is_here = |slot| {
            nodes
                .known(slot)
                .is_some_and(|known| Arc::ptr_eq(&known, node))
        };
        let ready = lock(&self.ready);
        let alike = ready.iter().map(|(_, entry)| entry);
        let alike = alike.filter(|entry| entry.ack == ack && !entry.outcome.initialized());
        let mut entries: Vec<_> = alike.map(Arc::clone).collect();
        drop(ready);
        entries.retain(|entry| is_here(entry.slot));
        entries.sort_by_key(|entry| entry.slot);
        entries
    }
}

impl Drop for Ready<'_> {
    fn drop(&mut self) {
        let entry = lock(&self.acks.ready).remove(self.at);
        drop(entry);
    }
}

impl ClientEngine {
    /// Waits for the replicas that the client's settings ask for.
    pub(crate) async fn acknowledged_by_default(
        self: &Arc<Self>,
        action: &'static str,
        guard: HoldGuard,
    ) -> Result<HoldGuard, Error> {
        match self.ack(None, None) {
            None => Ok(guard),
            // Boxed: it is rare, and would add to the size of every such future.
            Some(ack) => Box::pin(self.acknowledged(action, guard, ack, None)).await,
        }
    }

    /// Waits until enough replicas have the lock of this guard, at most until `deadline`.
    ///
    /// # Cancel safety
    ///
    /// The guard is dropped, which releases the lock.
    ///
    /// # Errors
    ///
    /// The lock was released; of a re-entered lock, only this hold.
    pub(super) async fn acknowledged(
        self: &Arc<Self>,
        action: &'static str,
        guard: HoldGuard,
        ack: Ack,
        deadline: Option<Instant>,
    ) -> Result<HoldGuard, Error> {
        let started = clock::now();
        let limit = clock::after(started, self.config.replica_timeout);
        let until = deadline.map_or(limit, |deadline| deadline.min(limit));
        let name = guard.hold.recipe.name().as_arc();
        let entry = Arc::new(AckRequest {
            slot: self.nodes.slot_of(guard.hold.recipe.name()),
            recipe: Arc::clone(&guard.hold.recipe),
            owner: guard.hold.hold_id().clone(),
            ack,
            until,
            outcome: SetOnce::new(),
        });
        let outcome = clock::timeout_at(clock::to_tokio(until), self.counted(&entry)).await;
        let node = self.nodes.known(entry.slot);
        if let (Ok(AckOutcome::Counted(wanted, had)), Some(node)) = (&outcome, &node) {
            node.common
                .current
                .journal
                .replicated(had.replicas, *wanted);
        }
        let error = match outcome {
            Ok(AckOutcome::Counted(wanted, had)) if had.replicas >= wanted && had.local => {
                match guard.hold.lost_reason(clock::now()) {
                    None => return Ok(guard),
                    Some(reason) => return Err(guard.hold.lost_error(action, reason)),
                }
            }
            Ok(AckOutcome::Counted(wanted, had)) => ack.missed(action, wanted, had),
            Ok(AckOutcome::Gone) => {
                let lost = guard.hold.lost_reason(clock::now());
                let reason = lost.unwrap_or(LostReason::Deleted);
                guard.hold.mark_lost(reason.clone());
                return Err(guard.hold.lost_error(action, reason));
            }
            Ok(AckOutcome::Failed(fault)) => fault.into_error(action),
            Err(_) => {
                let wanted = node.and_then(|node| ack.wanted(node.acks(ack.lane())));
                ack.missed(action, wanted.unwrap_or_default(), Had::default())
            }
        };
        let error = error.named(name);
        // A release that is not finished by then continues in the background.
        let patience = self.patience(clock::now());
        let end = deadline.map_or(patience, |deadline| deadline.min(patience));
        let _ = guard.unlock_until(Some(end)).await;
        Err(error)
    }

    /// Sends a call for all that are ready, or waits for another caller that does.
    async fn counted(&self, entry: &Arc<AckRequest>) -> AckOutcome {
        let _ready = self.acks.ready(entry);
        let (retry, mut tries, mut hops, mut asks) = (&self.config.timeouts.retry, 0, 0, None);
        loop {
            let alone = asks.is_some();
            let node = match asks.take() {
                Some(node) => Ok(node),
                None => self.nodes.node(entry.slot).await,
            };
            let served = match &node {
                Err(fault) => Err(fault.clone()),
                Ok(node) => {
                    let lane = node.acks(entry.ack.lane());
                    // A caller whose outcome is known does not wait for another turn, which may wait for other
                    // callers.
                    let _turn = tokio::select! {
                        biased;
                        outcome = entry.outcome.wait() => return outcome.clone(),
                        turn = lane.turn(entry.ack.turn() + LATE * 3) => turn,
                    };
                    // Locks that came in the same read are served in this turn too.
                    tokio::task::yield_now().await;
                    self.serve(node, entry, alone).await
                }
            };
            let Err(fault) = served else {
                (tries, hops) = (0, 0);
                continue;
            };
            asks = match self.nodes.hint(&fault) {
                // A reply about several locks need not be true of each.
                Some(Hint::Apart) if !alone => node.ok(),
                _ => self.nodes.asked_at(&fault),
            };
            // Separately, and at the next master. If masters do not agree, they are asked again after a pause.
            if asks.is_some() && hops < 2 {
                hops += 1;
                continue;
            }
            hops = 0;
            let passing = fault.is_passing_for(Caller::Call);
            let again = passing.then(|| retry.again(&mut tries, entry.until));
            match again.flatten() {
                Some(again) => clock::sleep_until(again).await,
                None => return AckOutcome::Failed(fault),
            }
        }
    }

    /// One turn, for all requests like `like`. If this caller goes away or has less time than another, the
    /// next turn serves that one. `alone`: the slot is being moved, from this node or to it.
    ///
    /// # Errors
    ///
    /// Concern `like`; other requests get their errors in their own turns.
    async fn serve(
        &self,
        node: &Arc<Node>,
        like: &Arc<AckRequest>,
        alone: bool,
    ) -> Result<(), Fault> {
        let ack = like.ack;
        let lane = node.acks(ack.lane());
        lane.connection.ready().await?;
        let asked = ack.wanted(lane).ok_or_else(Fault::uncounted)?;
        let entries = match alone {
            true => vec![Arc::clone(like)],
            false => self.acks.waiting(&self.nodes, node, ack),
        };
        let parts = entries.chunk_by(|one, next| one.slot == next.slot);
        let parts: Vec<_> = parts
            .flat_map(|slot| slot.chunks(TOUCHED_AT_ONCE))
            .collect();
        let holds = |part: &&[Arc<AckRequest>]| {
            let part = part.iter();
            touch(part.map(|entry| (&*entry.recipe, entry.owner.as_str())))
        };
        let calls: Vec<Call> = parts.iter().map(holds).collect();
        let until = Until {
            replicas: asked,
            disk: ack.disk(),
            local: ack.fsync == Fsync::All,
            patience: patience(&entries, ack.turn()),
            count: ack.replicas.counts(),
            most: ack.replicas.misses(),
            asking: alone,
        };
        let waited = lane.connection.call_and_wait(&calls, until).await;
        let (replies, had) = waited.map_err(|fault| self.nodes.heard(fault, like.slot))?;
        // Replicas that were not there, or not known, when the client connected count too.
        let wanted = ack.wanted(lane).unwrap_or(asked);
        let (now, mut own) = (clock::now(), Ok(()));
        for (part, reply) in parts.into_iter().zip(replies) {
            match reply {
                Ok(reply) => {
                    let there = touched(&reply);
                    for (at, entry) in part.iter().enumerate() {
                        entry.record(there.get(at) == Some(&true), wanted, had, now);
                    }
                }
                Err(fault) if part.iter().any(|entry| Arc::ptr_eq(entry, like)) => {
                    own = Err(self.nodes.heard(fault, like.slot));
                }
                Err(_) => {}
            }
        }
        own
    }
}

impl AckRequest {
    /// Records the replicas after a turn. If they are too few, another turn follows while there is time.
    fn record(&self, is_there: bool, wanted: u32, had: Had, now: Instant) {
        let rest = self.until.saturating_duration_since(now);
        let outcome = match is_there {
            false => AckOutcome::Gone,
            true if (had.replicas < wanted || !had.local) && rest > LATE * 3 / 2 => return,
            true => AckOutcome::Counted(wanted, had),
        };
        let _ = self.outcome.set(outcome);
    }
}

/// How long a turn for these requests waits for replicas: until the first of them has no time left.
fn patience(entries: &[Arc<AckRequest>], turn: Duration) -> Duration {
    let until = entries.iter().map(|entry| entry.until).min();
    let rest = until.map(|until| until.saturating_duration_since(clock::now()));
    match rest.unwrap_or_default() {
        rest if rest > turn + LATE * 3 => turn,
        // Zero would mean no limit.
        rest => (rest - LATE.min(rest / 3)).max(Duration::from_millis(1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::LockName;
    use crate::wire::RLockWire;

    #[test]
    fn a_majority_counts_the_master() {
        let wanted = |replicas| ReplicaAck::Majority.wanted(Some(replicas));
        let all: Vec<_> = (0..=5).map(wanted).collect();
        assert_eq!(all, [1, 1, 1, 2, 2, 3].map(Some));
        assert_eq!(ReplicaAck::All.wanted(Some(0)), Some(1));
        assert_eq!(ReplicaAck::All.wanted(Some(3)), Some(3));
        assert_eq!(ReplicaAck::Majority.wanted(None), None);
        assert_eq!(ReplicaAck::AtLeast(2).wanted(None), Some(2));
        let effort = |replicas| ReplicaAck::BestEffort(2).wanted(replicas);
        assert_eq!([Some(0), Some(1), Some(3)].map(effort), [0, 1, 2].map(Some));
        assert_eq!(effort(None), None);
    }

    #[test]
    fn the_error_says_who_has_not_written_the_lock_to_disk() {
        let missed = |fsync, local| {
            let replicas = ReplicaAck::AtLeast(2);
            let had = Had { replicas: 1, local };
            Ack { replicas, fsync }.missed("lock", 2, had).to_string()
        };
        let disk = "on disk: the master did not write it to disk in time, 1 of 2 replicas did";
        assert!(missed(Fsync::All, false).contains(disk));
        assert!(missed(Fsync::All, true).contains("on disk: 1 of 2 replicas did"));
        assert!(!missed(Fsync::None, true).contains("disk"));
    }

    #[test]
    fn too_few_servers_are_asked_again_while_there_is_time_for_a_turn() {
        let now = clock::now();
        let outcome = |rest, replicas, local| {
            let name = LockName::new(None, "n").unwrap();
            let entry = AckRequest {
                slot: Slot::of("n"),
                recipe: Arc::new(RLockWire::new(name)),
                owner: HoldId::from_wire("owner"),
                ack: Ack {
                    replicas: ReplicaAck::AtLeast(2),
                    fsync: Fsync::All,
                },
                until: now + rest,
                outcome: SetOnce::new(),
            };
            entry.record(true, 2, Had { replicas, local }, now);
            match entry.outcome.get() {
                Some(AckOutcome::Counted(_, had)) => Some((had.replicas, had.local)),
                _ => None,
            }
        };
        let (long, short) = (LATE * 2, LATE);
        assert_eq!(outcome(long, 1, true), None);
        assert_eq!(outcome(long, 2, false), None);
        assert_eq!(outcome(long, 2, true), Some((2, true)));
        assert_eq!(outcome(long, 3, true), Some((3, true)));
        assert_eq!(outcome(short, 1, true), Some((1, true)));
        assert_eq!(outcome(short, 2, false), Some((2, false)));
    }
}
