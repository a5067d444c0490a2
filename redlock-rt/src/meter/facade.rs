//! What is counted, and under which names.
//!
//! The handles of one kind and label are made once, since a lookup in the recorder for each number would
//! cost more than the number. So a recorder is installed before the first lock is taken.

use std::collections::HashMap;
use std::fmt;
use std::sync::{LazyLock, Mutex, Once, OnceLock};
use std::time::{Duration, Instant};

use metrics::{Counter, Gauge, Histogram, Unit, counter, gauge, histogram};

use crate::clock;
use crate::error::{Error, LostReason};
use crate::shim::lock_std;

/// How many labels a process may have; each is a time series of its own.
const MOST_LABELS: usize = 200;
const OTHER: &str = "other";

static LABELS: LazyLock<Mutex<HashMap<&'static str, Meter>>> = LazyLock::new(Mutex::default);
static FAMILIES: LazyLock<Mutex<HashMap<(&'static str, &'static str), Meter>>> =
    LazyLock::new(Mutex::default);

/// A moment in eight bytes, since each waiting future has room for one: nanoseconds from the first on.
#[derive(Debug, Clone, Copy)]
struct Since(u64);

impl Since {
    fn at(now: Instant) -> Self {
        static FIRST: OnceLock<Instant> = OnceLock::new();
        let since = now.saturating_duration_since(*FIRST.get_or_init(|| now));
        Self(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }

    fn now() -> Self {
        Self::at(clock::now())
    }

    fn elapsed(self) -> Duration {
        let now = Self::at(clock::now_in_drop());
        Duration::from_nanos(now.0.saturating_sub(self.0))
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
    waiting: Gauge,
    wait: Histogram,
    held: Gauge,
    hold: Histogram,
    lag: Histogram,
}

/// Where the numbers of a lock go. Small, since each waiting future has room for one.
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
        let made = families.entry((kind, lock));
        *made.or_insert_with(|| Self::family(kind, label, Some(Numbers::new(kind, lock))))
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

    /// Somebody asks for the lock.
    pub(crate) fn acquiring(self) -> Acquiring {
        if let Some(numbers) = self.numbers() {
            numbers.waiting.increment(1);
        }
        Acquiring {
            meter: self,
            since: Since::now(),
        }
    }

    /// There is a hold.
    pub(crate) fn held(self) -> Held {
        if let Some(numbers) = self.numbers() {
            numbers.held.increment(1);
        }
        Held {
            meter: self,
            since: Since::now(),
        }
    }

    /// A renewal is sent, which has been due for so long.
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
            waiting: gauge!("redlock_waiting", &labels),
            wait: histogram!("redlock_wait_seconds", &labels),
            held: gauge!("redlock_held", &labels),
            hold: histogram!("redlock_hold_seconds", &labels),
            lag: histogram!("redlock_renewal_lag_seconds", &labels),
        }
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
                let outcome = snake(&format!("{:?}", error.kind()));
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

/// A hold, until it is lost or its release begins.
pub(crate) struct Held {
    meter: Meter,
    since: Since,
}

impl Held {
    pub(crate) fn meter(&self) -> Meter {
        self.meter
    }

    pub(crate) fn released(&mut self) {
        let meter = std::mem::take(&mut self.meter);
        if let Some(numbers) = meter.numbers() {
            numbers.held.decrement(1);
            numbers.hold.record(self.since.elapsed());
        }
    }

    pub(crate) fn lost(&mut self, reason: LostReason) {
        if self.meter.numbers().is_some() {
            let (kind, lock) = self.meter.labels();
            let reason = snake(&format!("{reason:?}"));
            counter!("redlock_losses_total", "kind" => kind, "lock" => lock, "reason" => reason)
                .increment(1);
        }
        self.released();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.released();
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").finish_non_exhaustive()
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

/// A connection to Redis was made anew.
pub(crate) fn reconnected() {
    counter!("redlock_reconnections_total").increment(1);
}

/// A release that nobody waits for was refused, or waits until Redis lets this client in.
pub(crate) fn release_failed() {
    counter!("redlock_release_failures_total").increment(1);
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

/// `TimedOut` as `timed_out`.
fn snake(name: &str) -> String {
    let mut text = String::with_capacity(name.len() + 4);
    for char in name.chars() {
        if char.is_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.extend(char.to_lowercase());
    }
    text
}

fn describe() {
    static DESCRIBED: Once = Once::new();
    DESCRIBED.call_once(|| {
        let count = Unit::Count;
        metrics::describe_counter!(
            "redlock_acquisitions_total",
            count,
            "calls that asked for a lock, by outcome"
        );
        metrics::describe_gauge!("redlock_waiting", count, "calls that ask for a lock now");
        metrics::describe_histogram!(
            "redlock_wait_seconds",
            Unit::Seconds,
            "how long calls that asked for a lock took"
        );
        metrics::describe_gauge!("redlock_held", count, "locks that are held now");
        metrics::describe_histogram!(
            "redlock_hold_seconds",
            Unit::Seconds,
            "how long locks were held"
        );
        metrics::describe_histogram!(
            "redlock_renewal_lag_seconds",
            Unit::Seconds,
            "how late renewals were sent"
        );
        metrics::describe_counter!(
            "redlock_losses_total",
            count,
            "locks that were lost, by reason"
        );
        metrics::describe_counter!(
            "redlock_reconnections_total",
            count,
            "connections to redis that were made anew"
        );
        metrics::describe_counter!(
            "redlock_release_failures_total",
            count,
            "releases in the background that redis refused"
        );
    });
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(snake("TimedOut"), "timed_out");
        assert_eq!(snake("Lost"), "lost");
    }
}
