//! The metrics and their names.
//!
//! The handles of one kind and label are made once, since a lookup in the recorder for each number would
//! cost more than the number. So a recorder must be installed before the first lock is taken.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, Once, OnceLock};
use std::time::{Duration, Instant};

use foldhash::fast::FixedState;
use metrics::{
    Counter, Gauge, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram,
    gauge, histogram,
};

use super::{LockEvent, snake};
use crate::error::Error;
use crate::shim::lock_std;

/// How many labels a process may have; each is a time series of its own.
const MOST_LABELS: usize = 200;
const OTHER: &str = "other";

static LABELS: LazyLock<Mutex<HashMap<&'static str, Meter>>> = LazyLock::new(Mutex::default);
/// Keyed by the addresses of kind and label, which hash faster than their texts. One text may have several.
static FAMILIES: LazyLock<Mutex<HashMap<[usize; 4], Meter, FixedState>>> =
    LazyLock::new(Mutex::default);

/// A moment in eight bytes, since each waiting future stores one: nanoseconds since the first one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Since(u64);

impl Since {
    const NEVER: Self = Self(u64::MAX);

    /// Reads a cheaper clock than that of leases.
    fn now() -> Self {
        static FIRST: LazyLock<Instant> = LazyLock::new(Instant::now);
        let since = Instant::now().saturating_duration_since(*FIRST);
        Self(since.as_secs() * 1_000_000_000 + u64::from(since.subsec_nanos()))
    }

    fn elapsed(self) -> Duration {
        Duration::from_nanos(Self::now().0.saturating_sub(self.0))
    }
}

/// The locks of one label, and of one kind as soon as that is known. Kept for ever.
struct Family {
    /// Empty until it is known.
    kind: &'static str,
    /// `None`: the kind.
    label: Option<&'static str>,
    numbers: Option<Numbers>,
}

/// The numbers of one kind and label.
struct Numbers {
    acquired: Counter,
    contended: Counter,
    waiting: Gauge,
    wait: Histogram,
    held: Gauge,
    hold: Histogram,
    lag: Histogram,
    suspect: Counter,
    /// All nanoseconds in `suspect`, which counts whole seconds.
    suspect_nanos: AtomicU64,
}

/// Where the numbers of a lock go. Small, since each waiting future stores one.
#[derive(Clone, Copy, Default)]
pub(crate) struct Meter(Option<&'static Family>);

impl Meter {
    pub(crate) const NONE: Self = Self(None);

    /// For locks of this label.
    pub(crate) fn labelled(text: &str) -> Self {
        let mut labels = lock_std(&LABELS);
        if let Some(known) = labels.get(text) {
            return *known;
        }
        let text: &'static str = match labels.len() < MOST_LABELS {
            true => text.to_owned().leak(),
            false => {
                too_many(text);
                OTHER
            }
        };
        *labels
            .entry(text)
            .or_insert_with(|| Self::family("", Some(text), None))
    }

    fn family(kind: &'static str, label: Option<&'static str>, numbers: Option<Numbers>) -> Self {
        Self(Some(Box::leak(Box::new(Family {
            kind,
            label,
            numbers,
        }))))
    }

    /// The same, for a lock of this kind.
    pub(crate) fn kind(self, kind: &'static str) -> Self {
        if self.0.is_some_and(|family| family.kind == kind) {
            return self;
        }
        let label = self.0.and_then(|family| family.label);
        let lock = label.unwrap_or(kind);
        let mut families = lock_std(&FAMILIES);
        let at = |text: &'static str| text.as_ptr() as usize;
        let made = families.entry([at(kind), kind.len(), at(lock), lock.len()]);
        *made.or_insert_with(|| Self::family(kind, label, Some(Numbers::new(kind, lock))))
    }

    pub(crate) fn label(self, kind: &'static str) -> &'static str {
        self.0.and_then(|family| family.label).unwrap_or(kind)
    }

    fn numbers(self) -> Option<&'static Numbers> {
        self.0?.numbers.as_ref()
    }

    /// The labels of a series that is not kept at hand.
    fn labels(self) -> (&'static str, &'static str) {
        let family = self.0.map(|family| (family.kind, family.label));
        let (kind, label) = family.unwrap_or_default();
        (kind, label.unwrap_or(kind))
    }

    /// A call asks for the lock.
    pub(crate) fn acquiring(self) -> Acquiring {
        if let Some(numbers) = self.numbers() {
            numbers.waiting.increment(1);
        }
        Acquiring {
            meter: self,
            since: Since::now(),
        }
    }

    /// A call needs more than one try.
    pub(crate) fn waits(self) {
        if let Some(numbers) = self.numbers() {
            numbers.contended.increment(1);
        }
    }

    /// Sends a renewal that has been due for this long.
    pub(crate) fn renews(self, overdue: impl FnOnce() -> Option<Duration>) {
        if let Some(numbers) = self.numbers()
            && let Some(overdue) = overdue()
        {
            numbers.lag.record(overdue);
        }
    }
}

