//! A client whose tasks hand a lock over, and one beside it, on the embedded engine.
//!
//! The clock stands still while anything can run, so a chain ends only where a test lets time pass.

use std::{fmt, future::Future, time::Duration};

use redis::FromRedisValue;
use redlock_rt::{Client, ClientBuilder, Kind, Lock, LockGuard, embedded::Engine};
pub(crate) use tests::settle;
use tests::{Wires, ask, calls, connection_over, lock_and_unlock};
use tokio::time::sleep;
use tokio_test::{assert_pending, task::Spawn};

pub(crate) const MS: Duration = Duration::from_millis(1);
/// The default.
pub(crate) const CHAIN: Duration = Duration::from_millis(10);
pub(crate) const NAME: &str = "passed";

pub(crate) struct Stage<K: Kind> {
    pub(crate) engine: Engine,
    pub(crate) wires: Wires,
    pub(crate) client: Client,
    pub(crate) lock: Lock<K>,
    pub(crate) other: Lock<K>,
}

impl<K: Kind> Stage<K> {
    /// Both clients, where each lock and unlock loads scripts that the next ones need.
    pub(crate) async fn connect(
        options: impl FnOnce(ClientBuilder) -> ClientBuilder,
        open: impl Fn(&Client) -> Lock<K>,
        loads: usize,
    ) -> Self {
        let engine = Engine::new();
        let wires = Wires::to_engine(&engine);
        let client = options(wires.builder().lease(MS * 400)).build().unwrap();
        let other = Client::builder().embedded(&engine).build().unwrap();
        let (lock, other) = (open(&client), open(&other));
        for _ in 0..loads {
            lock_and_unlock(&lock).await;
            // What was sent at the moment of the first connection is in doubt.
            sleep(MS).await;
        }
        Self {
            engine,
            wires,
            client,
            lock,
            other,
        }
    }

    /// Sends a command past all clients.
    pub(crate) async fn command<T: FromRedisValue>(&self, words: &[&str]) -> T {
        let connection = connection_over(self.engine.connect()).await.unwrap();
        ask(&connection, words).await
    }

    /// How often each of these scripts was called since.
    pub(crate) fn calls_of<const N: usize>(&self, before: usize, scripts: [&str; N]) -> [usize; N] {
        let frames = self.wires.frames(before);
        scripts.map(|script| {
            let calls = calls(script);
            frames.iter().filter(|frame| calls.matches(frame)).count()
        })
    }

    pub(crate) async fn held(&self) -> LockGuard<K> {
        self.lock.lock().await.unwrap()
    }

    /// A holder, and whoever waits for it and sleeps.
    pub(crate) async fn followed<F>(&self, by: F) -> (LockGuard<K>, Spawn<F>)
    where
        F: Future<Output: fmt::Debug>,
    {
        let guard = self.held().await;
        (guard, waiter(by).await)
    }
}

/// Whoever waits for this, and sleeps.
pub(crate) async fn waiter<F: Future<Output: fmt::Debug>>(by: F) -> Spawn<F> {
    let mut waiter = tokio_test::task::spawn(by);
    parked(&mut waiter).await;
    waiter
}

/// Polls a waiter until it is subscribed, has looked once more, and sleeps.
pub(crate) async fn parked<F: Future<Output: fmt::Debug>>(waiter: &mut Spawn<F>) {
    for _ in 0..8 {
        assert_pending!(waiter.poll());
        settle().await;
    }
}
