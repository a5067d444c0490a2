//! Who is blamed for a wait in vain: Redis that was silent is not called contention, nor the other way
//! round.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering},
};
use std::time::Duration;

use futures::future::join_all;
use redlock_rt::{Backoff, Client, ErrorKind, LockOptions, Owner, Quorum, embedded::Engine};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream},
    sync::Notify,
    time::sleep,
};

use crate::ms;

/// A stream to an engine that delays every request by this many milliseconds.
fn far_away(engine: &Engine, latency: Arc<AtomicU64>) -> DuplexStream {
    let mut session = engine.connect();
    let (ours, mut theirs) = tokio::io::duplex(1 << 16);
    tokio::spawn(async move {
        let (mut requests, mut replies) = ([0; 4096], [0; 4096]);
        loop {
            tokio::select! {
                Ok(len @ 1..) = theirs.read(&mut requests) => {
                    sleep(ms(latency.load(Ordering::Relaxed))).await;
                    session.write_all(&requests[..len]).await.unwrap();
                }
                Ok(len @ 1..) = session.read(&mut replies) => {
                    theirs.write_all(&replies[..len]).await.unwrap();
                }
                else => return,
            }
        }
    });
    ours
}

/// A client that polls every 20 to 40 ms.
async fn client_far_away(engine: &Engine, latency: &Arc<AtomicU64>) -> Client {
    let (engine, latency) = (engine.clone(), Arc::clone(latency));
    let builder = Client::builder().connector(move || {
        let stream = far_away(&engine, Arc::clone(&latency));
        async move { Ok(stream) }
    });
    builder.poll_interval(ms(20)).connect().await.unwrap()
}

/// The last try of the waiter was in progress when its wait was over.
#[tokio::test(start_paused = true)]
async fn a_waiter_whose_wait_ended_during_a_try_called_redis_unavailable() {
    let engine = Engine::new();
    let holder = Client::builder().embedded(&engine).build().unwrap();
    let guard = holder.rlock("far").lock().await.unwrap();
    let client = client_far_away(&engine, &Arc::new(AtomicU64::new(100))).await;
    // A try of 100 ms, a pause of 20 to 40 ms, and another try that is cut short.
    let options = LockOptions::new().wait(ms(150));
    let error = client.rlock("far").lock_with(options).await.unwrap_err();
    assert!(error.is_timed_out(), "{error}");
    guard.unlock().await.unwrap();
}

/// One waiter after the other became head, and sent a try for which its wait had no time.
#[tokio::test(start_paused = true)]
async fn waiters_whose_waits_ended_together_each_sent_a_doomed_try() {
    const WAITERS: usize = 50;
    let engine = Engine::new();
    let latency = Arc::new(AtomicU64::new(0));
    let client = client_far_away(&engine, &latency).await;
    latency.store(3_600_000, Ordering::Relaxed);
    let lock = client.rlock("doomed");
    let options = LockOptions::new().wait(Duration::from_secs(1));
    let waits = (0..WAITERS).map(|_| lock.lock_with(options.clone()));
    let outcomes = join_all(waits).await;
    assert_eq!(client.stats().releases, 1, "tries left behind");
    for outcome in outcomes {
        let error = outcome.unwrap_err();
        assert!(error.is_unavailable(), "{error}");
    }
}

/// A client of a server that accepts connections and sends nothing.
fn unheard() -> Client {
    let silence = Arc::new(Mutex::new(Vec::new()));
    let connect = move || {
        let (ours, theirs) = tokio::io::duplex(4096);
        // Kept open and never read.
        silence.lock().unwrap().push(theirs);
        async move { Ok::<DuplexStream, _>(ours) }
    };
    Client::builder().connector(connect).build().unwrap()
}

/// The first call was waiting for Redis, and the second for the first.
#[tokio::test(start_paused = true)]
async fn a_silent_redis_was_called_contention_to_the_second_call_of_an_owner() {
    let lock = unheard().rlock("silence");
    let owner = Owner::new();
    let wait = |wait| LockOptions::new().owner(&owner).wait(wait);
    let (first, second) = tokio::join!(
        lock.lock_with(wait(ms(5000))),
        lock.lock_with(wait(ms(2000))),
    );
    for error in [first.unwrap_err(), second.unwrap_err()] {
        assert!(error.is_unavailable(), "{error}");
    }
}

