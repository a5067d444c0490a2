//! Durations as they are written in the attribute: `"500ms"`, `"1s"`, `"1m30s"`.
//!
//! A pure function over `&str`, without tokens and spans, so that every message can be tested
//! without a compiler.

use std::fmt;
use std::time::Duration;

/// Longest first, which is also their order in a combined duration.
const UNITS: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

/// Far below the limits of `PEXPIRE` and `Instant`, and far longer than any sensible lock.
const LONGEST: u64 = 100 * 365 * 86_400_000;

/// Why a text is not a duration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DurationError {
    Empty,
    /// `"30"`
    NoUnit(String),
    /// `"ms"`
    NoNumber(String),
    /// `"1.5s"`
    Fraction(String),
    /// `"-1s"`
    Negative,
    /// `"1 s"`
    Blank,
    /// `"10min"`
    UnknownUnit(String),
    /// `"5us"`
    TooFine(String),
    /// `"1s1m"`, `"1s1s"`
    Order {
        before: &'static str,
        after: &'static str,
    },
    TooLong,
}

impl fmt::Display for DurationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "empty duration; write for example \"1s\""),
            Self::NoUnit(number) => write!(
                f,
                "duration without a unit: write \"{number}s\" or \"{number}ms\" (units: {})",
                Units
            ),
            Self::NoNumber(text) => {
                write!(
                    f,
                    "expected a number before `{text}`; write for example \"1s\""
                )
            }
            Self::Fraction(text) => write!(
                f,
                "fraction in `{text}`: write whole numbers, such as \"1s500ms\" for one and a half \
                 seconds"
            ),
            Self::Negative => write!(f, "a duration cannot be negative"),
            Self::Blank => write!(f, "blank in a duration: write it in one, such as \"1m30s\""),
            Self::UnknownUnit(unit) => {
                write!(f, "unknown unit `{unit}`; the units are {Units}")
            }
            Self::TooFine(unit) => {
                write!(
                    f,
                    "`{unit}` is too fine: Redis counts in whole milliseconds (\"1ms\")"
                )
            }
            Self::Order { before, after } if before == after => {
                write!(f, "the unit `{after}` is given twice")
            }
            Self::Order { before, after } => {
                write!(
                    f,
                    "`{after}` after `{before}`: write the larger units first (\"1m30s\")"
                )
            }
            Self::TooLong => write!(f, "duration overflow: longer than 100 years"),
        }
    }
}

/// The list of units, for messages.
struct Units;

impl fmt::Display for Units {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ms, s, m, h, d")
    }
}

/// Parses a duration in whole milliseconds. Zero is allowed here; callers may refuse it.
pub(crate) fn parse(text: &str) -> Result<Duration, DurationError> {
    if text.is_empty() {
        return Err(DurationError::Empty);
    }
    if text.contains(char::is_whitespace) {
        return Err(DurationError::Blank);
    }
    if text.starts_with('-') {
        return Err(DurationError::Negative);
    }
    let mut rest = text;
    let mut total: u64 = 0;
    let mut last: Option<usize> = None;
    while !rest.is_empty() {
        let (number, after) = split_where(rest, |c| !c.is_ascii_digit());
        if number.is_empty() {
            return Err(DurationError::NoNumber(rest.to_owned()));
        }
        if after.starts_with(['.', ',']) {
            return Err(DurationError::Fraction(text.to_owned()));
        }
        let (unit, after) = split_where(after, |c| c.is_ascii_digit());
        let index = unit_index(unit, number)?;
        if let Some(last) = last.filter(|last| *last >= index) {
            return Err(DurationError::Order {
                before: UNITS[last].0,
                after: UNITS[index].0,
            });
        }
        last = Some(index);
        total = number
            .parse::<u64>()
            .ok()
            .and_then(|number| number.checked_mul(UNITS[index].1))
            .and_then(|millis| millis.checked_add(total))
            .filter(|millis| *millis <= LONGEST)
            .ok_or(DurationError::TooLong)?;
        rest = after;
    }
    Ok(Duration::from_millis(total))
}

