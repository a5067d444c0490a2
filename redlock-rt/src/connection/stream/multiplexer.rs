//! The commands of many callers on one connection.
//!
//! A caller appends its commands to the bytes that are to be written, and waits for the replies in a
//! place of its own. A future reads and writes the stream: one write takes all that is there, and
//! one lock of the mutex answers all replies that one read brought.
//!
//! `redis::aio::MultiplexedConnection` passes each command through a channel and each reply through
//! another one, which was most of a call's cost in the client.
//!
//! # Invariants
//!
//! 1. Replies come in the order of the commands, one for each.
//! 2. A reply that comes before its command was written, or that no command is open for, ends the
//!    connection: else the next command would get it.
//! 3. A command is written although its caller has gone, unless the connection ends before. Its reply
//!    is dropped.
//! 4. No waker is woken, and none is dropped, while the mutex is held: what it wakes may send.
//!
//! # Whom a read wakes
//!
//! When a read has answered eight callers or more, and the server has no other command, half of the callers
//! are woken first, and the rest after the first half's next commands were written. Woken together, all
//! would send together, and on a runtime of one thread the server would wait while they run, and they while
//! the server works. From then on the two groups take turns of themselves. Of the commands of one call only
//! the last wakes the caller.
//!
//! A caller has a timer of its own where it has less time than the server, where it continues another
//! caller's call, in a cluster, and where its timer is surer than the task of the connection: in another
//! runtime, and in one with several workers, since that task may lie behind a task that blocks its worker.
//! All others are woken by the one timer of the connection.

#[cfg(all(test, redlock_loom))]
mod loom;

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use slab::Slab;
use smallvec::SmallVec;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use super::admission::{Admission, Share};
use super::alarm::Alarm;
use super::framed::Framed;
use super::resp::Nonsense;
use crate::clock::{self, Moment};
use crate::connection::fault::Fault;
use crate::shim::{Mutex, MutexGuard, lock};
use crate::wire::Value;

/// Room for so many commands is kept for the next ones.
const USUALLY_OPEN: usize = 1024;
/// A reply may take so many times as long as the server may be silent.
const MOST_PATIENCE: u32 = 8;
/// So often is the stream read before others run.
const READS_AT_ONCE: usize = 16;
/// So many answered callers are woken in two groups, if the server has nothing to do.
const TWO_GROUPS: usize = 8;

/// Takes commands.
#[derive(Debug, Default)]
pub(in crate::connection) struct Multiplexer {
    state: Mutex<State>,
    /// The number of places, for those who do not want to wait for the mutex.
    places: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    /// The commands that are to be written.
    out: Vec<u8>,
    /// The number of bytes that were ever appended to it.
    appended: u64,
    admission: Admission<Queued>,
    /// The commands without a reply.
    open: VecDeque<Open>,
    places: Slab<Place>,
    /// The waker of the future, until a command or an earlier moment comes.
    idle: Option<Waker>,
    /// The earliest moment at which a caller wants to be woken, among those of the open commands and of
    /// some that were answered since the last one.
    next_due: Due,
    ended: Option<Ended>,
    /// When the last reply to a command was read.
    heard: Option<std::time::Instant>,
}

/// A command without a reply.
#[derive(Debug)]
struct Open {
    place: usize,
    /// The command is written as soon as so many bytes are.
    until: u64,
    due: Due,
    /// A moment before the command was sent.
    since: std::time::Instant,
    /// The room that it gives back.
    room: Option<(Share, usize)>,
}

/// A call that waits for room.
#[derive(Debug)]
struct Queued {
    bytes: Vec<u8>,
    /// The places of its commands, and the length behind each.
    commands: SmallVec<[(usize, usize); 2]>,
    until: Option<std::time::Instant>,
}

/// How a call waits for room, if there is none.
#[derive(Debug, Clone, Copy)]
pub(in crate::connection) struct InLine {
    pub(in crate::connection) share: Share,
    /// It is not sent if the reply would come after this.
    pub(in crate::connection) until: Option<Moment>,
}

