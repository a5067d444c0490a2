//! Numbers as Redis reads and writes them.

/// A decimal integer in its one canonical spelling: no `+`, no blanks, no leading zeros.
pub(super) fn parse_int(text: &[u8]) -> Option<i64> {
    match text {
        [b'0'] | [b'1'..=b'9', ..] | [b'-', b'1'..=b'9', ..] => {
            std::str::from_utf8(text).ok()?.parse().ok()
        }
        _ => None,
    }
}

/// A float as `strtod` reads it. Refuses NaN, blanks, overflow and underflow.
pub(super) fn parse_float(text: &[u8]) -> Option<f64> {
    let value = strtod(text)?;
    let names_infinity = text.iter().any(|byte| matches!(byte, b'n' | b'N'));
    if value.is_infinite() && !names_infinity {
        return None;
    }
    let exponent = |byte: &u8| matches!(byte, b'e' | b'E');
    let mantissa = text.split(exponent).next().unwrap_or_default();
    let vanished = value == 0.0 && mantissa.iter().any(|byte| matches!(byte, b'1'..=b'9'));
    (!vanished).then_some(value)
}

/// One end of a range of scores, which C reads with fewer checks: leading blanks are allowed, a NUL
/// ends the number, an empty text is zero, and an overflow is infinite.
pub(super) fn parse_bound(text: &[u8]) -> Option<f64> {
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    if text.is_empty() {
        return Some(0.0);
    }
    strtod(text.trim_ascii_start())
}

/// The whole of a text as a float, decimal or hexadecimal.
fn strtod(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?.to_ascii_lowercase();
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(&text);
    let Some(hex) = unsigned.strip_prefix("0x") else {
        return text.parse::<f64>().ok().filter(|value| !value.is_nan());
    };
    let value = parse_hex(hex)?;
    Some(if text.starts_with('-') { -value } else { value })
}

fn parse_hex(digits: &str) -> Option<f64> {
    let (mantissa, exponent) = match digits.split_once('p') {
        Some((m, e)) => (m, e.parse::<i32>().ok()?),
        None => (digits, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.len() + fraction.len() == 0 {
        return None;
    }
    let mut value = 0.0_f64;
    for digit in whole.chars().chain(fraction.chars()) {
        value = value * 16.0 + f64::from(digit.to_digit(16)?);
    }
    let scale = exponent.checked_sub(4 * i32::try_from(fraction.len()).ok()?)?;
    Some(value * 2.0_f64.powi(scale))
}

/// The decimal digits of an integer.
pub(super) fn int_bytes(value: i64) -> Vec<u8> {
    itoa::Buffer::new().format(value).into()
}

/// A double as C's `%.17g` prints it, which is what Redis 7.0 replies with.
pub(super) fn format_float(value: f64) -> String {
    const DIGITS: usize = 17;
    if value == value.trunc() && value.abs() < 1e17 && (value != 0.0 || value.is_sign_positive()) {
        return format!("{}", value as i64);
    }
    if value.is_nan() {
        return if value.is_sign_negative() {
            "-nan"
        } else {
            "nan"
        }
        .to_owned();
    }
    // `inf`, `-inf` and `-0`.
    if value.is_infinite() || value == 0.0 {
        return value.to_string();
    }
    // This many significant digits, correctly rounded: "d.ddde±x".
    let scientific = format!("{value:.*e}", DIGITS - 1);
    let Some((mantissa, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let plain = usize::try_from(exponent).map_or(exponent >= -4, |exponent| exponent < DIGITS);
    if !plain {
        let mantissa = trim_zeros(mantissa);
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs());
    }
    let decimals = DIGITS as i32 - 1 - exponent;
    let decimals = usize::try_from(decimals).unwrap_or(0);
    trim_zeros(&format!("{value:.decimals$}")).to_owned()
}

fn trim_zeros(text: &str) -> &str {
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn integers_have_one_spelling() {
        for (text, value) in [
            ("0", 0),
            ("-1", -1),
            ("42", 42),
            ("9223372036854775807", i64::MAX),
        ] {
            assert_eq!(parse_int(text.as_bytes()), Some(value));
        }
        assert_eq!(parse_int(b"-9223372036854775808"), Some(i64::MIN));
        for text in [
            "",
            "-",
            "+1",
            "01",
            "-0",
            " 1",
            "1 ",
            "9223372036854775808",
            "1.0",
            "x",
            "-01",
        ] {
            assert_eq!(parse_int(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn floats_read_as_strtod_does() {
        for (text, value) in [
            ("1.5", 1.5),
            ("+2", 2.0),
            (".5", 0.5),
            ("5.", 5.0),
            ("1e3", 1000.0),
            ("0x10", 16.0),
        ] {
            assert_eq!(parse_float(text.as_bytes()), Some(value), "{text}");
        }
        assert_eq!(parse_float(b"-inf"), Some(f64::NEG_INFINITY));
        for text in [
            "", "nan", "1e400", "1e-400", " 1", "1 ", "--1", "+-1", "abc", "1x", "0x",
        ] {
            assert_eq!(parse_float(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn bounds_are_read_with_fewer_checks() {
        for (text, value) in [
            ("", 0.0),
            (" 1", 1.0),
            ("1e400", f64::INFINITY),
            ("2\0x", 2.0),
        ] {
            assert_eq!(parse_bound(text.as_bytes()), Some(value), "{text:?}");
        }
        for text in ["x", "nan", "1 "] {
            assert_eq!(parse_bound(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn floats_print_as_percent_17g() {
        for (value, text) in [
            (0.1, "0.10000000000000001"),
            (1.5, "1.5"),
            (-0.0, "-0"),
            (1e17, "1e+17"),
            (123456789012345680.0, "1.2345678901234568e+17"),
            (0.0001, "0.0001"),
            (0.00001, "1.0000000000000001e-05"),
            (1e300, "1.0000000000000001e+300"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(format_float(value), text);
        }
    }

    proptest! {
        #[test]
        fn printed_integers_parse_back(value: i64) {
            prop_assert_eq!(parse_int(&int_bytes(value)), Some(value));
        }

        #[test]
        fn printed_floats_parse_back(value: f64) {
            prop_assume!(value.is_finite());
            prop_assert_eq!(parse_float(format_float(value).as_bytes()), Some(value));
        }

        #[test]
        fn number_readers_take_any_bytes(text: Vec<u8>) {
            let _ = (parse_int(&text), parse_float(&text), parse_bound(&text));
        }
    }
}
