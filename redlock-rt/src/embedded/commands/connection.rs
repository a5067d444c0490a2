//! Commands about the connection itself.

use super::super::resp::{Blob, Fail, Reply};
use super::super::state::{Client, DATABASES, Kind};
use super::{Args, Ctx, SYNTAX, VERSION, c_string, int, is};
use std::fmt::Write;

const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";
const NO_PASSWORD: &str = "ERR AUTH <password> called without any password configured for the \
                           default user. Are you sure your configuration is correct?";
const BAD_NAME: &str = "ERR Client names cannot contain spaces, newlines or special characters.";

pub(super) fn ping(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    if args.len() > 2 {
        return Err(super::wrong_arity("ping"));
    }
    let text = args.get(1).copied();
    let subscriber = !ctx.in_script && !ctx.resp3 && ctx.client()?.is_subscriber();
    if subscriber {
        let text = Blob::from(text.unwrap_or_default());
        return Ok(Reply::Array(vec![Reply::Text("pong"), Reply::Bulk(text)]));
    }
    Ok(match text {
        Some(text) => Reply::Bulk(text.into()),
        None => Reply::status("PONG"),
    })
}

pub(super) fn echo(_: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    Ok(Reply::Bulk(args[1].into()))
}

fn check_password(ctx: &mut Ctx<'_>, user: &[u8], password: &[u8]) -> Result<(), Fail> {
    let accepted = user == b"default"
        && ctx
            .state
            .password
            .as_ref()
            .is_none_or(|expected| **expected == *password);
    if !accepted {
        return Err(WRONG_PASSWORD.into());
    }
    ctx.client()?.authenticated = true;
    Ok(())
}

pub(super) fn auth(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    match args {
        [_, _] if ctx.state.password.is_none() => return Err(NO_PASSWORD.into()),
        [_, password] => check_password(ctx, b"default", password)?,
        [_, user, password] => check_password(ctx, user, password)?,
        _ => return Err(SYNTAX.into()),
    }
    Ok(Reply::Ok)
}

pub(super) fn hello(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    let mut version = None;
    if let Some(arg) = args.get(1) {
        let number =
            int(arg).map_err(|_| "ERR Protocol version is not an integer or out of range")?;
        if !(2..=3).contains(&number) {
            return Err("NOPROTO unsupported protocol version".into());
        }
        version = Some(number);
    }
    let mut rest = args.get(2..).unwrap_or_default();
    loop {
        match rest {
            [] => break,
            [word, user, password, more @ ..] if is(word, "AUTH") => {
                check_password(ctx, user, password)?;
                rest = more;
            }
            [word, text, more @ ..] if is(word, "SETNAME") => {
                // At once, whatever the options after it are.
                ctx.client()?.name = valid_name(text)?;
                rest = more;
            }
            [word, ..] => {
                let mut text = b"ERR Syntax error in HELLO option '".to_vec();
                text.extend_from_slice(c_string(word, usize::MAX));
                text.push(b'\'');
                return Err(text.into());
            }
        }
    }
    let client = ctx.client()?;
    if !client.authenticated {
        return Err(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise \
                    the HELLO AUTH <user> <pass> option can be used to authenticate the \
                    client and select the RESP protocol version at the same time"
                .into(),
        );
    }
    if let Some(version) = version {
        client.resp3 = version == 3;
    }
    let field = |name: &'static str, value: Reply| (Reply::Text(name), value);
    Ok(Reply::Map(vec![
        field("server", Reply::Text("redis")),
        field("version", Reply::Text(VERSION)),
        field("proto", Reply::Int(if client.resp3 { 3 } else { 2 })),
        field("id", Reply::Int(id_number(client.id))),
        field("mode", Reply::Text("standalone")),
        field("role", Reply::Text("master")),
        field("modules", Reply::Array(Vec::new())),
    ]))
}

fn id_number(id: u64) -> i64 {
    i64::try_from(id).unwrap_or(i64::MAX)
}

pub(super) fn select(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    let index = i32::try_from(int(args[1])?)
        .map_err(|_| "ERR value is out of range, value must between -2147483648 and 2147483647")?;
    let index = usize::try_from(index)
        .ok()
        .filter(|index| *index < DATABASES);
    ctx.db = index.ok_or("ERR DB index is out of range")?;
    Ok(Reply::Ok)
}

pub(super) fn quit(ctx: &mut Ctx<'_>, _: Args<'_>) -> Result<Reply, Fail> {
    ctx.client()?.closing = true;
    Ok(Reply::Ok)
}

