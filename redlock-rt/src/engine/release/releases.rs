//! The queue of background releases: dropped guards, and calls in progress of callers that have
//! gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;
use std::time::{Duration, Instant};

use super::cleanup::{Cleanup, PendingCleanup};
use super::outstanding::{Outstanding, OutstandingCount, Undelivered};
use super::queue::{Oldest, Queue};
use crate::clock;
use crate::connection::Came;
use crate::engine::timers::Timers;
use crate::meter::{self, News};
use crate::shim::{Mutex, lock};
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use tokio::runtime::Handle;

/// The number of cleanups in progress at once, pipelined on one connection.
const MOST_AT_ONCE: usize = 128;
/// The same for all nodes of a cluster together, where calls to a node that hangs do not end. There is
/// one queue: if this many calls are at such a node, those of other nodes wait for the first that ends.
const MOST_AT_ALL_NODES: usize = 4096;

/// This many more may pause until a right comes back, and then ask for it.
const MOST_DENIED: usize = 384;

/// How often in the response time-out the task looks for missing replies.
const LOOKS: u32 = 8;

/// The queue. Pure state, except the signal of its task.
#[derive(Default)]
pub(crate) struct Releases {
    queue: Mutex<Queue<Cleanup>>,
    under_way: AtomicUsize,
    /// How many of them pause because a right is missing.
    denied: AtomicUsize,
    /// Acquisitions and cleanups in progress outside the queue; see [`Outstanding`].
    open: Arc<OutstandingCount>,
    /// The number of calls that were not sent to Redis because the queue was closed, and never will be.
    abandoned: OutstandingCount,
    /// Releases that become unnecessary if a waiter of this client takes over; see `hand_over`.
    pub(in crate::engine) offered: AtomicUsize,
    /// The same task serves these, and has their signal.
    pub(crate) timers: Arc<Timers>,
}

impl Releases {
    /// Hands a cleanup to the task. Never blocks.
    pub(in crate::engine) fn push(&self, cleanup: Cleanup) {
        // Cleanups that wait for its turn would otherwise wait for ever.
        let first = cleanup.has_turn();
        let refused = lock(&self.queue).push(cleanup, first);
        match refused {
            Ok(()) => {
                meter::releases_pending(1);
                self.timers.signal.notify();
            }
            // After the shut-down nothing is sent to Redis: the lease ends the hold.
            Err(cleanup) => self.abandon(cleanup),
        }
    }

    /// Adds a cleanup whose call was sent, and whose reply wakes this.
    pub(in crate::engine) fn push_sent(&self, cleanup: Cleanup) {
        let pushed = lock(&self.queue).push_sent(cleanup);
        match pushed {
            Ok(unwatched) => {
                meter::releases_pending(1);
                if unwatched {
                    self.timers.signal.notify();
                }
                self.hear();
            }
            Err(cleanup) => self.abandon(cleanup),
        }
    }

    /// Ends the cleanups whose replies have come.
    ///
    /// The caller is usually the task of the connection. A separate task would have to be woken for each
    /// dropped guard, with several workers often on another one.
    fn hear(&self) {
        // After an invalid reply there is a pause.
        let came = |cleanup: &Cleanup| match cleanup.came() {
            Came::Reply if Handle::try_current().is_err() => Came::Other,
            came => came,
        };
        if !lock(&self.queue).begin_ending() {
            return;
        }
        let _ending = EndsAnswered(self);
        loop {
            let mut queue = lock(&self.queue);
            match queue.oldest(came) {
                Oldest::Waits => return,
                Oldest::TakenIn => {
                    drop(queue);
                    return self.timers.signal.notify();
                }
                Oldest::Answered(cleanup) => {
                    let mut answered = self.under_way(cleanup);
                    drop(queue);
                    // Otherwise it goes back, without a timer: the runtime here may have none.
                    if answered.is_answered() {
                        let _ = answered.run().now_or_never();
                    }
                }
            }
        }
    }

