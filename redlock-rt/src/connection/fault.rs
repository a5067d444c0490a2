//! Faults of commands: the stage in which a fault arose, and its cause.

mod verdict;

use std::error::Error as StdError;
use std::sync::Arc;

pub(crate) use self::verdict::{Caller, Verdict};
use super::address::Address;
use super::dial::misfit;
use super::slot_news::SlotNews;
use crate::error::{Error, ErrorKind as Kind};
use crate::wire::{Call, ServerError};

type Source = Arc<dyn StdError + Send + Sync>;

/// Why a command has no reply, or no useful one.
///
/// Stage and cause are separate: a wrong password ends a new call, but not a release, which is sent as soon as the
/// client can log in again.
#[derive(Debug, Clone)]
pub(crate) struct Fault {
    stage: Stage,
    pub(crate) cause: Cause,
    /// The server refuses all calls, not only this one.
    of_all_calls: bool,
    /// Boxed: every future that waits for an answer stores a fault.
    told: Option<Box<FaultText>>,
}

/// The text of a fault, for people.
#[derive(Debug, Clone)]
struct FaultText {
    source: Source,
    /// The advice for the error.
    hint: Option<&'static str>,
    /// The server, if it could not be reached.
    place: Option<Arc<str>>,
    /// The report of a cluster node about the slot.
    news: Option<SlotNews>,
}

/// Where a fault arose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// While connecting: the command was not sent.
    Dialing,
    /// The server refused the command before any of it took effect.
    Refused,
    /// The command was, or may have been, sent, and no reply came: it may have run, or may still
    /// run.
    Unanswered,
    /// The server answered with an error that was raised while the command ran.
    Answered,
}

/// The kind of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// It is temporary: no connection, LOADING, BUSY, READONLY …
    Passing,
    /// The server did not know the script, and knows it now.
    Loaded,
    /// Credentials or ACL.
    Denied,
    /// The key holds a value of another type.
    WrongType,
    /// The server cannot serve the connection that the URL asks for: no such database.
    Misdirected,
    /// The server at the address is unsuitable for locks, or the client cannot talk to it.
    Misconfigured,
    /// The server runs no scripts.
    NoScripts,
    /// Any other reply, for which a repeat does not help.
    Failed,
    /// The client was shut down, or belongs to another process: there will be no connection any more.
    Closed,
}

/// Codes of temporary refusals: the server is starting, failing over, busy, full.
///
/// In a script they come before or with its first write, since the server decides this once per script. So if a script
/// passes on every error, such a reply means that nothing took effect.
const PASSING: [&str; 10] = [
    "LOADING",
    "READONLY",
    "BUSY",
    "TRYAGAIN",
    "CLUSTERDOWN",
    "MASTERDOWN",
    "UNKILLABLE",
    "MISCONF",
    "NOREPLICAS",
    "OOM",
];
/// The codes among them that a server returns for every call.
const OF_ALL_CALLS: [&str; 5] = ["LOADING", "BUSY", "MASTERDOWN", "CLUSTERDOWN", "UNKILLABLE"];
/// Codes of a cluster: other nodes have the key.
const ELSEWHERE: [&str; 2] = ["MOVED", "ASK"];
const DENIED: [&str; 3] = ["NOAUTH", "WRONGPASS", "NOPERM"];
/// The texts of an ACL error inside a script that has no code: before Redis 7.2, and in Redis 8.
const DENIED_INSIDE: [&str; 2] = [
    "The user executing the script can't",
    "ACL failure in script",
];
/// A script has read an undeclared key in a slot that is being moved to another server: the key is not there, or not
/// there yet.
const NOT_LOCAL: &str = "to access a non local key";
/// Marks the position in the text of an error inside a script.
const INSIDE: &str = "user_script";
/// The reply to AUTH if no password is set; it has no code of its own.
const NO_PASSWORD: &str = "called without any password configured";
/// The reply to SELECT if there is no such database; it has no code of its own either.
const NO_DATABASE: &str = "DB index is out of range";
/// The reply of a server without a password to the first command of another host.
const PROTECTED: &str = "protected mode";

impl Fault {
    fn new(stage: Stage, cause: Cause, source: Source) -> Self {
        let told = FaultText {
            source,
            hint: None,
            place: None,
            news: None,
        };
        Self {
            told: Some(Box::new(told)),
            ..Self::untold(stage, cause)
        }
    }

