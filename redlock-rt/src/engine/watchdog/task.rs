//! The task that sends due renewals.
//!
//! All holds of a batch that failed are retried at the same moment, so that one call stays one call. Only
//! if a single key may be the reason (a key of another type, an error of the script, an ACL that forbids a
//! key), the batch is split into halves at once, until the bad key is alone. A batch is limited by
//! *weight*, the number of leases that its script reads: one per lock, one per guard of a read hold, one
//! per permit. Other tasks run after each call, however many locks there are.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};

use super::Watchdog;
use super::lanes::{At, Lanes, is_same};
use super::schedule::Schedule;
use crate::clock;
use crate::connection::{Caller, Cause, Delivery, Exchange, Fault, Hint, Lane, Nodes, To, Verdict};
use crate::engine::hold::{Hold, LostReason, Plan, Turn};
use crate::engine::release::{Cleanup, PendingCleanup};
use crate::shim::lock;
use crate::wire::{HoldReply, Malformed, Renewal, Reply, Slot, Wanted, renew};

/// The number of leases per call, unless a single hold has more: small enough not to delay the
/// server. Redisson renews as many locks.
const BATCH: usize = 100;
/// In a cluster: the number of holds that are taken out together, for one call a slot.
const MOST_TOGETHER: usize = 16 * BATCH;
/// A silent connection is closed after this time, if no renewal can wait longer.
const SILENCE: Duration = Duration::from_millis(250);

/// A hold whose renewal is due, and the lease to ask for.
type Due = (Arc<Hold>, Duration);

/// Holds of one slot in one call.
struct Batch {
    at: At,
    due: Vec<Due>,
    exchange: Exchange,
    /// The longest time for the reply.
    response: Duration,
    /// A connection that is silent for this long is closed.
    silence: Duration,
    /// The first reply, if it came at once.
    ready: Option<Result<Reply, Fault>>,
}

/// A batch with its result.
struct Answered {
    at: At,
    due: Vec<Due>,
    sent: Instant,
    /// Whether the call followed its slot by itself; see [`alone`].
    followed: bool,
    outcome: Result<Vec<HoldReply>, Fault>,
}

/// A server that is being connected to.
type Connecting = BoxFuture<'static, (At, Result<(), Fault>)>;
type UnderWay = FuturesUnordered<BoxFuture<'static, Answered>>;

/// Runs until the watchdog is closed.
pub(crate) async fn run(watchdog: Arc<Watchdog>, nodes: Arc<Nodes>) {
    let mut lanes = Lanes::default();
    let mut under_way = UnderWay::new();
    let mut connecting: FuturesUnordered<Connecting> = FuturesUnordered::new();
    // A task before this one may have ended with its runtime, while holds waited for what it did.
    let all: Vec<_> = watchdog.holds().iter().map(|hold| hold.number).collect();
    watchdog.unpark(&all);
    while !watchdog.signal.is_closed() {
        watchdog.doubt_all(&nodes);
        while watchdog.doubt_some() {
            tokio::task::yield_now().await;
        }
        watchdog.losses.tell(clock::now());
        let mut more = true;
        while more {
            let picked = watchdog.pick(&nodes, &mut lanes);
            more = picked.more;
            under_way.extend(
                picked
                    .batches
                    .into_iter()
                    .map(|batch| answer(batch).boxed()),
            );
            for (at, slot) in picked.unconnected {
                connecting.push(connect(Arc::clone(&nodes), at, slot).boxed());
            }
            // However many locks there are, others run after each call.
            if more {
                tokio::task::yield_now().await;
            }
        }
        let wake_at = lock(&watchdog.schedule).arm(clock::now());
        let sleep = wake_at.into_iter().chain(watchdog.losses.wake_at()).min();
        tokio::select! {
            // Answers first: there are no more than were asked for. Every turn checks what is due
            // and what a signal announces.
            biased;
            Some(answered) = under_way.next(), if !under_way.is_empty() => {
                watchdog.unpark(&lanes.answered(&answered.at));
                watchdog.take_in(&nodes, answered, &mut lanes, &mut under_way);
            }
            Some((at, connected)) = connecting.next(), if !connecting.is_empty() => {
                let parked = lanes.connected(&at);
                match connected {
                    Ok(()) => watchdog.unpark(&parked),
                    Err(fault) => watchdog.unreachable(&parked, &fault),
                }
            }
            () = clock::sleep_until(sleep.unwrap_or_else(clock::now)), if sleep.is_some() => {}
            () = watchdog.signal.notified() => {}
        }
    }
}

