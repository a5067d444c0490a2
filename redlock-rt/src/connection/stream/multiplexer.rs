//! The commands of many callers on one connection.
//!
//! A caller appends its commands to the bytes to write, and waits for the replies in its own place. A future
//! reads and writes the stream: one write takes all bytes, and one lock of the mutex answers all replies of one
//! read.
//!
//! `redis::aio::MultiplexedConnection` passes each command through a channel and each reply through another one.
//! That was most of a call's cost in the client.
//!
//! # Invariants
//!
//! 1. Replies come in the order of the commands, one for each.
//! 2. A reply that comes before its command was written, or without an open command, ends the connection:
//!    otherwise the next command would get it.
//! 3. A command is written even if its caller has gone, unless the connection ends before. Its reply is dropped.
//! 4. No waker is woken or dropped while the mutex is held: the woken code may send.

mod driving;
#[cfg(test)]
mod loom;
mod pending;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;
use std::time::{Duration, Instant};

use slab::Slab;
use smallvec::SmallVec;

pub(crate) use self::pending::Came;
pub(in crate::connection) use self::pending::{Pending, last};
use super::admission::{Admission, Share};
use super::resp::Nonsense;
use crate::clock;
use crate::connection::fault::Fault;
use crate::shim::{Mutex, MutexGuard, lock};
use crate::wire::Value;

/// Room for this many commands is kept for the next ones.
const USUALLY_OPEN: usize = 1024;
/// A reply may take this many times as long as the server may be silent.
const MOST_PATIENCE: u32 = 8;

/// Takes commands.
#[derive(Debug, Default)]
pub(in crate::connection) struct Multiplexer {
    state: Mutex<MultiplexerState>,
    /// The number of places, readable without the mutex.
    places: AtomicUsize,
}

#[derive(Debug, Default)]
struct MultiplexerState {
    /// The commands that are to be written.
    out: Vec<u8>,
    /// The number of bytes that were ever appended to `out`.
    appended: u64,
    admission: Admission<Queued>,
    /// The commands without a reply.
    open: VecDeque<Open>,
    places: Slab<Place>,
    /// The waker of the future, until a command or an earlier moment comes.
    idle: Option<Waker>,
    /// The earliest time at which a caller must be woken, among the open commands and some that were answered
    /// since the last wake-up.
    next_due: Due,
    ended: Option<Ended>,
    /// When the last reply to a command was read.
    heard: Option<Instant>,
}

/// A command without a reply.
#[derive(Debug)]
struct Open {
    place: usize,
    /// The command is written as soon as this many bytes are.
    until: u64,
    /// A moment before the command was sent.
    since: Instant,
    /// The time of the last command of a call.
    due: Due,
    /// The room that it gives back, as the last command of a call.
    room: Option<(Share, usize)>,
}

/// A call that waits for room.
#[derive(Debug)]
struct Queued {
    place: usize,
    bytes: Vec<u8>,
    /// The length after each command.
    ends: SmallVec<[usize; 2]>,
    until: Option<Instant>,
}

/// How a call waits, if there is no room.
#[derive(Debug, Clone, Copy)]
pub(in crate::connection) struct InLine {
    pub(in crate::connection) share: Share,
    /// It is not sent if the reply would come after this.
    pub(in crate::connection) until: Option<Instant>,
}

/// The time at which a caller is also woken without a reply, if there is one.
pub(in crate::connection) type Due = Option<tokio::time::Instant>;

/// When to wake a caller.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::connection) struct WakeUp<'a> {
    /// Woken by a reply, until the future of that reply is polled with another one.
    pub(in crate::connection) waker: Option<&'a Waker>,
    /// Woken by the future that drives the stream, so only while that one is polled.
    pub(in crate::connection) due: Due,
    /// A moment before the command, on the clock of leases. Defaults to the present one; then the time until the
    /// reply does not count for the pace of the server.
    pub(in crate::connection) since: Option<Instant>,
    /// `None`: the command is sent, whatever is in flight.
    pub(in crate::connection) line: Option<InLine>,
}

/// The place for the replies to the commands of one call.
#[derive(Debug)]
struct Place {
    progress: Progress,
    waker: Option<Waker>,
    /// The number of commands without a reply.
    missing: usize,
    answers: Answers,
}

/// The progress of a call.
#[derive(Debug, Clone, Copy)]
enum Progress {
    /// It waits for room.
    Queued,
    /// It is not sent, since its time is nearly over.
    PassedOver,
    /// Sent at this time, if it had to wait for room.
    Sent(Option<Instant>),
    /// The caller has gone.
    Left,
}

/// The result of a command.
pub(in crate::connection) type Answer = Result<Value, Unanswered>;
/// The results of the commands of a call, in their order.
pub(in crate::connection) type Answers = SmallVec<[Answer; 2]>;

/// Why a command has no reply.
#[derive(Debug, Clone)]
pub(in crate::connection) enum Unanswered {
    /// The reply is invalid.
    Nonsense(Nonsense),
    /// The connection ended.
    Ended(Ended),
    /// The connection ended before the call was sent.
    Unsent(Ended),
}

/// Why a connection ended.
#[derive(Debug, Clone)]
pub(in crate::connection) enum Ended {
    /// The server sent bytes that no server sends.
    Nonsense(Nonsense),
    Io(Arc<io::Error>),
    /// This client closed it, or the runtime of its task ended.
    Closed,
}

impl Unanswered {
    /// The fault of the command, which may have run.
    pub(in crate::connection) fn fault(self) -> Fault {
        match self {
            Self::Nonsense(nonsense) => Fault::nonsense(nonsense),
            Self::Ended(ended) => Fault::unanswered(ended.error()),
            Self::Unsent(ended) => Fault::unreachable(ended.error()),
        }
    }
}

