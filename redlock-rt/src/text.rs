//! Texts that are made where they are needed, and not kept.

use std::ops::Deref;

use smallvec::SmallVec;

/// A text on the stack, unless it is long.
pub(crate) struct ShortText(SmallVec<[u8; 96]>);

impl ShortText {
    /// The text that these parts make.
    pub(crate) fn of(parts: &[&str]) -> Self {
        let mut text = SmallVec::new();
        for part in parts {
            text.extend_from_slice(part.as_bytes());
        }
        Self(text)
    }

    /// The text, a colon, and the number.
    pub(crate) fn numbered(text: &str, number: u64) -> Self {
        let mut numbered = SmallVec::from_slice(text.as_bytes());
        numbered.push(b':');
        numbered.extend_from_slice(decimal(&mut [0; MOST_DIGITS], number));
        Self(numbered)
    }
}

impl Deref for ShortText {
    type Target = str;

    fn deref(&self) -> &str {
        std::str::from_utf8(&self.0).expect("it is made of texts")
    }
}

pub(crate) const MOST_DIGITS: usize = 20;

/// The digits of a number, without the formatting of `write!`: each word of each call has a length.
pub(crate) fn decimal(digits: &mut [u8; MOST_DIGITS], mut number: u64) -> &[u8] {
    let mut at = MOST_DIGITS;
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &digits[at..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_made_of_its_parts_whatever_their_length() {
        for name in ["n", "ñ", &"n".repeat(500)] {
            assert_eq!(
                &*ShortText::of(&["a:{", name, "}"]),
                format!("a:{{{name}}}")
            );
        }
        for number in [0, 7, 10, u64::MAX] {
            assert_eq!(&*ShortText::numbered("u", number), format!("u:{number}"));
        }
    }

    #[test]
    fn numbers_are_decimal() {
        for number in [0, 7, 10, 4096, u64::MAX] {
            let mut digits = [0; MOST_DIGITS];
            assert_eq!(decimal(&mut digits, number), number.to_string().as_bytes());
        }
    }
}
