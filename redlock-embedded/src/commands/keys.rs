//! Commands about keys of any type.

use super::super::glob::{self, Matcher};
use super::super::resp::{Fail, RespReply};
use super::call::{CommandArgs, Ctx, SYNTAX, int, is};

pub(super) fn key_type(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    let value = ctx.db().value(args[1]);
    Ok(RespReply::status(
        value.map_or("none", |value| value.type_name()),
    ))
}

pub(super) fn exists(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    let db = ctx.db();
    Ok(RespReply::count(
        args[1..].iter().filter(|key| db.exists(key)).count(),
    ))
}

pub(super) fn del(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    let db = ctx.db();
    Ok(RespReply::count(
        args[1..].iter().filter(|key| db.remove(key)).count(),
    ))
}

pub(super) fn keys(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    glob::check(args[1])?;
    let db = ctx.db();
    db.sweep_all();
    let mut matcher = Matcher::new();
    let found = db
        .keys()
        .filter(|(key, _)| matcher.all_or_matches(args[1], key));
    let keys = RespReply::bulks(found.map(|(key, _)| key));
    matcher.end().map(|()| keys)
}

/// One page has everything, so the cursor is always back at zero. That keeps the guarantee of SCAN
/// (keys that exist throughout are returned) without any state between calls.
pub(super) fn scan(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    let cursor = std::str::from_utf8(args[1]).ok();
    // As strtoul reads it: nothing is zero, and a sign may stand before the digits.
    let cursor = cursor.and_then(|text| {
        let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
        match digits.bytes().all(|digit| digit.is_ascii_digit()) {
            true if text.is_empty() => Some(0),
            true => digits.parse::<u64>().ok(),
            false => None,
        }
    });
    let start = cursor.ok_or("ERR invalid cursor")? == 0;
    let (mut pattern, mut type_name) = (None, None);
    for option in args[2..].chunks(2) {
        match option {
            [word, count] if is(word, "COUNT") => {
                if int(count)? < 1 {
                    return Err(SYNTAX.into());
                }
            }
            [word, glob] if is(word, "MATCH") => {
                glob::check(glob)?;
                pattern = Some(glob);
            }
            [word, name] if is(word, "TYPE") => type_name = Some(name),
            _ => return Err(SYNTAX.into()),
        }
    }
    let db = ctx.db();
    db.sweep_all();
    let mut matcher = Matcher::new();
    let found = db.keys().filter(|(key, value)| {
        start
            && pattern.is_none_or(|pattern| matcher.all_or_matches(pattern, key))
            && type_name.is_none_or(|name| is(name, value.type_name()))
    });
    let keys = RespReply::bulks(found.map(|(key, _)| key));
    matcher.end()?;
    Ok(RespReply::Array(vec![RespReply::Text("0"), keys]))
}