/// Connects to a server, or finds out which one it is.
async fn connect(nodes: Arc<Nodes>, at: At, slot: Slot) -> (At, Result<(), Fault>) {
    let connected = match &at {
        Some(node) => node.connection(Lane::Renewals).ready().await,
        None => nodes.node(slot).await.map(drop),
    };
    let connected = connected.map_err(|fault| nodes.heard(fault, slot));
    (at, connected)
}

/// What was sent, and what could not be.
#[derive(Default)]
struct Picked {
    batches: Vec<Batch>,
    /// Servers to which there is no connection, with a slot of each.
    unconnected: Vec<(At, Slot)>,
    /// Something else may be due.
    more: bool,
}

/// The holds of one slot that are due.
#[derive(Default)]
struct Group {
    due: Vec<Due>,
    weight: usize,
}

impl Watchdog {
    /// Takes due holds, for each slot up to [`BATCH`] by weight, and hands their renewals to the
    /// connections, all under the schedule's mutex: no guard can end in between.
    fn pick(&self, nodes: &Nodes, lanes: &mut Lanes) -> Picked {
        let now = clock::now();
        let most = match nodes.cluster() {
            None => BATCH,
            Some(_) => MOST_TOGETHER,
        };
        let mut groups: BTreeMap<Slot, Group> = BTreeMap::new();
        let mut ended = Vec::new();
        let mut kept = Vec::new();
        let mut horizon = now;
        let mut weight = 0;
        let mut picked = Picked::default();
        let mut schedule = lock(&self.schedule);
        while weight.max(kept.len()) < most
            && let Some((id, hold)) = schedule.pop_due(horizon)
        {
            let slot = slot_of(nodes, &hold);
            let (at, ttl) = match hold.plan(now) {
                Plan::Renew(ttl) => (now, Some(ttl)),
                // Only together with other holds.
                Plan::Wait(at) => {
                    let together = groups.contains_key(&slot);
                    (at, hold.plan_early(now).filter(|_| together))
                }
                Plan::Done => {
                    schedule.homes.remove(hold.home.as_ref());
                    ended.push(hold);
                    continue;
                }
            };
            let Some(ttl) = ttl else {
                kept.push((id, at, hold));
                continue;
            };
            let node = nodes.known(slot);
            if !lanes.is_open(&node) {
                // Handled as soon as that changes, or when its lease is over.
                lanes.park(&node, id);
                kept.push((id, hold.deadline(), hold));
                continue;
            }
            let group = groups.entry(slot).or_default();
            group.weight = hold.weight().saturating_add(group.weight);
            if group.weight > BATCH && !group.due.is_empty() {
                // The next call includes this hold.
                kept.push((id, at, hold));
                break;
            }
            weight = hold.weight().saturating_add(weight);
            // Holds that are due soon are included: their times vary, and each alone would need a
            // call.
            if at == now {
                horizon = horizon.max(clock::after(now, hold.slack(now)));
            }
            group.due.push((hold, ttl));
        }
        picked.more = !groups.is_empty();
        // Rescheduled only now, since they would be found again otherwise.
        for (id, at, hold) in kept {
            let _ = schedule.set(id, at, hold);
        }
        for (slot, group) in groups {
            let node = nodes.known(slot);
            match dispatch(&mut schedule, &node, group.due, now) {
                Ok(batch) => {
                    lanes.sent(&node);
                    picked.batches.push(batch);
                }
                Err(due) => {
                    for (hold, _) in due {
                        lanes.park(&node, hold.number);
                        let _ = schedule.set(hold.number, hold.deadline(), hold);
                    }
                    if lanes.connects(&node) {
                        picked.unconnected.push((node, slot));
                    }
                }
            }
        }
        drop(schedule);
        // Outside the mutex: this notifies the hold's waiters, and may drop the last reference to
        // them.
        ended.iter().for_each(|hold| hold.expired());
        picked
    }

