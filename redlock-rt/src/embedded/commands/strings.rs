//! Strings and counters.

use super::super::num::{self, NotFinite};
use super::super::resp::{Blob, Fail, Reply};
use super::expiry::{self, Unit};
use super::{Args, Ctx, NOT_FLOAT, NOT_INT, SYNTAX, int, is, wrong_arity};

const MAX_LEN: usize = 512 * 1024 * 1024;

pub(super) fn get(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    Ok(Reply::blob_or_nil(ctx.db().string(args[1])?))
}

/// An expiry option: its number, its unit, and whether it counts from now.
#[derive(Clone, Copy)]
struct Expiry<'a> {
    value: &'a [u8],
    unit: Unit,
    relative: bool,
}

impl Expiry<'_> {
    fn deadline(self, command: &str, now: i64) -> Result<i64, Fail> {
        let value = int(self.value)?;
        let base = if self.relative { now } else { 0 };
        let at = if value > 0 {
            expiry::deadline(value, self.unit, base)
        } else {
            None
        };
        at.ok_or_else(|| expiry::invalid(command))
    }
}

#[derive(Default)]
struct Options<'a> {
    absent: bool,
    present: bool,
    get: bool,
    keep: bool,
    persist: bool,
    expiry: Option<(&'static str, Expiry<'a>)>,
}

const EXPIRIES: [(&str, Unit, bool); 4] = [
    ("EX", Unit::Seconds, true),
    ("PX", Unit::Milliseconds, true),
    ("EXAT", Unit::Seconds, false),
    ("PXAT", Unit::Milliseconds, false),
];

/// The options of SET, or those of GETEX.
fn options<'a>(args: &[&'a [u8]], of_set: bool) -> Result<Options<'a>, Fail> {
    let mut found = Options::default();
    let mut rest = args;
    while let [word, more @ ..] = rest {
        rest = more;
        if of_set && is(word, "NX") && !found.present {
            found.absent = true;
        } else if of_set && is(word, "XX") && !found.absent {
            found.present = true;
        } else if of_set && is(word, "GET") {
            found.get = true;
        } else if of_set && is(word, "KEEPTTL") && found.expiry.is_none() {
            found.keep = true;
        } else if !of_set && is(word, "PERSIST") && found.expiry.is_none() {
            found.persist = true;
        } else if let Some((name, unit, relative)) = EXPIRIES.into_iter().find(|e| is(word, e.0))
            && let [value, more @ ..] = rest
            && !found.keep
            && !found.persist
            // Only the same option may come again; the last one counts.
            && found.expiry.is_none_or(|(other, _)| other == name)
        {
            found.expiry = Some((
                name,
                Expiry {
                    value,
                    unit,
                    relative,
                },
            ));
            rest = more;
        } else {
            return Err(SYNTAX.into());
        }
    }
    Ok(found)
}

pub(super) fn set(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    let (key, text) = (args[1], args[2]);
    let options = options(&args[3..], true)?;
    let db = ctx.db();
    let now = db.now;
    let at = options
        .expiry
        .map(|(_, expiry)| expiry.deadline("set", now))
        .transpose()?;
    let old = if options.get {
        Some(Reply::blob_or_nil(db.string(key)?))
    } else {
        None
    };
    let there = db.exists(key);
    if (options.absent && there) || (options.present && !there) {
        return Ok(old.unwrap_or(Reply::Nil));
    }
    db.set_string(key, text.into(), options.keep);
    if let Some(at) = at {
        db.expire_at(key, at);
    }
    Ok(old.unwrap_or(Reply::Ok))
}

pub(super) fn setnx(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    let db = ctx.db();
    let there = db.exists(args[1]);
    if !there {
        db.set_string(args[1], args[2].into(), false);
    }
    Ok((!there).into())
}

fn set_with_expiry(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    name: &str,
    unit: Unit,
) -> Result<Reply, Fail> {
    let db = ctx.db();
    let at = Expiry {
        value: args[2],
        unit,
        relative: true,
    }
    .deadline(name, db.now)?;
    db.set_string(args[1], args[3].into(), false);
    db.expire_at(args[1], at);
    Ok(Reply::Ok)
}

pub(super) fn setex(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    set_with_expiry(ctx, args, "setex", Unit::Seconds)
}

