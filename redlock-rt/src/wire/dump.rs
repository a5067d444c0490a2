//! A value in the format of `DUMP` and `RESTORE`.

use crc::{CRC_64_REDIS, Crc, Table};

/// The oldest format of a hash: its size, then fields and values. Every server reads it.
const HASH: u8 = 4;
/// The version of the format. A server refuses newer ones than its own, so it is an old one.
const VERSION: u16 = 6;

/// With the tables for sixteen bytes at a time, since each acquisition computes a checksum.
static CHECKSUM: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_REDIS);

/// A hash with one field.
pub(super) fn hash(field: &[u8], value: &[u8]) -> Vec<u8> {
    // Room for an owner of ours.
    let mut dump = Vec::with_capacity(96);
    dump.extend_from_slice(&[HASH, 1]);
    for text in [field, value] {
        push_len(&mut dump, text.len());
        dump.extend_from_slice(text);
    }
    dump.extend_from_slice(&VERSION.to_le_bytes());
    let checksum = CHECKSUM.checksum(&dump);
    dump.extend_from_slice(&checksum.to_le_bytes());
    dump
}

/// A length of up to 6, 14 or 32 bits; the first two bits tell which.
fn push_len(dump: &mut Vec<u8>, len: usize) {
    match (u8::try_from(len), u16::try_from(len)) {
        (Ok(len @ ..64), _) => dump.push(len),
        (_, Ok(len @ ..0x4000)) => dump.extend_from_slice(&(0x4000 | len).to_be_bytes()),
        _ => {
            dump.push(0x80);
            // A name is far shorter than 4 GiB.
            dump.extend_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The dump by Redis 7.0 of the same hash, with `hash-max-listpack-entries 0`, except the version.
    #[test]
    fn a_dump_is_that_of_redis() {
        let dump = hash(b"u:1", b"1");
        let body = b"\x04\x01\x03u:1\x011\x06\0";
        assert_eq!(&dump[..body.len()], body);
        let checksum = CHECKSUM.checksum(body).to_le_bytes();
        assert_eq!(dump[body.len()..], checksum);
    }

    /// The check value of the catalogue, which Redis's `crc64.c` names too.
    #[test]
    fn the_checksum_is_that_of_redis() {
        assert_eq!(CHECKSUM.checksum(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
    }

    #[test]
    fn lengths_have_one_two_or_five_bytes() {
        for (len, expected) in [
            (63, &[63][..]),
            (64, &[0x40, 64]),
            (0x3fff, &[0x7f, 0xff]),
            (0x4000, &[0x80, 0, 0, 0x40, 0]),
        ] {
            let mut dump = Vec::new();
            push_len(&mut dump, len);
            assert_eq!(&dump[..], expected, "{len}");
        }
    }
}
