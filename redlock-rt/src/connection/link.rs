//! One live connection and the calls on it.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, ServerError, Value};
use tokio::task::AbortHandle;
use tokio::task::coop::unconstrained;

use super::checked::Flaw;
use super::credentials::log_in_again;
use super::dialer::Dialer;
use super::driver::{Driver, InProgress};
use super::fast::{Begun, FastPaths};
use super::fault::{Cause, Fault, true_code};
use super::greeting::Reached;
use super::info::Info;
use super::journal::Right;
use super::reach::reach;
use super::server::{CurrentServer, Tie};
use super::spawner::Spawner;
use super::until::{self, Had, Until};
use crate::clock;
use crate::wire::{Call, Malformed, Publish, Reply, Script};

/// The server-side client of a connection, so that the next connection can kill it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Identity {
    /// The server process; a restarted one counts its clients from one again.
    pub(super) run_id: String,
    pub(super) client_id: i64,
}

/// Called when a link ends, so that dependent state is verified.
pub(super) type OnDown = Arc<dyn Fn() + Send + Sync>;

/// A live connection. It is dead after any command without a reply: bytes in its buffers may run at
/// any time, so nothing is sent after them.
pub(super) struct Link {
    conn: MultiplexedConnection,
    alive: Arc<AtomicBool>,
    opened: Instant,
    /// Whether any call was answered here.
    answered: AtomicBool,
    /// Why this client closed it, for the other calls in progress.
    given_up: OnceLock<&'static str>,
    flaw: Flaw,
    driver: Arc<Driver>,
    /// Polls the driver; its end closes the connection.
    task: AbortHandle,
    /// The scripts that the server will know when it reads the next command, one bit each.
    known: [AtomicU64; 2],
    fast_paths: FastPaths,
    tie: Arc<Tie>,
    server: Arc<CurrentServer>,
    /// The server's name in errors.
    place: Arc<str>,
    /// `None` where an ACL forbids to ask.
    identity: Option<Identity>,
    /// How many replicas the server has had at most since it was connected to; -1: unknown.
    replicas: AtomicI64,
    /// Why replicas cannot be waited for there: with WAIT, and with WAITAOF.
    cannot_wait: [OnceLock<Fault>; 2],
    /// How scripts publish there.
    publish: Publish,
}

/// Marks the link dead when its driver ends, also when an ending runtime drops it.
struct Down {
    alive: Arc<AtomicBool>,
    on_down: OnDown,
}

impl Drop for Down {
    fn drop(&mut self) {
        self.alive.store(false, Ordering::Release);
        (self.on_down)();
    }
}

/// Why a connection is closed on which nothing can be relied on any more.
const NONSENSE: &str = "the server sent nonsense";