pub(super) fn reset(ctx: &mut Ctx<'_>, _: Args<'_>) -> Result<Reply, Fail> {
    let id = ctx.client;
    ctx.state.unwatch(id);
    let names = std::mem::take(&mut ctx.client()?.subscriptions);
    for (kind, names) in [Kind::Channel, Kind::Pattern, Kind::Shard]
        .into_iter()
        .zip(names)
    {
        ctx.client()?.subscriptions[kind as usize] = names.clone();
        for name in &names {
            ctx.state.unsubscribe(id, kind, name);
        }
    }
    ctx.state.monitors.retain(|monitor| *monitor != id);
    let authenticated = ctx.state.password.is_none();
    let client = ctx.client()?;
    client.monitor = false;
    client.transaction = None;
    client.resp3 = false;
    client.authenticated = authenticated;
    client.name = Blob::from(&b""[..]);
    ctx.db = 0;
    Ok(Reply::status("RESET"))
}

pub(super) fn id(ctx: &mut Ctx<'_>, _: Args<'_>) -> Result<Reply, Fail> {
    Ok(Reply::Int(id_number(ctx.client)))
}

fn valid_name(name: &[u8]) -> Result<Blob, Fail> {
    if name.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
        Ok(name.into())
    } else {
        Err(BAD_NAME.into())
    }
}

pub(super) fn set_name(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    ctx.client()?.name = valid_name(args[2])?;
    Ok(Reply::Ok)
}

pub(super) fn get_name(ctx: &mut Ctx<'_>, _: Args<'_>) -> Result<Reply, Fail> {
    let name = &ctx.client()?.name;
    Ok(if name.is_empty() {
        Reply::Nil
    } else {
        Reply::Bulk(Blob::clone(name))
    })
}

/// A command of 7.2: clients send it without asking for the version first.
pub(super) fn set_info(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    let client = ctx.client()?;
    if is(args[2], "LIB-NAME") {
        client.library = args[3].into();
    } else if is(args[2], "LIB-VER") {
        client.library_version = args[3].into();
    } else {
        let mut text = b"ERR Unrecognized option '".to_vec();
        text.extend_from_slice(c_string(args[2], usize::MAX));
        text.push(b'\'');
        return Err(text.into());
    }
    Ok(Reply::Ok)
}

pub(super) fn no_evict(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    let on = is(args[2], "ON");
    if !on && !is(args[2], "OFF") {
        return Err(SYNTAX.into());
    }
    ctx.client()?.no_evict = on;
    Ok(Reply::Ok)
}

/// No command here blocks, so there is never one to unblock.
pub(super) fn unblock(_: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    match args {
        [_, _, _] => {}
        [_, _, _, how] if is(how, "TIMEOUT") || is(how, "ERROR") => {}
        [_, _, _, _] => {
            return Err("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR".into());
        }
        _ => {
            return Err(
                "ERR unknown subcommand or wrong number of arguments for 'UNBLOCK'. Try \
                        CLIENT HELP."
                    .into(),
            );
        }
    }
    int(args[2])?;
    Ok(Reply::Int(0))
}

#[derive(Default)]
struct Filter<'a> {
    id: Option<u64>,
    address: Option<&'a [u8]>,
    local_address: Option<&'a [u8]>,
    kind: Option<ClientType>,
    spare_me: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ClientType {
    Normal,
    Pubsub,
    /// Replicas and the master: there are none.
    Absent,
}

fn client_type(arg: &[u8]) -> Result<ClientType, Fail> {
    if is(arg, "normal") {
        Ok(ClientType::Normal)
    } else if is(arg, "pubsub") {
        Ok(ClientType::Pubsub)
    } else if ["replica", "slave", "master"]
        .iter()
        .any(|word| is(arg, word))
    {
        Ok(ClientType::Absent)
    } else {
        let mut text = b"ERR Unknown client type '".to_vec();
        text.extend_from_slice(c_string(arg, usize::MAX));
        text.push(b'\'');
        Err(text.into())
    }
}

fn type_of(client: &Client) -> ClientType {
    if client.is_subscriber() {
        ClientType::Pubsub
    } else {
        ClientType::Normal
    }
}

impl Filter<'_> {
    fn takes(&self, client: &Client, me: u64) -> bool {
        self.id.is_none_or(|id| id == client.id)
            && self
                .address
                .is_none_or(|address| address == client.address.as_bytes())
            && self
                .local_address
                .is_none_or(|address| address == client.local_address.as_bytes())
            && self.kind.is_none_or(|kind| kind == type_of(client))
            && !(self.spare_me && client.id == me)
    }
}

