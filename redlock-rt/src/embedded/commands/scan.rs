//! SCAN and its kin.
//!
//! One call gives everything, so the cursor is always back at zero: that keeps the promise of
//! SCAN (whatever was there throughout is returned) without any state between calls.

use super::super::glob;
use super::super::num;
use super::super::resp::{Blob, Fail, Reply};
use super::{Args, Ctx, SYNTAX, int, is};

#[derive(Default)]
struct Options<'a> {
    pattern: Option<&'a [u8]>,
    type_name: Option<&'a [u8]>,
}

impl Options<'_> {
    fn takes(&self, name: &[u8]) -> bool {
        self.pattern
            .is_none_or(|pattern| glob::all_or_matches(pattern, name))
    }
}

/// Whether the cursor starts a scan.
fn from_start(cursor: &[u8]) -> Result<bool, Fail> {
    let text = std::str::from_utf8(cursor).ok();
    let number = text.and_then(|text| text.strip_prefix('+').unwrap_or(text).parse::<u64>().ok());
    number
        .map(|number| number == 0)
        .ok_or_else(|| "ERR invalid cursor".into())
}

fn options<'a>(args: &[&'a [u8]], with_type: bool) -> Result<Options<'a>, Fail> {
    let mut options = Options::default();
    for option in args.chunks(2) {
        match option {
            [word, count] if is(word, "COUNT") => {
                if int(count)? < 1 {
                    return Err(SYNTAX.into());
                }
            }
            [word, pattern] if is(word, "MATCH") => options.pattern = Some(pattern),
            [word, name] if with_type && is(word, "TYPE") => options.type_name = Some(name),
            _ => return Err(SYNTAX.into()),
        }
    }
    Ok(options)
}

fn page(items: Vec<Reply>) -> Reply {
    Reply::Array(vec![Reply::Text("0"), Reply::Array(items)])
}

pub(super) fn scan(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    let start = from_start(args[1])?;
    let options = options(&args[2..], true)?;
    let db = ctx.db();
    db.sweep_all();
    if !start {
        return Ok(page(Vec::new()));
    }
    let found = db.keys().filter(|(key, value)| {
        options.takes(key)
            && options
                .type_name
                .is_none_or(|name| is(name, value.type_name()))
    });
    Ok(page(
        found
            .map(|(key, _)| Reply::Bulk(Blob::clone(key)))
            .collect(),
    ))
}

pub(super) fn hscan(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    let start = from_start(args[2])?;
    let hash = ctx.db().hash(args[1])?;
    let Some(hash) = hash else {
        return Ok(page(Vec::new()));
    };
    let options = options(&args[3..], false)?;
    let mut items = Vec::new();
    for (field, value) in hash
        .iter()
        .filter(|(field, _)| start && options.takes(field))
    {
        items.push(Reply::Bulk(Blob::clone(field)));
        items.push(Reply::Bulk(Blob::clone(value)));
    }
    Ok(page(items))
}

pub(super) fn sscan(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    let start = from_start(args[2])?;
    let set = ctx.db().set(args[1])?;
    let Some(set) = set else {
        return Ok(page(Vec::new()));
    };
    let options = options(&args[3..], false)?;
    let members = set
        .iter()
        .filter(|(member, ())| start && options.takes(member));
    Ok(page(
        members
            .map(|(member, ())| Reply::Bulk(Blob::clone(member)))
            .collect(),
    ))
}

/// Small sorted sets keep whole scores as integers in Redis, and a scan shows them so.
fn score_text(score: f64) -> Vec<u8> {
    const WHOLE: f64 = (1_u64 << 62) as f64;
    if score == score.trunc() && score.abs() < WHOLE {
        return num::int_bytes(score as i64);
    }
    num::format_float(score).into_bytes()
}

pub(super) fn zscan(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    let start = from_start(args[2])?;
    let zset = ctx.db().zset(args[1])?;
    let Some(zset) = zset else {
        return Ok(page(Vec::new()));
    };
    let options = options(&args[3..], false)?;
    let mut items = Vec::new();
    for (score, member) in zset
        .iter()
        .filter(|(_, member)| start && options.takes(member))
    {
        items.push(Reply::Bulk(Blob::clone(member)));
        items.push(Reply::Bytes(score_text(score)));
    }
    Ok(page(items))
}
