//! Commands about the server as a whole.

use super::super::resp::{Fail, RespReply, VERSION};
use super::super::state::DATABASES;
use super::call::{CommandArgs, Ctx, SYNTAX, is};

pub(super) fn time(ctx: &mut Ctx<'_>, _: CommandArgs<'_>) -> Result<RespReply, Fail> {
    let now = ctx.state.now;
    Ok(RespReply::Array(vec![
        RespReply::Bytes(now.as_secs().to_string().into_bytes()),
        RespReply::Bytes(now.subsec_micros().to_string().into_bytes()),
    ]))
}

pub(super) fn dbsize(ctx: &mut Ctx<'_>, _: CommandArgs<'_>) -> Result<RespReply, Fail> {
    let db = ctx.db();
    db.sweep_all();
    Ok(RespReply::count(db.len()))
}

pub(super) fn flushall(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    match args {
        [_] => {}
        [_, how] if is(how, "SYNC") || is(how, "ASYNC") => {}
        _ => return Err(SYNTAX.into()),
    }
    for index in 0..DATABASES {
        ctx.state.db(index).clear();
    }
    Ok(RespReply::Ok)
}

pub(super) fn info(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    const ALL: [&str; 3] = ["all", "default", "everything"];
    let state = &ctx.state;
    let sections = [
        (
            "server",
            format!(
                "# Server\r\nredis_version:{VERSION}\r\nredis_mode:standalone\r\nrun_id:{}\r\n\
                 tcp_port:{}\r\n",
                state.run_id, state.port
            ),
        ),
        (
            "clients",
            format!("# Clients\r\nconnected_clients:{}\r\n", state.clients.len()),
        ),
        (
            "replication",
            "# Replication\r\nrole:master\r\nconnected_slaves:0\r\n".to_owned(),
        ),
    ];
    let asked = &args[1..];
    let everything = asked.is_empty() || asked.iter().any(|a| ALL.iter().any(|all| is(a, all)));
    let wanted = sections
        .into_iter()
        .filter(|(name, _)| everything || asked.iter().any(|a| is(a, name)));
    let texts: Vec<String> = wanted.map(|(_, text)| text).collect();
    Ok(RespReply::Bytes(texts.join("\r\n").into_bytes()))
}