impl Ended {
    /// What was wrong with the replies, if that is the reason.
    pub(in crate::connection) fn flaw(&self) -> Option<String> {
        match self {
            Self::Nonsense(nonsense) => Some(format!("the server sent {nonsense}")),
            Self::Io(_) | Self::Closed => None,
        }
    }

    pub(in crate::connection) fn error(&self) -> io::Error {
        match self {
            Self::Nonsense(nonsense) => io::Error::new(io::ErrorKind::InvalidData, *nonsense),
            Self::Io(error) => io::Error::new(error.kind(), error.to_string()),
            Self::Closed => io::Error::new(io::ErrorKind::BrokenPipe, "the connection was closed"),
        }
    }
}

impl Multiplexer {
    /// Passes `N` commands to the connection. `encode` appends them, and returns the length after each. Nothing
    /// comes between them. The caller is woken when the last of them has a reply.
    pub(in crate::connection) fn send<const N: usize>(
        self: &Arc<Self>,
        caller: WakeUp<'_>,
        encode: impl FnOnce(&mut Vec<u8>) -> [usize; N],
    ) -> Result<Pending, Ended> {
        let (sent, idle) = self.append(caller, encode)?;
        if let Some(driver) = idle {
            driver.wake();
        }
        Ok(sent)
    }

    /// As [`send`](Self::send), but returns the waker of the future if that one sleeps. The caller must wake it,
    /// or poll the future.
    pub(super) fn append<const N: usize>(
        self: &Arc<Self>,
        caller: WakeUp<'_>,
        encode: impl FnOnce(&mut Vec<u8>) -> [usize; N],
    ) -> Result<(Pending, Option<Waker>), Ended> {
        let mut state = self.state();
        if let Some(ended) = &state.ended {
            return Err(ended.clone());
        }
        let has_room = |line: InLine| state.admission.admits(line.share);
        let queued = caller.line.filter(|line| !has_room(*line));
        let place = state.places.insert(Place {
            progress: match queued {
                Some(_) => Progress::Queued,
                None => Progress::Sent(None),
            },
            waker: caller.waker.cloned(),
            missing: N,
            answers: Answers::new(),
        });
        self.count(&state);
        let idle = match queued {
            Some(InLine { share, until }) => {
                let mut bytes = Vec::new();
                let ends = SmallVec::from_slice(&encode(&mut bytes));
                let call = Queued {
                    place,
                    bytes,
                    ends,
                    until,
                };
                state.admission.join(share, call);
                None
            }
            None => {
                let before = state.out.len();
                let ends = encode(&mut state.out).map(|end| end - before);
                let share = caller.line.map(|line| line.share);
                state.sent(place, &ends, share, caller.since);
                if let Some(due) = caller.due {
                    state.next_due = Some(state.next_due.map_or(due, |known| known.min(due)));
                    // The caller of the last command must be woken at this time.
                    if let Some(open) = state.open.back_mut() {
                        open.due = Some(due);
                    }
                }
                state.idle.take()
            }
        };
        drop(state);
        Ok((Pending::new(self, place, queued.is_some()), idle))
    }

    /// When the connection must be given up, if nothing comes until then. Silence is counted from the last reply
    /// to any command, while a later command has none: a slow server is not silent. `None`: all commands have
    /// replies.
    pub(in crate::connection) fn gives_up_at(&self, patience: Duration) -> Option<Instant> {
        let state = self.state();
        let asked = state.open.front()?.since;
        let last = state.heard.map_or(asked, |heard| heard.max(asked));
        // A server that answers one command now and then delays no caller for longer.
        let oldest = clock::after(asked, patience * MOST_PATIENCE);
        Some(clock::after(last, patience).min(oldest))
    }

    /// How many calls have no reply, or one that its caller has not taken yet.
    pub(super) fn in_progress(&self) -> usize {
        self.places.load(Ordering::Relaxed)
    }

    /// Why the connection ended.
    pub(in crate::connection) fn ended(&self) -> Option<Ended> {
        self.state().ended.clone()
    }

    /// No later poll of the future writes anything. The callers are told when that future is polled or dropped.
    pub(in crate::connection) fn close(&self) {
        let mut state = self.state();
        state.ended.get_or_insert(Ended::Closed);
        state.out = Vec::new();
    }

    /// Ends the connection, and tells all callers.
    pub(super) fn end(&self, why: Ended) {
        let mut state = self.state();
        let why = state.ended.get_or_insert(why).clone();
        state.out = Vec::new();
        let mut wakers: Vec<_> = state.idle.take().into_iter().collect();
        while let Some(open) = state.open.pop_front() {
            let unanswered = Unanswered::Ended(why.clone());
            wakers.extend(state.answer(open.place, Err(unanswered)));
        }
        for call in state.admission.close() {
            for _ in call.ends {
                let unsent = Unanswered::Unsent(why.clone());
                wakers.extend(state.answer(call.place, Err(unsent)));
            }
        }
        self.count(&state);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// The caller of a call has gone.
    fn leave(&self, mut state: MutexGuard<'_, MultiplexerState>, at: usize) {
        let Some(place) = state.places.get_mut(at) else {
            return;
        };
        let waker = place.waker.take();
        let before = std::mem::replace(&mut place.progress, Progress::Left);
        if place.missing == 0 || matches!(before, Progress::PassedOver) {
            state.free(at);
        }
        self.count(&state);
        drop(state);
        drop(waker);
    }

    fn count(&self, state: &MultiplexerState) {
        self.places.store(state.places.len(), Ordering::Relaxed);
    }

    fn state(&self) -> MutexGuard<'_, MultiplexerState> {
        lock(&self.state)
    }
}