/// The moment at which a caller is woken without a reply too, if there is one.
pub(in crate::connection) type Due = Option<Instant>;

/// When to wake a caller.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::connection) struct WakeUp<'a> {
    /// Woken by a reply, until the future of that reply is polled with another one.
    pub(in crate::connection) waker: Option<&'a Waker>,
    /// By the future that drives the stream, so only while that one is polled.
    pub(in crate::connection) due: Due,
    /// A moment before the command, on the clock of leases. Defaults to the present one, and then the
    /// time until the reply does not count as the pace of the server.
    pub(in crate::connection) since: Option<std::time::Instant>,
    /// `None`: the command is sent, whatever is in flight.
    pub(in crate::connection) line: Option<InLine>,
}

/// Where the reply to one command is put.
#[derive(Debug)]
enum Place {
    /// The call waits for room.
    Queued(Option<Waker>),
    /// It is not sent: its time is nearly over.
    PassedOver(Option<Waker>),
    Waiting(Option<Waker>, Admitted),
    /// The caller has gone.
    Left,
    Answered(Result<Value, Unanswered>, Admitted),
}

/// When a call was sent, if it had to wait for room.
type Admitted = Option<Moment>;

/// Why a command has no reply.
#[derive(Debug, Clone)]
pub(in crate::connection) enum Unanswered {
    /// The reply is none.
    Nonsense(Nonsense),
    /// The connection ended.
    Ended(Ended),
    /// The connection ended before the call was sent.
    Unsent(Ended),
}

/// Why a connection ended.
#[derive(Debug, Clone)]
pub(in crate::connection) enum Ended {
    /// The server sent what no server sends.
    Nonsense(Nonsense),
    Io(Arc<io::Error>),
    /// This client closed it, or the runtime of its task ended.
    Closed,
}

/// Commands that were passed to the connection.
#[derive(Debug)]
pub(in crate::connection) struct Pending<const N: usize = 1> {
    multiplexer: Arc<Multiplexer>,
    /// In the order of the commands. `None` once the replies were returned. Small, as all that a waiting
    /// caller keeps.
    places: Option<[u32; N]>,
    /// The call had to wait for room.
    queued: bool,
    admitted: Admitted,
}

/// What came for a call that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Came {
    Nothing,
    /// A reply, of which at least the first part is no refusal.
    Reply,
    /// The caller has to do something.
    Other,
}

