//! Sorted sets, member by member.

use super::super::resp::{Fail, RespReply};
use super::call::{CommandArgs, Ctx, SYNTAX, flags, float};

const NOT_A_NUMBER: &str = "ERR resulting score is not a number (NaN)";

pub(super) fn zadd(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    let words = ["NX", "XX", "GT", "LT", "CH", "INCR"];
    let ([absent, present, greater, less, changes, increment], pairs) = flags(&args[2..], words);
    let key = args[1];
    if pairs.is_empty() || !pairs.len().is_multiple_of(2) {
        return Err(SYNTAX.into());
    }
    if absent && present {
        return Err("ERR XX and NX options at the same time are not compatible".into());
    }
    if (greater && less) || (absent && (greater || less)) {
        return Err("ERR GT, LT, and/or NX options at the same time are not compatible".into());
    }
    if increment && pairs.len() > 2 {
        return Err("ERR INCR option supports a single increment-element pair".into());
    }
    let scores = pairs.iter().step_by(2).map(|score| float(score));
    let scores = scores.collect::<Result<Vec<f64>, _>>()?;
    let db = ctx.db();
    if present && db.zset(key)?.is_none() {
        return Ok(if increment {
            RespReply::Nil
        } else {
            RespReply::Int(0)
        });
    }
    let zset = db.zset_or_new(key)?;
    let (mut added, mut changed, mut result) = (0, 0, RespReply::Nil);
    let members = pairs.iter().skip(1).step_by(2);
    zset.change(scores.len(), |zset| {
        for (member, mut score) in members.zip(scores) {
            match zset.score(member) {
                Some(_) if absent => continue,
                None if present => continue,
                Some(old) => {
                    if increment {
                        score += old;
                        if score.is_nan() {
                            return Err(Fail::from(NOT_A_NUMBER));
                        }
                    }
                    if (greater && score <= old) || (less && score >= old) {
                        continue;
                    }
                    changed += usize::from(score != old);
                }
                None => added += 1,
            }
            zset.insert(member, score);
            result = RespReply::double(score);
        }
        Ok(())
    })?;
    Ok(if increment {
        result
    } else if changes {
        RespReply::count(added + changed)
    } else {
        RespReply::count(added)
    })
}

pub(super) fn zincrby(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    zadd(ctx, &[args[0], args[1], b"INCR", args[2], args[3]])
}

pub(super) fn zrem(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    let members = args[2..].iter();
    let removed = ctx.db().change_zset(args[1], |zset| {
        zset.change(members.len(), |zset| {
            members.filter(|member| zset.remove(member)).count()
        })
    })?;
    Ok(RespReply::count(removed.unwrap_or(0)))
}

pub(super) fn zscore(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    let zset = ctx.db().zset(args[1])?;
    let score = zset.and_then(|zset| zset.score(args[2]));
    Ok(score.map_or(RespReply::Nil, RespReply::double))
}

pub(super) fn zcard(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    Ok(RespReply::count(
        ctx.db().zset(args[1])?.map_or(0, |zset| zset.len()),
    ))
}