impl MultiplexerState {
    /// The commands of a call were appended to the bytes to write, with these lengths after each.
    fn sent(&mut self, place: usize, ends: &[usize], share: Option<Share>, since: Option<Instant>) {
        let asked = since.unwrap_or_else(clock::stamp);
        for end in ends {
            self.open.push_back(Open {
                place,
                until: self.appended + *end as u64,
                since: asked,
                due: None,
                room: None,
            });
        }
        // Later steps of a call count from its first one, and say nothing about the time of a reply.
        self.admission
            .sent(ends.len(), since.filter(|_| share.is_some()));
        if let (Some(open), Some(bytes)) = (self.open.back_mut(), ends.last()) {
            self.appended += *bytes as u64;
            open.room = share.map(|share| (share, self.admission.takes(share, *bytes)));
        }
    }

    /// Sends the calls for which there is room.
    fn admit(&mut self, now: Instant) {
        while let Some((share, call)) = self.admission.next() {
            // A release is sent however late its reply comes: the wait for it may continue in the background.
            let is_late = share == Share::Callers && self.admission.is_too_late(call.until, now);
            let Some(place) = self.places.get_mut(call.place) else {
                continue;
            };
            match place.progress {
                Progress::Queued if is_late => place.progress = Progress::PassedOver,
                Progress::Queued => {
                    place.progress = Progress::Sent(Some(now));
                    self.out.extend_from_slice(&call.bytes);
                    self.sent(call.place, &call.ends, Some(share), Some(now));
                }
                // The caller has gone.
                _ => drop(self.free(call.place)),
            }
        }
    }

    /// Takes the contents of a place, which may be used by another call from now on.
    fn free(&mut self, place: usize) -> Place {
        let freed = self.places.remove(place);
        // Checked here, since each reply finds the place of its caller not free yet.
        if self.places.is_empty() && self.places.capacity() > USUALLY_OPEN {
            self.places = Slab::new();
        }
        freed
    }

    /// Returns the waker to wake.
    fn answer(&mut self, at: usize, answer: Answer) -> Option<Waker> {
        let place = self.places.get_mut(at)?;
        place.missing -= 1;
        place.answers.push(answer);
        match (place.missing, place.progress) {
            (0, Progress::Left) => self.free(at).waker,
            (0, _) => place.waker.take(),
            _ => None,
        }
    }
}

impl Place {
    /// When the call was sent, if it had to wait for room.
    fn admitted(&self) -> Option<Instant> {
        match self.progress {
            Progress::Sent(admitted) => admitted,
            _ => None,
        }
    }
}

