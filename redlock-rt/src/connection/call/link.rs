//! One live connection and the calls on it.

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use tokio::task::AbortHandle;

use super::fast::FastPaths;
use super::log_in_again::log_in_again;
use super::reconnect::Common;
use super::wait_for_replicas::KnownReplicas;
use crate::clock;
use crate::connection::dial::{Dialer, Expiry};
use crate::connection::fault::{Cause, Fault};
use crate::connection::server::{CurrentServer, Identity, Info, Right, Tie, reach};
use crate::connection::stream::{
    Answer, Driver, Ended, Multiplexer, Pending, Task, Unanswered, WakeUp, encode, last, reply,
};
use crate::meter;
use crate::shim::lock_std;
use crate::wire::{Malformed, Publish, Reply, Script, ServerError, Value};

/// Called when the server of some locks may have lost them; takes no mutex.
pub(in crate::connection) type OnDoubt = Arc<dyn Fn() + Send + Sync>;

/// A live connection. It is dead after any command without a reply: bytes in its buffers may run at any time,
/// so nothing is sent after them.
pub(super) struct Link {
    pub(super) multiplexer: Arc<Multiplexer>,
    alive: Arc<AtomicBool>,
    pub(super) opened: Instant,
    /// Whether any call was answered here.
    answered: AtomicBool,
    /// Why this client closed it, for the other calls in progress.
    given_up: OnceLock<&'static str>,
    pub(super) driver: Arc<Driver>,
    /// Polls the driver; its end closes the connection.
    task: AbortHandle,
    /// The scripts that the server will know when it reads the next command.
    known: Mutex<HashSet<&'static str>>,
    pub(super) fast_paths: FastPaths,
    /// Whether the server executes HDEL; see `needed_rights`.
    pub(super) deletes: AtomicBool,
    pub(super) tie: Arc<Tie>,
    pub(super) server: Arc<CurrentServer>,
    /// The next connection needs it to kill this client. `None` if an ACL forbids the question.
    pub(super) identity: Option<Identity>,
    pub(super) info: Info,
    pub(super) replicas: KnownReplicas,
    /// How long callers wait for a reply.
    pub(super) patience: Duration,
}

/// Marks the link dead when its driver ends, also when an ending runtime drops it.
struct Down {
    alive: Arc<AtomicBool>,
    on_down: OnDoubt,
}

impl Drop for Down {
    fn drop(&mut self) {
        self.alive.store(false, Ordering::Release);
        (self.on_down)();
    }
}

/// Why a connection with invalid replies is closed.
const NONSENSE: &str = "the server sent nonsense";

impl Link {
    /// Dials, logs in, and asks for the client id and the server. The caller enforces the time limit for
    /// connecting.
    pub(super) async fn open(common: &Common) -> Result<Self, Fault> {
        let (dialer, spawner) = (&common.dialer, &common.spawner);
        let (server, within) = (&common.current, common.timeouts.connect);
        let open = |target| async {
            let dial = dialer.clone();
            let stream = spawner.run(async move { dial.dial(&target, within).await });
            let interrupted = || Err(std::io::ErrorKind::Interrupted.into());
            stream.await.unwrap_or_else(interrupted)
        };
        let reached = reach(dialer, server, within, open).await?;
        let identity = reached.identity();
        let none = || Fault::passing("there is no tokio runtime here".into());
        let home = spawner.site().ok_or_else(none)?;
        let (multiplexer, driving) = Multiplexer::new(reached.stream);
        let (driver, task) = Driver::new(home.clone(), &multiplexer, driving);
        let alive = Arc::new(AtomicBool::new(true));
        let down = Down {
            alive: Arc::clone(&alive),
            on_down: Arc::clone(&common.on_doubt),
        };
        let (told, seen) = (Arc::clone(server), Arc::clone(&multiplexer));
        let scripts_only = dialer.scripts_only;
        let dialer = dialer.clone();
        let task = home.spawn(async move {
            let _down = down;
            driven(task, &seen, dialer, reached.expiry).await;
            // Not reached if this client closes the link, or its runtime ends.
            let flaw = seen.ended().and_then(|ended| ended.flaw());
            told.journal
                .lost(flaw.as_deref().unwrap_or("the connection was closed"));
        });
        let end = task.clone();
        let link = Self {
            multiplexer,
            alive,
            opened: clock::now(),
            answered: AtomicBool::new(false),
            given_up: OnceLock::new(),
            driver,
            task,
            known: Mutex::default(),
            fast_paths: FastPaths::new(scripts_only),
            deletes: AtomicBool::new(false),
            tie: Tie::new(reached.at, move || end.abort()),
            identity,
            server: Arc::clone(server),
            replicas: KnownReplicas::new(&reached.info),
            patience: common.timeouts.reply(),
            info: reached.info,
        };
        server.arrive(reached.number, &link.info, &link.tie)?;
        if reached.client_id.is_none() {
            server.journal.is_missing(Right::CLIENT_ID);
        }
        if link.info.run_id.is_none() {
            server.journal.is_missing(Right::INFO);
        }
        Ok(link)
    }

    /// How scripts publish there.
    pub(super) fn publish(&self) -> Publish {
        match self.info.has_shard_channels {
            true => Publish::InShard,
            false => Publish::Everywhere,
        }
    }

