//! Durations as they are written in the attribute: `"500ms"`, `"1s"`, `"1m30s"`.
//!
//! A pure function over `&str`, without tokens and spans, so that every message can be tested
//! without a compiler.

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

/// The list of units, for messages.
const LIST: &str = "ms, s, m, h, d";

/// Parses a duration in whole milliseconds, or says why it is none. Zero is allowed here; callers may refuse it.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    if text.is_empty() {
        return Err("empty duration; write for example \"1s\"".to_owned());
    }
    if text.contains(char::is_whitespace) {
        return Err("blank in a duration: write it in one, such as \"1m30s\"".to_owned());
    }
    if text.starts_with('-') {
        return Err("a duration cannot be negative".to_owned());
    }
    let mut rest = text;
    let mut total: u64 = 0;
    let mut last: Option<usize> = None;
    while !rest.is_empty() {
        let (number, after) = split_where(rest, |c| !c.is_ascii_digit());
        if number.is_empty() {
            return Err(format!(
                "expected a number before `{rest}`; write for example \"1s\""
            ));
        }
        if after.starts_with(['.', ',']) {
            return Err(format!(
                "fraction in `{text}`: write whole numbers, such as \"1s500ms\" for one and a half \
                 seconds"
            ));
        }
        let (unit, after) = split_where(after, |c| c.is_ascii_digit());
        let index = unit_index(unit, number)?;
        match last {
            Some(last) if last == index => return Err(format!("the unit `{unit}` is given twice")),
            Some(last) if last > index => {
                let before = UNITS[last].0;
                return Err(format!(
                    "`{unit}` after `{before}`: write the larger units first (\"1m30s\")"
                ));
            }
            _ => last = Some(index),
        }
        total = number
            .parse::<u64>()
            .ok()
            .and_then(|number| number.checked_mul(UNITS[index].1))
            .and_then(|millis| millis.checked_add(total))
            .filter(|millis| *millis <= LONGEST)
            .ok_or("duration overflow: longer than 100 years")?;
        rest = after;
    }
    Ok(Duration::from_millis(total))
}

fn unit_index(unit: &str, number: &str) -> Result<usize, String> {
    match UNITS.iter().position(|(name, _)| *name == unit) {
        Some(index) => Ok(index),
        None if unit.is_empty() => Err(format!(
            "duration without a unit: write \"{number}s\" or \"{number}ms\" (units: {LIST})"
        )),
        None if matches!(unit, "us" | "µs" | "μs" | "ns") => Err(format!(
            "`{unit}` is too fine: Redis counts in whole milliseconds (\"1ms\")"
        )),
        None => Err(format!("unknown unit `{unit}`; the units are {LIST}")),
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
        parse(text).expect_err(text)
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
