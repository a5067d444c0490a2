//! Times on the command line.

use std::time::Duration;

/// A time after any moment within this is a moment too.
pub(crate) const LONGEST: Duration = Duration::from_secs(36_500 * 86_400);

/// Reads a number with a unit (`ms`, `s`, `m`, `h`, `d`), or a number of seconds, as flock does.
pub(crate) fn span(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return Err("a time is a number with ms, s, m, h or d, such as 10s".to_owned()),
    };
    let number: f64 = digits
        .parse()
        .map_err(|_| "a time begins with a number, such as 10s".to_owned())?;
    let span = Duration::try_from_secs_f64(number * unit).map_err(|error| error.to_string())?;
    match span > LONGEST {
        true => Err("a time is at most 36500d".to_owned()),
        false => Ok(span),
    }
}

/// Reads the time from one look to the next.
pub(crate) fn nonzero_span(text: &str) -> Result<Duration, String> {
    match span(text)? {
        Duration::ZERO => Err("it is zero".to_owned()),
        span => Ok(span),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_and_plain_seconds() {
        for (text, millis) in [
            ("250ms", 250),
            ("10s", 10_000),
            ("1.5", 1_500),
            ("2m", 120_000),
        ] {
            assert_eq!(span(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        assert_eq!(span("1h"), span("60m"));
        assert_eq!(span("1d"), span("24h"));
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in ["", "s", "-1s", "1w", "inf", "NaN", "1 s", "1e400", "1e19"] {
            assert!(span(text).is_err(), "{text}");
        }
        assert!(span("36500d").is_ok() && span("36501d").is_err());
        assert!(nonzero_span("0").is_err() && nonzero_span("1ms").is_ok());
    }
}
