//! One live connection and the calls on it.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tokio::task::AbortHandle;

use super::exchange::{Exchange, Road};
use super::fast::FastPaths;
use super::log_in_again::log_in_again;
use super::wait_for_replicas::{Had, Until, is_refused_for_good, is_without_aof, was_interrupted};
use crate::clock;
use crate::connection::dial::Dialer;
use crate::connection::fault::{Cause, Fault};
use crate::connection::server::{CurrentServer, Info, Reached, Right, Tie, reach};
use crate::connection::spawner::Spawner;
use crate::connection::stream::{
    Driver, Ended, Multiplexer, Pending, Unanswered, WakeUp, encode, reply,
};
use crate::wire::{Call, Malformed, Publish, Reply, Script, ServerError, Value};

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
    multiplexer: Arc<Multiplexer>,
    alive: Arc<AtomicBool>,
    opened: Instant,
    /// Whether any call was answered here.
    answered: AtomicBool,
    /// Why this client closed it, for the other calls in progress.
    given_up: OnceLock<&'static str>,
    driver: Arc<Driver>,
    /// Polls the driver; its end closes the connection.
    task: AbortHandle,
    /// The scripts that the server will know when it reads the next command, one bit each.
    known: [AtomicU64; 2],
    fast_paths: FastPaths,
    tie: Arc<Tie>,
    pub(super) server: Arc<CurrentServer>,
    /// The server's name in errors.
    place: Arc<str>,
    /// `None` where an ACL forbids to ask.
    identity: Option<Identity>,
    info: Info,
    /// How many replicas the server has, or has had at most since it was connected to; -1: unknown.
    replicas: AtomicI64,
    /// Why replicas cannot be waited for there: with WAIT, and with WAITAOF.
    cannot_wait: [OnceLock<Fault>; 2],
    /// How scripts publish there.
    publish: Publish,
    /// How long callers wait for a reply.
    patience: Duration,
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
    /// take; the caller enforces this limit. `patience`: how long callers will wait for a reply.
    pub(super) async fn open(
        dialer: &Dialer,
        spawner: &Spawner,
        server: &Arc<CurrentServer>,
        within: Duration,
        patience: Duration,
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
        let (multiplexer, driving) = Multiplexer::new(stream);
        let alive = Arc::new(AtomicBool::new(true));
        let down = Down {
            alive: Arc::clone(&alive),
            on_down,
        };
        let Some(home) = spawner.site() else {
            let why = "there is no tokio runtime here";
            return Err(Fault::not_connected(std::io::ErrorKind::Other, why));
        };
        let (driver, task) = Driver::new(home.clone(), &multiplexer, driving);
        let (told, seen) = (Arc::clone(server), Arc::clone(&multiplexer));
        let again = expiry.map(|expiry| {
            let multiplexer = Arc::clone(&multiplexer);
            log_in_again(multiplexer, dialer.clone(), expiry)
        });
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
            let flaw = seen.ended().and_then(|ended| ended.flaw());
            told.lost(flaw.as_deref().unwrap_or("the connection was closed"));
        });
        let end = task.clone();
        let identity = info.run_id.clone().zip(client_id);
        let link = Self {
            multiplexer,
            alive,
            opened: clock::now(),
            answered: AtomicBool::new(false),
            given_up: OnceLock::new(),
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
            patience,
            publish: match info.has_shard_channels {
                true => Publish::InShard,
                false => Publish::Everywhere,
            },
            info,
        };
        let info = &link.info;
        server.arrive(number, info, &link.tie)?;
        let asked = [
            (client_id.is_some(), Right::ClientId),
            (info.run_id.is_some(), Right::Info),
        ];
        for (_, right) in asked.into_iter().filter(|(answered, _)| !answered) {
            server.is_missing(right);
        }
        Ok(link)
    }

    pub(super) fn fast_paths(&self) -> &FastPaths {
        &self.fast_paths
    }

    /// How scripts publish there.
    pub(super) fn publish(&self) -> Publish {
        self.publish
    }

    /// How long callers wait for a reply.
    pub(super) fn patience(&self) -> Duration {
        self.patience
    }

    /// As [`Multiplexer::gives_up_at`].
    pub(super) fn gives_up_at(&self, patience: Duration) -> Option<Instant> {
        self.multiplexer.gives_up_at(patience)
    }

    pub(super) fn info(&self) -> &Info {
        &self.info
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
        self.multiplexer.close();
        self.task.abort();
    }

    /// As [`break_off`](Self::break_off), for a fault of the server.
    pub(super) fn give_up(&self, why: &'static str) {
        let _ = self.given_up.set(why);
        self.lose(why);
    }

    /// A reply was one that its call cannot give: the replies on this link may be those to other
    /// calls.
    pub(super) fn misread<R>(&self, malformed: Malformed<R>) -> Fault
    where
        R: fmt::Debug + Send + Sync + 'static,
    {
        self.give_up(NONSENSE);
        Fault::nonsense(malformed).at(&self.place)
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
        let id = stale.client_id.to_string();
        let kill = [&b"CLIENT"[..], b"KILL", b"ID", id.as_bytes()];
        let sent = self.send(WakeUp::default(), |out| [encode::command(out, &kill)])?;
        let [reply] = sent.await;
        match reply.map_err(|unanswered| unanswered.fault().while_dialing())? {
            Value::Error(error) => {
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
        self.call_at(call, clock::stamp())
    }

    /// As [`call`](Self::call). `made`: a moment that is not after the present one.
    pub(super) fn call_at(self: &Arc<Self>, call: Call, made: Instant) -> Exchange {
        let path = self.fast_paths.of(&call);
        let road = path.map_or(Road::Script, Road::Plain);
        Exchange::new(Arc::clone(self), call, road, made)
    }

    /// As [`call`](Self::call), but sent only once: if the server did not know the script, it knows
    /// it now, and the result is [`Cause::Loaded`]. May be polled with a mutex held.
    pub(super) fn call_once(self: &Arc<Self>, call: Call) -> Exchange {
        self.exchange(call, Road::Once)
    }

    /// As [`call`](Self::call), for a caller that may not read the reply: if the server might not
    /// know the script, it is loaded in the same write.
    pub(super) fn last_call(self: &Arc<Self>, call: Call) -> Exchange {
        let road = match self.fast_paths.of_last(&call) {
            Some(path) => Road::Plain(path),
            None if self.knows(call.script()) => Road::Script,
            None => Road::Loading,
        };
        self.exchange(call, road)
    }

    /// As [`call`](Self::call), for keys of a slot on its way to this node.
    pub(super) fn call_asking(self: &Arc<Self>, call: Call) -> Exchange {
        self.exchange(call, Road::Asking)
    }

    fn exchange(self: &Arc<Self>, call: Call, road: Road) -> Exchange {
        Exchange::new(Arc::clone(self), call, road, clock::stamp())
    }

    /// Loads the script of a call, and runs it, in one write.
    pub(super) async fn load_and_run(&self, call: &Call) -> Result<Reply, Fault> {
        let load = load_command(call.script());
        let sent = self.send(WakeUp::default(), |out| {
            let loaded = encode::command(out, &load);
            [loaded, encode::evalsha(out, call, self.publish)]
        })?;
        // Known from here on: later commands arrive after the load.
        self.learned(call.script());
        let [_, answer] = sent.await;
        match self.heard(answer)? {
            // The load was refused; loading once more returns the reason.
            Err(error) if error.code() == "NOSCRIPT" => {
                self.load(call.script(), WakeUp::default()).await?;
                self.run_known(call, WakeUp::default()).await
            }
            reply => reply.map_err(Fault::from_server),
        }
    }

    pub(super) async fn ask_and_run(&self, call: &Call) -> Result<Reply, Fault> {
        let answer = match self.run_asking(call).await? {
            Err(error) if error.code() == "NOSCRIPT" => {
                self.load(call.script(), WakeUp::default()).await?;
                self.run_asking(call).await?
            }
            answer => answer,
        };
        answer.map_err(Fault::from_server)
    }

    /// Runs a script that the server should know; if it does not, the script is loaded, and the
    /// result is [`Cause::Loaded`].
    pub(super) async fn run_known(&self, call: &Call, caller: WakeUp<'_>) -> Result<Reply, Fault> {
        let sent = self.send(caller, |out| [encode::evalsha(out, call, self.publish)])?;
        let [answer] = sent.await;
        match self.heard(answer)? {
            Err(error) if error.code() == "NOSCRIPT" => {
                self.load(call.script(), caller).await?;
                Err(Fault::loaded())
            }
            answer => {
                self.learned(call.script());
                answer.map_err(Fault::from_server)
            }
        }
    }

    async fn run_asking(&self, call: &Call) -> Result<Result<Reply, ServerError>, Fault> {
        let sent = self.send(WakeUp::default(), |out| {
            let asking = encode::command(out, &[b"ASKING"]);
            [asking, encode::evalsha(out, call, self.publish)]
        })?;
        let [_, answer] = sent.await;
        self.heard(answer)
    }

    /// How many replicas the server has, or has had at most ([`Until::most`]); `None`: unknown.
    pub(super) fn replicas(&self) -> Option<u32> {
        u32::try_from(self.replicas.load(Ordering::Relaxed)).ok()
    }

    /// Why replicas cannot be waited for, if that was found out.
    pub(super) fn cannot_wait(&self, disk: bool) -> Option<&Fault> {
        self.cannot_wait[usize::from(disk)].get()
    }

    /// Sends calls of one script that write, and waits until enough servers have what was written: WAIT
    /// counts for the connection. It is for such calls only, because the server reads nothing from it
    /// meanwhile. Returns the reply to each call.
    pub(super) async fn call_and_wait(
        &self,
        calls: &[Call],
        until: Until,
    ) -> Result<(Vec<Result<Reply, Fault>>, Had), Fault> {
        let left = |words: &[&[u8]]| {
            let encoded = |out: &mut Vec<u8>| [encode::command(out, words)];
            self.leave(WakeUp::default(), encoded)
        };
        let counted = match until.count {
            true => Some(left(&[b"INFO", b"replication"])?),
            false => None,
        };
        if let Some(call) = calls.first() {
            left(&load_command(call.script()))?;
        }
        let called = calls.iter().map(|call| {
            self.leave(WakeUp::default(), |out| {
                [encode::evalsha(out, call, self.publish)]
            })
        });
        let called: Vec<Pending> = called.collect::<Result<_, _>>()?;
        let waited = self.send(WakeUp::default(), |out| {
            until.command().write_packed_command(out);
            [out.len()]
        })?;
        if let Some(counted) = counted
            && let [Ok(count)] = counted.await
            && let Some(now) = Info::replicas_of(&count)
        {
            let least = if until.most {
                self.replicas().unwrap_or(0)
            } else {
                0
            };
            self.replicas
                .store(now.max(least).into(), Ordering::Relaxed);
        }
        // The first reply shows that the connection works, also to a caller that gives up the last: a
        // connection that never answered is followed by a pause.
        let mut replies = Vec::with_capacity(called.len());
        for reply in called {
            let [reply] = reply.await;
            let reply = self.heard(reply)?.map_err(Fault::from_server);
            replies.push(reply.map_err(|fault| self.said_here(fault)));
        }
        let [waited] = waited.await;
        match self.heard(waited)? {
            Ok(waited) => Ok((replies, until.had(&waited).ok_or_else(Fault::not_redis)?)),
            Err(error) => Err(match replies.into_iter().find_map(Result::err) {
                Some(fault) => fault,
                None => self.did_not_wait(error, until.disk),
            }),
        }
    }

    /// Why WAIT was refused behind calls that were not; `disk`: WAITAOF.
    fn did_not_wait(&self, error: ServerError, disk: bool) -> Fault {
        if was_interrupted(&error) {
            Fault::unanswered(std::io::Error::other(error.to_string()))
        } else if is_without_aof(&error) {
            Fault::without_aof(error)
        } else if is_refused_for_good(&error) {
            let known = &self.cannot_wait[usize::from(disk)];
            let fault = known.get_or_init(|| Fault::cannot_wait(error, disk));
            fault.clone()
        } else {
            // The next lock may be waited for.
            Fault::from_server(error)
        }
    }

    fn knows(&self, script: &Script) -> bool {
        let (word, bit) = place(script);
        let word = self.known.get(word);
        word.is_some_and(|word| word.load(Ordering::Relaxed) & bit != 0)
    }

    pub(super) fn learned(&self, script: &Script) {
        let (word, bit) = place(script);
        if let Some(word) = self.known.get(word)
            && word.load(Ordering::Relaxed) & bit == 0
        {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Loads a script that the server does not know.
    pub(super) async fn load(&self, script: &Script, caller: WakeUp<'_>) -> Result<(), Fault> {
        tracing::debug!(script = script.name(), "loading a script");
        let load = load_command(script);
        let sent = self.send(caller, |out| [encode::command(out, &load)])?;
        let [loaded] = sent.await;
        let loaded = self.heard(loaded)?;
        loaded.map(drop).map_err(Fault::from_server)
    }

    /// As [`Driver::send`].
    pub(super) fn send<const N: usize>(
        &self,
        caller: WakeUp<'_>,
        encode: impl FnOnce(&mut Vec<u8>) -> [usize; N],
    ) -> Result<Pending<N>, Fault> {
        self.reached(self.driver.send(caller, encode))
    }

    /// As [`send`](Self::send), but nothing is written here: no stream of a connector is polled, and no
    /// other caller is woken.
    pub(super) fn leave<const N: usize>(
        &self,
        caller: WakeUp<'_>,
        encode: impl FnOnce(&mut Vec<u8>) -> [usize; N],
    ) -> Result<Pending<N>, Fault> {
        self.reached(self.multiplexer.send(caller, encode))
    }

    fn reached<const N: usize>(
        &self,
        sent: Result<Pending<N>, Ended>,
    ) -> Result<Pending<N>, Fault> {
        // The task that notices the end may not have been polled: without this, the caller would try
        // again here, without a pause.
        sent.map_err(|ended| Fault::unreachable(self.ended(&ended)))
    }

    /// What a script, or a command in its place, has answered.
    pub(super) fn heard(
        &self,
        answer: Result<Value, Unanswered>,
    ) -> Result<Result<Reply, ServerError>, Fault> {
        match self.value(answer)? {
            Value::Error(error) => Ok(Err(error)),
            value => reply(value).map(Ok),
        }
    }

    /// What has come for a command. If it is no reply, nothing is sent on this link any more.
    pub(super) fn value(&self, answer: Result<Value, Unanswered>) -> Result<Value, Fault> {
        match answer {
            Ok(value) => {
                if !self.has_answered() {
                    self.answered.store(true, Ordering::Relaxed);
                }
                if let Value::Error(error) = &value
                    && error.true_code() == "READONLY"
                {
                    // A demoted master stays demoted: the address may lead to the new one.
                    self.give_up("the server is a replica now");
                }
                Ok(value)
            }
            Err(Unanswered::Ended(_)) if self.driver.is_inherited() => {
                self.break_off();
                Err(Fault::forked())
            }
            Err(Unanswered::Ended(ended)) => Err(Fault::unanswered(self.ended(&ended))),
            Err(Unanswered::Unsent(ended)) => Err(Fault::unreachable(self.ended(&ended))),
            Err(nonsense) => {
                self.give_up(NONSENSE);
                Err(nonsense.fault())
            }
        }
    }

    /// The connection has ended. Returns why.
    fn ended(&self, ended: &Ended) -> std::io::Error {
        let flaw = ended.flaw();
        self.lose(flaw.as_deref().unwrap_or("the connection broke"));
        match (flaw, self.given_up.get()) {
            (Some(flaw), _) => given_up(&flaw),
            (None, Some(why)) => given_up(why),
            (None, None) => ended.error(),
        }
    }

    /// Writes pending calls to the connection, without waiting for the socket.
    pub(super) fn push(&self) {
        self.driver.push();
    }

    /// Whether the connection is driven as surely as a timer of the caller would be.
    pub(super) fn is_as_sure_as_a_timer(&self) -> bool {
        self.driver.is_as_sure_as_a_timer()
    }

    /// Whether the server was abandoned for another one.
    pub(super) fn is_left(&self) -> bool {
        self.tie.is_left()
    }

    /// The server's name in errors.
    pub(super) fn place(&self) -> &Arc<str> {
        &self.place
    }

    /// The fault of a call, with the name of the server.
    pub(super) fn said_here(&self, fault: Fault) -> Fault {
        fault.said_at(self.tie.at()).at(&self.place)
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

/// The connection leads to an abandoned server: its replies do not count.
pub(super) fn left() -> std::io::Error {
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

pub(super) fn load_command(script: &Script) -> [&[u8]; 3] {
    [b"SCRIPT", b"LOAD", script.text().as_bytes()]
}
