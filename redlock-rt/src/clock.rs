//! The clock of leases.
//!
//! It is Tokio's clock, so that a paused clock moves leases too, plus the time for which the
//! machine was suspended since the first call: `CLOCK_MONOTONIC`, which Tokio reads, stops during
//! suspend, but a lease in Redis does not.

use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Handle};
use tokio::time::{Sleep, Timeout};

use crate::shim::lock_std;

/// Returns the present moment.
pub(crate) fn now() -> Instant {
    with_suspends(tokio::time::Instant::now().into_std())
}

/// Returns a moment that is not after the present one, at half the cost of [`now`]: a suspend that
/// `now` has not seen yet is not included. Leases may start from it, but are never compared with
/// it.
pub(crate) fn stamp() -> Instant {
    later(tokio::time::Instant::now().into_std(), suspend::known())
}

/// Returns the present moment in destructors. They also run at the end of a thread, where Tokio's pausable clock
/// (feature `test-util`) panics after Tokio's thread-locals are gone.
pub(crate) fn now_in_drop() -> Instant {
    match Handle::try_current() {
        Err(error) if error.is_thread_local_destroyed() => with_suspends(Instant::now()),
        _ => now(),
    }
}

/// Whether the clock can be read: not in a destructor at the end of a thread; see [`now_in_drop`].
pub(crate) fn is_there() -> bool {
    let runtime = Handle::try_current();
    !runtime.is_err_and(|error| error.is_thread_local_destroyed())
}

fn with_suspends(now: Instant) -> Instant {
    later(now, suspend::total(now))
}

/// The sum. `suspended` is nearly always zero.
fn later(now: Instant, suspended: Duration) -> Instant {
    match suspended.is_zero() {
        true => now,
        false => now + suspended,
    }
}

/// Whether a client has a dedicated thread, and so may be used without a runtime.
static NO_RUNTIME_NEEDED: AtomicBool = AtomicBool::new(false);

/// Allows timers outside of runtimes from now on.
pub(crate) fn need_no_runtime() {
    NO_RUNTIME_NEEDED.store(true, Ordering::Release);
}

thread_local! {
    static IS_PARKING: Cell<bool> = const { Cell::new(false) };
}

/// Runs `body`, which parks the thread. The thread may have entered a runtime that is not driven while it is
/// parked, or that ends meanwhile: its timers then panic.
pub(crate) fn parking<T>(body: impl FnOnce() -> T) -> T {
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            IS_PARKING.set(self.0);
        }
    }
    let _before = Before(IS_PARKING.replace(true));
    body()
}

/// Creates a timer. It belongs to the caller's runtime. Without one, it belongs to a runtime that
/// only drives such timers, while the process runs.
fn timer<T>(make: impl FnOnce() -> T) -> T {
    let needs_none = NO_RUNTIME_NEEDED.load(Ordering::Acquire);
    if Handle::try_current().is_ok() && !(needs_none && IS_PARKING.get()) {
        return make();
    }
    assert!(
        needs_none,
        "redlock-rt is used outside of a tokio runtime: enter one, or make the client with \
         ClientBuilder::dedicated_thread(true)"
    );
    let _entered = timers().as_ref().map(Handle::enter);
    make()
}

/// The runtime that only drives timers. Its thread is not in a child that this process forks.
fn timers() -> Option<Handle> {
    static TIMERS: Mutex<Option<(u32, Handle)>> = Mutex::new(None);
    let process = std::process::id();
    let mut timers = lock_std(&TIMERS);
    if let Some((_, handle)) = timers.as_ref().filter(|(of, _)| *of == process) {
        return Some(handle.clone());
    }
    let runtime = Builder::new_current_thread().enable_time().build().ok()?;
    let handle = runtime.handle().clone();
    let thread = std::thread::Builder::new().name("redlock-rt timers".into());
    let run = move || runtime.block_on(std::future::pending::<()>());
    thread.spawn(run).ok()?;
    *timers = Some((process, handle.clone()));
    Some(handle)
}