fn unit_index(unit: &str, number: &str) -> Result<usize, DurationError> {
    match UNITS.iter().position(|(name, _)| *name == unit) {
        Some(index) => Ok(index),
        None if unit.is_empty() => Err(DurationError::NoUnit(number.to_owned())),
        None if matches!(unit, "us" | "µs" | "μs" | "ns") => {
            Err(DurationError::TooFine(unit.to_owned()))
        }
        None => Err(DurationError::UnknownUnit(unit.to_owned())),
    }
}

fn split_where(text: &str, ends: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(ends).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(text: &str) -> String {
        parse(text).expect_err(text).to_string()
    }

    #[test]
    fn reads_each_unit_and_combinations() {
        for (text, millis) in [
            ("0s", 0),
            ("0ms", 0),
            ("1ms", 1),
            ("500ms", 500),
            ("1s", 1_000),
            ("2m", 120_000),
            ("1h", 3_600_000),
            ("1d", 86_400_000),
            ("1m30s", 90_000),
            ("1h1m1s1ms", 3_661_001),
            ("007s", 7_000),
            ("36500d", LONGEST),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn names_the_mistake_and_the_fix() {
        for (text, expected) in [
            ("", "empty duration; write for example \"1s\""),
            (
                "30",
                "duration without a unit: write \"30s\" or \"30ms\" (units: ms, s, m, h, d)",
            ),
            (
                "1m30",
                "duration without a unit: write \"30s\" or \"30ms\" (units: ms, s, m, h, d)",
            ),
            (
                "s",
                "expected a number before `s`; write for example \"1s\"",
            ),
            (
                "forever",
                "expected a number before `forever`; write for example \"1s\"",
            ),
            (
                "1.5s",
                "fraction in `1.5s`: write whole numbers, such as \"1s500ms\" for one and a half \
                 seconds",
            ),
            ("-1s", "a duration cannot be negative"),
            (
                "1 s",
                "blank in a duration: write it in one, such as \"1m30s\"",
            ),
            ("10min", "unknown unit `min`; the units are ms, s, m, h, d"),
            ("1S", "unknown unit `S`; the units are ms, s, m, h, d"),
            (
                "5us",
                "`us` is too fine: Redis counts in whole milliseconds (\"1ms\")",
            ),
            (
                "5µs",
                "`µs` is too fine: Redis counts in whole milliseconds (\"1ms\")",
            ),
            (
                "30s1m",
                "`m` after `s`: write the larger units first (\"1m30s\")",
            ),
            ("1s1s", "the unit `s` is given twice"),
        ] {
            assert_eq!(message(text), expected, "{text:?}");
        }
    }

    #[test]
    fn overflow_is_an_error_at_every_step() {
        let too_long = "duration overflow: longer than 100 years";
        assert_eq!(message("36501d"), too_long);
        assert_eq!(message("36500d1ms"), too_long);
        assert_eq!(message("18446744073709551615h"), too_long);
        assert_eq!(message("99999999999999999999999999ms"), too_long);
    }

    proptest! {
        #[test]
        fn never_panics(text in ".*") {
            let _ = parse(&text);
        }

        #[test]
        fn never_panics_on_near_misses(text in "([0-9]{0,21}(ms|us|µs|[smhd.-]| )?){0,4}") {
            let _ = parse(&text);
        }

        #[test]
        fn reads_back_what_is_written(h in 0u64..1000, m in 0u64..60, s in 0u64..60, ms in 0u64..1000) {
            let millis = ((h * 60 + m) * 60 + s) * 1000 + ms;
            let text = format!("{h}h{m}m{s}s{ms}ms");
            prop_assert_eq!(parse(&text), Ok(Duration::from_millis(millis)));
        }
    }
}
