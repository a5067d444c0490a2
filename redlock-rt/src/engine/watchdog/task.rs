//! The task that sends due renewals.
//!
//! All holds of a batch that failed are retried at the same time, so that they stay one call. If a single
//! key may be the reason, the batch is split into halves at once, until the bad key is alone: a key of
//! another type, an error of the script, an ACL that forbids a key. A batch is limited by *weight*, the
//! number of leases that its script reads: one per lock, one per guard of a read hold, one per permit. Other
//! tasks run after each call, however many locks there are.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};

use super::batch::{Answered, DueHold, alone, answer, dispatch, may_be_of_one_key, slot_of};
use super::introduction::Introduction;
use super::node_loads::{KnownNode, NodeLoads, number};
use super::{Scheduled, Tracking, Watchdog};
use crate::clock;
use crate::connection::{Cause, Fault, Hint, Lane, Nodes};
use crate::engine::hold::{CommandTurn, Hold, LostReason, RenewalPlan};
use crate::engine::release::{Cleanup, PendingCleanup};
use crate::shim::{lock, lock_std};
use crate::wire::{HoldReply, Slot};

/// The number of leases per call, unless a single hold has more: small enough not to delay the
/// server. Redisson renews as many locks.
const BATCH: usize = 100;
/// The longest delay of the report of a loss after a suspend.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);
/// In a cluster: the number of holds that are taken together, for one call per slot.
const MOST_TOGETHER: usize = 16 * BATCH;

/// Runs until the watchdog is closed.
pub(crate) async fn run(
    watchdog: Arc<Watchdog>,
    nodes: Arc<Nodes>,
    introduction: Option<Introduction>,
    tracking: Option<Arc<Tracking>>,
) {
    let mut task = Renewing {
        watchdog: Arc::clone(&watchdog),
        nodes,
        lanes: NodeLoads::default(),
        under_way: FuturesUnordered::new(),
        connecting: FuturesUnordered::new(),
        introduction,
        introducing: FuturesUnordered::new(),
    };
    // An earlier task may have ended with its runtime, while holds waited for its work.
    let all: Vec<_> = watchdog.holds().iter().map(|hold| hold.number).collect();
    watchdog.unpark(&all);
    while !watchdog.signal.is_closed() {
        if lock_std(&watchdog.flushes).is_due(clock::now()) {
            watchdog.doubt();
        }
        watchdog.doubt_all(&task.nodes);
        while watchdog.doubt_some() {
            tokio::task::yield_now().await;
        }
        watchdog.losses.tell(clock::now());
        // However many locks there are, other tasks run after each call.
        while task.send_due() {
            tokio::task::yield_now().await;
        }
        if let Some(tracking) = &tracking {
            let any = !lock(&watchdog.schedule).tracked.is_empty();
            tracking.listen(any);
        }
        let now = clock::now();
        let wake_at = lock(&watchdog.schedule).holds.arm(now);
        let flushed = lock_std(&watchdog.flushes).wake_at();
        let others = watchdog.losses.wake_at().into_iter().chain(flushed);
        let sleep = wake_at.into_iter().chain(others).min();
        // Timers stop while the machine is suspended, and leases do not.
        let sleep = sleep.map(|at| at.min(clock::after(now, LONGEST_SLEEP)));
        tokio::select! {
            // Answers first: there are no more than were asked for. Every turn checks what is due and what a
            // signal announces.
            biased;
            Some(answered) = task.under_way.next(), if !task.under_way.is_empty() => {
                watchdog.unpark(&task.lanes.answered(&answered.at));
                task.take_in(answered);
            }
            Some((at, connected)) = task.connecting.next(), if !task.connecting.is_empty() => {
                let parked = task.lanes.connected(&at);
                match connected {
                    Ok(()) => watchdog.unpark(&parked),
                    Err(fault) => watchdog.unreachable(&parked, &fault),
                }
            }
            Some(()) = task.introducing.next(), if !task.introducing.is_empty() => {}
            () = clock::sleep_until(sleep.unwrap_or(now)), if sleep.is_some() => {}
            () = watchdog.signal.notified() => {}
        }
    }
}

