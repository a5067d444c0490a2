//! Commands about the server as a whole.

use super::super::resp::{Fail, Reply};
use super::super::state::Kind;
use super::{Args, Ctx, SYNTAX, VERSION, int, is, table};
use std::fmt::Write;

pub(super) fn time(ctx: &mut Ctx<'_>, _: Args<'_>) -> Result<Reply, Fail> {
    let now = ctx.state.now;
    Ok(Reply::Array(vec![
        Reply::Bytes(now.as_secs().to_string().into_bytes()),
        Reply::Bytes(now.subsec_micros().to_string().into_bytes()),
    ]))
}

pub(super) fn dbsize(ctx: &mut Ctx<'_>, _: Args<'_>) -> Result<Reply, Fail> {
    let db = ctx.db();
    db.sweep_all();
    Ok(Reply::count(db.len()))
}

fn check_flush(args: Args<'_>) -> Result<(), Fail> {
    match args {
        [_] => Ok(()),
        [_, how] if is(how, "SYNC") || is(how, "ASYNC") => Ok(()),
        _ => Err(SYNTAX.into()),
    }
}

pub(super) fn flushall(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    check_flush(args)?;
    for index in 0..super::super::state::DATABASES {
        ctx.state.db(index).clear();
    }
    Ok(Reply::Ok)
}

pub(super) fn flushdb(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    check_flush(args)?;
    ctx.db().clear();
    Ok(Reply::Ok)
}

/// There are no replicas: the answer is at once that none has followed.
pub(super) fn wait(_: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    int(args[1])?;
    let timeout = int(args[2]).map_err(|_| "ERR timeout is not an integer or out of range")?;
    if timeout < 0 {
        return Err("ERR timeout is negative".into());
    }
    Ok(Reply::Int(0))
}

pub(super) fn role(_: &mut Ctx<'_>, _: Args<'_>) -> Result<Reply, Fail> {
    Ok(Reply::Array(vec![
        Reply::Text("master"),
        Reply::Int(0),
        Reply::Array(Vec::new()),
    ]))
}

/// The settings that clients ask for; they cannot be changed.
const SETTINGS: &[(&str, &str)] = &[
    ("appendonly", "no"),
    ("databases", "16"),
    ("maxmemory", "0"),
    ("maxmemory-policy", "noeviction"),
    ("notify-keyspace-events", ""),
    ("proto-max-bulk-len", "536870912"),
    ("save", ""),
    ("timeout", "0"),
];

pub(super) fn config_get(_: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    let mut found = Vec::new();
    for (name, value) in SETTINGS {
        let asked = |pattern: &&[u8]| {
            super::super::glob::matches(&pattern.to_ascii_lowercase(), name.as_bytes())
        };
        if args[2..].iter().any(asked) {
            found.push((Reply::Text(name), Reply::Text(value)));
        }
    }
    Ok(Reply::Map(found))
}

pub(super) fn config_resetstat(ctx: &mut Ctx<'_>, _: Args<'_>) -> Result<Reply, Fail> {
    ctx.state.calls.fill(0);
    Ok(Reply::Ok)
}

/// Names and arities; flags and the places of keys are left out.
pub(super) fn command(_: &mut Ctx<'_>, _: Args<'_>) -> Result<Reply, Fail> {
    let commands = table::COMMANDS
        .iter()
        .filter(|(name, ..)| !name.contains('|'));
    let described = commands.map(|(name, arity, ..)| {
        let nothing = Reply::Int(0);
        let flags = Reply::Set(Vec::new());
        let keys = [nothing.clone(), nothing.clone(), nothing];
        let mut description = vec![Reply::Text(name), Reply::Int(*arity), flags];
        description.extend(keys);
        Reply::Array(description)
    });
    Ok(Reply::Array(described.collect()))
}

pub(super) fn command_count(_: &mut Ctx<'_>, _: Args<'_>) -> Result<Reply, Fail> {
    let commands = table::COMMANDS
        .iter()
        .filter(|(name, ..)| !name.contains('|'));
    Ok(Reply::count(commands.count()))
}

