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
        Self::of(&[text, ":", itoa::Buffer::new().format(number)])
    }
}

impl Deref for ShortText {
    type Target = str;

    fn deref(&self) -> &str {
        std::str::from_utf8(&self.0).expect("it is made of texts")
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
}