/// Connects to a server, or finds out which one it is.
async fn connect(nodes: Arc<Nodes>, at: KnownNode, slot: Slot) -> (KnownNode, Result<(), Fault>) {
    let connected = match &at {
        Some(node) => node.connection(Lane::Renewals).ready().await,
        None => nodes.node(slot).await.map(drop),
    };
    let connected = connected.map_err(|fault| nodes.heard(fault, slot));
    (at, connected)
}

/// The task's calls in progress.
struct Renewing {
    watchdog: Arc<Watchdog>,
    nodes: Arc<Nodes>,
    lanes: NodeLoads,
    under_way: FuturesUnordered<BoxFuture<'static, Answered>>,
    /// Servers that are being connected to.
    connecting: FuturesUnordered<BoxFuture<'static, (KnownNode, Result<(), Fault>)>>,
    introduction: Option<Introduction>,
    introducing: FuturesUnordered<BoxFuture<'static, ()>>,
}

/// The holds of one slot that are due.
#[derive(Default)]
struct SlotRenewals {
    due: Vec<DueHold>,
    weight: usize,
}

/// The holds that were found due.
#[derive(Default)]
struct DueHolds {
    groups: BTreeMap<Slot, SlotRenewals>,
    /// Holds that are due at another time.
    kept: Vec<(Arc<Hold>, Instant)>,
    ended: Vec<Arc<Hold>>,
}

impl Renewing {
    /// Takes due holds, for each slot up to [`BATCH`] by weight, and hands their renewals to the
    /// connections. All this is under the schedule's mutex: no guard can end in between. Returns whether
    /// more may be due.
    fn send_due(&mut self) -> bool {
        let now = clock::now();
        let watchdog = Arc::clone(&self.watchdog);
        let mut schedule = lock(&watchdog.schedule);
        let found = self.find_due(&mut schedule, now);
        let more = !found.groups.is_empty();
        let due = found.groups.values().flat_map(|group| &group.due);
        if let Some(longest) = due.map(|(_, ttl)| *ttl).max()
            && let Some(introduction) = &mut self.introduction
            && let Some(call) = introduction.beside(now, longest, &self.nodes)
        {
            self.introducing.push(call.boxed());
        }
        // Rescheduled only now, since they would be found again otherwise.
        for (hold, at) in found.kept {
            let _ = schedule.holds.set(hold.number, at, hold);
        }
        for (slot, group) in found.groups {
            let node = self.nodes.known(slot);
            match dispatch(&mut schedule, &node, group.due, now) {
                Ok(batch) => {
                    self.lanes.sent(&node);
                    self.under_way.push(answer(batch).boxed());
                }
                Err(due) => {
                    for (hold, _) in due {
                        self.lanes.park(&node, hold.number);
                        let _ = schedule.holds.set(hold.number, hold.deadline(), hold);
                    }
                    if self.lanes.connects(&node) {
                        let connects = connect(Arc::clone(&self.nodes), node, slot);
                        self.connecting.push(connects.boxed());
                    }
                }
            }
        }
        drop(schedule);
        // Outside the mutex: this notifies the hold's waiters, and may drop the last reference to
        // them.
        found.ended.iter().for_each(|hold| hold.expired());
        more
    }

