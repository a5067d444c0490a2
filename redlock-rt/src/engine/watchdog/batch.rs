//! One call that renews holds of one slot.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use futures::FutureExt;

use super::node_loads::KnownNode;
use super::{Scheduled, Watchdog};
use crate::clock;
use crate::connection::{Caller, Delivery, Exchange, Fault, Lane, Nodes, To, Verdict, Watched};
use crate::engine::hold::Hold;
use crate::wire::{HoldReply, Malformed, Renewal, Reply, Slot, WantedLease, renew};

/// A silent connection is closed after this time, if no renewal can wait longer.
const SILENCE: Duration = Duration::from_millis(250);
const NO_ANSWER: &str = "no answer to a renewal";

/// A hold whose renewal is due, and the lease to ask for.
pub(super) type DueHold = (Arc<Hold>, Duration);

/// A call that was handed to the connection.
pub(super) struct Batch {
    at: KnownNode,
    due: Vec<DueHold>,
    exchange: Exchange,
    watched: Option<Watched>,
    /// The longest time for the reply.
    response: Duration,
    /// A connection that is silent for this long is closed.
    silence: Duration,
    /// The first reply, if it came at once.
    ready: Option<Result<Reply, Fault>>,
}

/// A batch with its result.
pub(super) struct Answered {
    pub(super) at: KnownNode,
    pub(super) due: Vec<DueHold>,
    pub(super) sent: Instant,
    /// Whether the call followed its slot; see [`alone`].
    pub(super) followed: bool,
    /// A key may have been written to before the server watched it.
    pub(super) late: bool,
    pub(super) outcome: Result<Vec<HoldReply>, Fault>,
}

/// Hands the renewal of `due` to the connection; the caller holds the schedule's mutex. Returns
/// `due` if there is no connection.
pub(super) fn dispatch(
    schedule: &mut Scheduled,
    at: &KnownNode,
    due: Vec<DueHold>,
    now: Instant,
) -> Result<Batch, Vec<DueHold>> {
    let Some(node) = at else { return Err(due) };
    // Before the schedule's mutex is free: such a hold is not handed over while the reply is unknown.
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
        let _ = schedule.holds.set(hold.number, again, Arc::clone(hold));
    }
    // The first poll hands the call to the connection, even if the task has used up its budget. After the
    // schedule's mutex is released, a guard may end.
    let mut first = tokio::task::unconstrained(&mut exchange);
    let ready = match first.poll_unpin(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => Some(outcome),
        Poll::Pending => None,
    };
    let watched = schedule.track(due.iter().map(|(hold, _)| hold), &exchange, now);
    // Commands of callers have more time.
    let silence = match Arc::ptr_eq(connection, node.connection(Lane::Main)) {
        true => connection.timeouts().reply(),
        false => SILENCE.min(response),
    };
    Ok(Batch {
        at: at.clone(),
        due,
        exchange,
        watched,
        response,
        silence,
        ready,
    })
}

/// Half of the shortest remaining lease that the call lengthens. A lease that is not lengthened ends in any
/// case, and must not limit the call for the others.
fn patience(rests: impl Iterator<Item = (Duration, bool)> + Clone, response: Duration) -> Duration {
    let lengthened = rests.clone().filter(|(_, lengthened)| *lengthened).min();
    let rest = lengthened.or_else(|| rests.min());
    rest.map_or(response, |(rest, _)| response.min(rest / 2))
}

/// Waits for the outcome of a batch, at most for half of the shortest remaining lease that it lengthens. So
/// there is time for another try.
pub(super) async fn answer(mut batch: Batch) -> Answered {
    let sent = batch.exchange.made();
    let rest = |(hold, lease): &DueHold| {
        let rest = hold.deadline().saturating_duration_since(sent);
        (rest, !lease.is_zero())
    };
    let patience = patience(batch.due.iter().map(rest), batch.response);
    let until = Some(clock::after(sent, patience));
    let reply = match batch.ready {
        Some(reply) => Some(reply),
        None => clock::before(until, &mut batch.exchange).await,
    };
    let outcome = match reply {
        Some(reply) => reply.and_then(|reply| {
            let read = decode(reply, batch.due.len());
            read.map_err(|malformed| batch.exchange.misread(malformed))
        }),
        None => {
            // A lease that is too short for a round trip says nothing about the connection, which all holds
            // share. Neither does a slow server.
            let gives_up_at = batch.exchange.gives_up_at(batch.silence);
            if gives_up_at.is_some_and(|at| at <= clock::now()) {
                batch.exchange.abandon();
            }
            Err(Fault::timed_out(NO_ANSWER))
        }
    };
    // Usually it comes in the same read.
    let late = match batch.watched {
        Some(watched) if outcome.is_ok() => {
            clock::before(until, watched.came_late()).await == Some(true)
        }
        _ => false,
    };
    Answered {
        at: batch.at,
        due: batch.due,
        sent,
        followed: false,
        late,
        outcome,
    }
}

