//! Sorted sets, member by member.

use super::super::resp::{Fail, Reply};
use super::call::{Args, Ctx, SYNTAX, float, is};

const NOT_A_NUMBER: &str = "ERR resulting score is not a number (NaN)";

#[derive(Default)]
struct Conditions {
    absent: bool,
    present: bool,
    greater: bool,
    less: bool,
    changed: bool,
    increment: bool,
}

fn conditions<'a, 'b>(args: &'b [&'a [u8]]) -> (Conditions, &'b [&'a [u8]]) {
    let mut found = Conditions::default();
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

pub(super) fn zadd(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
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
    let scores: Vec<f64> = pairs
        .chunks_exact(2)
        .map(|pair| float(pair[0]))
        .collect::<Result<_, _>>()?;
    let db = ctx.db();
    if wanted.present && db.zset(key)?.is_none() {
        return Ok(if wanted.increment {
            Reply::Nil
        } else {
            Reply::Int(0)
        });
    }
    let zset = db.zset_or_new(key)?;
    let (mut added, mut changed, mut result) = (0, 0, Reply::Nil);
    for (score, pair) in scores.into_iter().zip(pairs.chunks_exact(2)) {
        let member = pair[1];
        let old = zset.score(member);
        let mut score = score;
        match old {
            Some(_) if wanted.absent => continue,
            None if wanted.present => continue,
            Some(old) => {
                if wanted.increment {
                    score += old;
                    if score.is_nan() {
                        return Err(NOT_A_NUMBER.into());
                    }
                }
                if (wanted.greater && score <= old) || (wanted.less && score >= old) {
                    continue;
                }
                changed += usize::from(score != old);
            }
            None => added += 1,
        }
        zset.insert(member, score);
        result = Reply::double(score);
    }
    db.prune(key);
    Ok(match wanted {
        Conditions {
            increment: true, ..
        } => result,
        Conditions { changed: true, .. } => Reply::count(added + changed),
        _ => Reply::count(added),
    })
}

pub(super) fn zincrby(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    zadd(ctx, &[args[0], args[1], b"INCR", args[2], args[3]])
}

pub(super) fn zrem(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    let db = ctx.db();
    let Some(zset) = db.zset_mut(args[1])? else {
        return Ok(Reply::Int(0));
    };
    let removed = args[2..]
        .iter()
        .filter(|member| zset.remove(member))
        .count();
    if removed > 0 {
        db.prune(args[1]);
    }
    Ok(Reply::count(removed))
}

pub(super) fn zscore(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    let zset = ctx.db().zset(args[1])?;
    let score = zset.and_then(|zset| zset.score(args[2]));
    Ok(score.map_or(Reply::Nil, Reply::double))
}

pub(super) fn zcard(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    Ok(Reply::count(
        ctx.db().zset(args[1])?.map_or(0, |zset| zset.len()),
    ))
}