    /// Takes out due holds.
    fn find_due(&mut self, schedule: &mut Scheduled, now: Instant) -> DueHolds {
        let most = match self.nodes.cluster() {
            None => BATCH,
            Some(_) => MOST_TOGETHER,
        };
        let mut found = DueHolds::default();
        let (mut horizon, mut weight) = (now, 0);
        while weight.max(found.kept.len()) < most
            && let Some((id, hold)) = schedule.holds.pop_due(horizon)
        {
            let slot = slot_of(&self.nodes, &hold);
            let (at, ttl) = match hold.plan(now) {
                RenewalPlan::Renew(ttl) => (now, Some(ttl)),
                // Only together with other holds.
                RenewalPlan::Wait(at) => {
                    let together = found.groups.contains_key(&slot);
                    let early = hold.lease().plan_early(now);
                    (at, early.filter(|_| together))
                }
                RenewalPlan::Done => {
                    schedule.forget(&hold);
                    found.ended.push(hold);
                    continue;
                }
            };
            let Some(ttl) = ttl else {
                found.kept.push((hold, at));
                continue;
            };
            let node = self.nodes.known(slot);
            if !self.lanes.has_room(&node) {
                // Handled as soon as the lane is open, or when the lease is over.
                self.lanes.park(&node, id);
                let at = hold.deadline();
                found.kept.push((hold, at));
                continue;
            }
            let group = found.groups.entry(slot).or_default();
            group.weight = hold.weight().saturating_add(group.weight);
            if group.weight > BATCH && !group.due.is_empty() {
                // The next call includes this hold.
                found.kept.push((hold, at));
                break;
            }
            weight = hold.weight().saturating_add(weight);
            // Holds that are due soon are included: their times vary, and each alone would need its own
            // call.
            if at == now {
                horizon = horizon.max(clock::after(now, hold.lease().slack(now)));
            }
            group.due.push((hold, ttl));
        }
        found
    }

    /// Reads the result of a batch.
    fn take_in(&mut self, answered: Answered) {
        let (at, due, followed) = (answered.at, answered.due, answered.followed);
        let Some(slot) = due.first().map(|(hold, _)| slot_of(&self.nodes, hold)) else {
            return;
        };
        let fault = match answered.outcome {
            // The slot has another master by now: this reply is true only at the old one.
            Ok(_) if !followed && number(&self.nodes.known(slot)) != number(&at) => {
                return self.watchdog.again(due);
            }
            Ok(replies) => {
                self.watchdog.renewed(&due, replies, answered.sent);
                for (hold, _) in due.iter().filter(|_| answered.late) {
                    self.watchdog.written_to(Some(hold.recipe.name().as_str()));
                }
                return;
            }
            Err(fault) => fault,
        };
        let hint = self.nodes.hint(&fault).filter(|_| !followed);
        let fault = self.nodes.heard(fault, slot);
        match fault.cause {
            // Sent again under the schedule's mutex, so that no guard has ended by then.
            Cause::Loaded => self.watchdog.again(due),
            _ if hint == Some(Hint::Moved) => self.watchdog.again(due),
            // Some keys of the slot are at its next master: each hold is looked up separately.
            _ if hint == Some(Hint::Apart) => {
                for (hold, _) in due {
                    self.lanes.sent(&at);
                    let (watchdog, nodes) = (Arc::clone(&self.watchdog), Arc::clone(&self.nodes));
                    let alone = alone(watchdog, nodes, hold, at.clone());
                    self.under_way.push(alone.boxed());
                }
            }
            // One bad key makes the whole call fail: each half is sent separately.
            _ if due.len() > 1 && may_be_of_one_key(&fault) => {
                let (first, second) = due.split_at(due.len() / 2);
                self.send_again(first);
                self.send_again(second);
            }
            // Whatever the key holds now, it is not our lock.
            Cause::WrongType => {
                for (hold, _) in due {
                    hold.mark_lost(LostReason::Taken);
                    self.watchdog.rewatch_or_end(&hold);
                }
            }
            _ => self
                .watchdog
                .failed(due.iter().map(|(hold, _)| hold), &fault),
        }
    }