    /// As [`pick`](Self::pick), for those of these holds that are still scheduled. All are in one
    /// slot.
    fn pick_again(&self, nodes: &Nodes, holds: &[Due]) -> Option<Batch> {
        let now = clock::now();
        let node = nodes.known(slot_of(nodes, &holds.first()?.0));
        let mut due = Vec::new();
        let mut schedule = lock(&self.schedule);
        for (hold, _) in holds {
            hold.doubt(now);
            if let Plan::Renew(ttl) = hold.plan(now)
                && schedule.remove(hold.number).is_some()
            {
                due.push((Arc::clone(hold), ttl));
            } else {
                // The hold has ended, or its lease is over; the latter is noticed when it is
                // picked.
                let _ = schedule.reset(hold.number, now);
            }
        }
        if due.is_empty() {
            return None;
        }
        match dispatch(&mut schedule, &node, due, now) {
            Ok(batch) => Some(batch),
            Err(due) => {
                for (hold, _) in due {
                    let _ = schedule.set(hold.number, now, hold);
                }
                None
            }
        }
    }

    /// Holds that need not wait any longer are due at once.
    fn unpark(&self, holds: &[u64]) {
        let now = clock::now();
        let mut schedule = lock(&self.schedule);
        for id in holds {
            let _ = schedule.reset(*id, now);
        }
    }

    /// No connection: the renewals that waited for it have failed for now.
    fn unreachable(&self, holds: &[u64], fault: &Fault) {
        let now = clock::now();
        let mut schedule = lock(&self.schedule);
        let mut overdue = Vec::new();
        for id in holds {
            if let Some(hold) = schedule.remove(*id) {
                let _ = schedule.set(*id, now, Arc::clone(&hold));
                overdue.push(hold);
            }
        }
        drop(schedule);
        self.failed(overdue.iter(), fault);
    }

