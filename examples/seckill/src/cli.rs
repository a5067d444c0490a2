//! The command line: what a rush is made of, checked before anything starts.

use std::fmt;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// A flash sale: users rush for vouchers across several app instances, one order per user.
#[derive(Debug, Parser)]
#[command(name = "seckill", version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Opens the sale, lets all users rush for it and checks the books afterwards.
    ///
    /// Exits with 0 when the sale came out right (always with `--lock off`, which is there to show
    /// how it goes wrong), with 1 when it did not, and with 2 when it could not be held.
    Rush(RushArgs),
}

/// The size and shape of one rush.
#[derive(Args, Clone, Debug, PartialEq)]
pub(crate) struct RushArgs {
    /// Users who rush, each of whom may have one voucher.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) users: u32,

    /// Vouchers for sale.
    #[arg(long, value_name = "M", default_value_t = 200)]
    pub(crate) stock: u32,

    /// App instances, each with its own lock client and its own database pool.
    #[arg(long, value_name = "K", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) instances: u32,

    /// Requests of each user, which start together on different instances.
    #[arg(long, value_name = "R", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) requests_per_user: u32,

    /// Requests in flight over all instances.
    #[arg(long, value_name = "C", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) concurrency: u32,

    /// Redis server that keeps the locks; without it the instances share an engine in this process.
    #[arg(long, value_name = "URL")]
    pub(crate) redis: Option<String>,

    /// Whether an order is placed under the user's lock.
    #[arg(long, value_enum, value_name = "on|off", default_value_t = Lock::On)]
    pub(crate) lock: Lock,

    /// Prints the summary as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,

    /// Time an order takes between its check and its transaction.
    #[arg(long, value_name = "TIME", default_value = "2ms", value_parser = duration)]
    pub(crate) think: Duration,
}

impl RushArgs {
    /// Checks what no single flag can know about itself.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.requests_per_user > self.concurrency {
            return Err(format!(
                "--concurrency {} is below --requests-per-user {}: the requests of one user start \
                 together, so all of them must fit",
                self.concurrency, self.requests_per_user,
            ));
        }
        Ok(())
    }

    /// Requests of all users.
    pub(crate) fn requests(&self) -> u64 {
        u64::from(self.users) * u64::from(self.requests_per_user)
    }
}

/// Whether orders are placed under a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Lock {
    /// Under `#[distributed_lock]`.
    On,
    /// The same function without it.
    Off,
}

impl fmt::Display for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::On => "on",
            Self::Off => "off",
        })
    }
}

/// Longest `--think`: far below a lease, and nobody watches a longer one.
const LONGEST_THINK: Duration = Duration::from_secs(60);

/// Parses `2ms`, `500us`, `1s` or `0`.
fn duration(text: &str) -> Result<Duration, String> {
    let unit_at = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let number: u64 = number
        .parse()
        .map_err(|_| "expected a time such as 500us, 2ms or 1s".to_owned())?;
    let time = match unit {
        "us" => Duration::from_micros(number),
        "ms" => Duration::from_millis(number),
        "s" => Duration::from_secs(number),
        "" if number == 0 => Duration::ZERO,
        _ => return Err("expected a time with the unit us, ms or s, such as 2ms".to_owned()),
    };
    if time > LONGEST_THINK {
        return Err(format!("longer than {LONGEST_THINK:?}"));
    }
    Ok(time)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use clap::error::ErrorKind;

    use super::*;

    fn rush(flags: &[&str]) -> Result<RushArgs, clap::Error> {
        let Cli {
            command: Command::Rush(args),
        } = Cli::try_parse_from(["seckill", "rush"].iter().chain(flags))?;
        Ok(args)
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn defaults_are_the_documented_ones() {
        assert_eq!(
            rush(&[]).unwrap(),
            RushArgs {
                users: 1000,
                stock: 200,
                instances: 4,
                requests_per_user: 3,
                concurrency: 64,
                redis: None,
                lock: Lock::On,
                json: false,
                think: Duration::from_millis(2),
            }
        );
    }

    #[test]
    fn zero_of_anything_but_stock_is_refused() {
        for flag in [
            "--users",
            "--instances",
            "--requests-per-user",
            "--concurrency",
        ] {
            let refused = rush(&[flag, "0"]).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::ValueValidation, "{flag}");
            assert_eq!(refused.exit_code(), 2);
        }
        assert_eq!(rush(&["--stock", "0"]).unwrap().stock, 0);
    }

    #[test]
    fn the_requests_of_a_user_must_fit_into_the_concurrency() {
        let flags = ["--requests-per-user", "5", "--concurrency", "4"];
        let refused = rush(&flags).unwrap().check().unwrap_err();
        assert!(refused.contains("--concurrency 4"), "{refused}");
        assert_eq!(
            rush(&["--requests-per-user", "4", "--concurrency", "4"])
                .unwrap()
                .check(),
            Ok(())
        );
    }

    #[test]
    fn think_takes_a_number_and_a_unit() {
        assert_eq!(duration("2ms"), Ok(Duration::from_millis(2)));
        assert_eq!(duration("500us"), Ok(Duration::from_micros(500)));
        assert_eq!(duration("1s"), Ok(Duration::from_secs(1)));
        assert_eq!(duration("0"), Ok(Duration::ZERO));
        for bad in [
            "",
            "2",
            "ms",
            "-2ms",
            "2 ms",
            "1.5s",
            "2h",
            "61s",
            "99999999999999999999s",
        ] {
            assert!(duration(bad).is_err(), "{bad:?} was taken");
        }
    }

    #[test]
    fn requests_do_not_overflow() {
        let flags = [
            "--users",
            "4294967295",
            "--requests-per-user",
            "10000",
            "--concurrency",
            "10000",
        ];
        assert_eq!(rush(&flags).unwrap().requests(), 4_294_967_295 * 10_000);
    }
}
