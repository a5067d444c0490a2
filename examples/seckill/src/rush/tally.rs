//! How the requests of a rush in this process end.

use std::fmt;

use hdrhistogram::Histogram;

use crate::service::{Answer, Placed, ShopError};

/// An hour in microseconds; a wait beyond it counts as one.
const LONGEST_WAIT: u64 = 60 * 60 * 1_000_000;

/// Counts how the requests end, one call of [`add`](Self::add) or [`fail`](Self::fail) for each.
#[derive(Debug)]
pub(super) struct Tally {
    pub(super) orders: u64,
    pub(super) already: u64,
    pub(super) sold_out: u64,
    pub(super) busy: u64,
    pub(super) errors: u64,
    first_error: Option<String>,
    /// Microseconds from asking for the lock to having it, of the requests that got it.
    waits: Histogram<u64>,
}

impl Tally {
    pub(super) fn new() -> Self {
        Self {
            orders: 0,
            already: 0,
            sold_out: 0,
            busy: 0,
            errors: 0,
            first_error: None,
            waits: Histogram::new_with_bounds(1, LONGEST_WAIT, 3)
                .expect("the bounds are constants"),
        }
    }

    /// Counts a request that came to its end.
    pub(super) fn add(&mut self, end: Result<Placed, ShopError>) {
        match end {
            Ok(Placed { answer, waited }) => {
                match answer {
                    Answer::Ordered(_) => self.orders += 1,
                    Answer::Already => self.already += 1,
                    Answer::SoldOut => self.sold_out += 1,
                    Answer::Overtaken => self.busy += 1,
                }
                if let Some(waited) = waited {
                    let micros = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
                    self.waits.saturating_record(micros);
                }
            }
            Err(error) if error.is_busy() => self.busy += 1,
            Err(error) => self.fail(&error),
        }
    }

    /// Counts a request that failed.
    pub(super) fn fail(&mut self, error: &dyn fmt::Display) {
        self.errors += 1;
        self.first_error.get_or_insert_with(|| error.to_string());
    }

    /// What the first request that failed said.
    pub(super) fn first_error(&self) -> Option<&str> {
        self.first_error.as_deref()
    }

    /// Microseconds.
    pub(super) fn wait(&self, quantile: f64) -> u64 {
        self.waits.value_at_quantile(quantile)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_tally_counts_each_request_once() {
        let mut tally = Tally::new();
        let waited = Some(Duration::from_millis(5));
        tally.add(Ok(Placed {
            answer: Answer::Ordered("1".to_owned()),
            waited,
        }));
        tally.add(Ok(Placed {
            answer: Answer::Already,
            waited,
        }));
        tally.add(Ok(Placed {
            answer: Answer::SoldOut,
            waited,
        }));
        tally.add(Err(ShopError::NotOnSale));
        tally.fail(&"second");
        assert_eq!((tally.orders, tally.already, tally.sold_out), (1, 1, 1));
        assert_eq!((tally.busy, tally.errors, tally.waits.len()), (0, 2, 3));
        assert!(tally.first_error().unwrap().starts_with("this voucher"));
        assert!((5_000..5_010).contains(&tally.wait(0.5)));
    }

    #[test]
    fn a_request_that_took_no_lock_counted_as_one_that_got_it_at_once() {
        let mut tally = Tally::new();
        for waited in [None, None, Some(Duration::from_millis(5))] {
            let answer = Answer::SoldOut;
            tally.add(Ok(Placed { answer, waited }));
        }
        assert_eq!((tally.sold_out, tally.waits.len()), (3, 1));
        assert!(tally.wait(0.5) >= 5_000);
    }
}
