//! MONITOR: every command, as it runs, to whoever asked.

use super::super::resp::{Fail, Reply};
use super::super::state::State;
use super::{Args, Command, Ctx};
use std::io::Write;

pub(super) fn monitor(ctx: &mut Ctx<'_>, _: Args<'_>) -> Result<Reply, Fail> {
    let id = ctx.client;
    ctx.client()?.monitor = true;
    if !ctx.state.monitors.contains(&id) {
        ctx.state.monitors.push(id);
    }
    Ok(Reply::Ok)
}

/// Tells the monitors of a command; `client` is none for one that a script calls.
pub(in super::super) fn report(
    state: &mut State,
    client: Option<u64>,
    command: &Command,
    args: Args<'_>,
) {
    if state.monitors.is_empty() || matches!(command.name, "auth" | "hello" | "monitor") {
        return;
    }
    let mut line = Vec::new();
    let (db, from) = match client.and_then(|id| state.clients.get(&id)) {
        Some(client) => (client.db, client.address.as_str()),
        None => (state.script.db, "lua"),
    };
    // Writing to a vector cannot fail.
    let _ = write!(
        line,
        "{}.{:06} [{db} {from}]",
        state.now.as_secs(),
        state.now.subsec_micros()
    );
    for arg in args {
        line.extend_from_slice(b" \"");
        for byte in *arg {
            match byte {
                b'\\' | b'"' => line.extend_from_slice(&[b'\\', *byte]),
                b'\n' => line.extend_from_slice(b"\\n"),
                b'\r' => line.extend_from_slice(b"\\r"),
                b'\t' => line.extend_from_slice(b"\\t"),
                7 => line.extend_from_slice(b"\\a"),
                8 => line.extend_from_slice(b"\\b"),
                b' '..=b'~' => line.push(*byte),
                _ => line.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
            }
        }
        line.push(b'"');
    }
    let line = Reply::Status(line.into());
    for id in state.monitors.clone() {
        state.reply(id, &line);
    }
}