impl Numbers {
    fn new(kind: &'static str, lock: &'static str) -> Self {
        describe();
        let labels = [("kind", kind), ("lock", lock)];
        Self {
            acquired: acquisitions((kind, lock), "acquired"),
            contended: counter!("redlock_contentions_total", &labels),
            waiting: gauge!("redlock_waiting", &labels),
            wait: histogram!("redlock_wait_seconds", &labels),
            held: gauge!("redlock_held", &labels),
            hold: histogram!("redlock_hold_seconds", &labels),
            lag: histogram!("redlock_renewal_lag_seconds", &labels),
            suspect: counter!("redlock_suspect_seconds_total", &labels),
            suspect_nanos: AtomicU64::new(0),
        }
    }

    fn were_suspect(&self, time: Duration) {
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let all = self.suspect_nanos.fetch_add(time, Ordering::Relaxed);
        let seconds = |nanos: u64| nanos / 1_000_000_000;
        self.suspect.increment(seconds(all + time) - seconds(all));
    }
}

/// A call that asks for a lock. Dropped without an outcome, the call was cancelled.
pub(crate) struct Acquiring {
    meter: Meter,
    since: Since,
}

impl Acquiring {
    pub(crate) fn ended<T>(mut self, outcome: &Result<T, Error>) {
        match outcome {
            Ok(_) => self.end(|numbers, _| numbers.acquired.increment(1)),
            Err(error) => {
                let outcome = snake(&error.kind());
                self.end(|_, labels| acquisitions(labels, outcome).increment(1));
            }
        }
    }

    fn end(&mut self, count: impl FnOnce(&Numbers, (&'static str, &'static str))) {
        let meter = std::mem::take(&mut self.meter);
        if let Some(numbers) = meter.numbers() {
            numbers.waiting.decrement(1);
            numbers.wait.record(self.since.elapsed());
            count(numbers, meter.labels());
        }
    }
}

impl Drop for Acquiring {
    fn drop(&mut self) {
        self.end(|_, labels| acquisitions(labels, "cancelled").increment(1));
    }
}

/// A hold, from its start until it is lost or its release begins.
#[derive(Debug)]
pub(crate) struct Held {
    meter: Meter,
    since: Since,
    /// Since when renewals fail, if they do.
    suspect: Since,
    /// Zero until it begins.
    permits: u32,
}

impl Held {
    pub(crate) fn new(meter: Meter) -> Self {
        Self {
            meter,
            since: Since::NEVER,
            suspect: Since::NEVER,
            permits: 0,
        }
    }

    pub(crate) fn meter(&self) -> Meter {
        self.meter
    }

    pub(crate) fn hears(&mut self, event: &LockEvent, permits: impl FnOnce() -> u32) {
        let Some(numbers) = self.meter.numbers() else {
            return;
        };
        match event {
            LockEvent::Acquired => {
                (self.since, self.permits) = (Since::now(), permits());
                numbers.held.increment(self.permits);
            }
            LockEvent::Suspect => self.suspect = Since::now(),
            LockEvent::ValidAgain => self.trusts(numbers),
            LockEvent::Released => self.ends(),
            LockEvent::TimedOut => {}
            LockEvent::Lost(reason) => {
                let (kind, lock) = self.meter.labels();
                let reason = snake(reason);
                counter!("redlock_losses_total", "kind" => kind, "lock" => lock, "reason" => reason)
                    .increment(1);
                self.ends();
            }
        }
    }

    fn trusts(&mut self, numbers: &Numbers) {
        let suspect = std::mem::replace(&mut self.suspect, Since::NEVER);
        if suspect != Since::NEVER {
            numbers.were_suspect(suspect.elapsed());
        }
    }