impl Link {
    /// Dials, logs in, and asks for the client id and the server. `within`: how long all of it may
    /// take; the caller enforces this limit.
    pub(super) async fn open(
        dialer: &Dialer,
        spawner: &Spawner,
        server: &Arc<CurrentServer>,
        within: Duration,
        on_down: OnDown,
    ) -> Result<Self, Fault> {
        let open = |target| async {
            let dial = dialer.clone();
            let stream = spawner.run(async move { dial.dial(&target, within).await });
            let interrupted = || Err(std::io::ErrorKind::Interrupted.into());
            stream.await.unwrap_or_else(interrupted)
        };
        let Reached {
            stream,
            info,
            client_id,
            number,
            at,
            expiry,
        } = reach(dialer, server, within, open).await?;
        let flaw = stream.flaw();
        // The library applies its own time-outs: they depend on the caller's limit, and a time-out
        // ends the link.
        let config = redis::AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_connection_timeout(None)
            .set_pipeline_buffer_size(1024);
        let (conn, driver) = MultiplexedConnection::new_with_config(&silent(), stream, config)
            .await
            .map_err(Fault::of_dialing)?;
        let alive = Arc::new(AtomicBool::new(true));
        let down = Down {
            alive: Arc::clone(&alive),
            on_down,
        };
        let Some(home) = spawner.site() else {
            let why = "there is no tokio runtime here";
            return Err(Fault::not_connected(std::io::ErrorKind::Other, why));
        };
        let (driver, task) = Driver::new(home.clone(), driver);
        let (told, seen) = (Arc::clone(server), flaw.clone());
        let again = expiry.map(|expiry| log_in_again(conn.clone(), dialer.clone(), expiry));
        let task = home.start(async move {
            let _down = down;
            match again {
                None => task.await,
                Some(again) => {
                    tokio::select! {
                        biased;
                        () = task => {}
                        () = again => {}
                    }
                }
            }
            // Not reached if this client closes the link, or its runtime ends.
            let why = seen.why();
            told.lost(why.as_deref().unwrap_or("the connection was closed"));
        });
        let end = task.clone();
        let identity = info.run_id.clone().zip(client_id);
        let link = Self {
            conn,
            alive,
            opened: clock::now(),
            answered: AtomicBool::new(false),
            given_up: OnceLock::new(),
            flaw,
            driver,
            task,
            known: Default::default(),
            fast_paths: FastPaths::new(),
            tie: Tie::new(at, move || end.abort()),
            identity: identity.map(|(run_id, client_id)| Identity { run_id, client_id }),
            place: Arc::clone(server.place()),
            server: Arc::clone(server),
            replicas: AtomicI64::new(info.replicas.map_or(-1, i64::from)),
            cannot_wait: Default::default(),
            publish: match info.has_shard_channels {
                true => Publish::InShard,
                false => Publish::Everywhere,
            },
        };
        server.arrive(number, &info, &link.tie)?;
        let asked = [
            (client_id.is_some(), Right::ClientId),
            (info.run_id.is_some(), Right::Info),
        ];
        for (_, right) in asked.into_iter().filter(|(answered, _)| !answered) {
            server.is_missing(right);
        }
        Ok(link)
    }

    pub(super) fn conn(&self) -> MultiplexedConnection {
        self.conn.clone()
    }

    pub(super) fn fast_paths(&self) -> &FastPaths {
        &self.fast_paths
    }

    /// How scripts publish there.
    pub(super) fn publish(&self) -> Publish {
        self.publish
    }

    pub(super) fn identity(&self) -> Option<&Identity> {
        self.identity.as_ref()
    }

    pub(super) fn has_answered(&self) -> bool {
        self.answered.load(Ordering::Relaxed)
    }

    pub(super) fn age(&self) -> Duration {
        clock::now().saturating_duration_since(self.opened)
    }

