//! The sides of a comparison, and what one of them does in a turn.

use std::{
    fmt,
    time::{Duration, Instant},
};

use futures::future::{BoxFuture, FutureExt, join_all};
use hdrhistogram::Histogram;

use crate::pair::Pair;

/// The name of this library among the sides.
pub(crate) const OURS: &str = "redlock-rt";
/// The name of a client with a thread of its own.
pub(crate) const DEDICATED: &str = "dedicated_thread";
/// The names of the sides of [`crate::bare`].
pub(crate) const BARE: &str = "bare commands";
pub(crate) const BARE_DROPPING: &str = "bare commands, dropping";
pub(crate) const BARE_ON_THREAD: &str = "bare commands, thread";

/// One side of a comparison.
pub(crate) trait Side {
    fn name(&self) -> &str;

    /// The commands that the server counts once for each call of this side; none if that
    /// is not known.
    fn calls(&self) -> &'static [&'static str];

    /// Works for `span`, with all tasks at once.
    fn work(&mut self, span: Duration) -> BoxFuture<'_, Work>;
}

/// What a side did in some time.
#[derive(Debug, Clone)]
pub(crate) struct Work {
    pub(crate) time: Duration,
    /// One for each pair: from the call to the lock, in microseconds.
    pub(crate) waits: Histogram<u64>,
}

impl Work {
    pub(crate) fn nothing() -> Self {
        Self {
            time: Duration::ZERO,
            waits: Histogram::new(3).expect("three digits are allowed"),
        }
    }

    pub(crate) fn record(&mut self, wait: Duration) {
        let micros = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
        // Saturated, it would be clamped to the range of an empty histogram.
        self.waits.record(micros).expect("it grows");
    }

    pub(crate) fn add(&mut self, more: &Self) {
        self.time += more.time;
        self.waits.add(&more.waits).expect("it grows");
    }

    /// Pairs per second.
    pub(crate) fn rate(&self) -> f64 {
        self.waits.len() as f64 / self.time.as_secs_f64()
    }

    /// The median wait, in microseconds.
    pub(crate) fn median(&self) -> f64 {
        self.waits.value_at_quantile(0.5) as f64
    }
}

/// Tasks that do the same.
pub(crate) struct Tasks<P> {
    name: String,
    /// The work of each task, and its waits in the last turn.
    tasks: Vec<(P, Vec<Duration>)>,
}

impl<P: Pair> Tasks<P> {
    pub(crate) fn boxed(
        name: impl Into<String>,
        pairs: impl IntoIterator<Item = P>,
    ) -> Box<dyn Side> {
        Box::new(Self {
            name: name.into(),
            tasks: pairs.into_iter().map(|pair| (pair, Vec::new())).collect(),
        })
    }

    async fn run(&mut self, span: Duration) -> Work {
        let start = Instant::now();
        let end = start + span;
        let tasks = std::mem::take(&mut self.tasks).into_iter();
        let tasks = tasks.map(|(mut pair, mut waits)| {
            tokio::spawn(async move {
                waits.clear();
                loop {
                    let asked = Instant::now();
                    if asked >= end {
                        return (pair, waits);
                    }
                    waits.push(pair.pair().await.duration_since(asked));
                }
            })
        });
        let ended = join_all(tasks).await;
        let mut work = Work::nothing();
        work.time = start.elapsed();
        for task in ended {
            let (pair, waits) = task.expect("no task panics");
            waits.iter().for_each(|&wait| work.record(wait));
            self.tasks.push((pair, waits));
        }
        work
    }
}

impl<P: Pair> Side for Tasks<P> {
    fn name(&self) -> &str {
        &self.name
    }

    fn calls(&self) -> &'static [&'static str] {
        P::CALLS
    }

    fn work(&mut self, span: Duration) -> BoxFuture<'_, Work> {
        self.run(span).boxed()
    }
}

impl<P> fmt::Debug for Tasks<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tasks")
            .field("name", &self.name)
            .field("tasks", &self.tasks.len())
            .finish_non_exhaustive()
    }
}
