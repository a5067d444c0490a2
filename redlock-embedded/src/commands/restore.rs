//! `RESTORE`, for hashes in the oldest format of a dump.

use std::collections::HashSet;

use crc::{CRC_64_REDIS, Crc};

use super::super::num;
use super::super::resp::{Fail, RespReply};
use super::call::{CommandArgs, Ctx, SYNTAX, flags, int};
use super::expiry::{Unit, deadline};

static CHECKSUM: Crc<u64> = Crc::<u64>::new(&CRC_64_REDIS);
/// The version of dumps of Redis 7.0.
const NEWEST: u16 = 10;
const HASH: u8 = 4;
const BAD: &str = "ERR Bad data format";

pub(super) fn restore(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    let (key, value) = (args[1], args[3]);
    let ([replaces, absolute], rest) = flags(&args[4..], ["REPLACE", "ABSTTL"]);
    if !rest.is_empty() {
        return Err(SYNTAX.into());
    }
    let db = ctx.db();
    if !replaces && db.exists(key) {
        return Err("BUSYKEY Target key name already exists.".into());
    }
    let ttl = int(args[2])?;
    if ttl < 0 {
        return Err("ERR Invalid TTL value, must be >= 0".into());
    }
    let fields = fields(value)?;
    let base = if absolute { 0 } else { db.now };
    // Overflow of time, as in Redis, whose number then becomes negative.
    let at = deadline(ttl, Unit::Milliseconds, base).unwrap_or(0);
    db.remove(key);
    if ttl != 0 && at <= db.now {
        return Ok(RespReply::status("OK"));
    }
    let hash = db.hash_or_new(key)?;
    for (field, value) in fields {
        hash.insert(&field, value[..].into());
    }
    if ttl != 0 {
        db.expire_at(key, at);
    }
    Ok(RespReply::status("OK"))
}

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

fn fields(dump: &[u8]) -> Result<Fields, Fail> {
    let wrong = || Fail::from("ERR DUMP payload version or checksum are wrong");
    let (signed, checksum) = dump.split_last_chunk::<8>().ok_or_else(wrong)?;
    let (value, version) = signed.split_last_chunk::<2>().ok_or_else(wrong)?;
    let is_right = CHECKSUM.checksum(signed) == u64::from_le_bytes(*checksum);
    if u16::from_le_bytes(*version) > NEWEST || !is_right {
        return Err(wrong());
    }
    let Some((&HASH, mut rest)) = value.split_first() else {
        return Err("ERR Bad data format (the embedded engine reads hashes only)".into());
    };
    read(&mut rest).ok_or_else(|| BAD.into())
}

fn read(rest: &mut &[u8]) -> Option<Fields> {
    let Len::Bytes(number @ 1..) = len(rest)? else {
        return None;
    };
    let mut fields = Fields::new();
    for _ in 0..number {
        fields.push((text(rest)?, text(rest)?));
    }
    let names: HashSet<&[u8]> = fields.iter().map(|(name, _)| &name[..]).collect();
    (names.len() == number).then_some(fields)
}

enum Len {
    Bytes(usize),
    /// A number of this many bytes replaces the text.
    Number(usize),
}

fn len(rest: &mut &[u8]) -> Option<Len> {
    let first = take::<1>(rest)?[0];
    Some(match first {
        ..0x40 => Len::Bytes(first.into()),
        0x40..0x80 => {
            let second = take::<1>(rest)?[0];
            Len::Bytes(u16::from_be_bytes([first & 0x3f, second]).into())
        }
        0x80 => Len::Bytes(usize::try_from(u32::from_be_bytes(take(rest)?)).ok()?),
        0xc0..=0xc2 => Len::Number(1 << (first & 3)),
        _ => return None,
    })
}

fn text(rest: &mut &[u8]) -> Option<Vec<u8>> {
    let number = match len(rest)? {
        Len::Bytes(bytes) => {
            let (text, after) = rest.split_at_checked(bytes)?;
            *rest = after;
            return Some(text.to_vec());
        }
        Len::Number(1) => i8::from_le_bytes(take(rest)?).into(),
        Len::Number(2) => i16::from_le_bytes(take(rest)?).into(),
        Len::Number(_) => i32::from_le_bytes(take(rest)?).into(),
    };
    Some(num::int_bytes(number).to_vec())
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (bytes, after) = rest.split_first_chunk::<N>()?;
    *rest = after;
    Some(*bytes)
}
