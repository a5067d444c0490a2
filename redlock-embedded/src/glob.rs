//! Glob patterns as Redis matches them: `*`, `?`, `[a-z]`, `[^a]`, `\` escapes.

use super::limits::{MAX_PATTERN, MOST_STEPS};
use super::resp::Fail;

/// The remaining steps in which one command may compare names with patterns.
pub(super) struct Matcher(usize);

impl Matcher {
    pub(super) fn new() -> Self {
        Self(MOST_STEPS)
    }

    pub(super) fn matches(&mut self, pattern: &[u8], text: &[u8]) -> bool {
        self.0 > 0 && matches(pattern, text, &mut self.0)
    }

    /// As KEYS and the scans match: for them `*` alone means everything.
    pub(super) fn all_or_matches(&mut self, pattern: &[u8], text: &[u8]) -> bool {
        pattern == b"*" || self.matches(pattern, text)
    }

    /// Fails if names were left out because the match took too long.
    pub(super) fn end(self) -> Result<(), Fail> {
        match self.0 {
            0 => Err("ERR matching takes too long for the embedded engine".into()),
            _ => Ok(()),
        }
    }
}

/// Whether the whole text matches the pattern.
///
/// An empty text matches no pattern but the empty one, not even `*`: see [`Matcher::all_or_matches`].
/// Only the last `*` is ever retried, so that the time is at most the product of the two lengths.
fn matches(pattern: &[u8], text: &[u8], left: &mut usize) -> bool {
    if text.is_empty() {
        return pattern.is_empty();
    }
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    loop {
        // A class is read whole.
        let steps = match pattern.get(p) {
            Some(b'[') => pattern.len() - p,
            _ => 1,
        };
        *left = left.saturating_sub(steps);
        if *left == 0 {
            return false;
        }
        if p < pattern.len() && pattern[p] == b'*' {
            star = Some((p + 1, t));
            p += 1;
            continue;
        }
        if t == text.len() {
            return p == pattern.len();
        }
        match one(&pattern[p..], text[t]) {
            Some(used) => {
                p += used;
                t += 1;
            }
            None => match star {
                Some((after, from)) => {
                    p = after;
                    t = from + 1;
                    star = Some((after, t));
                }
                None => return false,
            },
        }
    }
}

/// Refuses patterns that would take long for each text.
pub(super) fn check(pattern: &[u8]) -> Result<(), Fail> {
    match pattern.len() {
        0..=MAX_PATTERN => Ok(()),
        _ => Err(format!(
            "ERR the embedded engine takes no pattern of more than {MAX_PATTERN} bytes"
        )
        .into()),
    }
}

/// Matches one byte; returns the length of the pattern that it used.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'[', rest @ ..] => class(rest, byte).map(|used| used + 1),
        [b'\\', literal, ..] => (*literal == byte).then_some(2),
        [literal, ..] => (*literal == byte).then_some(1),
    }
}

/// Matches what follows a `[`. A class that is never closed reaches to the end of the pattern.
fn class(pattern: &[u8], byte: u8) -> Option<usize> {
    let negated = pattern.first() == Some(&b'^');
    let mut at = usize::from(negated);
    let mut found = false;
    loop {
        match pattern.get(at..) {
            None | Some([]) => break,
            Some([b'\\', literal, ..]) => {
                found |= *literal == byte;
                at += 2;
            }
            Some([b']', ..]) => {
                at += 1;
                break;
            }
            Some([low, b'-', high, ..]) => {
                let (low, high) = (low.min(high), low.max(high));
                found |= (low..=high).contains(&&byte);
                at += 3;
            }
            Some([literal, ..]) => {
                found |= *literal == byte;
                at += 1;
            }
        }
    }
    (found != negated).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn patterns() {
        for (pattern, text, expected) in [
            ("*", "", false),
            ("*", "a", true),
            ("a**", "a", true),
            ("h?llo", "hello", true),
            ("h*llo", "heeello", true),
            ("h[ae]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[b-a]llo", "hallo", true),
            ("a\\*", "a*", true),
            ("a\\*", "ab", false),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxbyy", false),
            ("", "", true),
            ("", "a", false),
            ("[", "a", false),
            ("[a", "a", true),
        ] {
            assert_eq!(
                Matcher::new().matches(pattern.as_bytes(), text.as_bytes()),
                expected,
                "{pattern} {text}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_pattern_ends(pattern in "[a\\[\\]^*?\\\\-]{0,40}", text in "[a-]{0,40}") {
            let mut matcher = Matcher::new();
            let _ = matcher.matches(pattern.as_bytes(), text.as_bytes());
            prop_assert!(matcher.all_or_matches(b"*", text.as_bytes()));
        }
    }
}