/// Interactive clients ask for it at their start and can do without.
pub(super) fn command_docs(_: &mut Ctx<'_>, _: Args<'_>) -> Result<Reply, Fail> {
    Ok(Reply::Map(Vec::new()))
}

pub(super) fn info(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    let asked = &args[1..];
    let everything = asked.iter().any(|a| is(a, "all") || is(a, "everything"));
    let default = asked.is_empty() || asked.iter().any(|a| is(a, "default"));
    let mut text = String::new();
    for (name, by_default, section) in SECTIONS {
        let wanted = everything || (default && *by_default) || asked.iter().any(|a| is(a, name));
        if wanted {
            if !text.is_empty() {
                text.push_str("\r\n");
            }
            section(ctx, &mut text);
        }
    }
    Ok(Reply::Verbatim(b"txt".to_vec(), text.into_bytes()))
}

type Section = fn(&mut Ctx<'_>, &mut String);

const SECTIONS: &[(&str, bool, Section)] = &[
    ("server", true, server),
    ("clients", true, clients),
    ("stats", true, stats),
    ("replication", true, replication),
    ("commandstats", false, commandstats),
    ("keyspace", true, keyspace),
];

// Writing to a string cannot fail, hence the ignored results below.

fn server(ctx: &mut Ctx<'_>, out: &mut String) {
    let state = &ctx.state;
    let _ = write!(
        out,
        "# Server\r\nredis_version:{VERSION}\r\nredis_mode:standalone\r\nos:{}\r\narch_bits:{}\r\n\
         process_id:{}\r\nrun_id:{}\r\ntcp_port:{}\r\nserver_time_usec:{}\r\n\
         uptime_in_seconds:{}\r\nuptime_in_days:{}\r\n",
        std::env::consts::OS,
        usize::BITS,
        std::process::id(),
        state.run_id,
        state.port,
        state.now.as_micros(),
        state.now.saturating_sub(state.started).as_secs(),
        state.now.saturating_sub(state.started).as_secs() / 86_400,
    );
}

fn clients(ctx: &mut Ctx<'_>, out: &mut String) {
    let _ = write!(
        out,
        "# Clients\r\nconnected_clients:{}\r\nblocked_clients:0\r\n",
        ctx.state.clients.len()
    );
}

fn stats(ctx: &mut Ctx<'_>, out: &mut String) {
    let state = &ctx.state;
    let _ = write!(
        out,
        "# Stats\r\ntotal_connections_received:{}\r\ntotal_commands_processed:{}\r\n\
         expired_keys:{}\r\nevicted_keys:0\r\npubsub_channels:{}\r\npubsub_patterns:{}\r\n\
         pubsubshard_channels:{}\r\n",
        state.connections,
        state.calls.iter().sum::<u64>(),
        state.dbs.iter().map(|db| db.expired).sum::<u64>(),
        state.subscribers[Kind::Channel as usize].len(),
        state.subscribers[Kind::Pattern as usize].len(),
        state.subscribers[Kind::Shard as usize].len(),
    );
}

fn replication(_: &mut Ctx<'_>, out: &mut String) {
    out.push_str("# Replication\r\nrole:master\r\nconnected_slaves:0\r\n");
}

fn commandstats(ctx: &mut Ctx<'_>, out: &mut String) {
    out.push_str("# Commandstats\r\n");
    for ((name, ..), calls) in table::COMMANDS.iter().zip(&ctx.state.calls) {
        if *calls > 0 {
            let _ = write!(
                out,
                "cmdstat_{name}:calls={calls},usec=0,usec_per_call=0.00,rejected_calls=0,\
                 failed_calls=0\r\n"
            );
        }
    }
}

fn keyspace(ctx: &mut Ctx<'_>, out: &mut String) {
    out.push_str("# Keyspace\r\n");
    for index in 0..super::super::state::DATABASES {
        let db = ctx.state.db(index);
        db.sweep_all();
        if db.len() > 0 {
            let _ = write!(
                out,
                "db{index}:keys={},expires={},avg_ttl=0\r\n",
                db.len(),
                db.expiring()
            );
        }
    }
}
