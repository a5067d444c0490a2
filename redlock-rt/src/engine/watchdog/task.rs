//! The task that sends due renewals.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};

use super::Watchdog;
use super::schedule::Schedule;
use crate::clock;
use crate::connection::{Caller, Cause, Connection, Exchange, Fault, Verdict};
use crate::engine::hold::{Hold, LostReason, Plan};
use crate::mutant;
use crate::shim::lock;
use crate::wire::{HoldReply, Malformed, Renewal, Reply, renew};

/// The number of leases per call, unless a single hold has more: small enough not to delay the
/// server. Redisson renews as many locks.
const BATCH: usize = 100;
/// A silent connection is closed after this time, if no renewal can wait longer.
const SILENCE: Duration = Duration::from_millis(250);
/// The number of batches in progress at once.
const MOST_BATCHES: usize = 16;

/// A hold whose renewal is due, and the lease to ask for.
type Due = (Arc<Hold>, Duration);

struct Batch {
    due: Vec<Due>,
    exchange: Exchange,
    /// The first reply, if it came at once.
    ready: Option<Result<Reply, Fault>>,
}

/// A batch with its result.
struct Answered {
    due: Vec<Due>,
    sent: Instant,
    outcome: Result<Vec<HoldReply>, Fault>,
}

/// Runs until the watchdog is closed.
pub(crate) async fn run(watchdog: Arc<Watchdog>, connection: Arc<Connection>) {
    let mut under_way: FuturesUnordered<BoxFuture<'static, Answered>> = FuturesUnordered::new();
    let mut connecting: Option<BoxFuture<'static, Result<(), Fault>>> = None;
    while !watchdog.signal.is_closed() {
        watchdog.doubt_all();
        watchdog.losses.tell(clock::now());
        let mut more = true;
        while more && under_way.len() < MOST_BATCHES && connecting.is_none() {
            match watchdog.pick(&connection) {
                Picked::Sent(batch) => {
                    let response = connection.timeouts().response;
                    under_way.push(answer(batch, response).boxed());
                }
                Picked::Unconnected => {
                    let connection = Arc::clone(&connection);
                    connecting = Some(async move { connection.ready().await }.boxed());
                }
                Picked::Nothing => more = false,
            }
        }
        let wake_at = lock(&watchdog.schedule).arm(clock::now());
        // While nothing can be sent, due holds are handled as soon as that changes.
        let sleep = wake_at.filter(|_| connecting.is_none() && under_way.len() < MOST_BATCHES);
        let sleep = sleep.into_iter().chain(watchdog.losses.wake_at()).min();
        tokio::select! {
            // Answers first: there are no more than were asked for. Every turn checks what is due
            // and what a signal announces.
            biased;
            Some(answered) = under_way.next(), if !under_way.is_empty() => {
                watchdog.take_in(&connection, answered, &mut under_way);
            }
            connected = async { connecting.as_mut()?.await.into() }, if connecting.is_some() => {
                connecting = None;
                if let Some(Err(fault)) = connected {
                    watchdog.unreachable(&fault);
                }
            }
            () = clock::sleep_until(sleep.unwrap_or_else(clock::now)), if sleep.is_some() => {}
            () = watchdog.signal.notified() => {}
        }
    }
}

enum Picked {
    Sent(Batch),
    /// Something is due and there is no connection.
    Unconnected,
    Nothing,
}

impl Watchdog {
    /// Takes due holds, up to [`BATCH`] by weight, and hands their renewal to the connection, all
    /// under the schedule's mutex: no guard can end in between.
    fn pick(&self, connection: &Connection) -> Picked {
        let now = clock::now();
        let mut due = Vec::new();
        let mut ended = Vec::new();
        let mut kept = Vec::new();
        let mut horizon = now;
        let mut weight = 0;
        let mut schedule = lock(&self.schedule);
        while weight.max(kept.len()) < BATCH
            && let Some((id, hold)) = schedule.pop_due(horizon)
        {
            let (at, ttl) = match hold.plan(now) {
                Plan::Renew(ttl) => (now, Some(ttl)),
                // Only together with other holds.
                Plan::Wait(at) => (at, hold.plan_early(now).filter(|_| !due.is_empty())),
                Plan::Done => {
                    self.left(&hold);
                    ended.push(hold);
                    continue;
                }
            };
            let Some(ttl) = ttl else {
                kept.push((id, at, hold));
                continue;
            };
            weight = hold.weight().saturating_add(weight);
            if weight > BATCH && !due.is_empty() {
                // The next call includes this hold.
                kept.push((id, at, hold));
                break;
            }
            // Holds that are due soon are included: their times vary, and each alone would need a
            // call.
            if at == now {
                horizon = horizon.max(clock::after(now, hold.slack(now)));
            }
            due.push((hold, ttl));
        }
        // Rescheduled only now, since they would be found again otherwise.
        for (id, at, hold) in kept {
            let _ = schedule.set(id, at, hold);
        }
        let picked = dispatch(&mut schedule, connection, due, now);
        drop(schedule);
        // Outside the mutex: this notifies the hold's waiters, and may drop the last reference to
        // them.
        ended.iter().for_each(|hold| hold.expired());
        picked
    }

    /// As [`pick`](Self::pick), for those of these holds that are still scheduled.
    fn pick_again(&self, connection: &Connection, holds: &[Due]) -> Picked {
        let now = clock::now();
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
        dispatch(&mut schedule, connection, due, now)
    }

