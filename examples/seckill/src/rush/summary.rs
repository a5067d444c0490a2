//! What came of a rush, and whether that is as it should be.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::problems::Problems;
use super::tally::Tally;
use crate::cli::RushArgs;
use crate::store::Books;

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
    pub(super) fn new(args: &RushArgs, tally: &Tally, books: Books, took: Duration) -> Self {
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
            duplicates: books.duplicates(),
            oversold: books.oversold(stock),
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
        let mut problems = Problems::default();
        let ended = self.orders + self.already + self.sold_out + self.busy + self.errors;
        problems.accounted(ended, self.requests);
        if !self.sound {
            return problems.into();
        }

        problems.duplicates(self.duplicates);
        problems.oversold(self.oversold);
        problems.unless(self.errors == 0, || {
            format!("{} requests failed", self.errors)
        });
        problems.busy(self.busy, self.requests);
        problems.sold(self.sold, self.stock.min(self.users));
        problems.into()
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
}
