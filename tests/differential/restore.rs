//! RESTORE: hashes in the oldest form of a dump, right ones and wrong ones.

use crate::frame::Body;
use crate::generate::words;
use crate::peer::{Command, Pair, encode};
use crc::{CRC_64_REDIS, Crc};
use std::time::UNIX_EPOCH;

static CHECKSUM: Crc<u64> = Crc::<u64>::new(&CRC_64_REDIS);
/// The oldest form of a hash.
const HASH: u8 = 4;
const OLD: u16 = 6;
/// That of Redis 7.0.
const NEWEST: u16 = 10;

/// A payload of this version, with its checksum.
fn signed(hash: &[u8], version: u16) -> Vec<u8> {
    let mut payload = vec![HASH];
    payload.extend_from_slice(hash);
    payload.extend_from_slice(&version.to_le_bytes());
    let checksum = CHECKSUM.checksum(&payload);
    payload.extend_from_slice(&checksum.to_le_bytes());
    payload
}

/// Those that a server loads. No text is so long that a real server forgets the order of the fields.
fn right() -> Vec<Vec<u8>> {
    let long = [&b"\x01\x02f3\x40\x40"[..], &[b'x'; 64]].concat();
    vec![
        signed(b"\x01\x02f1\x01a", OLD),
        signed(b"\x01\x02f1\x01b", NEWEST),
        // Numbers of one, two and four bytes take the place of texts.
        signed(
            b"\x03\x02f1\xc0\xf9\x02f2\xc1\x00\x80\x02f4\xc2\x00\x00\x01\x00",
            NEWEST,
        ),
        signed(b"\x01\xc0\x07\xc0\x07", OLD),
        // A length of two bytes, and of four.
        signed(&long, OLD),
        signed(b"\x01\x80\x00\x00\x00\x02f2\x00", OLD),
        // Nobody looks at what follows.
        signed(b"\x01\x02f1\x01a and more", OLD),
    ]
}

/// Those that it refuses.
fn wrong() -> Vec<Vec<u8>> {
    let mut damaged = signed(b"\x01\x02f1\x01a", OLD);
    damaged[4] ^= 1;
    let mut cut = signed(b"\x01\x02f1\x01a", OLD);
    cut.pop();
    vec![
        damaged,
        cut,
        signed(b"\x01\x02f1\x01a", NEWEST + 1),
        // No fields, and a text that is longer than all that is there.
        signed(b"\x00", OLD),
        signed(b"\x01\x02f1\x3fa", OLD),
        b"no dump".to_vec(),
        Vec::new(),
    ]
}

/// As they are drawn.
pub(crate) fn payloads() -> Vec<Vec<u8>> {
    [right(), wrong()].concat()
}

/// `RESTORE r`, and what it leaves.
fn restore(ttl: &str, payload: &[u8], options: &str) -> Vec<Command> {
    let mut command = words(&format!("restore r {ttl}"));
    command.push(payload.to_vec());
    command.extend(words(options));
    let mut script = words("eval");
    script.push(b"return redis.pcall(unpack(ARGV))".to_vec());
    script.extend(words("0"));
    script.extend(command.iter().cloned());
    let mut commands = vec![command];
    commands.extend(["type r", "pttl r", "hgetall r"].map(words));
    commands.push(script);
    commands.extend(["pttl r", "hgetall r"].map(words));
    commands
}

/// Each way to restore a hash and to be refused, with the key free, occupied, and of another type.
pub(crate) fn cases() -> Vec<Vec<Command>> {
    let payload = signed(b"\x02\x02f1\x01a\x02f2\x01b", OLD);
    let now = UNIX_EPOCH.elapsed().unwrap().as_millis();
    let later = (now + 90_000_000).to_string();
    let options = [
        "",
        "REPLACE",
        "replace Replace",
        "ABSTTL",
        "ABSTTL REPLACE",
        "absttl NX",
        "KEEPTTL",
    ];
    let ttls = [
        "0",
        "60000000",
        "-1",
        "-9223372036854775808",
        "9223372036854775807",
        "9223372036854775808",
        "1.5",
        "x",
        "",
    ];
    let mut cases = Vec::new();
    for before in ["exists r", "hset r f 1", "set r text px 70000000"] {
        let mut next = |restored: Vec<Command>| {
            cases.push(
                [words("del r"), words(before)]
                    .into_iter()
                    .chain(restored)
                    .collect(),
            );
        };
        for options in options {
            for ttl in ttls {
                next(restore(ttl, &payload, options));
            }
        }
        // A moment to come, and one that is over.
        for ttl in [later.as_str(), "1"] {
            next(restore(ttl, &payload, "ABSTTL"));
            next(restore(ttl, &payload, "ABSTTL REPLACE"));
        }
        for payload in payloads() {
            for ttl in ["60000000", "-1"] {
                next(restore(ttl, &payload, ""));
                next(restore(ttl, &payload, "REPLACE"));
            }
        }
        next(["restore", "restore r", "restore r 0"].map(words).to_vec());
    }
    cases
}

/// What the real server makes of a hash, with texts of all lengths and numbers among them.
pub(crate) fn dumped(pair: &mut Pair) -> (Vec<u8>, Vec<Vec<u8>>) {
    let texts = ["", "a", "1", "-129", "70000", "5000000000", "01"].map(Into::into);
    let long = [63, 64, 0x3fff, 0x4000].map(|len| vec![b'x'; len]);
    let fields = [&texts[..], &long].concat();
    let mut set = words("hset dumped");
    for field in &fields {
        set.extend([field.clone(), field.clone()]);
    }
    // The oldest form, as it is without compression.
    let settings = "config set hash-max-listpack-entries 0 rdbcompression no";
    let mut replies = [words(settings), set, words("dump dumped")].map(|command| {
        pair.real[0].send(&encode(&command));
        pair.real[0].read().expect("the server answers")
    });
    let Body::Bulk(payload) = std::mem::replace(&mut replies[2].body, Body::Nil) else {
        panic!("no dump: {replies:?}");
    };
    assert_eq!(payload[0], HASH, "another form");
    (payload, fields)
}
