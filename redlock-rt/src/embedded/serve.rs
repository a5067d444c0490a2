//! From a request to its reply: what is refused, what is queued, what runs.

use super::commands::{self, Command, Ctx, Run};
use super::parser::Parser;
use super::resp::{Blob, Fail, Reply};
use super::scripts::Scripts;
use super::state::State;
use super::{Shared, lock};
use std::sync::MutexGuard;

const NO_AUTH: &str = "NOAUTH Authentication required.";

impl Shared {
    /// Runs every complete request that the parser holds.
    pub(super) fn serve(&self, id: u64, parser: &mut Parser) {
        let mut scripts = lock(&self.scripts);
        loop {
            let mut state = lock(&self.state);
            // A client that was killed, or asked to leave, has no further command executed.
            let Some(client) = state.clients.get(&id) else {
                break;
            };
            let authenticated = client.authenticated;
            match parser.find(authenticated) {
                Ok(None) => break,
                Ok(Some(found)) => {
                    let request = parser.arguments(found);
                    state.tick();
                    let (reply, mut state) = self.request(&mut scripts, state, id, &request);
                    if let Some(reply) = reply {
                        state.reply(id, &reply);
                    }
                    if state.clients.get(&id).is_some_and(|client| client.closing) {
                        state.disconnect(id, false);
                    }
                }
                Err(fail) => {
                    state.reply(id, &fail.into());
                    state.disconnect(id, false);
                }
            }
            parser.consume();
        }
        self.finish(scripts);
    }

    pub(super) fn disconnect(&self, id: u64, discard: bool) {
        let scripts = lock(&self.scripts);
        lock(&self.state).disconnect(id, discard);
        self.finish(scripts);
    }

    /// Releases all locks, then wakes whoever was given something to read.
    fn finish(&self, scripts: MutexGuard<'_, Scripts>) {
        let wakers = std::mem::take(&mut lock(&self.state).wakers);
        drop(scripts);
        for waker in wakers {
            waker.wake();
        }
    }

    fn request<'a>(
        &'a self,
        scripts: &mut Scripts,
        mut state: MutexGuard<'a, State>,
        id: u64,
        args: &[&[u8]],
    ) -> (Option<Reply>, MutexGuard<'a, State>) {
        let command = match admit(&mut state, id, args) {
            Ok(command) => command,
            Err(refusal) => return (Some(refuse(&mut state, id, args, refusal)), state),
        };
        if let Some(transaction) = transaction(&mut state, id)
            && !command.has(commands::AT_ONCE)
        {
            transaction
                .queue
                .push(args.iter().map(|arg| Blob::from(*arg)).collect());
            return (Some(Reply::status("QUEUED")), state);
        }
        match command.run {
            Run::Exec => self.exec(scripts, state, id),
            _ => self.execute(scripts, state, id, command, args),
        }
    }

    fn exec<'a>(
        &'a self,
        scripts: &mut Scripts,
        mut state: MutexGuard<'a, State>,
        id: u64,
    ) -> (Option<Reply>, MutexGuard<'a, State>) {
        let queue = match commands::transactions::take_queue(&mut state, id) {
            Ok(Some(queue)) => queue,
            Ok(None) => return (Some(Reply::NilArray), state),
            Err(fail) => return (Some(fail.into()), state),
        };
        let mut replies = Vec::with_capacity(queue.len());
        for queued in queue {
            let args: Vec<&[u8]> = queued.iter().map(AsRef::as_ref).collect();
            // Admitted when it was queued.
            let Ok(command) = commands::find(&args) else {
                continue;
            };
            if command.has(commands::NOT_IN_EXEC) {
                let name = command.name.to_uppercase();
                let text = format!("ERR {name} isn't allowed for DENY BLOCKING client");
                replies.push(Fail::from(text).into());
                continue;
            }
            let reply;
            (reply, state) = self.execute(scripts, state, id, command, &args);
            replies.extend(reply);
        }
        (Some(Reply::Array(replies)), state)
    }

    fn execute<'a>(
        &'a self,
        scripts: &mut Scripts,
        mut state: MutexGuard<'a, State>,
        id: u64,
        command: &'static Command,
        args: &[&[u8]],
    ) -> (Option<Reply>, MutexGuard<'a, State>) {
        commands::monitor::report(&mut state, Some(id), command, args);
        state.calls[command.index()] += 1;
        match command.run {
            Run::Plain(run) => {
                let reply = run_plain(&mut state, id, run, args);
                (reply, state)
            }
            Run::Script(run) => {
                let Some(client) = state.clients.get(&id) else {
                    return (None, state);
                };
                let db = client.db;
                drop(state);
                let reply = run(scripts, id, db, args).unwrap_or_else(Reply::from);
                (Some(reply), lock(&self.state))
            }
            // Never queued, and told apart before.
            Run::Exec => (None, state),
        }
    }
}

fn run_plain(state: &mut State, id: u64, run: commands::Handler, args: &[&[u8]]) -> Option<Reply> {
    let client = state.clients.get_mut(&id)?;
    client.last_active = state.now;
    let (db, resp3) = (client.db, client.resp3);
    let mut ctx = Ctx {
        state,
        client: id,
        db,
        resp3,
        in_script: false,
    };
    ctx.db().sweep_some();
    let reply = run(&mut ctx, args).unwrap_or_else(Reply::from);
    let db = ctx.db;
    if let Some(client) = state.clients.get_mut(&id) {
        client.db = db;
    }
    Some(reply)
}

fn transaction(state: &mut State, id: u64) -> Option<&mut super::state::Transaction> {
    state.clients.get_mut(&id)?.transaction.as_mut()
}

/// A refused command spoils the transaction that it was for; a refused EXEC ends it.
fn refuse(state: &mut State, id: u64, args: &[&[u8]], refusal: Fail) -> Reply {
    if args
        .first()
        .is_some_and(|name| name.eq_ignore_ascii_case(b"exec"))
    {
        commands::transactions::abandon(state, id);
        let reason = refusal.0.strip_prefix(b"ERR ").unwrap_or(&refusal.0);
        let mut text = b"EXECABORT Transaction discarded because of: ".to_vec();
        text.extend_from_slice(reason);
        return Fail::from(text).into();
    }
    if let Some(transaction) = transaction(state, id) {
        transaction.aborted = true;
    }
    refusal.into()
}

/// Finds the command and decides whether this client may send it now.
fn admit(state: &mut State, id: u64, args: &[&[u8]]) -> Result<&'static Command, Fail> {
    let command = commands::find(args)?;
    let Some(client) = state.clients.get_mut(&id) else {
        return Ok(command);
    };
    if !client.authenticated && !command.has(commands::NO_AUTH) {
        return Err(NO_AUTH.into());
    }
    if !client.resp3 && client.is_subscriber() && !command.has(commands::WHILE_SUBSCRIBED) {
        return Err(format!(
            "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET \
             are allowed in this context",
            command.name
        )
        .into());
    }
    client.last_command = command.name;
    Ok(command)
}
