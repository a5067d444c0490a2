//! Commands about keys whatever their type.

use super::super::glob;
use super::super::resp::{Blob, Fail, Reply};
use super::{Args, Ctx};

const NO_KEY: &str = "ERR no such key";

pub(super) fn key_type(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    let value = ctx.db().value(args[1]);
    Ok(Reply::status(
        value.map_or("none", |value| value.type_name()),
    ))
}

pub(super) fn exists(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    let db = ctx.db();
    Ok(Reply::count(
        args[1..].iter().filter(|key| db.exists(key)).count(),
    ))
}

pub(super) fn del(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    let db = ctx.db();
    Ok(Reply::count(
        args[1..].iter().filter(|key| db.remove(key)).count(),
    ))
}

pub(super) fn rename(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    let (from, to) = (args[1], args[2]);
    let db = ctx.db();
    let moved = if from == to {
        db.exists(from)
    } else {
        db.rename(from, to)
    };
    if moved {
        Ok(Reply::Ok)
    } else {
        Err(NO_KEY.into())
    }
}

pub(super) fn renamenx(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    let (from, to) = (args[1], args[2]);
    let db = ctx.db();
    if !db.exists(from) {
        return Err(NO_KEY.into());
    }
    if db.exists(to) {
        return Ok(Reply::Int(0));
    }
    db.rename(from, to);
    Ok(Reply::Int(1))
}

pub(super) fn randomkey(ctx: &mut Ctx<'_>, _: Args<'_>) -> Result<Reply, Fail> {
    ctx.db().sweep_all();
    let len = ctx.db().len();
    let at = ctx.state.random(len);
    let key = ctx.db().keys().nth(at).map(|(key, _)| Blob::clone(key));
    Ok(Reply::blob_or_nil(key.as_ref()))
}

pub(super) fn keys(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    let db = ctx.db();
    db.sweep_all();
    let found = db
        .keys()
        .filter(|(key, _)| glob::all_or_matches(args[1], key));
    Ok(Reply::Array(
        found
            .map(|(key, _)| Reply::Bulk(Blob::clone(key)))
            .collect(),
    ))
}