    pub(super) fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire) && !self.tie.is_left()
    }

    /// Closes the connection: nothing is read from it or sent on it any more.
    pub(super) fn break_off(&self) {
        self.alive.store(false, Ordering::Release);
        self.task.abort();
    }

    /// As [`break_off`](Self::break_off), for a fault of the server.
    pub(super) fn give_up(&self, why: &'static str) {
        let _ = self.given_up.set(why);
        self.lose(why);
    }

    /// A reply was one that its call cannot give: the replies on this link may be those to other
    /// calls.
    pub(super) fn misread(&self, malformed: Malformed) -> Fault {
        self.give_up(NONSENSE);
        Fault::malformed(malformed).at(&self.place)
    }

    /// As [`break_off`](Self::break_off), for a reason outside of this client.
    fn lose(&self, why: &str) {
        if self.is_alive() {
            self.server.lost(why);
        }
        self.break_off();
    }

    /// Ends a broken connection's client on this server process, so that its remaining bytes never
    /// run. Returns whether this is certain.
    pub(super) async fn kill_stale_client(&self, stale: &Identity) -> Result<bool, Fault> {
        let mut kill = redis::cmd("CLIENT");
        kill.arg("KILL").arg("ID").arg(stale.client_id);
        let reply = self.conn.clone().send_packed_command(&kill).await;
        match reply.map_err(Fault::of_dialing)? {
            Value::ServerError(error) => {
                let fault = Fault::from_server(error);
                // A busy server is asked again; a server that forbids the command never answers.
                match fault.cause() {
                    Cause::Passing => Err(fault.while_dialing()),
                    _ => Ok(false),
                }
            }
            reply => Ok(matches!(reply, Value::Int(_))),
        }
    }

    /// Starts a call. It is sent when the exchange is first polled.
    pub(super) fn call(self: &Arc<Self>, call: Call) -> Exchange {
        match self.fast_paths.of(&call) {
            Some(path) => self.call_fast(call, path),
            None => self.call_script(call),
        }
    }

    /// As [`call`](Self::call), but sent only once: if the server did not know the script, it knows
    /// it now, and the result is [`Cause::Loaded`].
    pub(super) fn call_once(self: &Arc<Self>, call: Call) -> Exchange {
        let link = Arc::clone(self);
        let script = call.script();
        let command = evalsha_command(&call, link.publish);
        self.exchange(async move { link.evalsha(script, &command).await })
    }

    /// As [`call`](Self::call), for a caller that may not read the reply: if the server might not
    /// know the script, it is loaded in the same write.
    pub(super) fn last_call(self: &Arc<Self>, call: Call) -> Exchange {
        let script = call.script();
        if let Some(path) = self.fast_paths.of_last(&call) {
            return self.call_fast(call, path);
        }
        if self.knows(script) {
            return self.call_script(call);
        }
        let link = Arc::clone(self);
        let command = evalsha_command(&call, link.publish);
        self.exchange(async move {
            // Known from here on: later commands arrive after the load.
            link.learned(script);
            match link.send_behind(load_command(script), &command).await? {
                // The load was refused; loading once more returns the reason.
                Err(error) if error.code() == "NOSCRIPT" => {
                    link.evalsha_loaded(script, &command).await
                }
                reply => reply.map_err(Fault::from_server),
            }
        })
    }

    /// As [`call`](Self::call), for keys of a slot on its way to this node.
    pub(super) fn call_asking(self: &Arc<Self>, call: Call) -> Exchange {
        let link = Arc::clone(self);
        let script = call.script();
        let command = evalsha_command(&call, link.publish);
        self.exchange(async move {
            let asking = || redis::cmd("ASKING");
            match link.send_behind(asking(), &command).await? {
                Err(error) if error.code() == "NOSCRIPT" => {
                    let mut conn = link.conn.clone();
                    let loaded = link.load(&mut conn, script).await;
                    if loaded.cause() != Cause::Loaded {
                        return Err(loaded);
                    }
                    let reply = link.send_behind(asking(), &command).await?;
                    reply.map_err(Fault::from_server)
                }
                reply => reply.map_err(Fault::from_server),
            }
        })
    }

    fn call_script(self: &Arc<Self>, call: Call) -> Exchange {
        let link = Arc::clone(self);
        self.exchange(async move { link.run_script(&call).await })
    }

    /// Sends the script of a call.
    async fn run_script(&self, call: &Call) -> Result<Reply, Fault> {
        let command = evalsha_command(call, self.publish);
        let answer = self.evalsha_loaded(call.script(), &command).await;
        self.fast_paths.heard(call, &answer);
        answer
    }

    fn exchange(
        self: &Arc<Self>,
        future: impl Future<Output = Result<Reply, Fault>> + Send + 'static,
    ) -> Exchange {
        self.exchange_of(async move { future.await.map(Begun::Answered) })
    }

    pub(super) fn exchange_of(
        self: &Arc<Self>,
        future: impl Future<Output = Result<Begun, Fault>> + Send + 'static,
    ) -> Exchange {
        Exchange {
            _in_progress: self.driver.count(),
            link: Arc::clone(self),
            future: Box::pin(future),
            made: clock::stamp(),
            polled: false,
            found_taken: false,
            answer: None,
        }
    }

    async fn evalsha_loaded(&self, script: &Script, command: &Cmd) -> Result<Reply, Fault> {
        match self.evalsha(script, command).await {
            // Another SCRIPT FLUSH may come in between: then the caller tries again.
            Err(fault) if fault.cause() == Cause::Loaded => self.evalsha(script, command).await,
            reply => reply,
        }
    }

    async fn evalsha(&self, script: &Script, command: &Cmd) -> Result<Reply, Fault> {
        let mut conn = self.conn.clone();
        match self.send(&mut conn, command).await? {
            Err(error) if error.code() == "NOSCRIPT" => {
                // Boxed: it is rare, and the future of every call would contain it.
                Err(Box::pin(self.load(&mut conn, script)).await)
            }
            reply => {
                self.learned(script);
                reply.map_err(Fault::from_server)
            }
        }
    }

    /// Sends two commands in one write; returns the reply to the second.
    async fn send_behind(
        &self,
        first: Cmd,
        command: &Cmd,
    ) -> Result<Result<Reply, ServerError>, Fault> {
        let mut both = redis::pipe();
        both.add_command(first);
        both.add_command(command.clone());
        let answers = self.conn.clone().send_packed_commands(&both, 0, 2).await;
        // An error concerns the connection, and so both commands.
        self.heard(answers.map(|mut answers| answers.pop().unwrap_or(Value::Nil)))
    }

    /// How many replicas the server has had at most since it was connected to; `None`: unknown.
    pub(super) fn replicas(&self) -> Option<u32> {
        u32::try_from(self.replicas.load(Ordering::Relaxed)).ok()
    }

    /// Why replicas cannot be waited for, if that was found out.
    pub(super) fn cannot_wait(&self, disk: bool) -> Option<&Fault> {
        self.cannot_wait[usize::from(disk)].get()
    }

    /// Sends a call that writes, and waits until enough servers have what was written. The
    /// connection is for such calls only, because the server reads nothing from it meanwhile.
    pub(super) async fn call_and_wait(
        &self,
        call: &Call,
        until: Until,
    ) -> Result<(Reply, Had), Fault> {
        let mut commands = redis::pipe();
        if until.count {
            commands.cmd("INFO").arg("replication");
        }
        commands.add_command(load_command(call.script()));
        commands.add_command(evalsha_command(call, self.publish));
        commands.add_command(until.command());
        let answers = self
            .conn
            .clone()
            .send_packed_commands(&commands, 0, 3 + usize::from(until.count))
            .await;
        let mut answers = match answers {
            Ok(answers) => {
                let mut answers = answers.into_iter();
                if until.count
                    && let Some(more) = answers.next().as_ref().and_then(Info::replicas_of)
                {
                    self.replicas.fetch_max(more.into(), Ordering::Relaxed);
                }
                answers.skip(1)
            }
            Err(error) => {
                return Err(self
                    .heard(Err(error))
                    .err()
                    .unwrap_or_else(Fault::not_redis));
            }
        };
        let mut next = || self.heard(Ok(answers.next().unwrap_or(Value::Nil)));
        let (reply, waited) = (next()?, next()?);
        let reply = reply.map_err(Fault::from_server)?;
        match waited {
            Ok(waited) => Ok((reply, until.had(&waited).ok_or_else(Fault::not_redis)?)),
            // The master was demoted meanwhile, or somebody sent CLIENT UNBLOCK.
            Err(error) if error.code() == "UNBLOCKED" => {
                Err(Fault::unanswered(std::io::Error::other(error.to_string())))
            }
            Err(error) if until::is_without_aof(&error) => Err(Fault::without_aof(error)),
            Err(error) => Err(self.cannot_wait[usize::from(until.disk)]
                .get_or_init(|| Fault::cannot_wait(error, until.disk))
                .clone()),
        }
    }

    fn knows(&self, script: &Script) -> bool {
        let (word, bit) = place(script);
        let word = self.known.get(word);
        word.is_some_and(|word| word.load(Ordering::Relaxed) & bit != 0)
    }

    fn learned(&self, script: &Script) {
        let (word, bit) = place(script);
        if let Some(word) = self.known.get(word)
            && word.load(Ordering::Relaxed) & bit == 0
        {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Loads a script that the server does not know.
    async fn load(&self, conn: &mut MultiplexedConnection, script: &Script) -> Fault {
        tracing::debug!(script = script.name(), "loading a script");
        match self.send(conn, &load_command(script)).await {
            Ok(Ok(_)) => Fault::loaded(),
            Ok(Err(error)) => Fault::from_server(error),
            Err(fault) => fault,
        }
    }

    pub(super) async fn send(
        &self,
        conn: &mut MultiplexedConnection,
        command: &Cmd,
    ) -> Result<Result<Reply, ServerError>, Fault> {
        self.heard(conn.send_packed_command(command).await)
    }

    fn heard(
        &self,
        answer: Result<Value, RedisError>,
    ) -> Result<Result<Reply, ServerError>, Fault> {
        if answer.is_ok() {
            self.answered.store(true, Ordering::Relaxed);
        }
        match answer {
            Ok(Value::ServerError(error)) => {
                if true_code(error.code(), error.details().unwrap_or_default()) == "READONLY" {
                    // A demoted master stays demoted: the address may lead to the new one.
                    self.give_up("the server is a replica now");
                }
                Ok(Err(error))
            }
            Ok(value) => Ok(Ok(reply(value)?)),
            Err(error) => {
                let fault = Fault::from_client(error);
                if !fault.may_have_run() {
                    return Err(fault);
                }
                if fault.is_nonsense() {
                    self.give_up(NONSENSE);
                    return Err(fault);
                }
                // The reply to an earlier call.
                if let Some(why) = self.flaw.why() {
                    self.lose(&why);
                    return Err(Fault::unanswered(given_up(&why)));
                }
                // For a closed connection, the client library only reports a broken pipe.
                if let Some(why) = self.given_up.get() {
                    return Err(Fault::unanswered(given_up(why)));
                }
                self.lose("the connection broke");
                Err(fault)
            }
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("alive", &self.is_alive())
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

/// The greeting has sent all setup commands. For a refusal, the crate would keep the text and drop
/// the code.
pub(super) fn silent() -> redis::RedisConnectionInfo {
    redis::RedisConnectionInfo::default().set_skip_set_lib_name()
}

/// The connection leads to an abandoned server: its replies do not count.
fn left() -> std::io::Error {
    let why = "the connection was left: the address leads to another server process";
    std::io::Error::new(std::io::ErrorKind::ConnectionAborted, why)
}

/// A connection ended before the call was answered, by this client.
fn given_up(why: &str) -> std::io::Error {
    let why = format!("the connection was given up: {why}");
    std::io::Error::new(std::io::ErrorKind::ConnectionAborted, why)
}

/// The position of a script's bit.
fn place(script: &Script) -> (usize, u64) {
    const BITS: usize = u64::BITS as usize;
    (script.number() / BITS, 1 << (script.number() % BITS))
}

fn load_command(script: &Script) -> Cmd {
    let mut load = redis::cmd("SCRIPT");
    load.arg("LOAD").arg(script.text());
    load
}

fn evalsha_command(call: &Call, publish: Publish) -> Cmd {
    const EVALSHA: &str = "EVALSHA";
    const LONGEST_COUNT: usize = 20;
    let sha = call.script().sha();
    // Large enough from the start: growing it word by word was a tenth of the cost of a lock here.
    let mut command = Cmd::with_capacity(
        3 + call.word_count(),
        EVALSHA.len() + sha.len() + LONGEST_COUNT + call.size(),
    );
    command.arg(EVALSHA).arg(sha).arg(call.key_count());
    for word in call.words_for(publish) {
        command.arg(word);
    }
    command
}

fn reply(value: Value) -> Result<Reply, Fault> {
    Ok(match value {
        Value::Nil => Reply::Nil,
        Value::Int(number) => Reply::Int(number),
        Value::BulkString(bytes) => {
            Reply::Text(String::from_utf8(bytes).map_err(Fault::unreadable)?)
        }
        Value::SimpleString(text) => Reply::Text(text),
        Value::Okay => Reply::Text("OK".into()),
        Value::Array(values) => {
            Reply::List(values.into_iter().map(reply).collect::<Result<_, _>>()?)
        }
        Value::ServerError(error) => return Err(Fault::from_part(error)),
        other => {
            let why = format!("a reply of a type that no script gives: {other:?}");
            return Err(Fault::unreadable(std::io::Error::other(why)));
        }
    })
}

/// A call in progress on one link.
///
/// It needs no runtime of its own, so another task may take it over at any point: a caller that
/// stops hands it to the release queue, which reads the outcome.
pub(crate) struct Exchange {
    _in_progress: InProgress,
    link: Arc<Link>,
    future: Pin<Box<dyn Future<Output = Result<Begun, Fault>> + Send>>,
    made: Instant,
    polled: bool,
    /// The server has said that somebody has the lock, and the script is asked for how long.
    found_taken: bool,
    /// A reply that came while no caller waited.
    answer: Option<Result<Reply, Fault>>,
}

impl Exchange {
    /// A moment before the call was sent. A lease is counted from here.
    pub(crate) fn made(&self) -> Instant {
        self.made
    }

    /// Whether the call was handed to the connection, which the first poll does.
    pub(crate) fn is_sent(&self) -> bool {
        self.polled
    }

    /// Whether the server has said that somebody has the lock, though the call is not over.
    pub(crate) fn found_taken(&self) -> bool {
        self.found_taken
    }

    /// Hands the call to the connection, and writes it to the socket as far as the socket accepts
    /// it without waiting. Needs no runtime.
    pub(crate) fn send(&mut self) {
        if self.answer.is_none() {
            // A caller that waits for the reply polls again, with a waker. A used-up task budget
            // would keep the call here.
            let mut call = pin!(unconstrained(poll_fn(|cx| self.poll_call(cx))));
            match call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(answer) => self.answer = Some(answer),
                Poll::Pending => self.link.driver.push(),
            }
        }
    }

    fn poll_call(&mut self, cx: &mut Context<'_>) -> Poll<Result<Reply, Fault>> {
        if !self.polled && self.link.tie.is_left() {
            return Poll::Ready(Err(Fault::unreachable(left())));
        }
        self.polled = true;
        let answer = loop {
            match std::task::ready!(self.future.as_mut().poll(cx)) {
                Ok(Begun::Answered(reply)) => break Ok(reply),
                Ok(Begun::Unsettled(call, is_taken)) => {
                    self.found_taken = is_taken;
                    let link = Arc::clone(&self.link);
                    self.future =
                        Box::pin(async move { link.run_script(&call).await.map(Begun::Answered) });
                }
                Err(fault) => break Err(fault),
            }
        };
        // A reply of the old server is true only there.
        Poll::Ready(match self.link.tie.is_left() {
            true => Err(Fault::unanswered(left()).at(&self.link.place)),
            false => answer.map_err(|fault| {
                let fault = fault.said_at(self.link.tie.at());
                fault.at(&self.link.place)
            }),
        })
    }

    /// As [`Link::misread`], for this call.
    pub(crate) fn misread(&self, malformed: Malformed) -> Fault {
        self.link.misread(malformed)
    }

    /// The server's name in errors.
    pub(super) fn place(&self) -> &Arc<str> {
        &self.link.place
    }

    pub(super) fn into_link(self) -> Arc<Link> {
        self.link
    }

    /// Stops waiting: the link is closed, since the call may still be in progress on it.
    pub(crate) fn abandon(self) {
        self.link.give_up("no answer in time");
    }
}

impl Future for Exchange {
    type Output = Result<Reply, Fault>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.answer.take() {
            Some(answer) => Poll::Ready(answer),
            None => self.poll_call(cx),
        }
    }
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange")
            .field("made", &self.made)
            .field("sent", &self.polled)
            .finish_non_exhaustive()
    }
}