/// Reads and writes the stream. It ends with the connection; the connection also ends if it is
/// dropped.
pub(in crate::connection) struct Driving<S> {
    multiplexer: Arc<Multiplexer>,
    framed: Framed<S>,
    /// Of callers that were answered.
    wakers: Vec<Waker>,
    /// These callers are the second of two groups: the commands of the first are written before they
    /// run.
    second_group: bool,
    alarm: Alarm,
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
    /// What was wrong with the replies, if that is why.
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
    /// A multiplexer, and the future that drives the stream.
    pub(in crate::connection) fn new<S>(framed: Framed<S>) -> (Arc<Self>, Driving<S>)
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let multiplexer = Arc::<Self>::default();
        let driving = Driving {
            multiplexer: Arc::clone(&multiplexer),
            framed,
            wakers: Vec::new(),
            second_group: false,
            alarm: Alarm::default(),
        };
        (multiplexer, driving)
    }

    /// Passes `N` commands to the connection. `encode` appends them, and returns the length behind
    /// each. Nothing comes between them. The caller is woken when the last of them has a reply.
    pub(in crate::connection) fn send<const N: usize>(
        self: &Arc<Self>,
        caller: WakeUp<'_>,
        encode: impl FnOnce(&mut Vec<u8>) -> [usize; N],
    ) -> Result<Pending<N>, Ended> {
        let (sent, idle) = self.append(caller, encode)?;
        if let Some(driver) = idle {
            driver.wake();
        }
        Ok(sent)
    }

    /// As [`send`](Self::send), but returns the waker of the future if that one sleeps. Who gets it
    /// wakes it, or polls the future.
    pub(super) fn append<const N: usize>(
        self: &Arc<Self>,
        caller: WakeUp<'_>,
        encode: impl FnOnce(&mut Vec<u8>) -> [usize; N],
    ) -> Result<(Pending<N>, Option<Waker>), Ended> {
        let mut state = self.state();
        if let Some(ended) = &state.ended {
            return Err(ended.clone());
        }
        if let Some(line) = caller
            .line
            .filter(|line| !state.admission.admits(line.share))
        {
            let places = state.queue(line, caller.waker, encode);
            self.count(&state);
            drop(state);
            return Ok((Pending::new(self, places, true), None));
        }
        let before = state.out.len();
        let ends = encode(&mut state.out);
        let due = caller.due;
        let since = caller.since.unwrap_or_else(clock::stamp);
        let mut places = [0; N];
        for (at, end) in ends.into_iter().enumerate() {
            let until = state.appended + (end - before) as u64;
            // The last reply wakes the caller, who waits for all of them.
            let waker = caller.waker.filter(|_| at + 1 == N).cloned();
            let place = state.places.insert(Place::Waiting(waker, None));
            let room = None;
            let open = Open {
                place,
                until,
                due,
                since,
                room,
            };
            state.open.push_back(open);
            places[at] = place;
        }
        let bytes = state.out.len() - before;
        state.appended += bytes as u64;
        state.admission.sent(N, caller.since);
        if let Some(line) = caller.line {
            state.takes_room(line.share, bytes);
        }
        if let Some(due) = caller.due {
            state.next_due = Some(state.next_due.map_or(due, |known| known.min(due)));
        }
        self.count(&state);
        let idle = state.idle.take();
        drop(state);
        Ok((Pending::new(self, places, false), idle))
    }

    /// The moment until which the future may sleep. Commands that come later wake it.
    fn sleeps_until(&self, waker: &Waker) -> Due {
        let mut state = self.state();
        // Also where commands are left, since the stream takes none: the next one may have an earlier
        // moment.
        let before = state.keep_waker(waker);
        let due = state.next_due;
        drop(state);
        drop(before);
        due
    }

    /// Returns whom to wake: those whose moment has come, and who have no reply.
    fn overdue(&self, now: Instant) -> Vec<Waker> {
        let state = &mut *self.state();
        let (due, later): (Vec<_>, Vec<_>) = state
            .open
            .iter()
            .filter_map(|open| Some((open.due?, open.place)))
            .partition(|(due, _)| *due <= now);
        state.next_due = later.into_iter().map(|(due, _)| due).min();
        let waker = |(_, place)| match state.places.get(place) {
            Some(Place::Waiting(waker, _)) => waker.clone(),
            _ => None,
        };
        due.into_iter().filter_map(waker).collect()
    }

    /// When the connection is to be given up, if nothing comes until then. Silence is counted from the
    /// last reply to any command, as long as a later command is without one: a server that is slow is
    /// not silent. `None`: all commands have replies.
    pub(in crate::connection) fn gives_up_at(
        &self,
        patience: Duration,
    ) -> Option<std::time::Instant> {
        let state = self.state();
        let asked = state.open.front()?.since;
        let last = state.heard.map_or(asked, |heard| heard.max(asked));
        // A server that answers one command now and then holds nobody up for longer.
        let oldest = clock::after(asked, patience * MOST_PATIENCE);
        Some(clock::after(last, patience).min(oldest))
    }

    /// How many commands have no reply, or one that its caller has not taken yet.
    pub(super) fn in_progress(&self) -> usize {
        self.places.load(Ordering::Relaxed)
    }

    /// Why the connection ended.
    pub(in crate::connection) fn ended(&self) -> Option<Ended> {
        self.state().ended.clone()
    }

    /// No poll of the future that begins later writes anything. The callers are told when that future
    /// is polled or dropped.
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
        for (place, _) in state.admission.close().flat_map(|call| call.commands) {
            let unsent = Unanswered::Unsent(why.clone());
            wakers.extend(state.answer(place, Err(unsent)));
        }
        self.count(&state);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Puts the commands into the empty buffer `writing`, or keeps the waker if there are none.
    fn take_commands(&self, waker: &Waker, writing: &mut Vec<u8>) {
        let mut state = self.state();
        std::mem::swap(writing, &mut state.out);
        if !writing.is_empty() {
            return;
        }
        let before = state.keep_waker(waker);
        if state.open.is_empty() {
            state.open.shrink_to(USUALLY_OPEN);
        }
        drop(state);
        drop(before);
    }

    fn count(&self, state: &State) {
        self.places.store(state.places.len(), Ordering::Relaxed);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl State {
    /// Keeps the waker of the future for the next command. Returns the one before, which is to be
    /// dropped.
    fn keep_waker(&mut self, waker: &Waker) -> Option<Waker> {
        replace(&mut self.idle, waker)
    }

    /// Keeps a call until there is room.
    fn queue<const N: usize>(
        &mut self,
        InLine { share, until }: InLine,
        waker: Option<&Waker>,
        encode: impl FnOnce(&mut Vec<u8>) -> [usize; N],
    ) -> [usize; N] {
        let mut bytes = Vec::new();
        let ends = encode(&mut bytes);
        let mut at = 0;
        let places = ends.map(|_| {
            at += 1;
            let waker = waker.filter(|_| at == N).cloned();
            self.places.insert(Place::Queued(waker))
        });
        let call = Queued {
            bytes,
            commands: places.into_iter().zip(ends).collect(),
            until: until.map(std::time::Instant::from),
        };
        self.admission.join(share, call);
        places
    }

    /// Sends the calls for which there is room.
    fn admit(&mut self, now: std::time::Instant) {
        while let Some((share, call)) = self.admission.next() {
            let is_late = self.admission.is_too_late(call.until, now);
            let mut is_sent = false;
            for &(place, end) in &call.commands {
                let Some(known) = self.places.get_mut(place) else {
                    continue;
                };
                match known {
                    Place::Queued(waker) if is_late => *known = Place::PassedOver(waker.take()),
                    Place::Queued(waker) => {
                        *known = Place::Waiting(waker.take(), Some(now.into()));
                        is_sent = true;
                        self.open.push_back(Open {
                            place,
                            until: self.appended + end as u64,
                            due: None,
                            since: now,
                            room: None,
                        });
                    }
                    // The caller has gone.
                    _ => drop(self.free(place)),
                }
            }
            if is_sent {
                self.appended += call.bytes.len() as u64;
                self.out.extend_from_slice(&call.bytes);
                self.admission.sent(call.commands.len(), Some(now));
                self.takes_room(share, call.bytes.len());
            }
        }
    }

    /// The last command of the call that was appended gives the room back.
    fn takes_room(&mut self, share: Share, bytes: usize) {
        if let Some(open) = self.open.back_mut() {
            open.room = Some((share, self.admission.takes(share, bytes)));
        }
    }

    /// What is in a place, which may be another command's from now on.
    fn free(&mut self, place: usize) -> Place {
        let freed = self.places.remove(place);
        // Here, since each reply finds the place of its caller not free yet.
        if self.places.is_empty() && self.places.capacity() > USUALLY_OPEN {
            self.places = Slab::new();
        }
        freed
    }

    /// The caller of a command has gone. Returns what was in its place.
    fn leave(&mut self, place: usize) -> Option<Place> {
        let known = self.places.get_mut(place)?;
        let before = std::mem::replace(known, Place::Left);
        if matches!(before, Place::Answered(..) | Place::PassedOver(_)) {
            self.free(place);
        }
        Some(before)
    }

    /// Returns whom to wake.
    fn answer(&mut self, place: usize, answer: Result<Value, Unanswered>) -> Option<Waker> {
        let (waker, admitted) = match self.places.get_mut(place)? {
            Place::Left => {
                self.free(place);
                return None;
            }
            Place::Waiting(waker, admitted) => (waker.take(), *admitted),
            Place::Queued(waker) => (waker.take(), None),
            Place::PassedOver(_) | Place::Answered(..) => return None,
        };
        self.places[place] = Place::Answered(answer, admitted);
        waker
    }
}

impl<const N: usize> Pending<N> {
    fn new(multiplexer: &Arc<Multiplexer>, places: [usize; N], queued: bool) -> Self {
        Self {
            multiplexer: Arc::clone(multiplexer),
            places: Some(places.map(|place| u32::try_from(place).unwrap_or(u32::MAX))),
            queued,
            admitted: None,
        }
    }

    fn places(&self) -> Option<[usize; N]> {
        Some(self.places?.map(|place| place as usize))
    }

    /// Whether the call had to wait for room.
    pub(in crate::connection) fn was_queued(&self) -> bool {
        self.queued
    }

    /// When the call was sent, if it had to wait for room.
    pub(in crate::connection) fn admitted(&self) -> Admitted {
        let Some(places) = self.places().filter(|_| self.queued) else {
            return self.admitted;
        };
        match self.multiplexer.state().places.get(*places.last()?) {
            Some(Place::Waiting(_, admitted) | Place::Answered(_, admitted)) => *admitted,
            _ => None,
        }
    }

    /// Takes the call back, if it waits for room. Otherwise it was sent.
    pub(in crate::connection) fn recall(&mut self) -> bool {
        let Some(places) = self.places().filter(|_| self.queued) else {
            return false;
        };
        let mut state = self.multiplexer.state();
        let waits = |place: usize| {
            let place = state.places.get(place);
            matches!(place, Some(Place::Queued(_) | Place::PassedOver(_)))
        };
        if !places.into_iter().all(waits) {
            return false;
        }
        let left = places.map(|place| state.leave(place));
        self.multiplexer.count(&state);
        drop(state);
        drop(left);
        self.places = None;
        true
    }

    /// The reply to the first command, if it has come and `decides`: then the others are not waited for.
    pub(in crate::connection) fn take_first(
        &mut self,
        decides: impl FnOnce(&Result<Value, Unanswered>) -> bool,
    ) -> Option<Result<Value, Unanswered>> {
        let places = self.places()?;
        let mut state = self.multiplexer.state();
        match state.places.get(*places.first()?) {
            Some(Place::Answered(answer, _)) if decides(answer) => {}
            _ => return None,
        }
        let mut left = places.map(|place| state.leave(place));
        self.multiplexer.count(&state);
        drop(state);
        self.places = None;
        match left.first_mut()?.take() {
            Some(Place::Answered(answer, admitted)) => {
                self.admitted = admitted;
                Some(answer)
            }
            _ => None,
        }
    }

    pub(in crate::connection) fn came(&self) -> Came {
        let state = self.multiplexer.state();
        let answer = |place: &usize| match state.places.get(*place) {
            Some(Place::Waiting(..) | Place::Queued(_)) => Some(Came::Nothing),
            Some(Place::Answered(Ok(value), _)) if !matches!(value, Value::Error(_)) => None,
            _ => Some(Came::Other),
        };
        let other = self.places().iter().flatten().find_map(answer);
        other.unwrap_or(Came::Reply)
    }
}

impl<const N: usize> Future for Pending<N> {
    type Output = [Result<Value, Unanswered>; N];

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let (Some(places), Some(last)) = (
            self.places(),
            self.places().and_then(|all| all.last().copied()),
        ) else {
            return Poll::Pending;
        };
        let mut state = self.multiplexer.state();
        // The reply behind the others: when it is there, they are.
        let waiting = match state.places.get_mut(last) {
            Some(Place::Waiting(waker, _) | Place::Queued(waker) | Place::PassedOver(waker)) => {
                Some(waker)
            }
            _ => None,
        };
        if let Some(waker) = waiting {
            let before = replace(waker, cx.waker());
            drop(state);
            drop(before);
            return Poll::Pending;
        }
        // No place is anybody else's, and replies come in order, so each is there.
        let mut answers = [const { Err(Unanswered::Ended(Ended::Closed)) }; N];
        let mut admitted = None;
        for (place, answer) in places.into_iter().zip(&mut answers) {
            if let Place::Answered(came, at) = state.free(place) {
                *answer = came;
                admitted = at;
            }
        }
        self.multiplexer.count(&state);
        drop(state);
        self.admitted = admitted;
        self.places = None;
        Poll::Ready(answers)
    }
}

