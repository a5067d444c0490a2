//! MULTI, EXEC and optimistic locking.

use super::super::resp::{Blob, Fail, Reply};
use super::super::state::{State, Transaction};
use super::{Args, Ctx};

pub(super) fn multi(ctx: &mut Ctx<'_>, _: Args<'_>) -> Result<Reply, Fail> {
    let client = ctx.client()?;
    if client.transaction.is_some() {
        return Err("ERR MULTI calls can not be nested".into());
    }
    client.transaction = Some(Transaction::default());
    Ok(Reply::Ok)
}

pub(super) fn discard(ctx: &mut Ctx<'_>, _: Args<'_>) -> Result<Reply, Fail> {
    if ctx.client()?.transaction.take().is_none() {
        return Err("ERR DISCARD without MULTI".into());
    }
    let id = ctx.client;
    ctx.state.unwatch(id);
    Ok(Reply::Ok)
}

pub(super) fn watch(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    if ctx.client()?.transaction.is_some() {
        return Err("ERR WATCH inside MULTI is not allowed".into());
    }
    let (id, db) = (ctx.client, ctx.db);
    for key in &args[1..] {
        let watched = &mut ctx.client()?.watched;
        if watched
            .iter()
            .any(|(index, known)| *index == db && **known == **key)
        {
            continue;
        }
        watched.push((db, Blob::from(*key)));
        // A key that is due already counts as missing from the start.
        ctx.db().exists(key);
        ctx.db().watch(key, id);
    }
    Ok(Reply::Ok)
}

pub(super) fn unwatch(ctx: &mut Ctx<'_>, _: Args<'_>) -> Result<Reply, Fail> {
    let id = ctx.client;
    ctx.state.unwatch(id);
    Ok(Reply::Ok)
}

/// Drops the client's transaction, if it has one.
pub(in super::super) fn abandon(state: &mut State, id: u64) {
    if let Some(client) = state.clients.get_mut(&id) {
        client.transaction = None;
    }
    state.unwatch(id);
}

/// Ends the client's transaction; gives what EXEC is to run, or none when a watched key changed.
pub(in super::super) fn take_queue(
    state: &mut State,
    id: u64,
) -> Result<Option<Vec<Vec<Blob>>>, Fail> {
    let Some(client) = state.clients.get_mut(&id) else {
        return Ok(None);
    };
    let transaction = client.transaction.take().ok_or("ERR EXEC without MULTI")?;
    let mut changed = false;
    for (db, key) in client.watched.clone() {
        // Looking at the key expires it if it is due, which counts as a change.
        state.db(db).exists(&key);
        changed |= state.db(db).take_dirty(id);
    }
    state.unwatch(id);
    if transaction.aborted {
        return Err("EXECABORT Transaction discarded because of previous errors.".into());
    }
    Ok((!changed).then_some(transaction.queue))
}