/// Renews one hold of a slot that is being moved to another server. The call may be redirected, and is then
/// sent again without the schedule's mutex. So it has the turn of the hold's commands: the release of the
/// last guard waits for it.
pub(super) async fn alone(
    watchdog: Arc<Watchdog>,
    nodes: Arc<Nodes>,
    hold: Arc<Hold>,
    at: KnownNode,
) -> Answered {
    let now = clock::now();
    let rest = hold.deadline().saturating_duration_since(now);
    let until = clock::after(now, rest / 2);
    let mut answered = Answered {
        at,
        due: Vec::new(),
        sent: now,
        followed: true,
        late: false,
        outcome: Ok(Vec::new()),
    };
    let Some((turn, ttl)) = watchdog.take_alone(&hold, now) else {
        return answered;
    };
    let call = renew(&[renewal(&hold, ttl)]);
    let to = To::new(&nodes, slot_of(&nodes, &hold), Lane::Renewals);
    let mut delivery = Delivery::of_upkeep();
    let reply = delivery.attempt(to, || call, Some(until)).await;
    let reply = reply.unwrap_or_else(|| Err(Fault::timed_out(NO_ANSWER)));
    answered.outcome = delivery.read(reply, |reply| decode(reply, 1));
    answered.sent = delivery.sent.unwrap_or(now);
    drop(turn);
    answered.due.push((hold, ttl));
    answered
}

/// Whether one key of a call may be the reason for its failure. If the server no longer accepts the client,
/// both halves would fail like the whole.
pub(super) fn may_be_of_one_key(fault: &Fault) -> bool {
    if fault.verdict(Caller::Renewal) != Verdict::Apart {
        return false;
    }
    // All versions of Redis name the key if an ACL forbids a key, and otherwise the command.
    let error = fault.clone().into_error("renew leases");
    let names_a_key = |text: String| text.contains("key");
    let source = std::error::Error::source(&error).map(ToString::to_string);
    !fault.is_denied() || source.is_some_and(names_a_key)
}

fn renewal(hold: &Hold, lease: Duration) -> Renewal<'_> {
    let mut state = hold.lease();
    let most = state.asks(Duration::ZERO);
    // Other clients may have shortened it (Redisson before 4.4.0: those of all readers).
    let lease = match state.look_every() {
        Some(_) => lease.max(state.deadline().saturating_duration_since(clock::now())),
        None => lease,
    };
    drop(state);
    Renewal {
        recipe: &*hold.recipe,
        owner: hold.id(),
        wanted: WantedLease { lease, most },
    }
}

/// All holds of one call are in one slot.
pub(super) fn slot_of(nodes: &Nodes, hold: &Hold) -> Slot {
    nodes.slot_of(hold.recipe.name())
}

fn decode(reply: Reply, expected: usize) -> Result<Vec<HoldReply>, Malformed> {
    match reply {
        Reply::List(replies) if replies.len() == expected => {
            replies.into_iter().map(HoldReply::try_from).collect()
        }
        other => Err(Malformed(other)),
    }
}

#[cfg(all(test, feature = "embedded"))]
mod tests {
    use super::*;
    use crate::connection::Connector;
    use crate::engine::{AcquireParams, ClientEngine, Config, Terms};
    use crate::name::LockName;
    use crate::wire::{Holder, LockRecipe, RLockWire, Recipe};

    const S: Duration = Duration::from_secs(1);

    /// A task with a used-up budget sent the renewal at its next poll: by then the guard may have
    /// ended.
    #[tokio::test(start_paused = true)]
    async fn a_renewal_is_handed_to_the_connection_at_once_whatever_budget_is_left() {
        let server = redlock_embedded::Engine::new();
        let connector =
            Connector::new(move |_: &str, _: u16| std::future::ready(Ok(server.connect())));
        let engine = ClientEngine::through(connector, Config::for_tests(30 * S));
        let name = LockName::new(None, "spent").unwrap();
        let wire = Arc::new(RLockWire::new(name));
        let recipe: Arc<dyn Recipe> = Arc::clone(&wire) as _;
        let terms = Terms {
            lease: 30 * S,
            renew: None,
            max_hold: None,
            ..Terms::WITHOUT_LEASE
        };
        let guard = engine
            .lock(Arc::clone(&recipe), terms, AcquireParams::default())
            .await
            .unwrap();
        let node = engine.nodes.node(Slot::ONLY).await.unwrap();
        node.connection(Lane::Renewals).ready().await.unwrap();
        let due = |lease| vec![(Arc::clone(&guard.hold), lease)];
        let mut schedule = Scheduled::default();
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

    /// All holds of the call were suspect after 10 ms, for one that was to end.
    #[test]
    fn a_lease_that_is_not_lengthened_shortens_the_patience_of_no_other() {
        let patience = |rests: &[(u64, bool)]| {
            let rests = rests.iter();
            let rests = rests.map(|(rest, lengthened)| (Duration::from_millis(*rest), *lengthened));
            patience(rests, Duration::from_secs(3)).as_millis()
        };
        assert_eq!(patience(&[(20, false), (30_000, true)]), 3000);
        assert_eq!(patience(&[(20, false), (400, true), (600, true)]), 200);
        assert_eq!(patience(&[(20, false), (600, false)]), 10);
    }
}