    fn ends(&mut self) {
        let meter = std::mem::take(&mut self.meter);
        if let Some(numbers) = meter.numbers()
            && self.permits > 0
        {
            self.trusts(numbers);
            numbers.held.decrement(self.permits);
            numbers.hold.record(self.since.elapsed());
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.ends();
    }
}

impl PartialEq for Meter {
    fn eq(&self, other: &Self) -> bool {
        self.labels() == other.labels()
    }
}

impl Eq for Meter {}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Meter").field(&self.labels()).finish()
    }
}

/// How often a command was sent.
#[derive(Debug)]
pub(crate) struct Sent(OnceLock<Counter>);

impl Sent {
    pub(crate) const fn never() -> Self {
        Self(OnceLock::new())
    }

    pub(crate) fn again(&self, command: &'static str) {
        let counter = || counter!("redlock_commands_total", "command" => command);
        self.0.get_or_init(counter).increment(1);
    }
}

/// An outage of Redis has ended.
pub(crate) fn reconnected() {
    counter!("redlock_reconnections_total").increment(1);
}

/// A release without a waiting caller was refused, or waits until Redis lets this client in.
pub(crate) fn release_failed() {
    counter!("redlock_release_failures_total").increment(1);
}

/// Adds to the number of background releases; negative to subtract.
pub(crate) fn releases_pending(more: i32) {
    static PENDING: LazyLock<Gauge> = LazyLock::new(|| gauge!("redlock_releases_pending"));
    PENDING.increment(more);
}

/// Redis is sent a script that it does not know.
pub(crate) fn script_loaded() {
    counter!("redlock_script_loads_total").increment(1);
}

fn acquisitions((kind, lock): (&'static str, &'static str), outcome: impl Into<String>) -> Counter {
    counter!("redlock_acquisitions_total", "kind" => kind, "lock" => lock, "outcome" => outcome.into())
}

fn too_many(label: &str) {
    static WARN: Once = Once::new();
    WARN.call_once(|| {
        tracing::warn!(
            target: "redlock_rt::metrics",
            label, most = MOST_LABELS,
            "too many labels, the others are one"
        );
    });
}

/// Names and meanings, one a line.
const COUNTERS: &str = "\
redlock_acquisitions_total calls that asked for a lock, by outcome
redlock_contentions_total calls that needed more than one try
redlock_losses_total locks that were lost, by reason
redlock_suspect_seconds_total time in which renewals of locks failed, in seconds
redlock_reconnections_total outages of redis that have ended
redlock_release_failures_total releases in the background that redis refused
redlock_commands_total operations sent to redis, by command
redlock_script_loads_total scripts that redis did not know";
const GAUGES: &str = "\
redlock_waiting calls that ask for a lock now
redlock_held locks and permits that are held now
redlock_releases_pending releases in the background that redis has not answered";
const HISTOGRAMS: &str = "\
redlock_wait_seconds how long calls that asked for a lock took
redlock_hold_seconds how long locks were held
redlock_renewal_lag_seconds how late renewals were sent";

fn describe() {
    static DESCRIBED: Once = Once::new();
    let lines = |text: &'static str| text.lines().filter_map(|line| line.split_once(' '));
    DESCRIBED.call_once(|| {
        lines(COUNTERS).for_each(|(name, what)| describe_counter!(name, Unit::Count, what));
        lines(GAUGES).for_each(|(name, what)| describe_gauge!(name, Unit::Count, what));
        lines(HISTOGRAMS).for_each(|(name, what)| describe_histogram!(name, Unit::Seconds, what));
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn after_two_hundred_labels_the_others_are_one() {
        let label = |text: &str| Meter::labelled(text).labels().1;
        for number in 0..MOST_LABELS {
            assert_eq!(label(&number.to_string()), number.to_string());
        }
        assert_eq!(label("one more"), OTHER);
        assert_eq!(label("and one more"), OTHER);
        assert_eq!(label("0"), "0");
    }

    #[test]
    fn names_of_outcomes() {
        assert_eq!(snake(&ErrorKind::TimedOut), "timed_out");
        assert_eq!(snake(&ErrorKind::Lost), "lost");
        assert_eq!(snake(&Some("anything")), "some");
    }
}