    /// A cleanup that was taken from the queue. The caller holds its mutex, so that neither count misses
    /// the item.
    fn under_way(&self, cleanup: Cleanup) -> UnderWay<'_> {
        self.under_way.fetch_add(1, Ordering::AcqRel);
        UnderWay {
            pending: Some(PendingCleanup::new(cleanup)),
            releases: self,
        }
    }

    /// A cleanup pauses, as long as the result exists, because a right is missing.
    pub(super) fn deny(&self) -> Denied<'_> {
        self.denied.fetch_add(1, Ordering::AcqRel);
        // Another cleanup may take its place.
        self.timers.signal.notify();
        Denied(self)
    }

    /// How many places these take. Cleanups that pause for a right take none. Otherwise cleanups that
    /// need another right would wait for this one too.
    fn places(&self, under_way: usize) -> usize {
        under_way.saturating_sub(self.denied.load(Ordering::Acquire).min(MOST_DENIED))
    }

    /// Registers work that must end before the client may end; `lasting`: no lease ends it.
    pub(in crate::engine) fn register(&self, lasting: bool) -> Outstanding {
        Outstanding::new(&self.open, lasting)
    }

    /// The number of cleanups that wait or are in progress.
    pub(crate) fn len(&self) -> usize {
        let queued = lock(&self.queue).iter().count();
        queued + self.under_way.load(Ordering::Acquire) + self.offered.load(Ordering::Acquire)
    }

    /// Whether there are offers, including one that is not in its queue yet. Read after the end of a task
    /// was marked. The other side checks whether the task runs after it has counted its offer.
    pub(in crate::engine) fn has_offers(&self) -> bool {
        self.offered.load(Ordering::SeqCst) > 0
    }

    /// The number of acquisitions and cleanups that may still have to be sent, by any caller.
    pub(in crate::engine) fn undelivered(&self) -> Undelivered {
        // The mutex is held for both counts: an item that moves is counted before it moves.
        let queue = lock(&self.queue);
        let queued = Undelivered {
            all: queue.iter().count(),
            lasting: queue.iter().filter(|item| item.is_lasting()).count(),
        };
        queued.and(self.open.read())
    }

    /// Why the client could not end as requested; `None` if everything was sent.
    pub(in crate::engine) fn left_over(&self) -> Option<String> {
        let left = self.undelivered().and(self.abandoned.read());
        let fate = match left.lasting {
            _ if left.all == 0 => return None,
            0 => "locks end with their leases",
            lasting if lasting == left.all => "permits without a lease stay taken, latches closed",
            _ => "locks end with their leases, permits without a lease stay taken, latches closed",
        };
        let count = left.all;
        Some(format!("{count} releases could not be delivered; {fate}"))
    }

    /// Ends the task and drops the remaining items.
    pub(in crate::engine) fn close(&self) {
        let left = lock(&self.queue).close();
        self.timers.signal.close();
        for cleanup in left {
            meter::releases_pending(-1);
            self.abandon(cleanup);
        }
    }

    fn abandon(&self, cleanup: Cleanup) {
        if cleanup.is_due() {
            self.abandoned.add(cleanup.is_lasting());
        }
    }

    /// The next cleanup to run. If all places are taken, only a cleanup that has its turn, since
    /// those that wait for that turn may occupy all places.
    fn next(&self, full: bool) -> Option<UnderWay<'_>> {
        let mut queue = lock(&self.queue);
        if full && !queue.first().is_some_and(Cleanup::has_turn) {
            return None;
        }
        Some(self.under_way(queue.pop()?))
    }

    /// Takes in items without a reply. Returns when to look again.
    fn watch(&self, now: Instant, patience: Duration) -> Option<Instant> {
        lock(&self.queue).watch(now, patience / LOOKS)
    }
}

/// A cleanup taken from the queue. It goes back if the task ends first.
struct UnderWay<'a> {
    pending: Option<PendingCleanup>,
    releases: &'a Releases,
}

impl UnderWay<'_> {
    fn is_answered(&mut self) -> bool {
        let cleanup = self.pending.as_mut().and_then(PendingCleanup::get);
        cleanup.is_some_and(Cleanup::is_answered)
    }

    async fn run(mut self) {
        let Some(pending) = &mut self.pending else {
            return;
        };
        let Some(cleanup) = pending.get() else {
            return;
        };
        let (due, lasting) = (cleanup.is_due(), cleanup.is_lasting());
        let Some(Err(_)) = pending.run(None, None).await else {
            return;
        };
        // The end of the connection may be noticed before the end of this task.
        if due && self.releases.timers.signal.is_closed() {
            self.releases.abandoned.add(lasting);
        }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        // Back into the queue first, if it is unfinished, so that `len` never misses it.
        drop(self.pending.take());
        self.releases.under_way.fetch_sub(1, Ordering::AcqRel);
        meter::releases_pending(-1);
    }
}

/// A cleanup that pauses because a right is missing.
pub(super) struct Denied<'a>(&'a Releases);

impl Drop for Denied<'_> {
    fn drop(&mut self) {
        self.0.denied.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Ends answered items. After a panic the next caller continues.
struct EndsAnswered<'a>(&'a Releases);

impl Drop for EndsAnswered<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            lock(&self.0.queue).stop_ending();
        }
    }
}

/// A result came for a sent cleanup.
impl Wake for Releases {
    fn wake(self: Arc<Self>) {
        self.hear();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.hear();
    }
}

/// Runs until the queue is closed, and wakes event listeners. `patience`: how long to wait for a reply.
pub(in crate::engine) async fn run(
    releases: Arc<Releases>,
    news: Arc<News>,
    clustered: bool,
    patience: Duration,
) {
    let most = match clustered {
        true => MOST_AT_ALL_NODES,
        false => MOST_AT_ONCE,
    };
    let mut under_way = FuturesUnordered::new();
    while !releases.timers.signal.is_closed() {
        let now = clock::now();
        let timers = releases.timers.look(now);
        let watch = releases.watch(now, patience);
        let look_at = timers.into_iter().chain(watch).min();
        while let Some(next) = releases.next(releases.places(under_way.len()) >= most) {
            under_way.push(next.run());
        }
        tokio::select! {
            // Every turn checks what a signal announces.
            biased;
            Some(()) = under_way.next(), if !under_way.is_empty() => {}
            () = clock::sleep_until(look_at.unwrap_or_else(clock::now)), if look_at.is_some() => {}
            () = releases.timers.signal.notified() => {}
            () = news.wake_up() => {}
        }
    }
}