    /// There is no connection.
    pub(super) fn unreachable(error: impl StdError + Send + Sync + 'static) -> Self {
        Self::new(Stage::Dialing, Cause::Passing, Arc::new(error))
    }

    /// As [`unreachable`](Self::unreachable), for a state of the servers that may change.
    pub(super) fn passing(why: String) -> Self {
        Self::unreachable(std::io::Error::other(why))
    }

    /// The server refused a call for this temporary reason.
    pub(super) fn refused_for_now(why: String) -> Self {
        let source = Arc::new(std::io::Error::other(why));
        Self::new(Stage::Refused, Cause::Passing, source)
    }

    /// There is no connection, for a reason of this kind.
    pub(super) fn while_connecting(cause: Cause, error: std::io::Error) -> Self {
        Self::new(Stage::Dialing, cause, Arc::new(error))
    }

    /// The same fault, with this hint if credentials are the reason.
    pub(super) fn of_credentials(self, hint: &'static str) -> Self {
        match self.cause {
            Cause::Denied => self.hinting(hint),
            _ => self,
        }
    }

    /// The same fault, of the master at this address.
    pub(super) fn of_master(mut self, place: &str) -> Self {
        if let Some(told) = &mut self.told {
            let text = format!("the master {place:?}: {}", told.source);
            told.source = Arc::new(std::io::Error::other(text));
        }
        self
    }

    /// The same fault, with the keys of its call if an ACL refuses one of them.
    pub(super) fn of_keys(mut self, call: &Call) -> Self {
        if self.is_denied()
            && let Some(told) = &mut self.told
            && told.source.to_string().contains(" key")
        {
            let keys = call.words().take(call.key_count());
            let pattern = |key| format!("{:?}", format!("~{}", String::from_utf8_lossy(key)));
            let keys: Vec<String> = keys.map(pattern).collect();
            let text = format!(
                "{}; the user's ACL needs {}",
                told.source,
                keys.join(" and ")
            );
            told.source = Arc::new(std::io::Error::other(text));
        }
        self
    }

    /// As [`unreachable`](Self::unreachable), for a reason in this client.
    pub(super) fn not_connected(kind: std::io::ErrorKind, why: &'static str) -> Self {
        Self::unreachable(std::io::Error::new(kind, why))
    }

    /// There is no connection, and there will be none until the configuration changes.
    pub(super) fn misconfigured(error: impl StdError + Send + Sync + 'static) -> Self {
        Self::new(Stage::Dialing, Cause::Misconfigured, Arc::new(error))
    }

    /// The server at the address speaks only TLS.
    pub(super) fn not_plain() -> Self {
        let why = "a connection without TLS was closed, and TLS is spoken there";
        Self::misconfigured(std::io::Error::new(std::io::ErrorKind::InvalidData, why)).hinting(
            "with TLS the URL begins with rediss://, rediss+cluster:// or rediss+sentinel://",
        )
    }

    /// The server refuses WAIT; `disk`: WAITAOF.
    pub(super) fn cannot_wait(error: ServerError, disk: bool) -> Self {
        let fault = Self::from_server(error);
        let hint = match (fault.cause, disk) {
            (Cause::Denied, false) => "the user may not use WAIT, which replica_ack needs",
            (_, false) => "the server has no WAIT, which replica_ack needs",
            (Cause::Denied, true) => "the user may not use WAITAOF, which fsync needs",
            (_, true) => "the server has no WAITAOF, which fsync needs: redis 7.2 has it",
        };
        let cause = match fault.cause {
            Cause::Denied => Cause::Denied,
            _ => Cause::Misconfigured,
        };
        Self { cause, ..fault }.hinting(hint)
    }

    /// The server, or a proxy before it, does not know a command, or an ACL forbids it. `None`: the error has another
    /// reason. A server without Lua writes "scripting" about its commands. `unknown`: the cause if an ACL is not the
    /// reason.
    pub(super) fn lacking(error: ServerError, hint: &'static str, unknown: Cause) -> Option<Self> {
        let detail = error.detail().to_ascii_lowercase();
        // Proxies that check the text of scripts name what they refuse. Some refuse a script without keys, but only
        // this check sends one.
        let of_scripts = unknown == Cause::NoScripts && !detail.contains("number of keys");
        let any_text = of_scripts && error.code() == "ERR";
        let mut fault = Self::from_server(error);
        let is_missing = match fault.cause {
            // Not about the key.
            Cause::Denied => detail.contains("permissions to run"),
            Cause::Failed => {
                fault.cause = unknown;
                let says = ["unknown command", "unsupported command", "scripting"];
                any_text || says.iter().any(|words| detail.contains(words))
            }
            _ => false,
        };
        fault.stage = Stage::Dialing;
        is_missing.then(|| fault.hinting(hint))
    }