/// Limits a future by a deadline, also outside of a runtime.
pub(crate) fn timeout_at<F: Future>(deadline: tokio::time::Instant, future: F) -> Timeout<F> {
    timer(|| tokio::time::timeout_at(deadline, future))
}

/// Limits a future by a span, also outside of a runtime.
pub(crate) fn timeout<F: Future>(span: Duration, future: F) -> Timeout<F> {
    timer(|| tokio::time::timeout(span, future))
}

/// `None` where `until` comes before the future's output.
pub(crate) async fn before<F: Future>(until: Option<Instant>, future: F) -> Option<F::Output> {
    match until {
        Some(until) => timeout_at(to_tokio(until), future).await.ok(),
        None => Some(future.await),
    }
}

/// Sleeps for a span, also outside of a runtime.
pub(crate) fn sleep(span: Duration) -> Sleep {
    timer(|| tokio::time::sleep(span))
}

/// Sleeps until `moment` of this clock; returns at once if it is past.
pub(crate) async fn sleep_until(moment: Instant) {
    sleep_until_tokio(to_tokio(moment)).await;
}

/// Sleeps until a moment of Tokio's clock, also outside of a runtime.
pub(crate) fn sleep_until_tokio(moment: tokio::time::Instant) -> Sleep {
    timer(|| tokio::time::sleep_until(moment))
}

/// The same moment on Tokio's clock, for its timers.
pub(crate) fn to_tokio(moment: Instant) -> tokio::time::Instant {
    // A suspend makes timers late, never early: a woken task reads `now` again.
    let suspended = suspend::known();
    if suspended.is_zero() {
        return moment.into();
    }
    moment.checked_sub(suspended).unwrap_or(moment).into()
}

/// A random part of a span. Without the conversions of `Duration::mul_f64`: each acquisition asks twice.
pub(crate) fn part_of(span: Duration) -> Duration {
    Duration::from_nanos(fastrand::u64(..=whole_nanos(span)))
}

fn whole_nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// The span less a random part of up to a tenth.
pub(crate) fn shortened(span: Duration) -> Duration {
    span - part_of(span / 10)
}

/// Adds without overflow: a moment too far away to be represented is a century away.
pub(crate) fn after(moment: Instant, span: Duration) -> Instant {
    const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
    moment.checked_add(span).unwrap_or_else(|| moment + CENTURY)
}

/// How long the machine was suspended since the first call.
///
/// Reading clocks is most of the cost of [`now`], so it reads only two: Tokio's, which is
/// `CLOCK_MONOTONIC` unless it is paused, and `CLOCK_BOOTTIME`. Only if the two have moved apart,
/// it reads them again.
#[cfg(target_os = "linux")]
mod suspend {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::{Duration, Instant};

    use rustix::time::{ClockId, clock_gettime};

    use super::whole_nanos;

    /// The two clocks are read one after the other, which creates a gap. Below this value the gap
    /// is noise.
    const NOISE: Duration = Duration::from_millis(10);

    static SUSPENDS: Suspends = Suspends::new();

    struct Suspends {
        /// The known suspend time in nanoseconds. It only grows.
        known: AtomicU64,
        /// Set by the first look.
        origin: OnceLock<Origin>,
    }

    /// Both clocks at the first look.
    struct Origin {
        monotonic: Instant,
        boot: Duration,
    }

    impl Origin {
        /// How far the clocks have moved apart since then.
        fn gap(&self, boot: Duration, monotonic: Instant) -> Duration {
            let passed = monotonic.saturating_duration_since(self.monotonic);
            boot.saturating_sub(self.boot).saturating_sub(passed)
        }
    }

    impl Suspends {
        const fn new() -> Self {
            Self {
                known: AtomicU64::new(0),
                origin: OnceLock::new(),
            }
        }

        fn known(&self) -> Duration {
            Duration::from_nanos(self.known.load(Ordering::Relaxed))
        }