impl<const N: usize> Drop for Pending<N> {
    fn drop(&mut self) {
        let Some(places) = self.places() else { return };
        let mut state = self.multiplexer.state();
        let left = places.map(|place| state.leave(place));
        self.multiplexer.count(&state);
        drop(state);
        drop(left);
    }
}

impl<S> Driving<S> {
    fn wake(&mut self) {
        self.second_group = false;
        self.wakers.drain(..).for_each(Waker::wake);
        self.wakers.shrink_to(USUALLY_OPEN);
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Driving<S> {
    /// Answers all replies that were read. The callers are still to be woken. Returns whether the
    /// server has replied to all commands.
    // Part of the loop of each poll, also for the compiler, although the end of a connection calls it too.
    #[inline(always)]
    fn take_replies(&mut self) -> Result<bool, Nonsense> {
        let mut state = self.multiplexer.state();
        let without_reply = state.open.len();
        let taken = loop {
            let Some(reply) = self.framed.next().transpose() else {
                break Ok(());
            };
            let open = state.open.front();
            let Some(&Open { place, .. }) = open.filter(|open| open.until <= self.framed.written())
            else {
                break Err(reply.err().unwrap_or(Nonsense::Unasked));
            };
            if let Some(Open {
                room: Some((share, room)),
                ..
            }) = state.open.pop_front()
            {
                state.admission.gives_back(share, room);
            }
            let failed = reply.as_ref().err().copied();
            let answer = reply.map_err(Unanswered::Nonsense);
            self.wakers.extend(state.answer(place, answer));
            if let Some(nonsense) = failed {
                break Err(nonsense);
            }
        };
        self.multiplexer.count(&state);
        let answered = without_reply - state.open.len();
        if answered > 0 {
            let now = clock::stamp();
            state.heard = Some(now);
            state.admission.replied(answered, now);
            state.admit(now);
        }
        taken?;
        match state.open.is_empty() {
            true if !self.framed.is_between() => Err(Nonsense::Unasked),
            is_idle => Ok(is_idle),
        }
    }

    /// Wakes the first half of many callers. Woken together, they would send their next commands
    /// together, and the server would wait meanwhile, as they do while it works. From then on each
    /// half sends while the server works for the other one.
    ///
    /// If the runtime stands still right then, the others wait for it with their replies there, or for
    /// their own timers.
    fn wake_first_group(&mut self) {
        let first = self.wakers.len() / 2;
        self.wakers.drain(..first).for_each(Waker::wake);
        self.second_group = true;
    }

    /// Wakes callers whose moment has come.
    fn poll_alarm(&mut self, cx: &mut Context<'_>) {
        loop {
            let due = self.multiplexer.sleeps_until(cx.waker());
            if self.alarm.poll(due, cx).is_pending() {
                return;
            }
            let overdue = self.multiplexer.overdue(Instant::now());
            overdue.into_iter().for_each(Waker::wake);
        }
    }

    fn poll_driving(&mut self, cx: &mut Context<'_>) -> Poll<Ended> {
        for _ in 0..READS_AT_ONCE {
            if let Some(ended) = self.multiplexer.ended() {
                return Poll::Ready(ended);
            }
            // Before the first write: what came behind the greeting is a reply to nothing.
            let server_is_idle = match self.take_replies() {
                Ok(is_idle) => is_idle,
                Err(nonsense) => return Poll::Ready(Ended::Nonsense(nonsense)),
            };
            if server_is_idle && self.wakers.len() >= TWO_GROUPS && !self.second_group {
                self.wake_first_group();
                // Behind that group.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            // Replies are read also while the server takes no commands.
            let take = |waker: &Waker, writing: &mut Vec<u8>| {
                self.multiplexer.take_commands(waker, writing);
            };
            if let Poll::Ready(Err(error)) = self.framed.poll_write(cx, take) {
                return Poll::Ready(self.read_the_rest(cx, error));
            }
            self.wake();
            if let Err(error) = ready!(self.framed.poll_read(cx)) {
                return Poll::Ready(Ended::Io(Arc::new(error)));
            }
        }
        // Callers may give up a server that sends without end.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// The stream takes nothing more. Replies that came before that are there all the same, and their
    /// commands have run. Returns why the connection ends.
    #[cold]
    fn read_the_rest(&mut self, cx: &mut Context<'_>, error: io::Error) -> Ended {
        for _ in 0..READS_AT_ONCE {
            if self.multiplexer.ended().is_some() {
                break;
            }
            let Poll::Ready(Ok(())) = self.framed.poll_read(cx) else {
                break;
            };
            if let Err(nonsense) = self.take_replies() {
                return Ended::Nonsense(nonsense);
            }
        }
        Ended::Io(Arc::new(error))
    }
}

/// Returns the waker before, which is to be dropped, if it wakes another task.
fn replace(known: &mut Option<Waker>, waker: &Waker) -> Option<Waker> {
    match known {
        Some(known) if known.will_wake(waker) => None,
        _ => known.replace(waker.clone()),
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Future for Driving<S> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let Poll::Ready(ended) = this.poll_driving(cx) else {
            this.poll_alarm(cx);
            return Poll::Pending;
        };
        // A caller that is woken finds the reason.
        this.multiplexer.end(ended);
        this.wake();
        Poll::Ready(())
    }
}

impl<S> Drop for Driving<S> {
    fn drop(&mut self) {
        self.multiplexer.end(Ended::Closed);
        // Their replies are there, and they may run in another runtime.
        self.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    use super::super::encode;
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
            let until = until.map(Moment::from);
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

        /// What the server has received.
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
        let [answer] = pending.now_or_never().expect("it is answered");
        answer
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

    /// The caller whose reply had come was told that nobody knows whether its command has run.
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
        let poll = |sent: &mut Pending<2>| Pin::new(sent).poll(&mut Context::from_waker(&waker));
        for (reply, came, woken) in [
            (":1\r\n", Came::Nothing, 0),
            ("-ERR no\r\n", Came::Other, 1),
        ] {
            assert!(poll(&mut sent).is_pending());
            assert!(!both.reply(reply.as_bytes()));
            assert_eq!((sent.came(), other.take()), (came, woken));
        }
        let Poll::Ready([one, two]) = poll(&mut sent) else {
            unreachable!("both are there")
        };
        assert_eq!(one.unwrap(), Value::Int(1));
        assert!(matches!(two, Ok(Value::Error(_))));
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

    /// Of a caller that leaves between the replies nothing stays.
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

    /// So many callers that have sent a command each, and a count of those that were woken.
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
        assert_eq!(both.received(), [ping("0"), ping("1")].concat());
        assert!(!both.reply(b":3\r\n"));
        assert_eq!(both.received(), ping("2"));
        let replies = ":7\r\n".repeat(in_flight.len() - 3);
        assert!(!both.reply(format!("{replies}:8\r\n:10\r\n:11\r\n:12\r\n").as_bytes()));
        assert_eq!(answer(release).unwrap(), Value::Int(8));
        let answers = line.into_iter().map(|sent| answer(sent).unwrap());
        assert!(answers.eq([10, 11, 12].map(Value::Int)));
        assert_eq!(both.multiplexer.in_progress(), in_flight.len());
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
        let sent = in_flight.remove(0).now_or_never().unwrap();
        assert!(matches!(sent, [Err(Unanswered::Ended(_))]));
        let unsent = line.remove(0).now_or_never().unwrap();
        assert!(matches!(unsent, [Err(Unanswered::Unsent(_))]));
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
