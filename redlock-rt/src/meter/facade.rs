//! What is counted, and under which names.
//!
//! The handles of one kind and label are made once, since a lookup in the recorder for each number would
//! cost more than the number. So a recorder is installed before the first lock is taken.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{LazyLock, Mutex, Once};
use std::time::{Duration, Instant};

use metrics::{Counter, Gauge, Histogram, Unit, counter, gauge, histogram};

use crate::clock;
use crate::error::{Error, LostReason};
use crate::shim::lock_std;

/// How many labels a process may have; each is a time series of its own.
const MOST_LABELS: usize = 200;
const OTHER: &str = "other";

/// What the locks of one use have in common; the text is kept for ever.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Label(Option<&'static str>);

static LABELS: LazyLock<Mutex<HashSet<&'static str>>> = LazyLock::new(Mutex::default);
static FAMILIES: LazyLock<Mutex<HashMap<(&'static str, &'static str), &'static Family>>> =
    LazyLock::new(Mutex::default);

impl Label {
    pub(crate) const NONE: Self = Self(None);

    pub(crate) fn new(text: &str) -> Self {
        let mut labels = lock_std(&LABELS);
        if let Some(known) = labels.get(text) {
            return Self(Some(known));
        }
        if labels.len() >= MOST_LABELS {
            drop(labels);
            static WARN: Once = Once::new();
            WARN.call_once(|| {
                tracing::warn!(
                    target: "redlock_rt::metrics",
                    label = text, most = MOST_LABELS,
                    "too many labels, the others are one"
                );
            });
            return Self(Some(OTHER));
        }
        let text: &'static str = text.to_owned().leak();
        labels.insert(text);
        Self(Some(text))
    }
}

/// The numbers of one kind and label.
struct Family {
    kind: &'static str,
    lock: &'static str,
    acquired: Counter,
    waiting: Gauge,
    wait: Histogram,
    held: Gauge,
    hold: Histogram,
    lag: Histogram,
}

/// Where the numbers of a lock go.
#[derive(Clone, Copy, Default)]
pub(crate) struct Meter {
    label: Label,
    /// `None` until the kind is known.
    family: Option<&'static Family>,
}

impl Meter {
    pub(crate) const fn of(label: Label) -> Self {
        let family = None;
        Self { label, family }
    }

    /// The same, for a lock of this kind.
    pub(crate) fn kind(self, kind: &'static str) -> Self {
        if self.family.is_some_and(|family| family.kind == kind) {
            return self;
        }
        let lock = self.label.0.unwrap_or(kind);
        let mut families = lock_std(&FAMILIES);
        let made = families.entry((kind, lock));
        Self {
            family: Some(made.or_insert_with(|| Box::leak(Box::new(Family::new(kind, lock))))),
            ..self
        }
    }

    /// Somebody asks for the lock.
    pub(crate) fn acquiring(self) -> Acquiring {
        if let Some(family) = self.family {
            family.waiting.increment(1);
        }
        Acquiring {
            family: self.family,
            since: clock::now(),
        }
    }

    /// There is a hold.
    pub(crate) fn held(self) -> Held {
        if let Some(family) = self.family {
            family.held.increment(1);
        }
        Held {
            family: self.family,
            since: clock::now(),
        }
    }

    /// A renewal is sent, which has been due for so long.
    pub(crate) fn renews(self, overdue: impl FnOnce() -> Option<Duration>) {
        if let Some(family) = self.family
            && let Some(overdue) = overdue()
        {
            family.lag.record(overdue);
        }
    }
}

impl Family {
    fn new(kind: &'static str, lock: &'static str) -> Self {
        describe();
        let labels = [("kind", kind), ("lock", lock)];
        Self {
            kind,
            lock,
            acquired: acquisitions(kind, lock, "acquired"),
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
    family: Option<&'static Family>,
    since: Instant,
}

impl Acquiring {
    pub(crate) fn ended<T>(mut self, outcome: &Result<T, Error>) {
        match outcome {
            Ok(_) => self.end(|family| family.acquired.clone()),
            Err(error) => self.end(|family| {
                let outcome = snake(&format!("{:?}", error.kind()));
                acquisitions(family.kind, family.lock, outcome)
            }),
        }
    }

    fn end(&mut self, counter: impl FnOnce(&Family) -> Counter) {
        if let Some(family) = self.family.take() {
            family.waiting.decrement(1);
            family.wait.record(clock::now_in_drop() - self.since);
            counter(family).increment(1);
        }
    }
}

impl Drop for Acquiring {
    fn drop(&mut self) {
        self.end(|family| acquisitions(family.kind, family.lock, "cancelled"));
    }
}

/// A hold, until it is lost or its release begins.
pub(crate) struct Held {
    family: Option<&'static Family>,
    since: Instant,
}

impl Held {
    pub(crate) fn released(&mut self) {
        if let Some(family) = self.family.take() {
            family.held.decrement(1);
            family.hold.record(clock::now_in_drop() - self.since);
        }
    }

    pub(crate) fn lost(&mut self, reason: LostReason) {
        if let Some(family) = self.family {
            let reason = snake(&format!("{reason:?}"));
            let labels = [
                ("kind", family.kind.to_owned()),
                ("lock", family.lock.to_owned()),
                ("reason", reason),
            ];
            counter!("redlock_losses_total", &labels).increment(1);
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
        self.label == other.label
    }
}

impl Eq for Meter {}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Meter").field(&self.label).finish()
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

fn acquisitions(kind: &'static str, lock: &'static str, outcome: impl Into<String>) -> Counter {
    counter!("redlock_acquisitions_total", "kind" => kind, "lock" => lock, "outcome" => outcome.into())
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
        let known: Vec<Label> = (0..MOST_LABELS)
            .map(|number| Label::new(&number.to_string()))
            .collect();
        assert_eq!(Label::new("one more"), Label(Some(OTHER)));
        assert_eq!(Label::new("and one more"), Label(Some(OTHER)));
        assert_eq!(Label::new("0"), known[0]);
        assert_eq!(known[0].0, Some("0"));
    }

    #[test]
    fn names_of_outcomes() {
        assert_eq!(snake("TimedOut"), "timed_out");
        assert_eq!(snake("Lost"), "lost");
    }
}