/// The head of the queue had failed once, and was just asking again.
#[tokio::test(start_paused = true)]
async fn a_silent_redis_was_called_contention_to_who_gave_up_early_in_a_second_try() {
    let lock = unheard().rlock("silence");
    let wait = |wait| lock.lock_with(LockOptions::new().wait(ms(wait)));
    // Connecting is given up after 3 s.
    let (first, second, third) = tokio::join!(wait(8000), wait(3500), wait(6500));
    for error in [first, second, third].map(Result::unwrap_err) {
        assert!(error.is_unavailable(), "{error}");
    }
}

/// The retries of a waiter behind another task were over, although none was refused.
#[tokio::test(start_paused = true)]
async fn a_silent_redis_was_called_contention_to_who_spins_behind_another() {
    let lock = unheard()
        .spin_lock("silence")
        .backoff(Backoff::constant(ms(10)).max_retries(3));
    let wait = |wait| lock.lock_with(LockOptions::new().wait(ms(wait)));
    let (first, second) = tokio::join!(wait(5000), wait(2000));
    for error in [first.unwrap_err(), second.unwrap_err()] {
        assert!(error.is_unavailable(), "{error}");
    }
}

/// The first call was asking silent servers, and did not know that yet.
#[tokio::test(start_paused = true)]
async fn silent_servers_were_called_contention_to_who_waited_behind_the_first_call() {
    let quorum = Quorum::new((0..3).map(|_| unheard())).unwrap();
    let lock = quorum.redlock("silence");
    let wait = |wait| lock.lock_with(LockOptions::new().wait(ms(wait)));
    let (first, second) = tokio::join!(wait(5000), wait(200));
    for error in [first.unwrap_err(), second.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Quorum, "{error}");
    }
}

/// Retries were counted while Redis did not answer, so the first refusal was the last.
#[tokio::test(start_paused = true)]
async fn an_outage_used_up_the_retries_of_a_spin_lock() {
    let engine = Engine::new();
    let connected = Arc::new(Notify::new());
    let open = Arc::clone(&connected);
    let slow = engine.clone();
    let connect = move || {
        let (open, engine) = (Arc::clone(&open), slow.clone());
        async move {
            open.notified().await;
            Ok(engine.connect())
        }
    };
    let client = Client::builder().connector(connect).build().unwrap();
    let holder = Client::builder().embedded(&engine).build().unwrap();
    let _held = holder.spin_lock("spun").lock().await.unwrap();
    let lock = client
        .spin_lock("spun")
        .backoff(Backoff::constant(ms(10)).max_retries(5));
    let begun = tokio::time::Instant::now();
    let back = async {
        // Longer than the connect time-out: the first try fails.
        sleep(ms(10_000)).await;
        loop {
            connected.notify_one();
            sleep(ms(1)).await;
        }
    };
    let error = tokio::select! {
        outcome = lock.lock() => outcome.unwrap_err(),
        () = back => unreachable!(),
    };
    assert!(error.is_timed_out(), "{error}");
    let after = begun.elapsed() - ms(10_000);
    assert!(after >= ms(50), "{after:?} after it answered again");
}

/// The error did not say which lock either.
#[tokio::test]
async fn the_error_of_several_locks_named_none_of_them() {
    let client = Client::embedded();
    let occupied = client.fenced_value("a");
    occupied.set("no lock", 1).await.unwrap();
    let both = client.multi_lock(["a", "b"]);
    for error in [
        both.lock().await.unwrap_err(),
        both.try_lock().await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::WrongType);
        assert!(
            error.name().is_some_and(|name| name.contains('a')),
            "{error}"
        );
    }
    let both = unheard().multi_lock(["a", "b"]);
    let error = both.try_lock().await.unwrap_err();
    assert!(
        error.name().is_some_and(|name| name.contains('a')),
        "{error}"
    );
}
