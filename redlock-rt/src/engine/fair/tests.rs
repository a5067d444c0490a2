use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use super::FairTicket;
use super::batch::PendingBeat;
use crate::clock;
use crate::connection::{Connector, Message};
use crate::engine::hub::ChannelListener;
use crate::engine::wait::Wake;
use crate::engine::{ClientEngine, Config};
use crate::name::LockName;
use crate::wire::{Beat, FairPlace, FairQueue, Recipe, Slot, TurnMessage};

const S: Duration = Duration::from_secs(1);
/// A third of this time passes between two beats.
const ALIVE: Duration = Duration::from_secs(30);

/// Tasks do not run: there is no runtime.
fn engine() -> Arc<ClientEngine> {
    let server = redlock_embedded::Engine::new();
    let connector = Connector::new(move |_: &str, _: u16| std::future::ready(Ok(server.connect())));
    ClientEngine::through(connector, Config::for_tests(ALIVE))
}

/// The slots of a client of one server.
fn one_slot(_: &LockName) -> Slot {
    Slot::ONLY
}

/// A waiter that is queued for this name.
fn queued(engine: &Arc<ClientEngine>, name: usize) -> FairTicket {
    let name = LockName::new(None, &name.to_string()).expect("digits are a name");
    let recipe: Arc<dyn Recipe> = Arc::new(FairQueue::new(name, ALIVE));
    let number = engine.next_number();
    let ticket = engine
        .fair
        .enter(&recipe, number, Duration::from_secs(30))
        .expect("the kind has a queue");
    let place = FairPlace {
        is_next: false,
        lease: None,
        mixed: false,
        at: 0,
    };
    ticket.queued(place, None);
    ticket
}

fn pick(engine: &ClientEngine, now: Instant) -> Vec<PendingBeat> {
    engine.fair.pick(now, one_slot, |_| false).0
}

/// They were due a quarter of a second later, even if the server took calls again earlier.
#[test]
fn names_that_were_held_up_are_due_when_they_are_no_more() {
    let engine = engine();
    let _tickets: Vec<FairTicket> = (0..5).map(|name| queued(&engine, name)).collect();
    for name in 0..5 {
        engine.fair.get(&name.to_string()).unwrap().beat_now();
    }
    let now = clock::now();
    let (batch, held_up) = engine.fair.pick(now, one_slot, |_| true);
    assert!(batch.is_empty() && held_up.len() == 5);
    assert!(pick(&engine, now).is_empty());
    drop(held_up);
    assert_eq!(pick(&engine, clock::now()).len(), 5);
}

#[test]
fn beats_of_names_that_began_at_different_moments_come_together() {
    let engine = engine();
    let started = clock::now();
    let _tickets: Vec<FairTicket> = (0..250).map(|name| queued(&engine, name)).collect();
    assert!(pick(&engine, started).is_empty());
    engine.fair.get("7").unwrap().beat_now();
    engine.fair.get("8").unwrap().beat_now();
    // The others are not due in half of their time.
    let first = pick(&engine, clock::now());
    assert_eq!(first.len(), 2);
    for one in first {
        let beat = Beat {
            head: None,
            is_free: false,
            lease: None,
            missing: vec![],
        };
        one.answered(|waiters| waiters.beat_answered(&beat, 0.0, started));
    }
    // These two are due first, and bring others along.
    let mut batches = vec![pick(&engine, started + ALIVE.mul_f64(0.31))];
    let due = clock::now() + ALIVE / 3;
    batches.extend(std::iter::from_fn(|| {
        let batch = pick(&engine, due);
        (!batch.is_empty()).then_some(batch)
    }));
    let sizes: Vec<_> = batches.iter().map(Vec::len).collect();
    assert_eq!(sizes, [100, 100, 50]);
}

/// The wake-up of a waiter when it looks.
fn told(ticket: &FairTicket) -> Poll<Wake<()>> {
    ticket.seat.poll(Waker::noop())
}

#[test]
fn a_waiter_that_comes_while_the_client_shuts_down_is_told() {
    let engine = engine();
    let before = queued(&engine, 1);
    engine.fair.close();
    let after = queued(&engine, 2);
    for ticket in [&before, &after] {
        assert_eq!(told(ticket), Poll::Ready(Wake::Closed));
    }
}

#[test]
fn waiters_of_all_names_try_when_they_may_have_missed_something() {
    let engine = engine();
    let tickets = [1, 1, 2].map(|name| queued(&engine, name));
    assert_eq!(engine.waiting(), 3);
    for told_to in [false, true] {
        if told_to {
            engine.fair.notify_all();
        }
        for ticket in &tickets {
            // The first try needs no message.
            assert_eq!(told(ticket), Poll::Ready(Wake::Try));
            assert_eq!(told(ticket), Poll::Pending);
        }
    }
    drop(tickets);
    assert_eq!(engine.waiting(), 0);
}

#[test]
fn a_beat_dropped_unanswered_is_sent_again() {
    let engine = engine();
    let _ticket = queued(&engine, 1);
    let waiters = engine.fair.get("1").unwrap();
    waiters.beat_now();
    let first = pick(&engine, clock::now());
    assert_eq!(first.len(), 1);
    waiters.beat_now();
    assert!(
        pick(&engine, clock::now() + S).is_empty(),
        "it is under way"
    );
    // The runtime has ended.
    drop(first);
    assert_eq!(pick(&engine, clock::now()).len(), 1);
}

/// The waiter has left, and no other waiter receives the message.
#[test]
fn redis_is_asked_soon_about_a_turn_of_nobody_here_and_not_about_that_of_a_waiter() {
    let engine = engine();
    let _ticket = queued(&engine, 0);
    let number = engine.next_number();
    let hear = |number| {
        let (channel, payload) = ("c".into(), TurnMessage::encode_now(number, "0"));
        engine.fair.heard(&Message { channel, payload }, None);
    };
    let asked = || {
        let due = clock::now() + ALIVE / 10;
        pick(&engine, due).len()
    };
    hear(number - 1);
    assert_eq!(asked(), 0);
    hear(number);
    assert_eq!(asked(), 1);
}

/// Its first try found the lock free, so it was never queued, and there was no subscription.
#[test]
fn a_waiter_that_was_never_queued_was_counted_for_ever() {
    let engine = engine();
    let name = LockName::new(None, "n").unwrap();
    let recipe: Arc<dyn Recipe> = Arc::new(FairQueue::new(name, ALIVE));
    let ticket = engine
        .fair
        .enter(&recipe, engine.next_number(), Duration::from_secs(30))
        .expect("the kind has a queue");
    assert_eq!(engine.waiting(), 1);
    drop(ticket);
    assert_eq!(engine.waiting(), 0);
}
