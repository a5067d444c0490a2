//! Hashes.

use super::super::num::{self, NotFinite};
use super::super::resp::{Blob, Fail, Reply};
use super::{Args, Ctx, NOT_FLOAT, SYNTAX, int, wrong_arity};

fn set_fields(ctx: &mut Ctx<'_>, args: Args<'_>, name: &str) -> Result<usize, Fail> {
    if !args.len().is_multiple_of(2) {
        return Err(wrong_arity(name));
    }
    let db = ctx.db();
    let hash = db.hash_or_new(args[1])?;
    let mut added = 0;
    for pair in args[2..].chunks_exact(2) {
        added += usize::from(hash.insert(pair[0], pair[1].into()));
    }
    db.modified(args[1]);
    Ok(added)
}

pub(super) fn hset(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    set_fields(ctx, args, "hset").map(Reply::count)
}

pub(super) fn hmset(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    set_fields(ctx, args, "hmset").map(|_| Reply::Ok)
}

pub(super) fn hsetnx(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    let db = ctx.db();
    let hash = db.hash_or_new(args[1])?;
    if hash.contains(args[2]) {
        return Ok(Reply::Int(0));
    }
    hash.insert(args[2], args[3].into());
    db.modified(args[1]);
    Ok(Reply::Int(1))
}

pub(super) fn hget(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    let hash = ctx.db().hash(args[1])?;
    Ok(Reply::blob_or_nil(hash.and_then(|hash| hash.get(args[2]))))
}

pub(super) fn hmget(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    let hash = ctx.db().hash(args[1])?;
    let value = |field: &&[u8]| Reply::blob_or_nil(hash.and_then(|hash| hash.get(field)));
    Ok(Reply::Array(args[2..].iter().map(value).collect()))
}

pub(super) fn hgetall(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    let hash = ctx.db().hash(args[1])?;
    let fields = hash.into_iter().flat_map(|hash| hash.iter());
    let pair = |(field, value): (&Blob, &Blob)| {
        (
            Reply::Bulk(Blob::clone(field)),
            Reply::Bulk(Blob::clone(value)),
        )
    };
    Ok(Reply::Map(fields.map(pair).collect()))
}

pub(super) fn hkeys(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    let hash = ctx.db().hash(args[1])?;
    let fields = hash.into_iter().flat_map(|hash| hash.iter());
    Ok(Reply::Array(
        fields
            .map(|(field, _)| Reply::Bulk(Blob::clone(field)))
            .collect(),
    ))
}

pub(super) fn hvals(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    let hash = ctx.db().hash(args[1])?;
    let fields = hash.into_iter().flat_map(|hash| hash.iter());
    Ok(Reply::Array(
        fields
            .map(|(_, value)| Reply::Bulk(Blob::clone(value)))
            .collect(),
    ))
}

/// Draws fields: so many different ones, or, of a count below zero, so many of which some may be the
/// same.
pub(super) fn hrandfield(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    let count = args.get(2).map(|count| int(count)).transpose()?;
    let with_values = match args.get(3..) {
        None | Some([]) => false,
        Some([word]) if word.eq_ignore_ascii_case(b"withvalues") => true,
        Some(_) => return Err(SYNTAX.into()),
    };
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
    let resp3 = ctx.resp3;
    let hash = ctx.db().hash(args[1])?;
    let mut replies = Vec::with_capacity(drawn.len());
    for (field, value) in drawn.into_iter().filter_map(|at| hash?.iter().nth(at)) {
        let field = Reply::Bulk(Blob::clone(field));
        let value = with_values.then(|| Reply::Bulk(Blob::clone(value)));
        match value {
            Some(value) if resp3 => replies.push(Reply::Array(vec![field, value])),
            value => replies.extend([Some(field), value].into_iter().flatten()),
        }
    }
    Ok(match count {
        Some(_) => Reply::Array(replies),
        None => replies.pop().unwrap_or(Reply::Nil),
    })
}

pub(super) fn hdel(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    let db = ctx.db();
    let Some(hash) = db.hash_mut(args[1])? else {
        return Ok(Reply::Int(0));
    };
    let removed = args[2..].iter().filter(|field| hash.remove(field)).count();
    if removed > 0 {
        db.prune(args[1]);
        db.modified(args[1]);
    }
    Ok(Reply::count(removed))
}

pub(super) fn hexists(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    Ok(ctx
        .db()
        .hash(args[1])?
        .is_some_and(|hash| hash.contains(args[2]))
        .into())
}

pub(super) fn hlen(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    Ok(Reply::count(
        ctx.db().hash(args[1])?.map_or(0, |hash| hash.len()),
    ))
}

pub(super) fn hstrlen(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    let hash = ctx.db().hash(args[1])?;
    Ok(Reply::count(
        hash.and_then(|hash| hash.get(args[2]))
            .map_or(0, |value| value.len()),
    ))
}

pub(super) fn hincrby(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
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
    db.modified(args[1]);
    Ok(Reply::Int(new))
}

pub(super) fn hincrbyfloat(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    let by = num::parse_float(args[3]).ok_or(NOT_FLOAT)?;
    if !by.is_finite() {
        return Err("ERR value is NaN or Infinity".into());
    }
    let db = ctx.db();
    let old = db
        .hash(args[1])?
        .and_then(|hash| hash.get(args[2]))
        .map(Blob::clone);
    let sum = match num::add_decimal(old.as_deref().unwrap_or(b"0"), args[3]) {
        None => return Err("ERR hash value is not a float".into()),
        Some(Err(NotFinite)) => {
            return Err("ERR increment would produce NaN or Infinity".into());
        }
        Some(Ok(sum)) => Blob::from(sum.as_bytes()),
    };
    db.hash_or_new(args[1])?.insert(args[2], Blob::clone(&sum));
    db.modified(args[1]);
    Ok(Reply::Bulk(sum))
}
