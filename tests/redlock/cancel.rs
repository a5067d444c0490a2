//! Calls that are dropped between any two steps leave nothing on any server.

use std::{future::Future, pin::pin, task::Poll, time::Duration};

use redis::aio::MultiplexedConnection;
use redlock_rt::{Client, LockOptions, Quorum, RedLock, Unlocked, embedded::Engine};
use tests::{DEADLINE, Wires, ask, connection_over, eventually, stepping_runtime, within};
use tokio::task::yield_now;

const NAME: &str = "cancelled";
/// More than the number of steps of any call here.
const MOST: usize = 1_000;

/// Three engines with two quorums; the wires of one quorum move a few bytes per step.
struct Stage {
    lock: RedLock,
    other: RedLock,
    clients: Vec<Client>,
    control: Vec<MultiplexedConnection>,
}

impl Stage {
    async fn set() -> Self {
        let engines: Vec<_> = (0..3).map(|_| Engine::new()).collect();
        let wires: Vec<_> = engines
            .iter()
            .map(|engine| Wires::to_engine(engine).slow())
            .collect();
        let clients: Vec<_> = wires
            .iter()
            .map(|wires| wires.builder().build().unwrap())
            .collect();
        let others = engines
            .iter()
            .map(|engine| Client::builder().embedded(engine).build().unwrap());
        let mut control = Vec::new();
        for engine in &engines {
            control.push(connection_over(engine.connect()).await.unwrap());
        }
        let quorum = Quorum::new(clients.clone()).unwrap();
        Self {
            lock: quorum.redlock(NAME),
            other: Quorum::new(others).unwrap().redlock(NAME),
            clients,
            control,
        }
    }

    /// The next caller gets the lock soon, and nothing is left on any server.
    async fn assert_nothing_left(&self, at: (usize, bool)) {
        let next = LockOptions::new().wait(Duration::from_secs(1));
        match self.other.lock_with(next).await {
            Ok(guard) => assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released),
            Err(error) => panic!("{at:?}: {error}"),
        }
        eventually(DEADLINE, async || {
            for (client, control) in self.clients.iter().zip(&self.control) {
                let stats = client.stats();
                let counts = [stats.held, stats.releases, stats.names, stats.waiting];
                if counts != [0; 4] || ask::<usize>(control, &["DBSIZE"]).await != 0 {
                    return Err(format!("{at:?}: {stats:?}"));
                }
            }
            Ok(())
        })
        .await;
    }
}

/// Polls this often, with a step of all other tasks in between; returns the output if the call
/// completes before.
async fn drop_after<F: Future>(polls: usize, late: bool, call: F) -> Option<F::Output> {
    let mut call = pin!(call);
    for _ in 0..polls {
        if let Poll::Ready(output) = futures::poll!(&mut call) {
            return Some(output);
        }
        yield_now().await;
    }
    // The awaited event has happened, and the call does not know it yet.
    for _ in 0..if late { 40 } else { 0 } {
        yield_now().await;
    }
    None
}

/// Runs `case` for every point at which its call can be dropped, until the call completes.
fn at_every_point(least: usize, case: impl AsyncFn(&Stage, usize, bool) -> bool) {
    stepping_runtime(true).block_on(async {
        let stage = Stage::set().await;
        // Connects, and loads the scripts.
        stage.lock.lock().await.unwrap().unlock().await.unwrap();
        for polls in 1.. {
            assert!(polls < MOST, "it does not complete");
            let mut completed = true;
            for late in [false, true] {
                completed &= within(DEADLINE, case(&stage, polls, late)).await;
                stage.assert_nothing_left((polls, late)).await;
            }
            if completed {
                assert!(polls >= least, "only {polls} points");
                return;
            }
        }
    });
}

#[test]
fn lock() {
    at_every_point(5, async |stage, polls, late| {
        let guard = drop_after(polls, late, stage.lock.lock()).await;
        guard.map(|guard| drop(guard.unwrap())).is_some()
    });
}

#[test]
fn lock_while_another_has_it() {
    at_every_point(10, async |stage, polls, late| {
        let mut theirs = Some(stage.other.lock().await.unwrap());
        let mut call = pin!(stage.lock.lock());
        for poll in 0..polls {
            if poll == 60 {
                drop(theirs.take());
            }
            if let Poll::Ready(guard) = futures::poll!(&mut call) {
                drop(guard.unwrap());
                return true;
            }
            yield_now().await;
            if poll > 80 {
                tokio::time::advance(Duration::from_millis(3)).await;
            }
        }
        for _ in 0..if late { 40 } else { 0 } {
            yield_now().await;
        }
        false
    });
}

#[test]
fn with_a_body() {
    at_every_point(10, async |stage, polls, late| {
        let call = stage.lock.with(async |guard| {
            assert!(guard.is_valid());
            yield_now().await;
        });
        drop_after(polls, late, call)
            .await
            .map(Result::unwrap)
            .is_some()
    });
}

#[test]
fn unlock() {
    at_every_point(5, async |stage, polls, late| {
        let guard = stage.lock.lock().await.unwrap();
        let outcome = drop_after(polls, late, guard.unlock()).await;
        outcome
            .map(|outcome| assert_eq!(outcome.unwrap(), Unlocked::Released))
            .is_some()
    });
}

#[test]
fn extend() {
    at_every_point(5, async |stage, polls, late| {
        let guard = stage.lock.lock().await.unwrap();
        let extend = guard.extend(Duration::from_secs(60));
        drop_after(polls, late, extend)
            .await
            .map(Result::unwrap)
            .is_some()
    });
}

#[test]
fn reenter() {
    at_every_point(5, async |stage, polls, late| {
        let guard = stage.lock.lock().await.unwrap();
        let inner = drop_after(polls, late, guard.reenter()).await;
        let completed = inner.map(|inner| drop(inner.unwrap())).is_some();
        assert_eq!(guard.hold_count(), 1);
        assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
        completed
    });
}