    /// All are retried at the same moment, so that one call stays one call.
    fn failed<'a>(&self, holds: impl Iterator<Item = &'a Arc<Hold>> + Clone, fault: &Fault) {
        let now = clock::now();
        let Some(retry_at) = holds.clone().map(|hold| hold.retry_at(now)).min() else {
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

    fn rewatch_or_end(&self, hold: &Hold) {
        if hold.is_valid() {
            self.rewatch(hold);
        } else {
            let mut schedule = lock(&self.schedule);
            let ended = schedule.remove(hold.number);
            if ended.is_some() {
                schedule.homes.remove(hold.home.as_ref());
            }
            drop(schedule);
            hold.expired();
            drop(ended);
        }
    }

    fn take_in(
        self: &Arc<Self>,
        nodes: &Arc<Nodes>,
        answered: Answered,
        lanes: &mut Lanes,
        under_way: &mut UnderWay,
    ) {
        let Answered {
            at,
            due,
            sent,
            followed,
            outcome,
        } = answered;
        let Some(slot) = due.first().map(|(hold, _)| slot_of(nodes, hold)) else {
            return;
        };
        let (outcome, hint) = match outcome {
            Ok(replies) => (Ok(replies), None),
            Err(fault) => {
                let hint = nodes.hint(&fault);
                (Err(nodes.heard(fault, slot)), hint)
            }
        };
        match outcome {
            // The slot has another master by now: what this one says is true only there.
            Ok(_) if !followed && !is_same(&nodes.known(slot), &at) => self.again(due),
            Ok(replies) => {
                for ((hold, ttl), reply) in due.into_iter().zip(replies) {
                    hold.answered(reply, sent, ttl);
                    self.rewatch_or_end(&hold);
                    if reply == HoldReply::TooLong {
                        // By a command with the hold's turn, behind and before those that lengthen it:
                        // a renewal may come late, and cut what was asked for since.
                        let cuts = Cleanup::update(&hold, Duration::ZERO, hold.deadline());
                        drop(PendingCleanup::new(cuts));
                    }
                }
            }
            // Sent again under the schedule's mutex, so that no guard has ended by then.
            Err(fault) if fault.cause() == Cause::Loaded => self.again(due),
            Err(_) if !followed && hint == Some(Hint::Moved) => self.again(due),
            // Some keys of the slot are at its next master: each hold is looked for alone.
            Err(_) if !followed && hint == Some(Hint::Apart) => {
                for (hold, _) in due {
                    lanes.sent(&at);
                    let (watchdog, nodes) = (Arc::clone(self), Arc::clone(nodes));
                    under_way.push(alone(watchdog, nodes, hold, at.clone()).boxed());
                }
            }
            // One bad key makes the whole call fail: each half is sent separately.
            Err(fault) if due.len() > 1 && may_be_of_one_key(&fault) => {
                let (first, second) = due.split_at(due.len() / 2);
                for half in [first, second] {
                    if let Some(batch) = self.pick_again(nodes, half) {
                        lanes.sent(&batch.at);
                        under_way.push(answer(batch).boxed());
                    }
                }
            }
            // Whatever the key holds now, it is not our lock.
            Err(fault) if fault.cause() == Cause::WrongType => {
                for (hold, _) in due {
                    hold.mark_lost(LostReason::Taken);
                    self.rewatch_or_end(&hold);
                }
            }
            Err(fault) => self.failed(due.iter().map(|(hold, _)| hold), &fault),
        }
    }

    fn again(&self, due: Vec<Due>) {
        for (hold, _) in due {
            hold.doubt(clock::now());
            self.rewatch_or_end(&hold);
        }
    }

    /// Takes one hold out for a renewal that may follow its slot; `None`: it is not due any more.
    fn pick_alone(&self, hold: &Hold, again: Instant, now: Instant) -> Option<Duration> {
        hold.doubt(now);
        let mut schedule = lock(&self.schedule);
        let Plan::Renew(ttl) = hold.plan(now) else {
            return None;
        };
        let held = schedule.remove(hold.number)?;
        let _ = schedule.set(hold.number, again, held);
        Some(ttl)
    }
}

/// Renews one hold of a slot that is on its way to another server. The call may be redirected, and
/// is sent again then, without the schedule's mutex. So it has the turn of the hold's commands: the
/// release of the last guard waits for it.
async fn alone(watchdog: Arc<Watchdog>, nodes: Arc<Nodes>, hold: Arc<Hold>, at: At) -> Answered {
    let now = clock::now();
    let nothing = |due| Answered {
        at: at.clone(),
        due,
        sent: now,
        followed: true,
        outcome: Ok(Vec::new()),
    };
    let Some(turn) = Turn::try_take(&hold) else {
        // Another command of the hold is in progress.
        let mut schedule = lock(&watchdog.schedule);
        let _ = schedule.reset(hold.number, hold.retry_at(now));
        return nothing(Vec::new());
    };
    let rest = hold.deadline().saturating_duration_since(now);
    let until = clock::after(now, rest / 2);
    let Some(ttl) = watchdog.pick_alone(&hold, hold.deadline(), now) else {
        let mut schedule = lock(&watchdog.schedule);
        let _ = schedule.reset(hold.number, now);
        return nothing(Vec::new());
    };
    let call = renew(&[renewal(&hold, ttl)]);
    let to = To {
        nodes: &nodes,
        slot: slot_of(&nodes, &hold),
        lane: Lane::Renewals,
    };
    let mut delivery = Delivery::of_upkeep();
    let reply = delivery.attempt(to, || call, Some(until)).await;
    let reply = reply.unwrap_or_else(|| Err(Fault::timed_out("no answer to a renewal")));
    let outcome = reply.and_then(|reply| {
        let read = decode(reply, 1);
        read.map_err(|malformed| delivery.misread(malformed))
    });
    drop(turn);
    Answered {
        sent: delivery.sent.unwrap_or(now),
        outcome,
        ..nothing(vec![(Arc::clone(&hold), ttl)])
    }
}

/// Whether one key of a call may be the reason for its failure. If the server no longer accepts the
/// client, the halves would fail like the whole.
fn may_be_of_one_key(fault: &Fault) -> bool {
    if fault.verdict(Caller::Renewal) != Verdict::Apart {
        return false;
    }
    // All versions of Redis name the key if an ACL forbids a key, and otherwise the command.
    let error = fault.clone().into_error("renew leases");
    let names_a_key = |text: String| text.contains("key");
    let source = std::error::Error::source(&error).map(ToString::to_string);
    !fault.is_denied() || source.is_some_and(names_a_key)
}

/// Hands the renewal of `due` to the connection; the caller holds the schedule's mutex. Returns
/// `due` if there is no connection.
fn dispatch(
    schedule: &mut Schedule<Arc<Hold>>,
    at: &At,
    due: Vec<Due>,
    now: Instant,
) -> Result<Batch, Vec<Due>> {
    let Some(node) = at else { return Err(due) };
    // Before the schedule's mutex is free: no such hold is handed over while the reply is unknown.
    due.iter().for_each(|(hold, _)| hold.lease().unchain());
    let holds: Vec<Renewal<'_>> = due
        .iter()
        .map(|(hold, lease)| renewal(hold, *lease))
        .collect();
    let connection = node.connection(Lane::Renewals);
    let Some(mut exchange) = connection.call_now(renew(&holds)) else {
        return Err(due);
    };
    // Due again at the latest moment for the outcome.
    let response = connection.timeouts().response;
    let again = clock::after(now, response * 2);
    for (hold, _) in &due {
        let _ = schedule.set(hold.number, again, Arc::clone(hold));
    }
    // The first poll hands the call to the connection, even if the task has used up its budget:
    // after the schedule's mutex is released, a guard may end.
    let mut first = tokio::task::unconstrained(&mut exchange);
    let ready = match first.poll_unpin(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => Some(outcome),
        Poll::Pending => None,
    };
    // Commands of callers have more time.
    let silence = match Arc::ptr_eq(connection, node.connection(Lane::Main)) {
        true => connection.timeouts().reply(),
        false => SILENCE.min(response),
    };
    Ok(Batch {
        at: at.clone(),
        due,
        exchange,
        response,
        silence,
        ready,
    })
}

fn renewal(hold: &Hold, lease: Duration) -> Renewal<'_> {
    let most = hold.lease().asks(Duration::ZERO);
    Renewal {
        recipe: &*hold.recipe,
        owner: hold.id(),
        wanted: Wanted { lease, most },
    }
}

