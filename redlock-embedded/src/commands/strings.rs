//! Strings and counters.

use super::super::num;
use super::super::resp::{Blob, Fail, RespReply};
use super::call::{CommandArgs, Ctx, NOT_INT, SYNTAX, int, is};
use super::expiry::{self, Unit};

const MAX_LEN: usize = 512 * 1024 * 1024;

pub(super) fn get(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    Ok(RespReply::blob_or_nil(ctx.db().string(args[1])?))
}

/// An expiry option: its name, its unit, and whether it counts from now.
type ExpiryOption = (&'static str, Unit, bool);

#[derive(Default)]
struct Options<'a> {
    absent: bool,
    present: bool,
    get: bool,
    keep: bool,
    /// With its number.
    expiry: Option<(ExpiryOption, &'a [u8])>,
}

const EXPIRIES: [ExpiryOption; 4] = [
    ("EX", Unit::Seconds, true),
    ("PX", Unit::Milliseconds, true),
    ("EXAT", Unit::Seconds, false),
    ("PXAT", Unit::Milliseconds, false),
];

fn options<'a>(args: &[&'a [u8]]) -> Result<Options<'a>, Fail> {
    let mut found = Options::default();
    let mut rest = args;
    while let [word, more @ ..] = rest {
        rest = more;
        if is(word, "NX") && !found.present {
            found.absent = true;
        } else if is(word, "XX") && !found.absent {
            found.present = true;
        } else if is(word, "GET") {
            found.get = true;
        } else if is(word, "KEEPTTL") && found.expiry.is_none() {
            found.keep = true;
        } else if let Some(option) = EXPIRIES.into_iter().find(|option| is(word, option.0))
            && let [value, more @ ..] = rest
            && !found.keep
            // Only the same option may come again; the last one counts.
            && found.expiry.is_none_or(|(other, _)| other.0 == option.0)
        {
            found.expiry = Some((option, *value));
            rest = more;
        } else {
            return Err(SYNTAX.into());
        }
    }
    Ok(found)
}

pub(super) fn set(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    let (key, text) = (args[1], args[2]);
    let options = options(&args[3..])?;
    let db = ctx.db();
    let at = match options.expiry {
        Some(((_, unit, relative), value)) => {
            let value = Some(int(value)?).filter(|value| *value > 0);
            let base = if relative { db.now } else { 0 };
            let at = value.and_then(|value| expiry::deadline(value, unit, base));
            Some(at.ok_or_else(|| expiry::invalid("set"))?)
        }
        None => None,
    };
    let old = if options.get {
        Some(RespReply::blob_or_nil(db.string(key)?))
    } else {
        None
    };
    let there = db.exists(key);
    if (options.absent && there) || (options.present && !there) {
        return Ok(old.unwrap_or(RespReply::Nil));
    }
    db.set_string(key, text.into(), options.keep);
    if let Some(at) = at {
        db.expire_at(key, at);
    }
    Ok(old.unwrap_or(RespReply::Ok))
}

fn add(ctx: &mut Ctx<'_>, key: &[u8], by: i64) -> Result<RespReply, Fail> {
    let db = ctx.db();
    let old = match db.string(key)? {
        Some(text) => num::parse_int(text).ok_or(NOT_INT)?,
        None => 0,
    };
    let new = old
        .checked_add(by)
        .ok_or("ERR increment or decrement would overflow")?;
    db.set_string(key, num::int_bytes(new).into(), true);
    Ok(RespReply::Int(new))
}

pub(super) fn incr(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    add(ctx, args[1], 1)
}

pub(super) fn decr(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    add(ctx, args[1], -1)
}

pub(super) fn incrby(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    add(ctx, args[1], int(args[2])?)
}

pub(super) fn decrby(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    let by = int(args[2])?
        .checked_neg()
        .ok_or("ERR decrement would overflow")?;
    add(ctx, args[1], by)
}

pub(super) fn append(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    let db = ctx.db();
    let old = db.string(args[1])?.map(Blob::clone).unwrap_or_default();
    if old.len() + args[2].len() > MAX_LEN {
        return Err("ERR string exceeds maximum allowed size (proto-max-bulk-len)".into());
    }
    let new = [&*old, args[2]].concat();
    let len = RespReply::count(new.len());
    db.set_string(args[1], new.into(), true);
    Ok(len)
}