pub(super) fn kill(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    let mut filter = Filter::default();
    // The old form, by address alone, answers OK and has an error of its own.
    let old_form = args.len() == 3;
    if old_form {
        filter.address = Some(args[2]);
    } else {
        filter.spare_me = true;
        for option in args[2..].chunks(2) {
            let [word, value] = option else {
                return Err(SYNTAX.into());
            };
            if is(word, "ID") {
                let id = int(value).ok().and_then(|id| u64::try_from(id).ok());
                let id = id.filter(|id| *id > 0);
                filter.id = Some(id.ok_or("ERR client-id should be greater than 0")?);
            } else if is(word, "ADDR") {
                filter.address = Some(value);
            } else if is(word, "LADDR") {
                filter.local_address = Some(value);
            } else if is(word, "TYPE") {
                filter.kind = Some(client_type(value)?);
            } else if is(word, "USER") {
                if !is(value, "default") {
                    let mut text = b"ERR No such user '".to_vec();
                    text.extend_from_slice(c_string(value, usize::MAX));
                    text.push(b'\'');
                    return Err(text.into());
                }
            } else if is(word, "SKIPME") {
                filter.spare_me = is(value, "yes");
                if !filter.spare_me && !is(value, "no") {
                    return Err(SYNTAX.into());
                }
            } else {
                return Err(SYNTAX.into());
            }
        }
    }
    let me = ctx.client;
    let clients = ctx.state.clients.values();
    let ids: Vec<u64> = clients
        .filter(|c| filter.takes(c, me))
        .map(|c| c.id)
        .collect();
    for id in &ids {
        if *id == me {
            ctx.client()?.closing = true;
        } else {
            ctx.state.disconnect(*id, true);
        }
    }
    match (old_form, ids.len()) {
        (true, 0) => Err("ERR No such client".into()),
        (true, _) => Ok(Reply::Ok),
        (false, killed) => Ok(Reply::count(killed)),
    }
}

pub(super) fn list(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    let mut kind = None;
    let mut ids: Option<Vec<u64>> = None;
    match &args[2..] {
        [] => {}
        [word, value] if is(word, "TYPE") => kind = Some(client_type(value)?),
        [word, wanted @ ..] if is(word, "ID") && !wanted.is_empty() => {
            let mut list = Vec::new();
            for id in wanted {
                let id = int(id).map_err(|_| "ERR Invalid client ID")?;
                list.extend(u64::try_from(id));
            }
            ids = Some(list);
        }
        _ => return Err(SYNTAX.into()),
    }
    let mut clients: Vec<&Client> = ctx.state.clients.values().collect();
    clients.sort_by_key(|client| client.id);
    let mut lines = String::new();
    for client in clients {
        let wanted = ids.as_ref().is_none_or(|ids| ids.contains(&client.id));
        if wanted && kind.is_none_or(|kind| kind == type_of(client)) {
            describe(&mut lines, ctx, client);
        }
    }
    Ok(Reply::Verbatim(b"txt".to_vec(), lines.into_bytes()))
}

pub(super) fn info(ctx: &mut Ctx<'_>, _: Args<'_>) -> Result<Reply, Fail> {
    let mut line = String::new();
    if let Some(client) = ctx.state.clients.get(&ctx.client) {
        describe(&mut line, ctx, client);
    }
    Ok(Reply::Verbatim(b"txt".to_vec(), line.into_bytes()))
}

fn describe(out: &mut String, ctx: &Ctx<'_>, client: &Client) {
    let now = ctx.state.now;
    let mut flags = String::new();
    for (set, flag) in [
        (client.monitor, 'O'),
        (client.is_subscriber(), 'P'),
        (client.transaction.is_some(), 'x'),
        (client.no_evict, 'e'),
    ] {
        if set {
            flags.push(flag);
        }
    }
    if flags.is_empty() {
        flags.push('N');
    }
    let db = if client.id == ctx.client {
        ctx.db
    } else {
        client.db
    };
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "id={} addr={} laddr={} fd=8 name={} age={} idle={} flags={flags} db={db} sub={} psub={} \
         ssub={} multi={} qbuf=0 qbuf-free=0 argv-mem=0 multi-mem=0 rbs=1024 rbp=0 obl=0 oll=0 \
         omem=0 tot-mem=0 events=r cmd={} user=default redir=-1 resp={} lib-name={} lib-ver={}",
        client.id,
        client.address,
        client.local_address,
        String::from_utf8_lossy(&client.name),
        now.saturating_sub(client.since).as_secs(),
        now.saturating_sub(client.last_active).as_secs(),
        client.subscriptions(Kind::Channel).len(),
        client.subscriptions(Kind::Pattern).len(),
        client.subscriptions(Kind::Shard).len(),
        client
            .transaction
            .as_ref()
            .map_or(-1, |t| i64::try_from(t.queue.len()).unwrap_or(-1)),
        client.last_command,
        if client.resp3 { 3 } else { 2 },
        String::from_utf8_lossy(&client.library),
        String::from_utf8_lossy(&client.library_version),
    );
}