    /// Sends renewals at once for the holds in this list (all of one slot) that are still scheduled.
    fn send_again(&mut self, holds: &[DueHold]) {
        let Some((first, _)) = holds.first() else {
            return;
        };
        let now = clock::now();
        let node = self.nodes.known(slot_of(&self.nodes, first));
        let mut due = Vec::new();
        let mut schedule = lock(&self.watchdog.schedule);
        for (hold, _) in holds {
            hold.lease().doubt(now);
            if let RenewalPlan::Renew(ttl) = hold.plan(now)
                && schedule.holds.remove(hold.number).is_some()
            {
                due.push((Arc::clone(hold), ttl));
            } else {
                // The hold has ended, or its lease is over. The latter is noticed when the hold is found
                // due.
                let _ = schedule.holds.reset(hold.number, now);
            }
        }
        if due.is_empty() {
            return;
        }
        match dispatch(&mut schedule, &node, due, now) {
            Ok(batch) => {
                self.lanes.sent(&node);
                self.under_way.push(answer(batch).boxed());
            }
            Err(due) => {
                for (hold, _) in due {
                    let _ = schedule.holds.set(hold.number, now, hold);
                }
            }
        }
    }
}

impl Watchdog {
    /// Holds that need not wait any longer are due at once.
    fn unpark(&self, holds: &[u64]) {
        let now = clock::now();
        let mut schedule = lock(&self.schedule);
        for id in holds {
            let _ = schedule.holds.reset(*id, now);
        }
    }

    /// No connection: the renewals that waited for it have failed for now.
    fn unreachable(&self, holds: &[u64], fault: &Fault) {
        let now = clock::now();
        let mut schedule = lock(&self.schedule);
        let mut overdue = Vec::new();
        for id in holds {
            overdue.extend(schedule.holds.get(*id).map(Arc::clone));
            let _ = schedule.holds.reset(*id, now);
        }
        drop(schedule);
        self.failed(overdue.iter(), fault);
    }

    /// All are retried at the same time, so that they stay one call.
    fn failed<'a>(&self, holds: impl Iterator<Item = &'a Arc<Hold>> + Clone, fault: &Fault) {
        let now = clock::now();
        let Some(retry_at) = holds.clone().map(|hold| hold.lease().retry_at(now)).min() else {
            return;
        };
        tracing::debug!(
            holds = holds.clone().count(),
            reason = fault.reason(),
            "renewals failed"
        );
        for hold in holds {
            hold.renewal_failed(now, retry_at);
            self.rewatch_or_end(hold);
        }
    }

    fn renewed(&self, due: &[DueHold], replies: Vec<HoldReply>, sent: Instant) {
        for ((hold, ttl), reply) in due.iter().zip(replies) {
            hold.answered(&reply, sent, *ttl);
            self.rewatch_or_end(hold);
            if reply == HoldReply::TooLong {
                // By a command with the hold's turn, so that commands that lengthen it are not in progress.
                // A renewal may come late, and shorten a lease that was asked for since.
                let cuts = Cleanup::update(hold, Duration::ZERO, hold.deadline());
                drop(PendingCleanup::new(cuts));
            }
        }
    }

    fn again(&self, due: Vec<DueHold>) {
        for (hold, _) in due {
            hold.lease().doubt(clock::now());
            self.rewatch_or_end(&hold);
        }
    }

    fn rewatch_or_end(&self, hold: &Hold) {
        if hold.is_valid() {
            self.rewatch(hold);
        } else {
            let ended = lock(&self.schedule).end(hold);
            hold.expired();
            drop(ended);
        }
    }

    /// Takes one hold out for a renewal that may follow its slot; `None`: not now.
    pub(super) fn take_alone(
        &self,
        hold: &Arc<Hold>,
        now: Instant,
    ) -> Option<(CommandTurn, Duration)> {
        let turn = CommandTurn::try_take(hold);
        let mut schedule = lock(&self.schedule);
        let (at, ttl) = match turn {
            // Another command of the hold is in progress.
            None => (hold.lease().retry_at(now), None),
            Some(_) => {
                hold.lease().doubt(now);
                match hold.plan(now) {
                    RenewalPlan::Renew(ttl) => (
                        hold.deadline(),
                        schedule.holds.get(hold.number).map(|_| ttl),
                    ),
                    _ => (now, None),
                }
            }
        };
        let _ = schedule.holds.reset(hold.number, at);
        drop(schedule);
        turn.zip(ttl)
    }
}