/// Returns the previous waker, to be dropped, if it wakes another task.
fn replace(known: &mut Option<Waker>, waker: &Waker) -> Option<Waker> {
    match known {
        Some(known) if known.will_wake(waker) => None,
        _ => known.replace(waker.clone()),
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};
    use std::time::Duration;

    use futures::FutureExt;
    use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
    use tokio::time::Instant;

    use super::super::{encode, framed::Framed};
    use super::driving::{Driving, TWO_GROUPS};
    use super::*;

    /// A connection, and the server's end of it, which takes 16 KiB that are not read.
    struct Both {
        multiplexer: Arc<Multiplexer>,
        driving: Driving<DuplexStream>,
        server: DuplexStream,
    }

    fn both() -> Both {
        let (ours, server) = tokio::io::duplex(16 * 1024);
        let (multiplexer, driving) = Multiplexer::new(Framed::new(ours));
        Both {
            multiplexer,
            driving,
            server,
        }
    }

    impl Both {
        fn send(&self, word: &str) -> Pending {
            let encode = |out: &mut Vec<u8>| [encode::command(out, &[word.as_bytes()])];
            self.multiplexer.send(WakeUp::default(), encode).unwrap()
        }

        fn caller(&self, word: &str, share: Share) -> Pending {
            self.caller_until(word, share, None)
        }

        fn caller_until(
            &self,
            word: &str,
            share: Share,
            until: Option<std::time::Instant>,
        ) -> Pending {
            let caller = WakeUp {
                since: Some(clock::now()),
                line: Some(InLine { share, until }),
                ..WakeUp::default()
            };
            let encode = |out: &mut Vec<u8>| [encode::command(out, &[word.as_bytes()])];
            self.multiplexer.send(caller, encode).unwrap()
        }

        fn received_after_a_poll(&mut self) -> String {
            assert!(!self.drive());
            self.received()
        }

        /// Returns whether the connection has ended.
        fn drive(&mut self) -> bool {
            (&mut self.driving).now_or_never().is_some()
        }

        /// The commands that the server has received.
        fn received(&mut self) -> String {
            let mut bytes = vec![0; 64 * 1024];
            let len = self.server.read(&mut bytes).now_or_never();
            String::from_utf8(bytes[..len.map_or(0, Result::unwrap)].to_vec()).unwrap()
        }

        /// The server replies. Returns whether the connection has ended.
        fn reply(&mut self, bytes: &[u8]) -> bool {
            let written = self.server.write_all(bytes).now_or_never();
            written.unwrap().unwrap();
            self.drive()
        }
    }

    #[track_caller]
    fn answer(pending: Pending) -> Result<Value, Unanswered> {
        last(pending.now_or_never().expect("it is answered"))
    }

    fn ping(word: &str) -> String {
        format!("*1\r\n${}\r\n{word}\r\n", word.len())
    }

    /// The caller of each reply has not taken it when the future looks for the next command.
    #[test]
    fn room_for_many_commands_is_not_kept_while_commands_come_one_by_one() {
        const MANY: usize = 2 * USUALLY_OPEN;
        let mut both = both();
        for count in [MANY, 1, 1] {
            let sent: Vec<_> = (0..count).map(|_| both.send("A")).collect();
            while !both.drive() && !both.received().is_empty() {}
            for _ in &sent {
                assert!(!both.reply(b":1\r\n"));
            }
            sent.into_iter().map(answer).for_each(drop);
        }
        let state = both.multiplexer.state();
        assert!(state.places.capacity() <= USUALLY_OPEN);
        assert!(state.open.capacity() <= USUALLY_OPEN);
    }

    #[test]
    fn each_caller_gets_the_reply_to_its_own_command() {
        let mut both = both();
        let words = ["ONE", "TWO", "THREE"];
        let [one, two, mut three] = words.map(|word| both.send(word));
        assert!(!both.drive());
        assert_eq!(both.received(), words.map(ping).concat(), "in one write");
        assert!(!both.reply(b":1\r\n$-1\r\n+O"));
        assert_eq!(answer(one).unwrap(), Value::Int(1));
        assert!((&mut three).now_or_never().is_none());
        assert!(!both.reply(b"K\r\n"));
        assert_eq!(answer(three).unwrap(), Value::Okay);
        assert_eq!(answer(two).unwrap(), Value::Nil);
        assert_eq!(both.multiplexer.in_progress(), 0);
    }

    #[test]
    fn the_reply_to_a_caller_that_left_is_nobodys() {
        let mut both = both();
        let (left, stayed) = (both.send("LEFT"), both.send("STAYED"));
        drop(left);
        assert!(!both.drive());
        assert_eq!(
            both.received(),
            ping("LEFT") + &ping("STAYED"),
            "both are sent"
        );
        assert!(!both.reply(b":1\r\n:2\r\n"));
        assert_eq!(answer(stayed).unwrap(), Value::Int(2));
        let late = both.send("LATE");
        assert!(!both.drive());
        assert!(!both.reply(b":3\r\n"));
        drop(late);
        assert_eq!(both.multiplexer.in_progress(), 0);
    }

    /// Else the next command would get it.
    #[test]
    fn a_reply_that_nobody_asked_for_ends_the_connection() {
        for asked in 0..3 {
            let mut both = both();
            let sent: Vec<_> = (0..asked).map(|_| both.send("PING")).collect();
            assert!(!both.drive());
            let replies = b"+PONG\r\n".repeat(asked + 1);
            assert!(
                both.reply(&replies[..replies.len() - 1]),
                "its beginning is enough"
            );
            let why = both.multiplexer.ended().and_then(|ended| ended.flaw());
            assert_eq!(why.as_deref(), Some("the server sent a reply to nothing"));
            for sent in sent {
                assert_eq!(answer(sent).unwrap(), Value::Text("PONG".into()));
            }
            assert!(
                both.multiplexer
                    .send(WakeUp::default(), |out| [out.len()])
                    .is_err()
            );
        }
    }

    #[test]
    fn what_came_behind_the_greeting_is_no_reply_to_the_first_command() {
        let (ours, mut server) = tokio::io::duplex(1024);
        let mut framed = Framed::new(ours);
        let greeting = server.write_all(b"+HELLO\r\n+MORE\r\n").now_or_never();
        greeting.unwrap().unwrap();
        framed.read().now_or_never().unwrap().unwrap();
        let (multiplexer, mut driving) = Multiplexer::new(framed);
        let first = multiplexer
            .send(WakeUp::default(), |out| [encode::command(out, &[b"PING"])])
            .unwrap();
        assert!((&mut driving).now_or_never().is_some());
        assert!(answer(first).is_err());
        assert_eq!(
            server.read(&mut [0; 9]).now_or_never().map(Result::ok),
            None,
            "not sent"
        );
    }

    /// It belongs to something else that the connection carries.
    #[test]
    fn a_reply_before_its_command_was_written_ends_the_connection() {
        let mut both = both();
        // As much as the stream takes.
        let first = both.send(&"x".repeat(20_000));
        assert!(!both.drive());
        assert!(both.reply(b":1\r\n"));
        assert!(matches!(
            answer(first),
            Err(Unanswered::Ended(Ended::Nonsense(_)))
        ));
    }

    #[test]
    fn nonsense_is_the_first_callers_and_ends_the_others() {
        for nonsense in [&b"HTTP/1.1 400\r\n"[..], b">1\r\n:1\r\n", b"+\xff\r\n"] {
            let mut both = both();
            let sent = [both.send("A"), both.send("B"), both.send("C")];
            assert!(!both.drive());
            assert!(both.reply(&[b":1\r\n", nonsense].concat()));
            let [one, two, three] = sent.map(answer);
            assert_eq!(one.unwrap(), Value::Int(1));
            assert!(matches!(two, Err(Unanswered::Nonsense(_))), "{two:?}");
            assert!(
                matches!(three, Err(Unanswered::Ended(Ended::Nonsense(_)))),
                "{three:?}"
            );
        }
    }

    /// Redis cuts what it quotes of a command. Each call of a name with such a character ended its
    /// connection.
    #[test]
    fn an_error_that_quotes_half_a_character_was_nonsense() {
        let mut both = both();
        let sent = both.send("RESTORE");
        assert!(!both.drive());
        assert!(!both.reply(b"-ERR unknown command 'RESTORE', with args: 'na\xc3'\r\n"));
        let Ok(Value::Error(error)) = answer(sent) else {
            unreachable!("it is an error of the server")
        };
        assert_eq!(error.code(), "ERR");
    }

    /// A stream that always has more of one long reply.
    struct Endless {
        reads: usize,
        /// Whether it takes commands.
        takes: bool,
    }

    impl AsyncRead for Endless {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            into: &mut tokio::io::ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            self.reads += 1;
            into.put_slice(if self.reads == 1 { b"$9999\r\n" } else { b"x" });
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Endless {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            Poll::Ready(match self.takes {
                true => Ok(bytes.len()),
                false => Err(io::ErrorKind::BrokenPipe.into()),
            })
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// A command to a server that sends without end.
    fn endless(takes: bool) -> (Pending, Driving<Endless>) {
        let (multiplexer, driving) = Multiplexer::new(Framed::new(Endless { reads: 0, takes }));
        let sent = multiplexer
            .send(WakeUp::default(), |out| [encode::command(out, &[b"GET"])])
            .unwrap();
        (sent, driving)
    }

    /// Whatever more it sends is not read before its connection ends.
    #[test]
    fn a_server_that_takes_nothing_and_sends_without_end_is_left() {
        let (sent, driving) = endless(false);
        assert!(driving.now_or_never().is_some());
        let end = answer(sent);
        assert!(
            matches!(end, Err(Unanswered::Ended(Ended::Io(_)))),
            "{end:?}"
        );
    }

    #[test]
    fn a_server_that_sends_without_end_lets_others_run() {
        let (_sent, driving) = endless(true);
        let mut task = tokio_test::task::spawn(driving);
        for _ in 0..3 {
            assert!(task.poll().is_pending());
            assert!(task.is_woken(), "it goes on");
        }
    }

    #[test]
    fn the_end_reaches_all_callers_and_the_next_one_too() {
        let ends: [fn(&mut Both); 3] = [
            |both| {
                let (_, closed) = tokio::io::duplex(1);
                drop(std::mem::replace(&mut both.server, closed));
                assert!(both.drive());
            },
            |both| {
                both.multiplexer.close();
                assert!(both.drive());
            },
            |both| {
                let (ours, _) = tokio::io::duplex(1);
                let (_, other) = Multiplexer::new(Framed::new(ours));
                drop(std::mem::replace(&mut both.driving, other));
            },
        ];
        for end in ends {
            let mut both = both();
            let (written, queued) = (both.send("A"), both.send("B"));
            assert!(!both.drive());
            let mut late = both.send("C");
            assert!((&mut late).now_or_never().is_none());
            end(&mut both);
            for sent in [written, queued, late] {
                assert!(matches!(answer(sent), Err(Unanswered::Ended(_))));
            }
            assert!(
                both.multiplexer
                    .send(WakeUp::default(), |out| [out.len()])
                    .is_err()
            );
        }
    }

    /// The caller whose reply had come got the error that the outcome is unknown.
    #[test]
    fn a_reply_that_had_come_was_dropped_because_the_next_command_could_not_be_written() {
        let mut both = both();
        let [answered, silent] = ["A", "B"].map(|word| both.send(word));
        assert!(!both.drive());
        let reply = both.server.write_all(b":1\r\n").now_or_never();
        reply.unwrap().unwrap();
        let (_, closed) = tokio::io::duplex(1);
        drop(std::mem::replace(&mut both.server, closed));
        let unwritten = both.send("C");
        assert!(both.drive());
        assert_eq!(answer(answered).unwrap(), Value::Int(1));
        for sent in [silent, unwritten] {
            let Err(Unanswered::Ended(Ended::Io(error))) = answer(sent) else {
                unreachable!("it has no reply")
            };
            assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        }
    }

    #[test]
    fn after_the_end_nothing_is_written() {
        let mut both = both();
        let _sent = both.send("NEVER");
        both.multiplexer.close();
        assert!(both.drive());
        assert_eq!(both.received(), "");
    }

    #[test]
    fn a_command_longer_than_the_stream_takes_is_written_in_pieces() {
        let mut both = both();
        let (long, behind) = ("x".repeat(100_000), "BEHIND");
        let (first, second) = (both.send(&long), both.send(behind));
        let expected = ping(&long) + &ping(behind);
        let mut received = String::new();
        while received.len() < expected.len() {
            assert!(!both.drive());
            received += &both.received();
        }
        assert_eq!(received, expected);
        assert!(!both.reply(b":1\r\n:2\r\n"));
        assert_eq!(answer(first).unwrap(), Value::Int(1));
        assert_eq!(answer(second).unwrap(), Value::Int(2));
    }

    #[test]
    fn a_long_reply_comes_whole() {
        let mut both = both();
        let sent = both.send("GET");
        assert!(!both.drive());
        let text = "y".repeat(100_000);
        let reply = format!("*2\r\n${}\r\n{text}\r\n:5\r\n", text.len());
        for piece in reply.as_bytes().chunks(10_000) {
            assert!(!both.reply(piece));
        }
        let expected = vec![Value::Text(text.into_bytes()), Value::Int(5)];
        assert_eq!(answer(sent).unwrap(), Value::List(expected));
        assert!(!both.drive(), "it goes on");
    }

    fn waking(waker: &Waker) -> WakeUp<'_> {
        let (waker, due) = (Some(waker), None);
        WakeUp {
            waker,
            due,
            ..WakeUp::default()
        }
    }

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl std::task::Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl Count {
        fn take(&self) -> usize {
            self.0.swap(0, Ordering::Relaxed)
        }
    }

    #[test]
    fn a_command_wakes_the_driver_once_and_a_reply_wakes_its_caller() {
        let [driver, caller] = [(); 2].map(|()| Arc::<Count>::default());
        let counts = || [&driver, &caller].map(|count| count.take());
        let mut both = both();
        let waker = Waker::from(Arc::clone(&driver));
        let polled = Pin::new(&mut both.driving).poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        let first = both.send("A");
        let known = Waker::from(Arc::clone(&caller));
        let encode = |out: &mut Vec<u8>| [encode::command(out, &[b"B"])];
        let second = both.multiplexer.send(waking(&known), encode).unwrap();
        assert_eq!(counts(), [1, 0]);
        assert!(!both.drive());
        assert!(!both.reply(b":1\r\n"));
        assert_eq!(counts()[1], 0);
        assert!(!both.reply(b":2\r\n"));
        assert_eq!(counts()[1], 1);
        drop((first, second));
    }

    /// The first reply may come alone, and the caller may be another one than the sender.
    #[test]
    fn a_caller_of_two_commands_is_woken_when_both_have_replies() {
        let mut both = both();
        let [sender, other] = [(); 2].map(|()| Arc::<Count>::default());
        let words =
            |out: &mut Vec<u8>| ["A", "B"].map(|word| encode::command(out, &[word.as_bytes()]));
        let waker = Waker::from(Arc::clone(&sender));
        let mut sent = both.multiplexer.send(waking(&waker), words).unwrap();
        assert!(!both.drive());
        let waker = Waker::from(Arc::clone(&other));
        let poll = |sent: &mut Pending| Pin::new(sent).poll(&mut Context::from_waker(&waker));
        for (reply, came, woken) in [
            (":1\r\n", Came::Nothing, 0),
            ("-ERR no\r\n", Came::Other, 1),
        ] {
            assert!(poll(&mut sent).is_pending());
            assert!(!both.reply(reply.as_bytes()));
            assert_eq!((sent.came(), other.take()), (came, woken));
        }
        let Poll::Ready(answers) = poll(&mut sent) else {
            unreachable!("both are there")
        };
        assert!(matches!(
            &answers[..],
            [Ok(Value::Int(1)), Ok(Value::Error(_))]
        ));
        assert_eq!((both.multiplexer.in_progress(), sender.take()), (0, 0));
        assert!(poll(&mut sent).is_pending(), "they were returned");
    }

    #[test]
    fn a_first_reply_that_decides_is_taken_without_the_second() {
        for both_came in [false, true] {
            let mut both = both();
            let words =
                |out: &mut Vec<u8>| ["A", "B"].map(|word| encode::command(out, &[word.as_bytes()]));
            let mut sent = both.multiplexer.send(WakeUp::default(), words).unwrap();
            assert!(!both.drive());
            assert!(sent.take_first(|_| true).is_none(), "it has not come");
            assert!(!both.reply(b":1\r\n"));
            if both_came {
                assert!(!both.reply(b":2\r\n"));
            }
            assert!(sent.take_first(|_| false).is_none());
            assert_eq!(sent.take_first(|_| true).unwrap().unwrap(), Value::Int(1));
            assert!(sent.take_first(|_| true).is_none(), "it was taken");
            if !both_came {
                assert!(!both.reply(b":2\r\n"));
            }
            assert_eq!(both.multiplexer.in_progress(), 0);
        }
    }

    /// A caller that leaves between the replies leaves no state.
    #[test]
    fn the_replies_to_two_commands_of_a_caller_that_left_are_nobodys() {
        for before in 0..=2 {
            let mut both = both();
            let words =
                |out: &mut Vec<u8>| ["A", "B"].map(|word| encode::command(out, &[word.as_bytes()]));
            let left = both.multiplexer.send(WakeUp::default(), words).unwrap();
            let stayed = both.send("C");
            assert!(!both.drive());
            assert!(!both.reply(&b":1\r\n".repeat(before)));
            drop(left);
            assert!(!both.reply(&b":1\r\n".repeat(2 - before)));
            assert!(!both.reply(b":2\r\n"));
            assert_eq!(answer(stayed).unwrap(), Value::Int(2));
            assert_eq!(both.multiplexer.in_progress(), 0);
        }
    }

    /// This many callers that have sent a command each, and a count of the woken ones.
    fn callers(both: &mut Both, many: usize) -> (Vec<Pending>, Arc<Count>) {
        let woken = Arc::<Count>::default();
        let waker = Waker::from(Arc::clone(&woken));
        let sent = (0..many).map(|_| {
            let encode = |out: &mut Vec<u8>| [encode::command(out, &[b"PING"])];
            both.multiplexer.send(waking(&waker), encode).unwrap()
        });
        let sent = sent.collect();
        assert!(!both.drive());
        assert_eq!(both.received(), ping("PING").repeat(many));
        (sent, woken)
    }

    /// With one thread, the server waited while all callers ran, and all callers while the server
    /// worked.
    #[test]
    fn half_of_many_callers_run_while_the_server_works_for_the_others() {
        let mut both = both();
        let (_first, woken) = callers(&mut both, TWO_GROUPS);
        assert!(!both.reply(&b"+PONG\r\n".repeat(TWO_GROUPS)));
        assert_eq!(woken.take(), TWO_GROUPS / 2);
        let _next = both.send("NEXT");
        assert!(!both.drive());
        assert_eq!(both.received(), ping("NEXT"));
        assert_eq!(woken.take(), TWO_GROUPS - TWO_GROUPS / 2);
    }

    #[test]
    fn all_callers_are_woken_at_once_while_the_server_has_work() {
        for (many, answered) in [
            (TWO_GROUPS + 1, TWO_GROUPS),
            (TWO_GROUPS - 1, TWO_GROUPS - 1),
        ] {
            let mut both = both();
            let (_sent, woken) = callers(&mut both, many);
            assert!(!both.reply(&b"+PONG\r\n".repeat(answered)));
            assert_eq!(woken.take(), answered, "of {many}");
        }
    }

    #[test]
    fn the_second_group_runs_although_the_first_sends_nothing() {
        let mut both = both();
        let (_sent, woken) = callers(&mut both, TWO_GROUPS);
        let replies = b"+PONG\r\n".repeat(TWO_GROUPS);
        both.server
            .write_all(&replies)
            .now_or_never()
            .unwrap()
            .unwrap();
        let mut task = tokio_test::task::spawn(both.driving);
        assert!(task.poll().is_pending());
        assert!(task.is_woken(), "it goes on");
        assert!(task.poll().is_pending());
        assert!(!task.is_woken(), "it waits for the server");
        assert_eq!(woken.take(), TWO_GROUPS);
    }

    /// They may run in another runtime than the connection, whose end they had waited for forever.
    #[test]
    fn the_second_group_runs_after_the_end_of_the_connection() {
        let ends: [fn(Both); 2] = [
            |both| drop(both.driving),
            |mut both| {
                both.multiplexer.close();
                assert!(both.drive());
            },
        ];
        for end in ends {
            let mut both = both();
            let (sent, woken) = callers(&mut both, TWO_GROUPS);
            assert!(!both.reply(&b"+PONG\r\n".repeat(TWO_GROUPS)));
            end(both);
            assert_eq!(woken.take(), TWO_GROUPS);
            for sent in sent {
                assert_eq!(answer(sent).unwrap(), Value::Text("PONG".into()));
            }
        }
    }

    const S: Duration = Duration::from_secs(1);

    /// A caller that is to be woken then.
    /// As many as there is room for, and more.
    fn crowd(both: &Both, more: usize) -> (Vec<Pending>, Vec<Pending>) {
        let mut in_flight = Vec::new();
        both.multiplexer.state().admission.has_all_room();
        while both.multiplexer.state().admission.admits(Share::Callers) {
            in_flight.push(both.caller("IN", Share::Callers));
        }
        let line = (0..more).map(|at| both.caller(&at.to_string(), Share::Callers));
        (in_flight, line.collect())
    }

    #[test]
    fn calls_for_which_there_is_no_room_are_sent_in_order_as_replies_come() {
        let mut both = both();
        let (in_flight, line) = crowd(&both, 3);
        while !both.received_after_a_poll().is_empty() {}
        let release = both.caller("RELEASE", Share::Upkeep);
        assert_eq!(
            both.received_after_a_poll(),
            ping("RELEASE"),
            "has its own room"
        );
        assert!(!both.reply(b":1\r\n:2\r\n"));
        assert_eq!(both.received(), ping("0"), "and leaves less to others");
        assert!(!both.reply(b":3\r\n:4\r\n"));
        assert_eq!(both.received(), [ping("1"), ping("2")].concat());
        let replies = ":7\r\n".repeat(in_flight.len() - 4);
        assert!(!both.reply(format!("{replies}:8\r\n:10\r\n:11\r\n:12\r\n").as_bytes()));
        assert_eq!(answer(release).unwrap(), Value::Int(8));
        let answers = line.into_iter().map(|sent| answer(sent).unwrap());
        assert!(answers.eq([10, 11, 12].map(Value::Int)));
        assert_eq!(both.multiplexer.in_progress(), in_flight.len());
    }

    /// They gave back all room before it was looked at whether that was used.
    #[test]
    fn callers_whose_replies_came_together_never_got_more_room() {
        let mut both = both();
        let callers = (0..20).map(|at| both.caller(&at.to_string(), Share::Callers));
        let callers: Vec<_> = callers.collect();
        let sent = |which: std::ops::Range<usize>| which.map(|at| ping(&at.to_string()));
        assert_eq!(both.received_after_a_poll(), sent(0..2).collect::<String>());
        assert!(!both.reply(":1\r\n".repeat(2).as_bytes()));
        assert_eq!(both.received(), sent(2..6).collect::<String>());
        drop(callers);
    }

    /// Calls were passed over that would have been in time.
    #[test]
    fn a_later_step_of_a_call_was_taken_for_a_slow_reply() {
        let mut both = both();
        let since = clock::stamp().checked_sub(10 * S);
        assert!(since.is_some());
        for _ in 0..2 {
            let step = WakeUp {
                since,
                ..WakeUp::default()
            };
            let encode = |out: &mut Vec<u8>| [encode::command(out, &[b"LATER"])];
            let step = both.multiplexer.send(step, encode).unwrap();
            assert_eq!(both.received_after_a_poll(), ping("LATER"));
            assert!(!both.reply(b":1\r\n"));
            drop(step);
        }
        let now = clock::stamp();
        let admission = &both.multiplexer.state().admission;
        assert!(!admission.is_too_late(Some(clock::after(now, S)), now));
    }

    #[test]
    fn a_call_that_was_taken_back_is_not_sent() {
        let mut both = both();
        let (in_flight, mut line) = crowd(&both, 3);
        while !both.received_after_a_poll().is_empty() {}
        assert!(line[0].recall());
        drop(line.remove(1));
        assert!(!both.reply(":7\r\n".repeat(in_flight.len()).as_bytes()));
        assert_eq!(both.received(), ping("2"));
        assert!(!line[1].recall(), "it was sent");
        assert!(line[1].admitted().is_some());
        drop((in_flight, line));
        assert!(!both.reply(b":7\r\n"));
        assert_eq!(both.multiplexer.in_progress(), 0);
    }

    #[test]
    fn a_call_that_was_not_sent_when_the_connection_ended_has_not_run() {
        let mut both = both();
        let (mut in_flight, mut line) = crowd(&both, 1);
        assert!(!both.drive());
        drop(both.driving);
        let sent = answer(in_flight.remove(0));
        assert!(matches!(sent, Err(Unanswered::Ended(_))));
        let unsent = answer(line.remove(0));
        assert!(matches!(unsent, Err(Unanswered::Unsent(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_whose_reply_would_come_too_late_is_not_sent() {
        let mut both = both();
        let (in_flight, line) = crowd(&both, 0);
        let now = clock::now();
        both.multiplexer.state().admission.took(2 * S);
        let waits = |rest| both.caller_until("LATE", Share::Callers, Some(clock::after(now, rest)));
        let [mut late, mut in_time] = [3 * S, 60 * S].map(waits);
        while !both.received_after_a_poll().is_empty() {}
        tokio::time::advance(2 * S).await;
        assert!(!both.reply(b":7\r\n"));
        assert_eq!(both.received(), ping("LATE"), "one of them");
        assert!(late.recall() && !in_time.recall());
        drop((in_flight, line));
    }

    /// The release was not sent again: in an overload, 513 releases of a client were left for ever.
    #[tokio::test(start_paused = true)]
    async fn a_release_whose_reply_would_come_too_late_was_never_sent() {
        let mut both = both();
        while both.multiplexer.state().admission.admits(Share::Upkeep) {
            drop(both.caller("IN", Share::Upkeep));
        }
        both.multiplexer.state().admission.took(60 * S);
        both.multiplexer.state().admission.took(60 * S);
        let until = Some(clock::after(clock::now(), 63 * S));
        let late = both.caller_until("LATE", Share::Upkeep, until);
        while !both.received_after_a_poll().is_empty() {}
        tokio::time::advance(60 * S).await;
        assert!(!both.reply(b":7\r\n"));
        assert_eq!(both.received(), ping("LATE"));
        drop(late);
    }

    fn caller_until(both: &Both, due: Instant) -> (Pending, Arc<Count>) {
        let count = Arc::<Count>::default();
        let waker = Waker::from(Arc::clone(&count));
        let (waker, due) = (Some(&waker), Some(due));
        let encode = |out: &mut Vec<u8>| [encode::command(out, &[b"PING"])];
        let sent = both.multiplexer.send(
            WakeUp {
                waker,
                due,
                ..WakeUp::default()
            },
            encode,
        );
        let sent = sent.unwrap();
        (sent, count)
    }

    /// Moves the clock, and polls the future if that has woken it.
    async fn pass(
        task: &mut tokio_test::task::Spawn<&mut Driving<DuplexStream>>,
        span: Duration,
    ) -> bool {
        tokio::time::advance(span).await;
        let woken = task.is_woken();
        if woken {
            assert!(task.poll().is_pending());
        }
        woken
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_without_a_reply_is_woken_at_its_moment() {
        let mut both = both();
        let now = Instant::now();
        let (first, early) = caller_until(&both, now + S);
        let (_second, late) = caller_until(&both, now + 3 * S);
        let mut task = tokio_test::task::spawn(&mut both.driving);
        assert!(task.poll().is_pending());
        assert!(!pass(&mut task, S - Duration::from_millis(2)).await);
        assert!(pass(&mut task, Duration::from_millis(3)).await);
        assert_eq!([&early, &late].map(|count| count.take()), [1, 0]);
        drop(first);
        assert!(!pass(&mut task, S).await, "the first one has gone");
        assert!(pass(&mut task, S).await);
        assert_eq!([&early, &late].map(|count| count.take()), [0, 1]);
        assert!(!pass(&mut task, 60 * S).await, "once is enough");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answered_caller_is_not_woken_at_its_moment() {
        let mut both = both();
        let (_sent, woken) = caller_until(&both, Instant::now() + S);
        let written = both.server.write_all(b"+PONG\r\n").now_or_never();
        written.unwrap().unwrap();
        let mut task = tokio_test::task::spawn(&mut both.driving);
        assert!(task.poll().is_pending());
        assert_eq!(woken.take(), 1, "by its reply");
        assert!(pass(&mut task, 2 * S).await);
        assert_eq!(woken.take(), 0);
        assert!(
            !pass(&mut task, 60 * S).await,
            "nothing is left to wait for"
        );
    }

    /// A guard was dropped before the task's first poll, so that the connection was driven without a
    /// waker, and the stream was full then.
    #[tokio::test(start_paused = true)]
    async fn a_caller_of_a_connection_that_was_driven_without_a_waker_is_woken_at_its_moment() {
        let mut both = both();
        let _long = both.send(&"x".repeat(100_000));
        let multiplexer = Arc::clone(&both.multiplexer);
        assert!(!both.drive(), "without a waker");
        let mut task = tokio_test::task::spawn(&mut both.driving);
        assert!(task.poll().is_pending());
        let count = Arc::<Count>::default();
        let (waker, due) = (Waker::from(Arc::clone(&count)), Some(Instant::now() + S));
        let caller = WakeUp {
            waker: Some(&waker),
            due,
            ..WakeUp::default()
        };
        let encode = |out: &mut Vec<u8>| [encode::command(out, &[b"PING"])];
        let _sent = multiplexer.send(caller, encode).unwrap();
        assert!(task.is_woken(), "to look at the moment");
        assert!(task.poll().is_pending());
        assert!(pass(&mut task, 2 * S).await);
        assert_eq!(count.take(), 1);
    }

    /// The first command of the connection was the load of a script, for a release without a caller. All
    /// calls behind that command waited without end.
    #[tokio::test(start_paused = true)]
    async fn a_connection_that_never_answered_is_given_up() {
        let mut both = both();
        let began = clock::now();
        let _load = both.send("SCRIPT");
        let _release = both.caller("EVALSHA", Share::Upkeep);
        assert!(!both.drive());
        tokio::time::advance(S).await;
        assert_eq!(both.multiplexer.gives_up_at(2 * S), Some(began + 2 * S));
    }

    /// The stream takes nothing more, so that no write would wake the future.
    #[tokio::test(start_paused = true)]
    async fn a_caller_behind_a_full_stream_is_woken_at_its_moment() {
        let mut both = both();
        let _long = both.send(&"x".repeat(100_000));
        let multiplexer = Arc::clone(&both.multiplexer);
        let mut task = tokio_test::task::spawn(&mut both.driving);
        assert!(task.poll().is_pending());
        let count = Arc::<Count>::default();
        let waker = Waker::from(Arc::clone(&count));
        let mut sent = Vec::new();
        for due in [3 * S, S, 9 * S] {
            let (waker, due) = (Some(&waker), Some(Instant::now() + due));
            let encode = |out: &mut Vec<u8>| [encode::command(out, &[b"PING"])];
            sent.push(
                multiplexer
                    .send(
                        WakeUp {
                            waker,
                            due,
                            ..WakeUp::default()
                        },
                        encode,
                    )
                    .unwrap(),
            );
            assert!(task.is_woken(), "to look at the moment");
            assert!(task.poll().is_pending());
        }
        assert!(pass(&mut task, 2 * S).await);
        assert_eq!(count.take(), 1);
        drop(sent.remove(1));
        assert!(pass(&mut task, 2 * S).await);
        assert_eq!(count.take(), 1);
    }
}