        /// Looks at the clocks. `now` was read before.
        fn total(
            &self,
            now: Instant,
            boot: impl Fn() -> Duration,
            monotonic: impl Fn() -> Instant,
        ) -> Duration {
            let origin = self.origin.get_or_init(|| Origin {
                monotonic: monotonic(),
                boot: boot(),
            });
            let known = self.known();
            // Read in this order, the gap is at least the true one.
            if origin.gap(boot(), now) < known + NOISE {
                return known;
            }
            // The machine was suspended meanwhile, or the thread was interrupted between the readings,
            // or Tokio's clock is paused. Read in this order, the gap is at most the true one.
            let boot = boot();
            let found = origin.gap(boot, monotonic());
            if found < known + NOISE {
                return known;
            }
            let nanos = whole_nanos(found);
            Duration::from_nanos(self.known.fetch_max(nanos, Ordering::Relaxed).max(nanos))
        }
    }

    pub(super) fn known() -> Duration {
        SUSPENDS.known()
    }

    pub(super) fn total(now: Instant) -> Duration {
        SUSPENDS.total(now, boot_time, Instant::now)
    }

    fn boot_time() -> Duration {
        let time = clock_gettime(ClockId::Boottime);
        let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
        Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), nanos)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        const S: Duration = Duration::from_secs(1);

        #[test]
        fn the_clocks_move_apart_in_suspend_only() {
            let origin = Origin {
                monotonic: Instant::now(),
                boot: 7 * S,
            };
            assert_eq!(origin.gap(8 * S, origin.monotonic + S), Duration::ZERO);
            assert_eq!(origin.gap(68 * S, origin.monotonic + S), 60 * S);
            // A paused clock of Tokio's that was advanced is ahead.
            assert_eq!(origin.gap(8 * S, origin.monotonic + 30 * S), Duration::ZERO);
        }

        #[test]
        fn a_suspend_is_in_the_total_from_the_next_look_on() {
            let suspends = Suspends::new();
            let start = Instant::now();
            for (boot, monotonic, total) in
                [(7, 0, 0), (8, 1, 0), (69, 2, 60), (70, 3, 60), (105, 8, 90)]
            {
                let now = start + monotonic * S;
                assert_eq!(
                    suspends.total(now, || boot * S, || now),
                    total * S,
                    "{boot}"
                );
                assert_eq!(suspends.known(), total * S, "{boot}");
            }
        }

        #[test]
        fn a_clock_that_is_behind_because_it_is_paused_tells_of_no_suspend() {
            let before = Instant::now();
            total(before);
            // As if a second had passed for the boot clock and none for Tokio's.
            let Some(paused) = before.checked_sub(S) else {
                return;
            };
            assert_eq!(total(paused), known());
            assert!(known() < S, "{:?}", known());
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod suspend {
    use std::time::{Duration, Instant};

    pub(super) fn known() -> Duration {
        Duration::ZERO
    }

    pub(super) fn total(_now: Instant) -> Duration {
        Duration::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn follows_a_paused_clock() {
        let start = now();
        tokio::time::advance(Duration::from_secs(30)).await;
        let passed = now() - start;
        assert!(
            passed >= Duration::from_secs(30) && passed < Duration::from_secs(31),
            "{passed:?}"
        );
    }

    #[test]
    fn a_part_is_any_from_nothing_to_all() {
        let span = Duration::from_millis(10);
        let parts: Vec<_> = (0..1000).map(|_| part_of(span)).collect();
        assert!(parts.iter().all(|part| *part <= span));
        assert!(parts.iter().any(|part| *part < span / 10));
        assert!(parts.iter().any(|part| *part > span - span / 10));
        assert_eq!(part_of(Duration::ZERO), Duration::ZERO);
        let _ = part_of(Duration::MAX);
        let left = shortened(span);
        assert!(left <= span && left >= span - span / 10, "{left:?}");
    }

    #[test]
    fn a_span_that_overflows_is_a_moment_far_away() {
        let start = Instant::now();
        assert!(after(start, Duration::MAX) > start + Duration::from_secs(1_000_000_000));
    }
}
