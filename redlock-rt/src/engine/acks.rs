//! Waiting until replicas have a lock.
//!
//! A lock that was acquired is touched on another connection, with WAIT right behind (`touch.lua`
//! says why). That connection stands still while replicas do; no other one does. All locks that are
//! ready together share one call: one caller sends it for all, and there is no task.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::Engine;
use super::guard::HoldGuard;
use super::hold::LostReason;
use crate::clock;
use crate::connection::{Caller, Fault, Node, Until};
use crate::error::{Error, ErrorKind};
use crate::name::HoldId;
use crate::shim::{Mutex, lock};
use crate::wire::{Recipe, Slot, touch, touched};

/// How many replicas must have a lock before its guard is returned.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReplicaAck {
    /// None is waited for: a failover may lose a lock that was just acquired.
    #[default]
    None,
    /// This many; zero is the same as `None`.
    AtLeast(u32),
    /// So many that more than half of the servers have the lock: the master and its replicas. At
    /// least one.
    Majority,
    /// All that there are. At least one.
    All,
}

impl ReplicaAck {
    /// Whether it depends on how many replicas there are.
    fn counts(self) -> bool {
        matches!(self, Self::Majority | Self::All)
    }

    /// `replicas`: how many there are, if that is known.
    fn wanted(self, replicas: Option<u32>) -> Option<u32> {
        match self {
            Self::None => Some(0),
            Self::AtLeast(wanted) => Some(wanted),
            Self::Majority => replicas.map(|replicas| replicas.div_ceil(2).max(1)),
            Self::All => replicas.map(|replicas| replicas.max(1)),
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
        let replicas = matches!(self.replicas, ReplicaAck::None | ReplicaAck::AtLeast(0));
        replicas && self.fsync != Fsync::All
    }

    pub(super) fn disk(self) -> bool {
        self.fsync != Fsync::None
    }

    fn missed(self, action: &'static str, wanted: u32, got: u32, local: bool) -> Error {
        let error = Error::replicas_of(action, wanted, got);
        if !self.disk() {
            return error;
        }
        let master = match local {
            true => "",
            false => "the master did not write it to disk in time, ",
        };
        let detail = format!("{master}{got} of {wanted} replicas did; it was released");
        error
            .saying("too few servers have the lock on disk")
            .detail(detail)
    }
}

/// How late the reply of WAIT may be.
const LATE: Duration = Duration::from_millis(150);

/// A lock that waits for replicas.
struct Entry {
    /// Where it is, in a cluster: one call is for locks of one slot.
    slot: Slot,
    recipe: Arc<dyn Recipe>,
    owner: HoldId,
    ack: Ack,
    until: Instant,
    outcome: OnceLock<Outcome>,
}

#[derive(Debug, Clone)]
enum Outcome {
    Counted {
        wanted: u32,
        got: u32,
        /// Whether the master has it where it must.
        local: bool,
    },
    /// The key is gone.
    Gone,
    /// It is not known how many replicas there are.
    Uncounted,
    Failed(Fault),
}

/// The locks of one client that wait for replicas.
#[derive(Default)]
pub(crate) struct Acks {
    ready: Mutex<Vec<Arc<Entry>>>,
    /// Notified when outcomes are known.
    served: tokio::sync::Notify,
}

/// Takes a caller's lock out again, whatever becomes of the caller.
struct Ready<'a> {
    acks: &'a Acks,
    entry: Arc<Entry>,
}

impl Drop for Ready<'_> {
    fn drop(&mut self) {
        lock(&self.acks.ready).retain(|entry| !Arc::ptr_eq(entry, &self.entry));
    }
}

