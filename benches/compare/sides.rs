//! The sides of a comparison, and the rate of one of them.

use std::{
    fmt,
    future::Future,
    time::{Duration, Instant},
};

use futures::future::{BoxFuture, FutureExt, join_all};
use raw::RawLock;
use redlock_rt::{RLock, Unlocked};

/// A task's work: one lock and one unlock.
pub(crate) trait Pair: Send + 'static {
    fn pair(&mut self) -> impl Future<Output = ()> + Send;
}

impl Pair for RLock {
    async fn pair(&mut self) {
        let guard = self.lock().await.expect("the lock is free or comes free");
        let unlocked = guard.unlock().await.expect("the server answers");
        assert_eq!(unlocked, Unlocked::Released);
    }
}

impl Pair for RawLock {
    async fn pair(&mut self) {
        let held = self.acquire().await.expect("the server answers");
        assert_eq!(held, None, "the lock is free");
        let free = self.release().await.expect("the server answers");
        assert_eq!(free, Some(true));
    }
}

/// One side of a comparison.
pub(crate) trait Side {
    fn name(&self) -> &'static str;

    /// Works for `span`, with all tasks at once; returns pairs per second.
    fn work(&mut self, span: Duration) -> BoxFuture<'_, f64>;
}

/// Tasks that do the same.
pub(crate) struct Tasks<P> {
    name: &'static str,
    pairs: Vec<P>,
}

impl<P: Pair> Tasks<P> {
    pub(crate) fn boxed(name: &'static str, pairs: impl Iterator<Item = P>) -> Box<dyn Side> {
        Box::new(Self {
            name,
            pairs: pairs.collect(),
        })
    }

    async fn run(&mut self, span: Duration) -> f64 {
        let start = Instant::now();
        let end = start + span;
        let tasks = std::mem::take(&mut self.pairs).into_iter().map(|mut pair| {
            tokio::spawn(async move {
                let mut done = 0_u32;
                while Instant::now() < end {
                    pair.pair().await;
                    done += 1;
                }
                (pair, done)
            })
        });
        let mut all = 0.0;
        for ended in join_all(tasks).await {
            let (pair, done) = ended.expect("no task panics");
            self.pairs.push(pair);
            all += f64::from(done);
        }
        all / start.elapsed().as_secs_f64()
    }
}

impl<P: Pair> Side for Tasks<P> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn work(&mut self, span: Duration) -> BoxFuture<'_, f64> {
        self.run(span).boxed()
    }
}

impl<P> fmt::Debug for Tasks<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tasks")
            .field("name", &self.name)
            .field("tasks", &self.pairs.len())
            .finish_non_exhaustive()
    }
}
