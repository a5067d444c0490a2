//! The queue of what is told to Redis in the background: dropped guards, and whatever a caller
//! that went away left under way.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::sync::Notify;

use super::settle::{Settlement, Unsettled};
use super::signal::Signal;
use crate::shim::{Mutex, lock};

/// As many settlements are under way at once, pipelined on one connection.
const MOST_AT_ONCE: usize = 128;

/// The queue. Pure but for the signal of its task.
pub(crate) struct Releases {
    queue: Mutex<Queue<Settlement>>,
    under_way: AtomicUsize,
    drained: Notify,
    pub(super) signal: Signal,
}

/// First in, first out, until it is closed.
#[derive(Debug)]
pub(super) struct Queue<T> {
    items: VecDeque<T>,
    closed: bool,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self {
            items: VecDeque::new(),
            closed: false,
        }
    }
}

impl<T> Queue<T> {
    /// Gives the item back where nobody will take it any more.
    pub(super) fn push(&mut self, item: T) -> Result<(), T> {
        if self.closed {
            return Err(item);
        }
        self.items.push_back(item);
        Ok(())
    }

    pub(super) fn pop(&mut self) -> Option<T> {
        self.items.pop_front()
    }

    /// Takes what is left; nothing is taken in after this.
    pub(super) fn close(&mut self) -> VecDeque<T> {
        self.closed = true;
        std::mem::take(&mut self.items)
    }
}

impl Releases {
    pub(super) fn new() -> Self {
        Self {
            queue: Mutex::new(Queue::default()),
            under_way: AtomicUsize::new(0),
            drained: Notify::new(),
            signal: Signal::default(),
        }
    }

    /// Leaves a settlement to the task. Never blocks.
    pub(super) fn push(&self, settlement: Settlement) {
        let refused = lock(&self.queue).push(settlement);
        match refused {
            Ok(()) => self.signal.notify(),
            // After the shut-down nobody tells Redis any more: the lease ends it.
            Err(settlement) => drop(settlement),
        }
    }

    /// How many settlements wait or are under way.
    pub(crate) fn len(&self) -> usize {
        lock(&self.queue).items.len() + self.under_way.load(Ordering::Acquire)
    }

    /// Resolves when nothing waits and nothing is under way.
    pub(super) async fn drained(&self) {
        loop {
            let mut drained = std::pin::pin!(self.drained.notified());
            drained.as_mut().enable();
            if self.len() == 0 {
                return;
            }
            drained.await;
        }
    }

    /// Ends the task and drops what is left.
    pub(super) fn close(&self) {
        let left = lock(&self.queue).close();
        self.signal.close();
        drop(left);
    }

    fn next(&self) -> Option<UnderWay<'_>> {
        let mut queue = lock(&self.queue);
        let settlement = queue.pop()?;
        // Counted before the lock is free, so that `len` never misses it.
        self.under_way.fetch_add(1, Ordering::AcqRel);
        drop(queue);
        Some(UnderWay {
            unsettled: Some(Unsettled::new(settlement)),
            releases: self,
        })
    }
}

/// A settlement taken from the queue; goes back there if the task ends before it does.
struct UnderWay<'a> {
    unsettled: Option<Unsettled>,
    releases: &'a Releases,
}

impl UnderWay<'_> {
    async fn run(mut self) {
        if let Some(unsettled) = &mut self.unsettled
            && let Err(fault) = unsettled.run().await
        {
            tracing::warn!(?fault, "a release failed; the lock ends with its lease");
        }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        // Back into the queue first, if it is not settled, so that `len` never misses it.
        drop(self.unsettled.take());
        self.releases.under_way.fetch_sub(1, Ordering::AcqRel);
        if self.releases.len() == 0 {
            self.releases.drained.notify_waiters();
        }
    }
}

impl AsRef<Signal> for Releases {
    fn as_ref(&self) -> &Signal {
        &self.signal
    }
}

/// Runs until the queue is closed.
pub(super) async fn run(releases: Arc<Releases>) {
    let mut under_way = FuturesUnordered::new();
    while !releases.signal.is_closed() {
        while under_way.len() < MOST_AT_ONCE
            && let Some(next) = releases.next()
        {
            under_way.push(next.run());
        }
        tokio::select! {
            Some(()) = under_way.next(), if !under_way.is_empty() => {}
            () = releases.signal.notified(), if under_way.len() < MOST_AT_ONCE => {}
        }
    }
}

impl fmt::Debug for Releases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Releases")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_queue_takes_nothing_and_gives_back_what_it_had() {
        let mut queue = Queue::default();
        assert_eq!(queue.push(1), Ok(()));
        assert_eq!(queue.push(2), Ok(()));
        assert_eq!(queue.pop(), Some(1));
        assert_eq!(queue.close(), [2]);
        assert_eq!(queue.push(3), Err(3));
        assert_eq!(queue.pop(), None);
    }
}
