//! The state that the sessions of an engine share, and the way from a request to its reply.

use super::commands::{self, Command, CommandRun, Ctx, Handler};
use super::limits::{IDLE, IDLE_UNKNOWN};
use super::outbox::Outbox;
use super::parser::Parser;
use super::resp::{Fail, RespReply};
use super::scripts::Scripts;
use super::state::{ScriptRun, ServerState, TimeAndRandom, lock};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// See the lock order of the module.
pub(super) struct SharedServer {
    scripts: Mutex<Scripts>,
    state: Arc<Mutex<ServerState>>,
}

impl SharedServer {
    pub(super) fn new(password: Option<&[u8]>, source: TimeAndRandom) -> Self {
        let state = Arc::new(Mutex::new(ServerState::new(
            password.map(Into::into),
            source,
        )));
        let scripts = Mutex::new(Scripts::new(Arc::clone(&state)));
        Self { scripts, state }
    }

    pub(super) fn register(&self) -> (u64, Arc<Outbox>) {
        lock(&self.state).register()
    }

    pub(super) fn listens_on(&self, port: u16) {
        lock(&self.state).port = port;
    }

    pub(super) fn has_password(&self) -> bool {
        lock(&self.state).password.is_some()
    }

    /// How long the connection of this client may be silent.
    pub(super) fn patience(&self, id: u64) -> Duration {
        match lock(&self.state).clients.get(&id) {
            Some(client) if !client.authenticated => IDLE_UNKNOWN,
            Some(client) if client.is_subscriber() => Duration::MAX,
            _ => IDLE,
        }
    }

    /// Runs every complete request in the parser, up to a wrong password; returns whether there was
    /// one. `out`: the outbox of this client, since a restart gives its id to another.
    pub(super) fn serve(&self, (id, out): (u64, &Outbox), parser: &mut Parser) -> bool {
        let mut scripts = lock(&self.scripts);
        let mut is_wrong = false;
        while !(is_wrong || out.is_closed() || out.is_full()) {
            let mut state = lock(&self.state);
            let Some(client) = state.clients.get(&id) else {
                break;
            };
            parser.set_unknown(!client.authenticated);
            match parser.find() {
                Ok(None) => break,
                Ok(Some(request)) => {
                    if is_http(&request) {
                        let why = "it speaks HTTP, as a page in a browser may be made to";
                        state.cut_off(id, why);
                        break;
                    }
                    state.tick();
                    let (reply, mut state) = self.request(&mut scripts, state, id, &request);
                    is_wrong = matches!(&reply, Err(fail) if fail.0.starts_with(b"WRONGPASS"));
                    state.reply(id, &reply.unwrap_or_else(RespReply::from));
                    state.relieve();
                }
                Err(fail) => {
                    state.reply(id, &fail.into());
                    state.disconnect(id, false);
                }
            }
            parser.consume();
        }
        out.receives(parser.buffered());
        lock(&self.state).relieve();
        self.finish(scripts);
        is_wrong
    }

    /// As in [`serve`](Self::serve).
    pub(super) fn disconnect(&self, (id, out): (u64, &Outbox), discard: bool) {
        let scripts = lock(&self.scripts);
        if !out.is_closed() {
            lock(&self.state).disconnect(id, discard);
        }
        self.finish(scripts);
    }

    pub(super) fn restart(&self) {
        let mut scripts = lock(&self.scripts);
        scripts.flush();
        lock(&self.state).restart();
        self.finish(scripts);
    }

    /// Releases all locks, then wakes the readers that have something to read.
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
        mut state: MutexGuard<'a, ServerState>,
        id: u64,
        args: &[&[u8]],
    ) -> (Result<RespReply, Fail>, MutexGuard<'a, ServerState>) {
        let (command, db) = match admit(&state, id, args) {
            Ok(admitted) => admitted,
            Err(refusal) => return (Err(refusal), state),
        };
        match command.run {
            CommandRun::Plain(run) => (run_plain(&mut state, id, db, run, args), state),
            CommandRun::Script(run) => {
                drop(state);
                let by = ScriptRun { client: id, db };
                (run(scripts, by, args), lock(&self.state))
            }
        }
    }
}

/// As Redis since 3.2.7: otherwise the body of a request would run as commands.
fn is_http(request: &[&[u8]]) -> bool {
    let first = request.first().copied().unwrap_or_default();
    first.eq_ignore_ascii_case(b"post") || first.eq_ignore_ascii_case(b"host:")
}

fn run_plain(
    state: &mut ServerState,
    client: u64,
    db: usize,
    run: Handler,
    args: &[&[u8]],
) -> Result<RespReply, Fail> {
    let mut ctx = Ctx { state, client, db };
    ctx.db().sweep_some();
    let reply = run(&mut ctx, args);
    let db = ctx.db;
    if let Some(client) = state.clients.get_mut(&client) {
        client.db = db;
    }
    reply
}

/// Finds the command and checks that this client may send it now; also returns its database.
fn admit(state: &ServerState, id: u64, args: &[&[u8]]) -> Result<(&'static Command, usize), Fail> {
    let command = commands::find(args)?;
    let client = state.clients.get(&id).ok_or("ERR client is gone")?;
    if !client.authenticated && !command.has(commands::NO_AUTH) {
        return Err("NOAUTH Authentication required.".into());
    }
    if client.is_subscriber() && !command.has(commands::WHILE_SUBSCRIBED) {
        return Err(format!(
            "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET \
             are allowed in this context",
            command.name
        )
        .into());
    }
    Ok((command, client.db))
}