    /// No connection: all due renewals have failed for now.
    fn unreachable(&self, fault: &Fault) {
        let now = clock::now();
        let mut overdue = Vec::new();
        let mut schedule = lock(&self.schedule);
        while let Some((id, hold)) = schedule.pop_due(now) {
            overdue.push((id, hold));
        }
        for (id, hold) in &overdue {
            let _ = schedule.set(*id, now, Arc::clone(hold));
        }
        drop(schedule);
        self.failed(overdue.iter().map(|(_, hold)| hold), fault);
    }

    /// All are retried at the same moment, so that one call stays one call.
    fn failed<'a>(&self, holds: impl Iterator<Item = &'a Arc<Hold>> + Clone, fault: &Fault) {
        let now = clock::now();
        let Some(retry_at) = holds.clone().map(|hold| hold.retry_at(now)).min() else {
            return;
        };
        tracing::debug!(holds = holds.clone().count(), ?fault, "renewals failed");
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
                self.left(hold);
            }
            drop(schedule);
            hold.expired();
            drop(ended);
        }
    }

    fn take_in(
        &self,
        connection: &Connection,
        answered: Answered,
        under_way: &mut FuturesUnordered<BoxFuture<'static, Answered>>,
    ) {
        let Answered { due, sent, outcome } = answered;
        match outcome {
            Ok(mut replies) => {
                mutant::shift("a_reply_of_a_batch_goes_to_another", &mut replies);
                for ((hold, ttl), reply) in due.into_iter().zip(replies) {
                    hold.answered(reply, sent, ttl);
                    self.rewatch_or_end(&hold);
                }
            }
            // Sent again under the schedule's mutex, so that no guard has ended by then.
            Err(fault) if fault.cause() == Cause::Loaded => {
                for (hold, _) in due {
                    hold.doubt(clock::now());
                    self.rewatch_or_end(&hold);
                }
            }
            // One bad key makes the whole call fail: each half is sent separately.
            Err(fault) if due.len() > 1 && may_be_of_one_key(&fault) => {
                let (first, second) = due.split_at(due.len() / 2);
                for half in [first, second] {
                    if let Picked::Sent(batch) = self.pick_again(connection, half) {
                        let response = connection.timeouts().response;
                        under_way.push(answer(batch, response).boxed());
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
    fault.cause() != Cause::Denied || source.is_some_and(names_a_key)
}

/// Hands the renewal of `due` to the connection; the caller holds the schedule's mutex.
fn dispatch(
    schedule: &mut Schedule<Arc<Hold>>,
    connection: &Connection,
    due: Vec<Due>,
    now: Instant,
) -> Picked {
    if due.is_empty() {
        return Picked::Nothing;
    }
    let holds: Vec<Renewal<'_>> = due
        .iter()
        .map(|(hold, lease)| Renewal {
            recipe: &*hold.recipe,
            owner: &hold.id,
            lease: *lease,
        })
        .collect();
    let exchange = connection.call_now(renew(&holds));
    // Due again at the latest moment for the outcome; at once if nothing is sent.
    let again = match exchange {
        Some(_) => clock::after(now, connection.timeouts().response * 2),
        None => now,
    };
    for (hold, _) in &due {
        let _ = schedule.set(hold.number, again, Arc::clone(hold));
    }
    let Some(mut exchange) = exchange else {
        return Picked::Unconnected;
    };
    // The first poll hands the call to the connection, even if the task has used up its budget:
    // after the schedule's mutex is released, a guard may end.
    let mut first = tokio::task::unconstrained(&mut exchange);
    let ready = match first.poll_unpin(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => Some(outcome),
        Poll::Pending => None,
    };
    Picked::Sent(Batch {
        due,
        exchange,
        ready,
    })
}

/// Waits for the outcome of a batch, at most for half of the shortest remaining lease, so that
/// there is time for another try.
async fn answer(batch: Batch, response: Duration) -> Answered {
    let Batch {
        due,
        mut exchange,
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
                    // which all holds share.
                    if patience >= SILENCE.min(response) {
                        exchange.abandon();
                    }
                    return Answered {
                        due,
                        sent,
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
    Answered { due, sent, outcome }
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
        let server = crate::embedded::Engine::new();
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
            .lock(&recipe, terms, AcquireParams::default())
            .await
            .unwrap();
        engine.renewals.ready().await.unwrap();
        let due = |lease| vec![(Arc::clone(&guard.hold), lease)];
        let mut schedule = Schedule::default();
        let picked = dispatch(
            &mut schedule,
            &engine.renewals,
            due(Duration::ZERO),
            clock::now(),
        );
        let Picked::Sent(loads_the_script) = picked else {
            panic!("there is a connection");
        };
        let outcome = answer(loads_the_script, S).await.outcome;
        let cause = outcome.as_ref().map_err(Fault::cause);
        assert_eq!(cause, Err(Cause::Loaded), "{outcome:?}");

        let (sender, mut spend) = tokio::sync::mpsc::unbounded_channel();
        (0..1000).for_each(|_| sender.send(()).unwrap());
        while tokio::task::coop::has_budget_remaining() {
            let _ = spend.recv().now_or_never();
        }
        let picked = dispatch(&mut schedule, &engine.renewals, due(60 * S), clock::now());
        assert!(matches!(picked, Picked::Sent(_)));
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