/// All holds of one call are in one slot.
fn slot_of(nodes: &Nodes, hold: &Hold) -> Slot {
    nodes.slot_of(hold.recipe.name())
}

/// Waits for the outcome of a batch, at most for half of the shortest remaining lease, so that
/// there is time for another try.
async fn answer(batch: Batch) -> Answered {
    let Batch {
        at,
        due,
        mut exchange,
        response,
        silence,
        ready,
    } = batch;
    let sent = exchange.made();
    let rests = due
        .iter()
        .map(|(hold, _)| hold.deadline().saturating_duration_since(sent));
    let patience = rests.min().map_or(response, |rest| response.min(rest / 2));
    let reply = match ready {
        Some(reply) => reply,
        None => {
            let until = clock::to_tokio(clock::after(sent, patience));
            match clock::timeout_at(until, &mut exchange).await {
                Ok(reply) => reply,
                Err(_) => {
                    // A lease that is too short for a round trip says nothing about the connection,
                    // which all holds share, and neither does a server that is slow.
                    let gives_up_at = exchange.gives_up_at(silence);
                    if gives_up_at.is_some_and(|at| at <= clock::now()) {
                        exchange.abandon();
                    }
                    return Answered {
                        at,
                        due,
                        sent,
                        followed: false,
                        outcome: Err(Fault::timed_out("no answer to a renewal")),
                    };
                }
            }
        }
    };
    let outcome = reply.and_then(|reply| {
        let read = decode(reply, due.len());
        read.map_err(|malformed| exchange.misread(malformed))
    });
    Answered {
        at,
        due,
        sent,
        followed: false,
        outcome,
    }
}

