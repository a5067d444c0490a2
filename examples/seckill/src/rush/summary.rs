//! What came of a rush, and whether that is as it should be.

use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::cli::RushArgs;
use crate::service::{Answer, Placed, ShopError};
use crate::store::Books;

/// An hour in microseconds; a wait beyond it counts as one.
const LONGEST_WAIT: u64 = 60 * 60 * 1_000_000;

/// Counts how the requests end, one call of [`add`](Self::add) or [`fail`](Self::fail) for each.
#[derive(Debug)]
pub(crate) struct Tally {
    orders: u64,
    already: u64,
    sold_out: u64,
    busy: u64,
    errors: u64,
    first_error: Option<String>,
    /// Microseconds from the call to the start of the body, of the requests that got there.
    waits: Histogram<u64>,
}

impl Tally {
    pub(crate) fn new() -> Self {
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
    pub(crate) fn add(&mut self, end: Result<Placed, ShopError>) {
        match end {
            Ok(Placed { answer, waited }) => {
                match answer {
                    Answer::Ordered(_) => self.orders += 1,
                    Answer::Already => self.already += 1,
                    Answer::SoldOut => self.sold_out += 1,
                    Answer::Overtaken => self.busy += 1,
                }
                let micros = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
                self.waits.saturating_record(micros);
            }
            Err(error) if error.is_busy() => self.busy += 1,
            Err(error) => self.fail(&error),
        }
    }

    /// Counts a request that failed.
    pub(crate) fn fail(&mut self, error: &dyn fmt::Display) {
        self.errors += 1;
        self.first_error.get_or_insert_with(|| error.to_string());
    }

    /// What the first request that failed said.
    pub(crate) fn first_error(&self) -> Option<&str> {
        self.first_error.as_deref()
    }

    fn wait(&self, quantile: f64) -> u64 {
        self.waits.value_at_quantile(quantile)
    }
}

/// The outcome of a rush. Its fields are the fields of `--json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Summary {
    pub(crate) users: u64,
    pub(crate) stock: u64,
    pub(crate) instances: u32,
    pub(crate) requests_per_user: u32,
    pub(crate) concurrency: u32,
    /// The kind of lock.
    pub(crate) lock: &'static str,
    /// Whether nobody may have two vouchers under it.
    #[serde(skip)]
    pub(crate) sound: bool,
    /// Where the locks are kept: `embedded` or `redis`.
    pub(crate) backend: &'static str,
    pub(crate) requests: u64,
    pub(crate) orders: u64,
    pub(crate) already: u64,
    pub(crate) sold_out: u64,
    pub(crate) busy: u64,
    pub(crate) errors: u64,
    /// Rows of the orders table.
    pub(crate) sold: u64,
    /// Rows beyond the first of each user.
    pub(crate) duplicates: u64,
    /// Rows beyond the stock at the start.
    pub(crate) oversold: u64,
    pub(crate) seconds: f64,
    pub(crate) requests_per_second: f64,
    pub(crate) lock_wait_p50_us: u64,
    pub(crate) lock_wait_p99_us: u64,
}

impl Summary {
    pub(crate) fn new(args: &RushArgs, tally: &Tally, books: Books, took: Duration) -> Self {
        let stock = u64::from(args.stock);
        let requests = args.requests();
        let seconds = took.as_secs_f64();
        Self {
            users: u64::from(args.users),
            stock,
            instances: args.instances,
            requests_per_user: args.requests_per_user,
            concurrency: args.concurrency,
            lock: args.lock.as_str(),
            sound: args.lock.is_sound(),
            backend: if args.redis.is_some() {
                "redis"
            } else {
                "embedded"
            },
            requests,
            orders: tally.orders,
            already: tally.already,
            sold_out: tally.sold_out,
            busy: tally.busy,
            errors: tally.errors,
            sold: books.sold,
            duplicates: books.sold - books.buyers,
            oversold: books.sold.saturating_sub(stock),
            seconds,
            requests_per_second: requests as f64 / seconds,
            lock_wait_p50_us: tally.wait(0.50),
            lock_wait_p99_us: tally.wait(0.99),
        }
    }

    /// What went wrong: empty means that the sale came out right.
    ///
    /// Under a lock that is there to be seen failing, only the program's own bookkeeping is held to
    /// anything.
    pub(crate) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut check = |fine: bool, problem: String| {
            if !fine {
                problems.push(problem);
            }
        };

        let ended = self.orders + self.already + self.sold_out + self.busy + self.errors;
        check(
            ended == self.requests,
            format!("{ended} of {} requests are accounted for", self.requests),
        );
        if !self.sound {
            return problems;
        }

