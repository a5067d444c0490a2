//! Hashes.

use super::super::limits::MOST_RETURNED;
use super::super::num;
use super::super::resp::{Blob, Fail, RespReply};
use super::call::{CommandArgs, Ctx, SYNTAX, int, wrong_arity};

pub(super) fn hset(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    if !args.len().is_multiple_of(2) {
        return Err(wrong_arity("hset"));
    }
    let hash = ctx.db().hash_or_new(args[1])?;
    let mut added = 0;
    for pair in args[2..].chunks_exact(2) {
        added += usize::from(hash.insert(pair[0], pair[1].into()));
    }
    Ok(RespReply::count(added))
}

pub(super) fn hget(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    let hash = ctx.db().hash(args[1])?;
    Ok(RespReply::blob_or_nil(
        hash.and_then(|hash| hash.get(args[2])),
    ))
}

pub(super) fn hmget(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    let hash = ctx.db().hash(args[1])?;
    let value = |field: &&[u8]| RespReply::blob_or_nil(hash.and_then(|hash| hash.get(field)));
    Ok(RespReply::Array(args[2..].iter().map(value).collect()))
}

pub(super) fn hgetall(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    let hash = ctx.db().hash(args[1])?;
    let fields = hash.into_iter().flat_map(|hash| hash.iter());
    let pair = |(field, value): (&Blob, &Blob)| {
        [
            RespReply::Bulk(Blob::clone(field)),
            RespReply::Bulk(Blob::clone(value)),
        ]
    };
    Ok(RespReply::Array(fields.flat_map(pair).collect()))
}

pub(super) fn hkeys(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    let hash = ctx.db().hash(args[1])?;
    let fields = hash.into_iter().flat_map(|hash| hash.iter());
    Ok(RespReply::bulks(fields.map(|(field, _)| field)))
}

pub(super) fn hvals(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    let hash = ctx.db().hash(args[1])?;
    let fields = hash.into_iter().flat_map(|hash| hash.iter());
    Ok(RespReply::bulks(fields.map(|(_, value)| value)))
}

/// Draws this many different fields; with a count below zero, the same field may be drawn again.
pub(super) fn hrandfield(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    let count = args.get(2).map(|count| int(count)).transpose()?;
    let with_values = match args.get(3..) {
        None | Some([]) => false,
        Some([word]) if word.eq_ignore_ascii_case(b"withvalues") => true,
        Some(_) => return Err(SYNTAX.into()),
    };
    if count.is_some_and(|count| count < 0 && count.unsigned_abs() > MOST_RETURNED as u64 / 2) {
        // Redis sends this many, piece by piece.
        return Err("ERR value is out of range (for the embedded engine)".into());
    }
    let len = ctx.db().hash(args[1])?.map_or(0, |hash| hash.len());
    let wanted = usize::try_from(count.unwrap_or(1).unsigned_abs()).unwrap_or(usize::MAX);
    let drawn: Vec<usize> = match count {
        _ if len == 0 => Vec::new(),
        Some(..0) => (0..wanted).map(|_| ctx.state.random(len)).collect(),
        _ => {
            let mut places: Vec<usize> = (0..len).collect();
            let draw = |left| places.swap_remove(ctx.state.random(left));
            (1..=len).rev().take(wanted).map(draw).collect()
        }
    };
    let hash = ctx.db().hash(args[1])?;
    // All at once: a separate walk to each place would take quadratic time.
    let fields: Vec<_> = match drawn.len() {
        0 | 1 => Vec::new(),
        _ => hash.into_iter().flat_map(|hash| hash.iter()).collect(),
    };
    let at = |place| match fields.get(place) {
        Some(pair) => Some(*pair),
        None => hash?.iter().nth(place),
    };
    let mut replies = Vec::with_capacity(drawn.len());
    for (field, value) in drawn.into_iter().filter_map(at) {
        replies.push(RespReply::Bulk(Blob::clone(field)));
        replies.extend(with_values.then(|| RespReply::Bulk(Blob::clone(value))));
    }
    Ok(match count {
        Some(_) => RespReply::Array(replies),
        None => replies.pop().unwrap_or(RespReply::Nil),
    })
}

pub(super) fn hdel(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    let removed = ctx.db().change_hash(args[1], |hash| {
        args[2..].iter().filter(|field| hash.remove(field)).count()
    })?;
    Ok(RespReply::count(removed.unwrap_or(0)))
}

pub(super) fn hexists(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    Ok(ctx
        .db()
        .hash(args[1])?
        .is_some_and(|hash| hash.contains(args[2]))
        .into())
}

pub(super) fn hlen(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    Ok(RespReply::count(
        ctx.db().hash(args[1])?.map_or(0, |hash| hash.len()),
    ))
}

pub(super) fn hincrby(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    let by = int(args[3])?;
    let db = ctx.db();
    let old = match db.hash(args[1])?.and_then(|hash| hash.get(args[2])) {
        Some(value) => num::parse_int(value).ok_or("ERR hash value is not an integer")?,
        None => 0,
    };
    let new = old
        .checked_add(by)
        .ok_or("ERR increment or decrement would overflow")?;
    db.hash_or_new(args[1])?
        .insert(args[2], num::int_bytes(new).into());
    Ok(RespReply::Int(new))
}
