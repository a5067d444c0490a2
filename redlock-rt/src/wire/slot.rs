//! The slots of a Redis Cluster: each key belongs to one, and each slot to one master.

use std::fmt;

use crc::{CRC_16_XMODEM, Crc};

static CHECKSUM: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);

/// One of the 16384 slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Slot(u16);

impl Slot {
    pub(crate) const COUNT: u16 = 16384;
    /// Used if there is only one server.
    pub(crate) const ONLY: Self = Self(0);

    /// The slot of a key or of a sharded channel.
    pub(crate) fn of(key: impl AsRef<[u8]>) -> Self {
        Self(CHECKSUM.checksum(hashed(key.as_ref())) % Self::COUNT)
    }

    /// All slots, by their numbers.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (0..Self::COUNT).map(Self)
    }

    pub(crate) fn number(self) -> u16 {
        self.0
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The part of a key that is hashed: what is between the first `{` and the next `}`, unless that is
/// nothing.
pub(super) fn hashed(key: &[u8]) -> &[u8] {
    let tag = || {
        let open = key.iter().position(|&byte| byte == b'{')?;
        let rest = &key[open + 1..];
        let close = rest.iter().position(|&byte| byte == b'}')?;
        Some(&rest[..close]).filter(|tag| !tag.is_empty())
    };
    tag().unwrap_or(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys with their slots, as Redis 7.0.15 answers to `CLUSTER KEYSLOT`.
    const KNOWN: [(&str, u16); 20] = [
        ("123456789", 12739),
        ("foo", 12182),
        ("foo{bar}", 5061),
        ("bar", 5061),
        ("{user1000}.following", 3443),
        ("foo{}{bar}", 8363),
        ("foo{{bar}}zap", 4015),
        ("foo{bar}{zap}", 5061),
        ("", 0),
        ("{", 4092),
        ("}", 12090),
        ("{}", 15257),
        ("x{y", 2740),
        ("x}y{z}", 8157),
        ("redisson_lock__channel:{order:7}", 6368),
        ("order:7", 6368),
        ("größe", 9425),
        ("{größe}:x", 9425),
        ("hello", 866),
        ("somekey", 11058),
    ];

    #[test]
    fn slots_are_those_of_redis() {
        for (key, slot) in KNOWN {
            assert_eq!(Slot::of(key).number(), slot, "{key:?}");
        }
    }

    #[test]
    fn a_slot_has_a_number_below_the_count() {
        let numbers = Slot::all().map(Slot::number);
        assert!(numbers.eq(0..=16383));
    }
}