        let due = self.stock.min(self.users);
        check(
            self.duplicates == 0,
            format!("{} duplicate orders", self.duplicates),
        );
        check(
            self.oversold == 0,
            format!("{} sold beyond the stock", self.oversold),
        );
        check(self.errors == 0, format!("{} requests failed", self.errors));
        check(
            self.busy * 100 <= self.requests,
            format!(
                "{} of {} requests were refused as busy, over 1 %",
                self.busy, self.requests
            ),
        );
        check(
            self.sold == due,
            format!("{} sold where {due} should have been", self.sold),
        );
        problems
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept = match self.backend {
            "redis" => "in Redis",
            _ => "in the embedded engine",
        };
        writeln!(
            f,
            "{} users × {} requests for {} vouchers on {} instances, {} requests in flight",
            self.users, self.requests_per_user, self.stock, self.instances, self.concurrency,
        )?;
        match self.lock {
            "off" => writeln!(f, "lock off")?,
            kind => writeln!(f, "lock {kind}, kept {kept}")?,
        }
        writeln!(f)?;
        let mut row = |name: &str, count: u64, note: &str| {
            writeln!(
                f,
                "{}",
                format!("  {name:<18}{count:>8}   {note}").trim_end()
            )
        };
        row("requests", self.requests, "")?;
        row("  orders", self.orders, "")?;
        row("  already", self.already, "the user had one")?;
        row("  sold out", self.sold_out, "")?;
        row("  busy", self.busy, "refused after the wait")?;
        row("  errors", self.errors, "")?;
        row("sold", self.sold, "by the orders table")?;
        row("duplicate orders", self.duplicates, "beyond a user's first")?;
        row("oversold", self.oversold, "beyond the stock")?;
        writeln!(f)?;
        writeln!(
            f,
            "{:.2} s, {:.0} requests per second, lock wait p50 {:.1} ms, p99 {:.1} ms",
            self.seconds,
            self.requests_per_second,
            self.lock_wait_p50_us as f64 / 1000.0,
            self.lock_wait_p99_us as f64 / 1000.0,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Summary {
        Summary {
            users: 1000,
            stock: 200,
            instances: 4,
            requests_per_user: 3,
            concurrency: 64,
            lock: "rlock",
            sound: true,
            backend: "embedded",
            requests: 3000,
            orders: 200,
            already: 400,
            sold_out: 2400,
            busy: 0,
            errors: 0,
            sold: 200,
            duplicates: 0,
            oversold: 0,
            seconds: 1.5,
            requests_per_second: 2000.0,
            lock_wait_p50_us: 1_000,
            lock_wait_p99_us: 9_000,
        }
    }

    #[test]
    fn a_clean_sale_has_no_problems() {
        assert_eq!(good().problems(), [""; 0]);
    }

    #[test]
    fn up_to_one_in_a_hundred_may_be_busy() {
        assert_eq!(
            Summary {
                busy: 30,
                sold_out: 2370,
                ..good()
            }
            .problems(),
            [""; 0]
        );
        assert_eq!(
            Summary {
                busy: 31,
                sold_out: 2369,
                ..good()
            }
            .problems(),
            ["31 of 3000 requests were refused as busy, over 1 %"]
        );
    }

    #[test]
    fn whatever_is_wrong_is_named() {
        let cases = [
            (
                Summary {
                    duplicates: 1,
                    ..good()
                },
                "1 duplicate orders",
            ),
            (
                Summary {
                    oversold: 2,
                    ..good()
                },
                "2 sold beyond the stock",
            ),
            (
                Summary {
                    errors: 3,
                    sold_out: 2397,
                    ..good()
                },
                "3 requests failed",
            ),
            (
                Summary {
                    sold: 199,
                    ..good()
                },
                "199 sold where 200 should have been",
            ),
            (
                Summary {
                    already: 399,
                    ..good()
                },
                "2999 of 3000 requests are accounted for",
            ),
        ];
        for (summary, problem) in cases {
            assert_eq!(summary.problems(), [problem]);
        }
    }

    #[test]
    fn fewer_users_than_vouchers_leave_some_over() {
        let small = Summary {
            users: 150,
            sold: 150,
            ..good()
        };
        assert_eq!(small.problems(), [""; 0]);
    }

    #[test]
    fn without_the_lock_only_the_counting_must_be_right() {
        let off = Summary {
            lock: "off",
            sound: false,
            duplicates: 130,
            errors: 1,
            ..good()
        };
        assert_eq!(off.problems().len(), 1);
        let counted = Summary {
            sold_out: 2399,
            ..off
        };
        assert_eq!(counted.problems(), [""; 0]);
    }

    #[test]
    fn the_tally_counts_each_request_once() {
        let mut tally = Tally::new();
        let waited = Duration::from_millis(5);
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
    fn the_table_names_every_count() {
        let text = good().to_string();
        for name in [
            "orders",
            "sold",
            "duplicate orders",
            "oversold",
            "busy",
            "errors",
            "p99",
        ] {
            assert!(text.contains(name), "{name} is missing from\n{text}");
        }
        assert!(text.lines().all(|line| line == line.trim_end()));
    }
}