    pub(super) fn has_answered(&self) -> bool {
        self.answered.load(Ordering::Relaxed)
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

    /// A reply cannot be a reply to its call: the replies on this link may belong to other calls.
    pub(super) fn misread<R>(&self, malformed: Malformed<R>) -> Fault
    where
        R: fmt::Debug + Send + Sync + 'static,
    {
        self.give_up(NONSENSE);
        Fault::nonsense(malformed).at(self.place())
    }

    /// As [`break_off`](Self::break_off), for a reason outside of this client.
    fn lose(&self, why: &str) {
        if self.is_alive() {
            self.server.journal.lost(why);
        }
        self.break_off();
    }

    /// Ends a broken connection's client on this server process, so that its remaining bytes never
    /// run. Returns whether this is certain.
    pub(super) async fn kill_stale_client(&self, stale: &Identity) -> Result<bool, Fault> {
        let id = stale.client_id.to_string();
        let kill = [&b"CLIENT"[..], b"KILL", b"ID", id.as_bytes()];
        let sent = self.send(WakeUp::default(), |out| [encode::command(out, &kill)])?;
        match last(sent.await).map_err(|unanswered| unanswered.fault().while_dialing())? {
            Value::Error(error) => {
                let fault = Fault::from_server(error);
                // A busy server is asked again. A server that forbids the command never answers.
                match fault.cause {
                    Cause::Passing => Err(fault.while_dialing()),
                    _ => Ok(false),
                }
            }
            reply => Ok(matches!(reply, Value::Int(_))),
        }
    }

    pub(super) fn knows(&self, script: &Script) -> bool {
        lock_std(&self.known).contains(script.name)
    }

    /// Records whether the server knows the script now, according to its last answer.
    pub(super) fn learned(&self, script: &Script, is_known: bool) {
        let mut known = lock_std(&self.known);
        match is_known {
            true => known.insert(script.name),
            false => known.remove(script.name),
        };
    }

    /// As [`Driver::send`].
    pub(super) fn send<const N: usize>(
        &self,
        caller: WakeUp<'_>,
        encode: impl FnOnce(&mut Vec<u8>) -> [usize; N],
    ) -> Result<Pending, Fault> {
        self.reached(self.driver.send(caller, encode))
    }

    /// As [`send`](Self::send), but nothing is written here: no stream of a connector is polled, and no other
    /// caller is woken.
    pub(super) fn leave<const N: usize>(
        &self,
        caller: WakeUp<'_>,
        encode: impl FnOnce(&mut Vec<u8>) -> [usize; N],
    ) -> Result<Pending, Fault> {
        self.reached(self.multiplexer.send(caller, encode))
    }

    fn reached(&self, sent: Result<Pending, Ended>) -> Result<Pending, Fault> {
        // The task that notices the end may not have been polled. Without this, the caller would try again
        // here, without a pause.
        sent.map_err(|ended| self.over(&ended, Fault::unreachable))
    }

    /// The answer of a script, or of a command in its place.
    pub(super) fn heard(&self, answer: Answer) -> Result<Result<Reply, ServerError>, Fault> {
        match self.value(answer)? {
            Value::Error(error) => Ok(Err(error)),
            value => reply(value).map(Ok),
        }
    }

    /// The answer to a command. If it is not a reply, nothing is sent on this link any more.
    pub(super) fn value(&self, answer: Answer) -> Result<Value, Fault> {
        match answer {
            Ok(value) => {
                if !self.has_answered() {
                    self.answered.store(true, Ordering::Relaxed);
                }
                if let Value::Error(error) = &value
                    && error.true_code() == "READONLY"
                {
                    // A demoted master stays demoted, and the address may lead to the new one.
                    self.give_up("the server is a replica now");
                }
                Ok(value)
            }
            Err(Unanswered::Ended(ended)) => Err(self.over(&ended, Fault::unanswered)),
            Err(Unanswered::Unsent(ended)) => Err(self.over(&ended, Fault::unreachable)),
            Err(nonsense) => {
                self.give_up(NONSENSE);
                Err(nonsense.fault())
            }
        }
    }

    /// The connection has ended, or belongs to the process that forked this one.
    fn over(&self, ended: &Ended, fault: fn(std::io::Error) -> Fault) -> Fault {
        if self.driver.is_inherited() {
            self.break_off();
            return Fault::forked();
        }
        let flaw = ended.flaw();
        self.lose(flaw.as_deref().unwrap_or("the connection broke"));
        // This client may have ended it before the call was answered.
        let why = flaw.as_deref().or_else(|| self.given_up.get().copied());
        let given_up = why.map(|why| {
            let why = format!("the connection was given up: {why}");
            std::io::Error::new(std::io::ErrorKind::ConnectionAborted, why)
        });
        fault(given_up.unwrap_or_else(|| ended.error()))
    }

    /// The server's name in errors.
    pub(super) fn place(&self) -> &Arc<str> {
        &self.server.place
    }

    /// The fault of a call, with the name of the server.
    pub(super) fn said_here(&self, fault: Fault) -> Fault {
        fault.said_at(self.tie.at.as_ref()).at(self.place())
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Polls the driver until the connection ends, or its credentials have expired.
async fn driven(
    driver: Task,
    multiplexer: &Arc<Multiplexer>,
    dialer: Dialer,
    expiry: Option<Expiry>,
) {
    match expiry {
        None => driver.await,
        Some(expiry) => {
            tokio::select! {
                biased;
                () = driver => {}
                () = log_in_again(Arc::clone(multiplexer), dialer, expiry) => {}
            }
        }
    }
}

/// The connection leads to an abandoned server: its replies do not count.
pub(super) fn left() -> std::io::Error {
    let why = "the connection was left: the address leads to another server process";
    std::io::Error::new(std::io::ErrorKind::ConnectionAborted, why)
}

/// The command that loads a script, which is about to be sent.
pub(super) fn load_command(script: &Script) -> [&[u8]; 3] {
    meter::script_loaded();
    [b"SCRIPT", b"LOAD", script.text.as_bytes()]
}
