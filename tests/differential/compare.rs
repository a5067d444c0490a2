//! Compares two replies to a command.

use crate::frame::{Body, Frame};
use crate::peer::Command;

/// The rule by which the replies to a command are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    Exact,
    /// A collection without an order, whose items are in groups of this size.
    Unordered(usize),
    /// A cursor, and the items of one page.
    Page,
    /// Milliseconds, seconds, or the pair of TIME.
    Millis,
    Seconds,
    Time,
    /// Only the type of the reply, since its value is random or depends on the server.
    Shape,
}

fn word(argument: &[u8]) -> String {
    String::from_utf8_lossy(argument).to_ascii_lowercase()
}

/// The rule for a command, or for the command that a script passes on.
pub(crate) fn rule(command: &Command) -> Rule {
    let name = command.first().map(|name| word(name)).unwrap_or_default();
    let sub = command.get(1).map(|sub| word(sub)).unwrap_or_default();
    match (name.as_str(), sub.as_str()) {
        ("eval", _) if command.len() > 3 => rule_of_script(command),
        ("pttl", _) => Rule::Millis,
        ("ttl", _) => Rule::Seconds,
        ("time", _) => Rule::Time,
        ("smembers" | "keys", _) => Rule::Unordered(1),
        ("scan", _) => Rule::Page,
        ("pubsub", "channels") => Rule::Unordered(1),
        ("info", _) | ("client", "id") => Rule::Shape,
        _ => Rule::Exact,
    }
}

/// Scripts that pass their arguments on are compared like the command that they call.
fn rule_of_script(command: &Command) -> Rule {
    if !command[1].windows(12).any(|part| part == b"unpack(ARGV)") {
        return Rule::Exact;
    }
    let keys: usize = word(&command[2]).parse().unwrap_or(0);
    let Some(inner) = command.get(3 + keys..) else {
        return Rule::Exact;
    };
    rule(&inner.to_vec())
}

/// Compares two replies; `tolerance` is in milliseconds.
pub(crate) fn equal(rule: Rule, real: &Frame, embedded: &Frame, tolerance: f64) -> bool {
    if real == embedded {
        return true;
    }
    if real.is_error() || embedded.is_error() || real.kind != embedded.kind {
        return false;
    }
    match rule {
        Rule::Exact => false,
        Rule::Unordered(group) => real.sorted(group) == embedded.sorted(group),
        Rule::Page => match (real.items(), embedded.items()) {
            (Some([cursor, real]), Some([other, embedded])) => {
                cursor == other && real.sorted(1) == embedded.sorted(1)
            }
            _ => false,
        },
        Rule::Millis => within(real, embedded, tolerance),
        Rule::Seconds => within(real, embedded, (tolerance / 1000.0).ceil()),
        Rule::Time => match (time(real), time(embedded)) {
            (Some(real), Some(embedded)) => (real - embedded).abs() <= tolerance,
            _ => false,
        },
        Rule::Shape => true,
    }
}

/// Negative numbers are no times: they mean no key or no expiry. Compared as integers: between two numbers
/// of f64 there are a thousand milliseconds at the longest times.
fn within(real: &Frame, embedded: &Frame, tolerance: f64) -> bool {
    match (real.number::<u64>(), embedded.number::<u64>()) {
        (Some(a), Some(b)) => a.abs_diff(b) as f64 <= tolerance,
        _ => false,
    }
}

fn time(frame: &Frame) -> Option<f64> {
    match frame.items()? {
        [seconds, micros] => {
            Some(seconds.number::<f64>()? * 1000.0 + micros.number::<f64>()? / 1000.0)
        }
        _ => None,
    }
}

/// Compares replies in which any number may be a time: scripts that store or return times. Each server has a run id.
pub(crate) fn equal_but_for_times(real: &Frame, embedded: &Frame, tolerance: f64) -> bool {
    match (&real.body, &embedded.body) {
        (Body::Items(a), Body::Items(b)) => {
            real.kind == embedded.kind
                && a.len() == b.len()
                && a.iter()
                    .zip(b)
                    .all(|(a, b)| equal_but_for_times(a, b, tolerance))
        }
        (Body::Bulk(a), Body::Bulk(b)) if is_run_id(a) && is_run_id(b) => true,
        _ => real == embedded || (real.kind == embedded.kind && near(real, embedded, tolerance)),
    }
}

fn is_run_id(text: &[u8]) -> bool {
    text.len() == 40 && text.iter().all(u8::is_ascii_hexdigit)
}

/// Compares members with scores, which may be times: close scores may come in either order.
pub(crate) fn equal_but_for_scores(real: &Frame, embedded: &Frame, tolerance: f64) -> bool {
    let pairs = |frame: &Frame| {
        let mut pairs: Vec<_> = frame.items()?.chunks(2).map(<[Frame]>::to_vec).collect();
        pairs.sort_unstable();
        Some(pairs)
    };
    let (Some(real), Some(embedded)) = (pairs(real), pairs(embedded)) else {
        return false;
    };
    real.len() == embedded.len()
        && std::iter::zip(real.concat(), embedded.concat())
            .all(|(real, embedded)| equal_but_for_times(&real, &embedded, tolerance))
}

/// Remaining milliseconds and, above a year, epochs in milliseconds or microseconds.
fn near(real: &Frame, embedded: &Frame, tolerance: f64) -> bool {
    const SMALLEST_TTL: f64 = 1000.0;
    const EPOCH_MICROS: f64 = 1e14;
    match (real.number::<f64>(), embedded.number::<f64>()) {
        (Some(a), Some(b)) if a >= EPOCH_MICROS => (a - b).abs() <= tolerance * 1000.0,
        (Some(a), Some(b)) => a >= SMALLEST_TTL && (a - b).abs() <= tolerance,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As f64 they are 1024 apart, or none.
    #[test]
    fn the_longest_times_are_compared_to_the_millisecond() {
        let frame = |number: u64| Frame {
            kind: b':',
            body: Body::Line(number.to_string().into_bytes()),
        };
        let (one, other) = (
            frame(9_223_370_241_106_866_687),
            frame(9_223_370_241_106_866_690),
        );
        assert!(equal(Rule::Millis, &one, &other, 3.0));
        assert!(!equal(Rule::Millis, &one, &other, 2.0));
    }
}
