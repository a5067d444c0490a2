//! Sorted sets, member by member.

use super::super::collections::SortedSet;
use super::super::resp::{Fail, RespReply};
use super::call::{CommandArgs, Ctx, SYNTAX, float, is};

const NOT_A_NUMBER: &str = "ERR resulting score is not a number (NaN)";

#[derive(Default)]
struct ZaddConditions {
    absent: bool,
    present: bool,
    greater: bool,
    less: bool,
    changed: bool,
    increment: bool,
}

fn conditions<'a, 'b>(args: &'b [&'a [u8]]) -> (ZaddConditions, &'b [&'a [u8]]) {
    let mut found = ZaddConditions::default();
    let mut rest = args;
    while let [word, more @ ..] = rest {
        let flag = match () {
            () if is(word, "NX") => &mut found.absent,
            () if is(word, "XX") => &mut found.present,
            () if is(word, "GT") => &mut found.greater,
            () if is(word, "LT") => &mut found.less,
            () if is(word, "CH") => &mut found.changed,
            () if is(word, "INCR") => &mut found.increment,
            () => break,
        };
        *flag = true;
        rest = more;
    }
    (found, rest)
}

pub(super) fn zadd(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    let (wanted, pairs) = conditions(&args[2..]);
    let key = args[1];
    if pairs.is_empty() || !pairs.len().is_multiple_of(2) {
        return Err(SYNTAX.into());
    }
    if wanted.absent && wanted.present {
        return Err("ERR XX and NX options at the same time are not compatible".into());
    }
    if (wanted.greater && wanted.less) || (wanted.absent && (wanted.greater || wanted.less)) {
        return Err("ERR GT, LT, and/or NX options at the same time are not compatible".into());
    }
    if wanted.increment && pairs.len() > 2 {
        return Err("ERR INCR option supports a single increment-element pair".into());
    }
    let scores = pairs.iter().step_by(2).map(|score| float(score));
    let scores = scores.collect::<Result<Vec<f64>, _>>()?;
    let db = ctx.db();
    if wanted.present && db.zset(key)?.is_none() {
        return Ok(if wanted.increment {
            RespReply::Nil
        } else {
            RespReply::Int(0)
        });
    }
    let zset = db.zset_or_new(key)?;
    let (mut added, mut changed, mut result) = (0, 0, RespReply::Nil);
    let members = pairs.iter().skip(1).step_by(2);
    let mut add = |zset: &mut SortedSet, member: &[u8], score: f64| {
        let old = zset.score(member);
        let mut score = score;
        match old {
            Some(_) if wanted.absent => return Ok(()),
            None if wanted.present => return Ok(()),
            Some(old) => {
                if wanted.increment {
                    score += old;
                    if score.is_nan() {
                        return Err(NOT_A_NUMBER.into());
                    }
                }
                if (wanted.greater && score <= old) || (wanted.less && score >= old) {
                    return Ok(());
                }
                changed += usize::from(score != old);
            }
            None => added += 1,
        }
        zset.insert(member, score);
        result = RespReply::double(score);
        Ok::<_, Fail>(())
    };
    zset.change(scores.len(), |zset| {
        let mut pairs = members.zip(scores);
        pairs.try_for_each(|(member, score)| add(zset, member, score))
    })?;
    db.prune(key);
    Ok(match wanted {
        ZaddConditions {
            increment: true, ..
        } => result,
        ZaddConditions { changed: true, .. } => RespReply::count(added + changed),
        _ => RespReply::count(added),
    })
}

pub(super) fn zincrby(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    zadd(ctx, &[args[0], args[1], b"INCR", args[2], args[3]])
}

pub(super) fn zrem(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    let db = ctx.db();
    let Some(zset) = db.zset_mut(args[1])? else {
        return Ok(RespReply::Int(0));
    };
    let members = args[2..].iter();
    let removed = zset.change(members.len(), |zset| {
        members.filter(|member| zset.remove(member)).count()
    });
    db.prune(args[1]);
    Ok(RespReply::count(removed))
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
