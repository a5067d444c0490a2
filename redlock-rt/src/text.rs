//! Texts that are made where they are needed, and not kept.

use std::ops::Deref;

/// Up to `N` bytes in place, and more in memory of their own.
///
/// `SmallVec::extend_from_slice` inserts at any place, which takes three times as long. The text of a
/// call has some twenty parts.
#[derive(Debug, Clone)]
pub(crate) struct ShortBytes<const N: usize> {
    short: [u8; N],
    len: usize,
    /// All bytes, once there are more than `N`.
    long: Vec<u8>,
}

impl<const N: usize> ShortBytes<N> {
    pub(crate) const fn new() -> Self {
        Self {
            short: [0; N],
            len: 0,
            long: Vec::new(),
        }
    }

    pub(crate) fn push(&mut self, byte: u8) {
        self.append(&[byte]);
    }

    #[inline]
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        let end = self.len + bytes.len();
        match self.short.get_mut(self.len..end) {
            Some(room) if self.long.is_empty() => {
                room.copy_from_slice(bytes);
                self.len = end;
            }
            _ => self.append_to_long(bytes),
        }
    }

    #[cold]
    fn append_to_long(&mut self, bytes: &[u8]) {
        if self.long.is_empty() {
            self.long.extend_from_slice(&self.short[..self.len]);
        }
        self.long.extend_from_slice(bytes);
    }
}

impl<const N: usize> Deref for ShortBytes<N> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self.long.is_empty() {
            true => &self.short[..self.len],
            false => &self.long,
        }
    }
}

/// A text on the stack, unless it is long.
pub(crate) struct ShortText(ShortBytes<96>);

impl ShortText {
    /// The text that these parts make.
    pub(crate) fn of(parts: &[&str]) -> Self {
        let mut text = ShortBytes::new();
        for part in parts {
            text.append(part.as_bytes());
        }
        Self(text)
    }

    /// The text, a colon, and the number.
    pub(crate) fn numbered(text: &str, number: u64) -> Self {
        let mut numbered = ShortBytes::new();
        numbered.append(text.as_bytes());
        numbered.push(b':');
        numbered.append(itoa::Buffer::new().format(number).as_bytes());
        Self(numbered)
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

    #[test]
    fn bytes_come_back_however_many_there_are() {
        let mut known = Vec::new();
        for most in [0, 3, 4, 5, 9] {
            let mut bytes = ShortBytes::<4>::new();
            known.clear();
            for part in [&b"ab"[..], b"", b"c", b"d", b"efghi"] {
                let part = &part[..part.len().min(most)];
                bytes.append(part);
                known.extend_from_slice(part);
                assert_eq!(*bytes, *known);
                assert_eq!(*bytes.clone(), *known);
            }
            bytes.push(b'!');
            assert_eq!(bytes.last(), Some(&b'!'));
            assert_eq!(bytes.len(), known.len() + 1);
        }
        let mut long = ShortBytes::<4>::new();
        long.append(b"all at once");
        assert_eq!(*long, *b"all at once");
    }
}