    /// The server has no append-only file.
    pub(super) fn without_aof(error: ServerError) -> Self {
        let fault = Self::from_server(error);
        let cause = Cause::Misconfigured;
        Self { cause, ..fault }.hinting("the master needs `appendonly yes`, or use Fsync::Replicas")
    }

    /// INFO is not answered.
    pub(crate) fn uncounted() -> Self {
        let why = "it is not known how many replicas there are: the user may not ask for INFO; use \
                   ReplicaAck::AtLeast";
        Self::misconfigured(std::io::Error::other(why))
    }

    /// The reply at the address is invalid.
    pub(super) fn not_redis() -> Self {
        let why = "what answers there does not speak the protocol of redis; is it another port, \
                   or one for TLS (rediss://…)?";
        Self::misconfigured(std::io::Error::new(std::io::ErrorKind::InvalidData, why))
    }

    /// No stream could be opened. `reached`: it could before.
    pub(super) fn of_stream(error: std::io::Error, reached: bool) -> Self {
        match misfit(&error, reached) {
            Some(hint) => Self::misconfigured(error).hinting(hint),
            None => Self::unreachable(error),
        }
    }

    fn hinting(mut self, hint: &'static str) -> Self {
        if let Some(told) = &mut self.told {
            told.hint = Some(hint);
        }
        self
    }

    /// The same fault with the server's name, which is shown if the server was not reached or did
    /// not answer.
    pub(crate) fn at(mut self, place: &Arc<str>) -> Self {
        if let (Stage::Dialing | Stage::Unanswered, Some(told)) = (self.stage, &mut self.told) {
            told.place.get_or_insert_with(|| Arc::clone(place));
        }
        self
    }

    /// The time limit for connecting was over.
    pub(crate) fn connecting_took_too_long() -> Self {
        Self::not_connected(std::io::ErrorKind::TimedOut, "connecting took too long")
    }

    /// The connection leads to an abandoned server.
    pub(super) fn outdated() -> Self {
        let why = "the address led to a server process that was left for another one";
        Self::not_connected(std::io::ErrorKind::Other, why)
    }

    /// No answer came.
    pub(super) fn unanswered(error: impl StdError + Send + Sync + 'static) -> Self {
        Self::new(Stage::Unanswered, Cause::Passing, Arc::new(error))
    }

    pub(crate) fn timed_out(what: &'static str) -> Self {
        Self::unanswered(std::io::Error::new(std::io::ErrorKind::TimedOut, what))
    }

    /// A reply that is not text.
    pub(super) fn unreadable(error: impl StdError + Send + Sync + 'static) -> Self {
        Self::new(Stage::Answered, Cause::Failed, Arc::new(error))
    }

    /// An invalid reply: it says nothing about the command, which may have run.
    pub(super) fn nonsense(error: impl StdError + Send + Sync + 'static) -> Self {
        Self::new(Stage::Unanswered, Cause::Failed, Arc::new(error))
    }

    /// The server did not know the script and does now; the call did not run.
    pub(super) fn loaded() -> Self {
        Self::untold(Stage::Refused, Cause::Loaded)
    }

    /// The client was shut down.
    pub(crate) fn closed() -> Self {
        Self::untold(Stage::Dialing, Cause::Closed)
    }

    fn untold(stage: Stage, cause: Cause) -> Self {
        Self {
            stage,
            cause,
            of_all_calls: false,
            told: None,
        }
    }

    /// The client belongs to the process that forked this one.
    pub(super) fn forked() -> Self {
        let why = "the client was made before this process was forked; make one in each process";
        let Self { told, .. } = Self::not_connected(std::io::ErrorKind::Other, why);
        Self {
            told,
            ..Self::closed()
        }
    }

    /// An error while the connection was set up, when no call of ours was in progress.
    pub(super) fn of_answer(error: std::io::Error) -> Self {
        // In TLS 1.3 a refused certificate is reported as the answer to the first command.
        let is_misfit = misfit(&error, false).is_some();
        match error.kind() == std::io::ErrorKind::InvalidData && !is_misfit {
            true => Self::not_redis(),
            false => Self::of_stream(error, false),
        }
    }

