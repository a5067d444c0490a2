//! The command line, checked before anything starts.

use std::time::Duration;

use clap::{Args, Parser, Subcommand};

mod rush;
mod serve;
mod story;
mod up;

pub(crate) use self::rush::{FaultAt, RushArgs};
pub(crate) use self::serve::{DATABASE_VARIABLE, PaymentsArgs, REDIS_VARIABLE, ServeArgs};
pub(crate) use self::story::StoryArgs;
pub(crate) use self::up::UpArgs;

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
    /// Exits with 0 when the sale came out right (always with a lock that is there to be seen
    /// failing, such as `--lock off`), with 1 when it did not, and with 2 when it could not be held.
    Rush(RushArgs),
    /// Serves the shop and its page over HTTP: one instance, of which there may be any number.
    Serve(ServeArgs),
    /// Starts several instances, a front that hands requests to them, and a Redis if none is given.
    Up(UpArgs),
    /// Tells how one comes to such a lock, a run a step: what each of the simpler ones gets wrong.
    Story(StoryArgs),
    /// Stands in for the payment service that the shop calls: slow, and wrong as often as you like.
    Payments(PaymentsArgs),
}

/// What a command means that says nothing.
fn of_nothing<A: Args>() -> A {
    let command = A::augment_args(clap::Command::new("seckill"));
    A::from_arg_matches(&command.get_matches_from(["seckill"])).expect("each option has a default")
}

/// Longest `--think`.
const LONGEST_THINK: Duration = Duration::from_secs(60);

/// Parses `2ms`, `500us`, `1s` or `0`, up to what anybody watches.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let time = long_duration(text)?;
    if time > LONGEST_THINK {
        return Err(format!("longer than {LONGEST_THINK:?}"));
    }
    Ok(time)
}

/// The same without a limit.
pub(crate) fn long_duration(text: &str) -> Result<Duration, String> {
    let unit_at = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let number: u64 = number
        .parse()
        .map_err(|_| "expected a time such as 500us, 2ms or 1s".to_owned())?;
    match unit {
        "us" => Ok(Duration::from_micros(number)),
        "ms" => Ok(Duration::from_millis(number)),
        "s" => Ok(Duration::from_secs(number)),
        "" if number == 0 => Ok(Duration::ZERO),
        _ => Err("expected a time with the unit us, ms or s, such as 2ms".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use clap::error::ErrorKind;

    use super::*;
    use crate::service::LockKind;

    fn rush(flags: &[&str]) -> Result<RushArgs, clap::Error> {
        match Cli::try_parse_from(["seckill", "rush"].iter().chain(flags))?.command {
            Command::Rush(args) => Ok(args),
            other => panic!("{other:?} is no rush"),
        }
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn defaults_are_the_documented_ones() {
        assert_eq!(rush(&[]).unwrap(), RushArgs::default());
        assert_eq!(
            RushArgs::default(),
            RushArgs {
                users: 1000,
                stock: 200,
                instances: 4,
                requests_per_user: 3,
                concurrency: 64,
                redis: None,
                lock: LockKind::Rlock,
                stall_one_in: None,
                http: Vec::new(),
                fault: None,
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
        // As this option was before there were several kinds.
        assert_eq!(rush(&["--lock", "on"]).unwrap().lock, LockKind::Rlock);
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
