//! How options are written in configurations.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::acks::{Fsync, ReplicaAck};
use super::acquire::Backoff;
use crate::error::Error;

fn wrong<T>(expected: &'static str) -> Result<T, Error> {
    Err(Error::bad_input("read an option", expected))
}

impl FromStr for ReplicaAck {
    type Err = Error;

    /// Reads `none`, `majority`, `all`, the number of [`AtLeast`](Self::AtLeast), or `best-effort:` and
    /// the number of [`BestEffort`](Self::BestEffort).
    fn from_str(text: &str) -> Result<Self, Error> {
        let number = |text: &str| match text.parse() {
            Ok(number) => Ok(number),
            Err(_) => {
                wrong("replicas are none, majority, all, a number such as 1, or best-effort:1")
            }
        };
        Ok(match (text, text.strip_prefix("best-effort:")) {
            ("none", _) => Self::None,
            ("majority", _) => Self::Majority,
            ("all", _) => Self::All,
            (_, Some(most)) => Self::BestEffort(number(most)?),
            (wanted, None) => Self::AtLeast(number(wanted)?),
        })
    }
}

impl fmt::Display for ReplicaAck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::AtLeast(wanted) => wanted.fmt(f),
            Self::Majority => f.write_str("majority"),
            Self::All => f.write_str("all"),
            Self::BestEffort(most) => write!(f, "best-effort:{most}"),
        }
    }
}

impl FromStr for Fsync {
    type Err = Error;

    /// Reads `none`, `replicas` or `all`.
    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "none" => Ok(Self::None),
            "replicas" => Ok(Self::Replicas),
            "all" => Ok(Self::All),
            _ => wrong("fsync is none, replicas, or all"),
        }
    }
}

impl fmt::Display for Fsync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Replicas => "replicas",
            Self::All => "all",
        })
    }
}

impl FromStr for Backoff {
    type Err = Error;

    /// Reads `50ms` ([`constant`](Self::constant)) or `2ms..1.5s` ([`exponential`](Self::exponential)),
    /// followed by `,jitter=0.2` and `,max_retries=20` if present.
    fn from_str(text: &str) -> Result<Self, Error> {
        let Some(backoff) = backoff(text) else {
            return wrong(
                "a back-off is a time such as 50ms, or two such as 2ms..200ms, and behind them \
                 ,jitter=0.2 or ,max_retries=20",
            );
        };
        match backoff.flaw() {
            Some(flaw) => wrong(flaw),
            None => Ok(backoff),
        }
    }
}

fn backoff(text: &str) -> Option<Backoff> {
    let mut parts = text.split(',');
    let pauses = parts.next()?;
    let backoff = match pauses.split_once("..") {
        Some((first, longest)) => Backoff::exponential(time(first)?, time(longest)?),
        None => Backoff::constant(time(pauses)?),
    };
    parts.try_fold(backoff, |backoff, part| match part.split_once('=')? {
        ("jitter", part) => Some(backoff.jitter(part.parse().ok()?)),
        ("max_retries", most) => Some(backoff.max_retries(most.parse().ok()?)),
        _ => None,
    })
}

fn time(text: &str) -> Option<Duration> {
    let (number, parts) = match text.strip_suffix("ms") {
        Some(number) => (number, 1000.0),
        None => (text.strip_suffix('s')?, 1.0),
    };
    let number: f64 = number.parse().ok()?;
    Duration::try_from_secs_f64(number / parts).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_read_as_written<T: FromStr<Err = Error> + fmt::Display>(texts: &[&str]) {
        for text in texts {
            assert_eq!(text.parse::<T>().unwrap().to_string(), *text);
        }
    }

    #[test]
    fn options_are_read_as_they_are_written() {
        assert_read_as_written::<ReplicaAck>(&["none", "3", "majority", "all", "best-effort:2"]);
        assert_read_as_written::<Fsync>(&["none", "replicas", "all"]);
        assert_read_as_written::<Backoff>(&[
            "50ms,jitter=0",
            "2ms..1.5s,jitter=0.2,max_retries=20",
        ]);
        assert_eq!("3".parse::<ReplicaAck>().unwrap(), ReplicaAck::AtLeast(3));
        assert_eq!("1ms..128ms".parse::<Backoff>().unwrap(), Backoff::default());
        let constant = Backoff::constant(Duration::from_millis(50)).max_retries(2);
        assert_eq!("50ms,max_retries=2".parse::<Backoff>().unwrap(), constant);
    }

    #[test]
    fn wrong_options_are_bad_input() {
        for text in [
            "",
            "ALL",
            "-1",
            "best-effort:",
            "best-effort:all",
            "4294967296",
        ] {
            assert!(
                text.parse::<ReplicaAck>().unwrap_err().is_bad_input(),
                "{text}"
            );
            assert!(text.parse::<Fsync>().unwrap_err().is_bad_input(), "{text}");
        }
        let wrong = [
            "",
            "50",
            "s",
            "-1ms",
            "1e99s",
            "NaNms",
            "200ms..2ms",
            "0.5ms",
            "2d",
            "1ms,",
            "1ms,2ms",
            "1ms,jitter=x",
            "1ms,max_retries=-1",
            "1ms..2ms..3ms",
        ];
        for text in wrong {
            assert!(
                text.parse::<Backoff>().unwrap_err().is_bad_input(),
                "{text}"
            );
        }
    }
}