    /// Classifies an error that is the answer to a command.
    pub(super) fn from_server(error: ServerError) -> Self {
        let error = Arc::new(error);
        let mut fault = Self::sort(&error, Arc::clone(&error) as Source);
        if let Some(told) = &mut fault.told {
            told.news = SlotNews::of(error.code(), error.detail());
        }
        fault
    }

    /// As [`from_server`](Self::from_server), for an error that is only a part of an answer: the
    /// command has run.
    pub(super) fn from_part(error: ServerError) -> Self {
        Self {
            stage: Stage::Answered,
            ..Self::from_server(error)
        }
    }

    /// The error of a user's script. It may contain any text, and the script has run. So nothing in it is a reason to
    /// try again.
    pub(crate) fn raised(text: String) -> Self {
        let error = ServerError::new(text.strip_prefix('-').unwrap_or(&text));
        let Self { cause, told, .. } = Self::sort(&error, Arc::new(std::io::Error::other(text)));
        let cause = match cause {
            Cause::Denied | Cause::WrongType => cause,
            _ => Cause::Failed,
        };
        Self {
            stage: Stage::Answered,
            cause,
            of_all_calls: false,
            told,
        }
    }

    fn sort(error: &ServerError, source: Source) -> Self {
        let (code, detail) = (error.true_code(), error.detail());
        let cause = if code == "WRONGTYPE" {
            Cause::WrongType
        } else if DENIED.contains(&code) || DENIED_INSIDE.iter().any(|text| detail.contains(text)) {
            Cause::Denied
        } else if PASSING.contains(&code) || detail.contains(NOT_LOCAL) {
            Cause::Passing
        } else if ELSEWHERE.contains(&code) {
            Cause::Misconfigured
        } else {
            Cause::Failed
        };
        let stage = match cause {
            // In the middle of a script, which may be repeated as a whole.
            Cause::Passing if detail.contains(NOT_LOCAL) => Stage::Answered,
            Cause::Passing | Cause::Misconfigured => Stage::Refused,
            Cause::Denied if !detail.contains(INSIDE) => Stage::Refused,
            _ => Stage::Answered,
        };
        Self {
            of_all_calls: OF_ALL_CALLS.contains(&code),
            ..Self::new(stage, cause, source)
        }
    }

    /// The same fault, of a command that sets a connection up.
    ///
    /// The reply to a new connection may be unrelated to the command:
    /// `-ERR max number of clients reached` is the reply to whatever is sent first. So only errors
    /// that are known to be permanent are final.
    pub(super) fn while_dialing(mut self) -> Self {
        self.stage = Stage::Dialing;
        if matches!(self.cause, Cause::Failed | Cause::WrongType) {
            let text = self.told.as_ref().map(|told| told.source.to_string());
            let says = |known| text.as_ref().is_some_and(|text| text.contains(known));
            self.cause = if says(NO_DATABASE) {
                Cause::Misdirected
            } else if says(PROTECTED) {
                let hint = "it takes connections of its own host only; set a password there \
                            (requirepass, or an ACL) and name it in the URL";
                self.cause = Cause::Misconfigured;
                return self.hinting(hint);
            } else if says(NO_PASSWORD) {
                Cause::Denied
            } else {
                Cause::Passing
            };
        }
        match self.cause {
            Cause::Misdirected => self.hinting("there is no such database"),
            _ => self,
        }
    }

    /// Whether any other call would have been refused too.
    pub(super) fn is_of_all_calls(&self) -> bool {
        self.of_all_calls && self.stage == Stage::Refused
    }

    /// The reason for the log, which names the server in another field.
    pub(crate) fn reason(&self) -> String {
        let Some(told) = &self.told else {
            return format!("{:?}", self.cause).to_lowercase();
        };
        match told.hint {
            Some(hint) => format!("{}: {hint}", told.source),
            None => told.source.to_string(),
        }
    }

    /// Whether it arose while connecting, which has its own pauses.
    pub(crate) fn is_of_dialing(&self) -> bool {
        self.stage == Stage::Dialing
    }

    /// Whether a right or a password is missing.
    pub(crate) fn is_denied(&self) -> bool {
        self.cause == Cause::Denied
    }

    /// Whether the command may have run although no answer came.
    pub(crate) fn may_have_run(&self) -> bool {
        self.stage == Stage::Unanswered
    }

    /// Whether the reply was invalid.
    pub(crate) fn is_nonsense(&self) -> bool {
        self.stage == Stage::Unanswered && self.cause == Cause::Failed
    }