pub(super) fn psetex(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    set_with_expiry(ctx, args, "psetex", Unit::Milliseconds)
}

pub(super) fn getset(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    let db = ctx.db();
    let old = Reply::blob_or_nil(db.string(args[1])?);
    db.set_string(args[1], args[2].into(), false);
    Ok(old)
}

pub(super) fn getdel(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    let db = ctx.db();
    let old = Reply::blob_or_nil(db.string(args[1])?);
    db.remove(args[1]);
    Ok(old)
}

pub(super) fn getex(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    let options = options(&args[2..], false)?;
    let key = args[1];
    let db = ctx.db();
    let now = db.now;
    let Some(text) = db.string(key)?.map(Blob::clone) else {
        return Ok(Reply::Nil);
    };
    if let Some((_, expiry)) = options.expiry {
        let at = expiry.deadline("getex", now)?;
        if at <= now {
            db.remove(key);
        } else {
            db.expire_at(key, at);
            db.modified(key);
        }
    } else if options.persist {
        db.persist(key);
    }
    Ok(Reply::Bulk(text))
}

fn add(ctx: &mut Ctx<'_>, key: &[u8], by: i64) -> Result<Reply, Fail> {
    let db = ctx.db();
    let old = match db.string(key)? {
        Some(text) => num::parse_int(text).ok_or(NOT_INT)?,
        None => 0,
    };
    let new = old
        .checked_add(by)
        .ok_or("ERR increment or decrement would overflow")?;
    db.set_string(key, num::int_bytes(new).into(), true);
    Ok(Reply::Int(new))
}

pub(super) fn incr(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    add(ctx, args[1], 1)
}

pub(super) fn decr(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    add(ctx, args[1], -1)
}

pub(super) fn incrby(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    add(ctx, args[1], int(args[2])?)
}

pub(super) fn decrby(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    let by = int(args[2])?
        .checked_neg()
        .ok_or("ERR decrement would overflow")?;
    add(ctx, args[1], by)
}

pub(super) fn incrbyfloat(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    let db = ctx.db();
    let old = db.string(args[1])?.map(Blob::clone);
    let sum = match num::add_decimal(old.as_deref().unwrap_or(b"0"), args[2]) {
        None => return Err(NOT_FLOAT.into()),
        Some(Err(NotFinite)) => {
            return Err("ERR increment would produce NaN or Infinity".into());
        }
        Some(Ok(sum)) => Blob::from(sum.as_bytes()),
    };
    db.set_string(args[1], Blob::clone(&sum), true);
    Ok(Reply::Bulk(sum))
}

pub(super) fn append(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    let db = ctx.db();
    let old = db.string(args[1])?.map(Blob::clone).unwrap_or_default();
    if old.len() + args[2].len() > MAX_LEN {
        return Err("ERR string exceeds maximum allowed size (proto-max-bulk-len)".into());
    }
    let new = [&*old, args[2]].concat();
    let len = Reply::count(new.len());
    db.set_string(args[1], new.into(), true);
    Ok(len)
}

pub(super) fn strlen(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    Ok(Reply::count(
        ctx.db().string(args[1])?.map_or(0, |text| text.len()),
    ))
}

pub(super) fn mget(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    let db = ctx.db();
    // A key of another type counts as missing.
    let value = |key: &&[u8]| Reply::blob_or_nil(db.string(key).ok().flatten());
    Ok(Reply::Array(args[1..].iter().map(value).collect()))
}

fn set_all(ctx: &mut Ctx<'_>, pairs: Args<'_>) {
    for pair in pairs.chunks_exact(2) {
        ctx.db().set_string(pair[0], pair[1].into(), false);
    }
}

pub(super) fn mset(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    if args.len().is_multiple_of(2) {
        return Err(wrong_arity("mset"));
    }
    set_all(ctx, &args[1..]);
    Ok(Reply::Ok)
}

pub(super) fn msetnx(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    if args.len().is_multiple_of(2) {
        return Err(wrong_arity("msetnx"));
    }
    let any = args[1..]
        .chunks_exact(2)
        .any(|pair| ctx.db().exists(pair[0]));
    if !any {
        set_all(ctx, &args[1..]);
    }
    Ok((!any).into())
}
