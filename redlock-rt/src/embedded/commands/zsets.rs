//! Sorted sets, member by member.

use super::super::resp::{Blob, Fail, Reply};
use super::{Args, Ctx, SYNTAX, float, is, positive};

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
    add(ctx, args[1], &wanted, pairs)
}

/// ZADD with INCR: it takes the other options too.
pub(super) fn zincrby(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    let (wanted, pairs) = conditions(&args[2..]);
    add(
        ctx,
        args[1],
        &Conditions {
            increment: true,
            ..wanted
        },
        pairs,
    )
}

fn add(ctx: &mut Ctx<'_>, key: &[u8], wanted: &Conditions, pairs: Args<'_>) -> Result<Reply, Fail> {
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
        result = Reply::Double(score);
    }
    db.prune(key);
    if added + changed > 0 {
        db.modified(key);
    }
    Ok(match wanted {
        Conditions {
            increment: true, ..
        } => result,
        Conditions { changed: true, .. } => Reply::count(added + changed),
        _ => Reply::count(added),
    })
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
        db.modified(args[1]);
    }
    Ok(Reply::count(removed))
}

fn score_or_nil(score: Option<f64>) -> Reply {
    score.map_or(Reply::Nil, Reply::Double)
}

pub(super) fn zscore(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    Ok(score_or_nil(
        ctx.db().zset(args[1])?.and_then(|zset| zset.score(args[2])),
    ))
}

pub(super) fn zmscore(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    let zset = ctx.db().zset(args[1])?;
    let score = |member: &&[u8]| score_or_nil(zset.and_then(|zset| zset.score(member)));
    Ok(Reply::Array(args[2..].iter().map(score).collect()))
}

pub(super) fn zcard(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    Ok(Reply::count(
        ctx.db().zset(args[1])?.map_or(0, |zset| zset.len()),
    ))
}

pub(super) fn zrank(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    let zset = ctx.db().zset(args[1])?;
    Ok(zset
        .and_then(|zset| zset.rank(args[2]))
        .map_or(Reply::Nil, Reply::count))
}

pub(super) fn zrevrank(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    let zset = ctx.db().zset(args[1])?;
    let rank = zset.and_then(|zset| Some(zset.len() - 1 - zset.rank(args[2])?));
    Ok(rank.map_or(Reply::Nil, Reply::count))
}

fn pop(ctx: &mut Ctx<'_>, args: Args<'_>, highest: bool) -> Result<Reply, Fail> {
    let count = match args {
        [_, _] => None,
        [_, _, count] => Some(positive(count)?),
        _ => return Err(SYNTAX.into()),
    };
    let db = ctx.db();
    let mut popped: Vec<(f64, Blob)> = Vec::new();
    if let Some(zset) = db.zset_mut(args[1])? {
        for _ in 0..count.unwrap_or(1).min(zset.len()) {
            let rank = if highest { zset.len() - 1 } else { 0 };
            popped.extend(zset.remove_rank(rank));
        }
    }
    if !popped.is_empty() {
        db.prune(args[1]);
        db.modified(args[1]);
    }
    let pairs = popped
        .into_iter()
        .map(|(score, member)| (Reply::Bulk(member), Reply::Double(score)));
    Ok(match count {
        // One pair is flat in RESP3 too, unless a count was given.
        None => Reply::Array(pairs.flat_map(|(member, score)| [member, score]).collect()),
        Some(_) => Reply::Pairs(pairs.collect()),
    })
}

pub(super) fn zpopmin(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    pop(ctx, args, false)
}

pub(super) fn zpopmax(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    pop(ctx, args, true)
}