    /// Whether the call was refused because its keys are in several slots: a proxy may be before several servers.
    pub(crate) fn is_of_several_slots(&self) -> bool {
        let told = self.told.as_ref();
        told.is_some_and(|told| told.source.to_string().starts_with("CROSSSLOT"))
    }

    /// The report of a cluster node about the slot of the call, which did not run.
    pub(super) fn news(&self) -> Option<&SlotNews> {
        self.told.as_ref()?.news.as_ref()
    }

    /// The same fault, of the server at this address: a node without a host in its name means that.
    pub(super) fn said_at(mut self, at: Option<&Address>) -> Self {
        if let (Some(told), Some(at)) = (&mut self.told, at)
            && let Some(SlotNews::Redirect(redirect)) = &mut told.news
        {
            redirect.to = at.announced(&redirect.host, redirect.port);
        }
        self
    }

    /// The same fault for a client of a cluster, where slots move: the call did not run, and may be
    /// sent again.
    pub(super) fn while_redirected(mut self) -> Self {
        if let Some(SlotNews::Redirect(_)) = self.news() {
            self.cause = Cause::Passing;
        }
        self
    }

    /// The error for a caller whose call ends with this fault.
    pub(crate) fn into_error(self, action: &'static str) -> Error {
        let kind = match self.cause {
            Cause::Closed => Kind::ShutDown,
            Cause::Loaded | Cause::Passing => Kind::Unavailable,
            Cause::Denied => Kind::Denied,
            Cause::WrongType => Kind::WrongType,
            Cause::Failed => Kind::Protocol,
            Cause::Misdirected => Kind::BadInput,
            Cause::Misconfigured => Kind::Misconfigured,
            Cause::NoScripts => Kind::NoScripts,
        };
        let error = Error::new(kind, action);
        let Some(told) = self.told else {
            return match self.cause {
                Cause::Loaded => error.detail("the server forgets its scripts"),
                _ => error,
            };
        };
        // The text of the source is not repeated.
        let said = [told.place.as_deref(), told.hint];
        let said: Vec<&str> = said.into_iter().flatten().collect();
        let error = match said.is_empty() {
            true => error,
            false => error.detail(said.join(": ")),
        };
        error.caused_by(told.source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(code: &str, detail: &str) -> Fault {
        Fault::from_server(ServerError::new(format!("{code} {detail}")))
    }

    #[track_caller]
    fn assert_sorted(fault: &Fault, stage: Stage, cause: Cause) {
        assert_eq!((fault.stage, fault.cause), (stage, cause), "{fault:?}");
    }

    #[test]
    fn refusals_that_pass_are_told_from_those_that_do_not() {
        for code in PASSING {
            assert_sorted(&sorted(code, ""), Stage::Refused, Cause::Passing);
        }
        assert_sorted(&sorted("NOPERM", ""), Stage::Refused, Cause::Denied);
        assert_sorted(&sorted("WRONGTYPE", ""), Stage::Answered, Cause::WrongType);
        let unknown = sorted("ERR", "unknown command");
        assert_sorted(&unknown, Stage::Answered, Cause::Failed);
        let inside = "User u has no permissions to run 'hset' script: f, on @user_script:3.";
        assert_sorted(&sorted("NOPERM", inside), Stage::Answered, Cause::Denied);
    }

    #[test]
    fn codes_inside_script_errors_of_old_servers_are_found() {
        let call = "Error running script (call to f_1): @user_script:";
        for (text, stage, cause) in [
            (
                "12: @user_script: 12: -READONLY You can't write against a read only replica.",
                Stage::Refused,
                Cause::Passing,
            ),
            (
                "3: WRONGTYPE Operation against a key",
                Stage::Answered,
                Cause::WrongType,
            ),
            (
                "3: @user_script: 3: The user executing the script can't run this command",
                Stage::Answered,
                Cause::Denied,
            ),
        ] {
            assert_sorted(&sorted("ERR", &format!("{call}{text}")), stage, cause);
        }
    }

    /// Such a caller got the error for an unexpected reply.
    #[test]
    fn a_missing_right_inside_a_script_of_redis_8_was_no_denial() {
        let told = "ACL failure in script: User a has no permissions to run the 'incr' command \
                    script: f, on @user_script:3.";
        assert_sorted(&sorted("ERR", told), Stage::Answered, Cause::Denied);
    }

    /// Any word of a text counted as a code.
    #[test]
    fn a_text_that_mentions_a_code_is_none() {
        for text in [
            "the queue is BUSY",
            "please ASK the owner",
            "Error running script (call to f_1): @user_script:1: the queue is BUSY",
            "user_script:1: OOM script: f, on @user_script:1.",
        ] {
            assert_sorted(&sorted("ERR", text), Stage::Answered, Cause::Failed);
        }
    }

    #[test]
    fn errors_while_dialing_pass_unless_known_to_be_permanent() {
        for (code, detail, cause) in [
            ("ERR", "max number of clients reached", Cause::Passing),
            ("BUSY", "Redis is busy running a script", Cause::Passing),
            ("LOADING", "Redis is loading", Cause::Passing),
            ("ERR", "something else", Cause::Passing),
            ("WRONGPASS", "invalid username-password pair", Cause::Denied),
            ("NOAUTH", "Authentication required.", Cause::Denied),
            ("NOPERM", "no permissions to run 'select'", Cause::Denied),
            (
                "ERR",
                "AUTH <password> called without any password configured for the default user.",
                Cause::Denied,
            ),
            ("ERR", "DB index is out of range", Cause::Misdirected),
            (
                "DENIED",
                "Redis is running in protected mode because protected mode is enabled",
                Cause::Misconfigured,
            ),
        ] {
            let fault = sorted(code, detail).while_dialing();
            assert_sorted(&fault, Stage::Dialing, cause);
        }
    }

    /// The text said which server, and not what was wrong with the URL.
    #[test]
    fn a_database_that_is_not_there_is_named_as_the_reason() {
        let fault = sorted("ERR", "DB index is out of range").while_dialing();
        let error = fault.at(&"host:1".into()).into_error("connect to redis");
        assert_eq!(
            error.to_string(),
            "connect to redis: bad input: host:1: there is no such database"
        );
    }

    const CALLERS: [Caller; 7] = [
        Caller::Waiter,
        Caller::Call,
        Caller::CallOnce,
        Caller::Cleanup,
        Caller::Renewal,
        Caller::Beat,
        Caller::Subscription,
    ];

    /// One fault of each kind that a caller can meet.
    fn faults() -> Vec<Fault> {
        let refused = |code| sorted(code, "");
        let busy = Fault {
            stage: Stage::Answered,
            ..refused("BUSY")
        };
        vec![
            Fault::not_connected(std::io::ErrorKind::ConnectionRefused, "test"),
            sorted("ERR", "max number of clients reached").while_dialing(),
            refused("BUSY").while_dialing(),
            refused("WRONGPASS").while_dialing(),
            sorted("ERR", "DB index is out of range").while_dialing(),
            Fault::misconfigured(std::io::Error::other("test")),
            refused("MOVED"),
            refused("BUSY"),
            Fault::loaded(),
            refused("NOPERM"),
            Fault::timed_out("test"),
            Fault::nonsense(std::io::Error::other("test")),
            busy,
            sorted("NOPERM", "on @user_script:3."),
            refused("WRONGTYPE"),
            refused("ERR"),
            Fault::closed(),
        ]
    }

    /// Each row of the table in docs/faults.md, and no row without a fault.
    #[test]
    fn each_caller_does_what_the_table_says() {
        let page = include_str!("../../../docs/faults.md");
        let (_, table) = page.split_once("| where | what |").unwrap();
        let rows = table.lines().skip(2).take_while(|row| row.starts_with('|'));
        let rows: Vec<Vec<&str>> = rows
            .map(|row| row.trim_matches('|').split('|').map(str::trim).collect())
            .collect();
        let mut seen = vec![false; rows.len()];
        for fault in faults() {
            let stage = format!("{:?}", fault.stage).to_lowercase();
            let cause = format!("{:?}", fault.cause).to_lowercase();
            let is = |cell: &str, word: &str| cell == "any" || cell.split(", ").any(|w| w == word);
            let row = rows
                .iter()
                .position(|row| is(row[0], &stage) && is(row[1], &cause));
            let row = row.expect("each fault has a row");
            seen[row] = true;
            for (caller, cell) in CALLERS.into_iter().zip(&rows[row][3..]) {
                let verdict = format!("{:?}", fault.verdict(caller)).to_lowercase();
                assert_eq!(*cell, verdict, "{fault:?} {caller:?}");
            }
        }
        assert!(seen.iter().all(|seen| *seen), "{seen:?} of {rows:?}");
    }
}