impl Engine {
    /// As [`acknowledged`](Self::acknowledged), as the client says for calls without options.
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
        let entry = Arc::new(Entry {
            slot: self.nodes.slot_of(guard.hold.recipe.name()),
            recipe: Arc::clone(&guard.hold.recipe),
            owner: guard.hold.hold_id().clone(),
            ack,
            until,
            outcome: OnceLock::new(),
        });
        let outcome = clock::timeout_at(clock::to_tokio(until), self.counted(&entry)).await;
        let error = match outcome {
            Ok(Outcome::Counted { wanted, got, local }) if got >= wanted && local => {
                match guard.hold.lost_reason(clock::now()) {
                    None => return Ok(guard),
                    Some(reason) => return Err(guard.hold.lost_error(action, reason)),
                }
            }
            Ok(Outcome::Counted { wanted, got, local }) => ack.missed(action, wanted, got, local),
            Ok(Outcome::Gone) => {
                guard.hold.mark_lost(LostReason::Deleted);
                return Err(guard.hold.lost_error(action, LostReason::Deleted));
            }
            Ok(Outcome::Uncounted) => Error::new(ErrorKind::Misconfigured, action).saying(
                "it is not known how many replicas there are: the user may not ask for INFO; use \
                 ReplicaAck::AtLeast",
            ),
            Ok(Outcome::Failed(fault)) => fault.into_error(action),
            Err(_) => {
                let node = self.nodes.known(entry.slot);
                let replicas = node.and_then(|node| node.acks().replicas());
                let wanted = ack.replicas.wanted(replicas).unwrap_or_default();
                ack.missed(action, wanted, 0, false)
            }
        };
        let error = error.named(name);
        // What cannot be released by then is released in the background.
        let patience = self.patience(clock::now());
        let end = deadline.map_or(patience, |deadline| deadline.min(patience));
        let _ = guard.unlock_until(Some(end)).await;
        Err(error)
    }

    /// Sends a call for all that are ready, or waits for another caller that does.
    async fn counted(&self, entry: &Arc<Entry>) -> Outcome {
        let acks = &self.acks;
        let ready = Ready {
            acks,
            entry: Arc::clone(entry),
        };
        lock(&acks.ready).push(Arc::clone(entry));
        let (retry, mut tries) = (&self.config.timeouts.retry, 0);
        loop {
            let mut served = std::pin::pin!(acks.served.notified());
            // Registered before the outcome is read. A caller whose outcome is known does not wait
            // for another turn, in which others may be waited for.
            served.as_mut().enable();
            if let Some(outcome) = ready.entry.outcome.get() {
                return outcome.clone();
            }
            let fault = match self.nodes.node(entry.slot).await {
                Err(fault) => fault,
                Ok(node) => {
                    let _turn = tokio::select! {
                        biased;
                        () = served => continue,
                        turn = node.acks_turn().lock() => turn,
                    };
                    if let Some(outcome) = ready.entry.outcome.get() {
                        return outcome.clone();
                    }
                    // What is not served here, since this caller goes away, is served in the next
                    // turn.
                    let together: Vec<Arc<Entry>> = lock(&acks.ready)
                        .iter()
                        .filter(|other| (other.ack, other.slot) == (entry.ack, entry.slot))
                        .filter(|other| other.outcome.get().is_none())
                        .map(Arc::clone)
                        .collect();
                    match self.ask_replicas(&node, &together, entry).await {
                        Ok(outcomes) => {
                            for (other, outcome) in together.iter().zip(outcomes) {
                                let _ = other.outcome.set(outcome);
                            }
                            acks.served.notify_waiters();
                            continue;
                        }
                        Err(fault) => fault,
                    }
                }
            };
            let passing = fault.is_passing_for(Caller::Call);
            let again = passing.then(|| retry.again(&mut tries, entry.until));
            match again.flatten() {
                Some(again) => clock::sleep_until(again).await,
                None => return Outcome::Failed(fault),
            }
        }
    }

    async fn ask_replicas(
        &self,
        node: &Node,
        entries: &[Arc<Entry>],
        like: &Entry,
    ) -> Result<Vec<Outcome>, Fault> {
        let (link, ack) = (node.acks(), like.ack);
        link.ready().await?;
        let replicas = || ack.replicas.wanted(link.replicas());
        let Some(mut wanted) = replicas() else {
            return Ok(vec![Outcome::Uncounted; entries.len()]);
        };
        let longest = entries.iter().map(|entry| entry.until).max();
        let (there, got, local) = loop {
            let now = clock::now();
            let rest = longest.unwrap_or(now).saturating_duration_since(now);
            // An idle server notices every 100 ms that the time is over. Zero would have no limit.
            let patience = rest.saturating_sub(LATE.min(rest / 3));
            let patience = patience.max(Duration::from_millis(1));
            let call = touch(
                entries
                    .iter()
                    .map(|entry| (&*entry.recipe, entry.owner.as_str())),
            );
            let until = Until {
                replicas: wanted,
                disk: ack.disk(),
                local: ack.fsync == Fsync::All,
                patience,
                count: ack.replicas.counts(),
            };
            let waited = link.call_and_wait(call, until).await;
            let (reply, had) = waited.map_err(|fault| self.nodes.heard(fault, like.slot))?;
            let (got, local) = (had.replicas, had.local);
            // Replicas that were not there, or not known, when the client connected count too.
            let asked = wanted;
            wanted = wanted.max(replicas().unwrap_or(wanted));
            if got < asked || got >= wanted {
                break (touched(&reply), got, local);
            }
        };
        let outcome = |at: usize| match there.get(at) {
            Some(true) => Outcome::Counted { wanted, got, local },
            _ => Outcome::Gone,
        };
        Ok((0..entries.len()).map(outcome).collect())
    }
}

#[cfg(all(test, not(redlock_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_majority_counts_the_master() {
        let wanted = |replicas| ReplicaAck::Majority.wanted(Some(replicas));
        let all: Vec<_> = (0..=5).map(wanted).collect();
        assert_eq!(all, [1, 1, 1, 2, 2, 3].map(Some));
        assert_eq!(ReplicaAck::All.wanted(Some(0)), Some(1));
        assert_eq!(ReplicaAck::All.wanted(Some(3)), Some(3));
        assert_eq!(ReplicaAck::Majority.wanted(None), None);
        assert_eq!(ReplicaAck::AtLeast(2).wanted(None), Some(2));
    }
}
