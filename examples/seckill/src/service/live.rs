//! Who waits for a user's lock, who has one, and how long it took: for whoever watches a sale.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Upper bounds of the histogram's buckets, in microseconds; one more bucket has what is above.
pub(crate) const WAIT_BOUNDS: [u64; 12] = [
    500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 125_000, 250_000, 500_000, 1_000_000,
];

/// How many of those who wait or hold are named.
const NAMED: usize = 6;

/// Of how many sales it is kept. The one whose turn it was first is forgotten.
const SALES: usize = 32;

/// What is going on in this instance, by sale.
#[derive(Debug, Default)]
pub(crate) struct Live {
    sales: Mutex<Vec<(String, Room)>>,
}

#[derive(Debug, Default)]
struct Room {
    waits: [u64; WAIT_BOUNDS.len() + 1],
    waiting: HashMap<i64, u32>,
    inside: HashMap<i64, u32>,
}

/// What is going on, for others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LiveReport {
    /// Requests by their wait, in the buckets of [`WAIT_BOUNDS`].
    pub(crate) waits: Vec<u64>,
    pub(crate) waiting: u64,
    pub(crate) holding: u64,
    /// Some of the users who wait.
    pub(crate) waiters: Vec<i64>,
    /// Some of the users whose lock is held.
    pub(crate) holders: Vec<i64>,
}

impl LiveReport {
    /// Adds what is going on in another instance.
    pub(super) fn add(&mut self, other: &Self) {
        self.waits.resize(WAIT_BOUNDS.len() + 1, 0);
        for (here, there) in self.waits.iter_mut().zip(&other.waits) {
            *here += there;
        }
        self.waiting += other.waiting;
        self.holding += other.holding;
        self.waiters.extend(
            other
                .waiters
                .iter()
                .take(NAMED - self.waiters.len().min(NAMED)),
        );
        self.holders.extend(
            other
                .holders
                .iter()
                .take(NAMED - self.holders.len().min(NAMED)),
        );
    }
}

impl Live {
    /// A request comes, and waits until it [begins](Visit::begins) or goes away.
    pub(super) fn wait<'a>(&'a self, voucher: &'a str, user: i64) -> Visit<'a> {
        self.with(voucher, |room| *room.waiting.entry(user).or_default() += 1);
        Visit {
            live: self,
            voucher,
            user,
            inside: false,
        }
    }

    /// What is going on at one sale.
    pub(crate) fn report(&self, voucher: &str) -> LiveReport {
        let sales = self.sales();
        let Some((_, room)) = sales.iter().find(|(id, _)| id == voucher) else {
            return LiveReport::default();
        };
        let count = |users: &HashMap<i64, u32>| users.values().map(|n| u64::from(*n)).sum();
        let some = |users: &HashMap<i64, u32>| users.keys().copied().take(NAMED).collect();
        LiveReport {
            waits: room.waits.to_vec(),
            waiting: count(&room.waiting),
            holding: count(&room.inside),
            waiters: some(&room.waiting),
            holders: some(&room.inside),
        }
    }

    fn with(&self, voucher: &str, change: impl FnOnce(&mut Room)) {
        let mut sales = self.sales();
        let at = sales
            .iter()
            .position(|(id, _)| id == voucher)
            .unwrap_or_else(|| {
                if sales.len() == SALES {
                    sales.remove(0);
                }
                sales.push((voucher.to_owned(), Room::default()));
                sales.len() - 1
            });
        change(&mut sales[at].1);
    }

    fn sales(&self) -> MutexGuard<'_, Vec<(String, Room)>> {
        self.sales.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One request in front of a lock, and then under it.
#[derive(Debug)]
pub(super) struct Visit<'a> {
    live: &'a Live,
    voucher: &'a str,
    user: i64,
    inside: bool,
}

impl Visit<'_> {
    /// It has the lock, after so long.
    pub(super) fn begins(mut self, waited: Duration) -> Self {
        let micros = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
        let bucket = WAIT_BOUNDS.partition_point(|bound| *bound < micros);
        self.live.with(self.voucher, |room| {
            leave(&mut room.waiting, self.user);
            room.waits[bucket] += 1;
            *room.inside.entry(self.user).or_default() += 1;
        });
        self.inside = true;
        self
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.live.with(self.voucher, |room| {
            let place = if self.inside {
                &mut room.inside
            } else {
                &mut room.waiting
            };
            leave(place, self.user);
        });
    }
}

fn leave(users: &mut HashMap<i64, u32>, user: i64) {
    if let Some(count) = users.get_mut(&user) {
        *count -= 1;
        if *count == 0 {
            users.remove(&user);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_waits_then_holds_then_is_gone() {
        let live = Live::default();
        let (first, second) = (live.wait("a", 7), live.wait("a", 7));
        assert_eq!(live.report("a").waiting, 2);
        let first = first.begins(Duration::from_millis(3));
        let report = live.report("a");
        assert_eq!((report.waiting, report.holding), (1, 1));
        assert_eq!((report.waiters, report.holders), (vec![7], vec![7]));
        assert_eq!(report.waits[3], 1);
        drop((first, second));
        let report = live.report("a");
        assert_eq!((report.waiting, report.holding), (0, 0));
        assert_eq!(live.report("b"), LiveReport::default());
    }

    #[test]
    fn waits_fall_into_the_bucket_of_their_bound() {
        let live = Live::default();
        for (micros, bucket) in [(0, 0), (500, 0), (501, 1), (1_000_000, 11), (1_000_001, 12)] {
            drop(live.wait("b", 1).begins(Duration::from_micros(micros)));
            assert!(live.report("b").waits[bucket] > 0, "{micros} µs");
        }
        assert_eq!(live.report("b").waits.iter().sum::<u64>(), 5);
    }

    #[test]
    fn old_sales_are_forgotten() {
        let live = Live::default();
        for sale in 0..=SALES {
            drop(live.wait(&sale.to_string(), 1).begins(Duration::ZERO));
        }
        assert!(live.report("0").waits.is_empty());
        assert_eq!(live.report(&SALES.to_string()).waits[0], 1);
    }
}