fn decode(reply: Reply, expected: usize) -> Result<Vec<HoldReply>, Malformed> {
    match reply {
        Reply::List(replies) if replies.len() == expected => {
            replies.into_iter().map(HoldReply::try_from).collect()
        }
        other => Err(Malformed(other)),
    }
}

#[cfg(all(test, feature = "embedded", not(redlock_loom)))]
mod tests {
    use super::*;
    use crate::connection::Connector;
    use crate::engine::{AcquireParams, Config, Engine, Terms};
    use crate::name::LockName;
    use crate::wire::{Holder, LockRecipe, RLockWire, Recipe};

    const S: Duration = Duration::from_secs(1);

    /// A task with a used-up budget sent the renewal at its next poll: by then the guard may have
    /// ended.
    #[tokio::test(start_paused = true)]
    async fn a_renewal_is_handed_to_the_connection_at_once_whatever_budget_is_left() {
        let server = redlock_embedded::Engine::new();
        let connector = Connector::new(move || std::future::ready(Ok(server.connect())));
        let engine = Engine::new(Config::for_tests(connector, 30 * S));
        let name = LockName::new(None, "spent").unwrap();
        let wire = Arc::new(RLockWire::new(name));
        let recipe: Arc<dyn Recipe> = Arc::clone(&wire) as _;
        let terms = Terms {
            lease: 30 * S,
            renew: None,
            max_hold: None,
        };
        let guard = engine
            .lock(Arc::clone(&recipe), terms, AcquireParams::default())
            .await
            .unwrap();
        let node = engine.nodes.node(Slot::ONLY).await.unwrap();
        node.connection(Lane::Renewals).ready().await.unwrap();
        let due = |lease| vec![(Arc::clone(&guard.hold), lease)];
        let mut schedule = Schedule::default();
        let at = Some(node);
        let now = clock::now();
        let picked = dispatch(&mut schedule, &at, due(Duration::ZERO), now);
        let Ok(verifies) = picked else {
            panic!("there is a connection");
        };
        // The first connection has loaded the script.
        let outcome = answer(verifies).await.outcome;
        assert!(outcome.is_ok(), "{outcome:?}");

        let (sender, mut spend) = tokio::sync::mpsc::unbounded_channel();
        (0..1000).for_each(|_| sender.send(()).unwrap());
        while tokio::task::coop::has_budget_remaining() {
            let _ = spend.recv().now_or_never();
        }
        let picked = dispatch(&mut schedule, &at, due(60 * S), clock::now());
        assert!(picked.is_ok());
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        let holder = engine
            .ask("inspect", wire.name(), wire.inspect(), Holder::decode)
            .await
            .unwrap()
            .remove(0);
        assert!(holder.ttl.is_some_and(|ttl| ttl > 31 * S), "{holder:?}");
    }
}
