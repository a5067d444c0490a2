//! The future that reads and writes the stream of a connection, and wakes callers.
//!
//! # Whom a read wakes
//!
//! If a read has answered eight callers or more, and the server has no other command, half of the callers
//! are woken first. The rest is woken after the first half's next commands were written. If all were woken
//! together, all would send together: on a runtime of one thread the server would wait while they run, and
//! they while the server works. After that the two groups alternate by themselves. Of the commands of one
//! call only the last wakes the caller.
//!
//! A caller has its own timer in four cases: it has less time than the server, it continues another
//! caller's call, it is in a cluster, or its timer is more reliable than the task of the connection. The
//! last is so in another runtime, and in a runtime with several workers, since that task may be queued
//! behind a task that blocks its worker. All others are woken by the one timer of the connection.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, Sleep};

use super::{Due, Ended, Multiplexer, Open, USUALLY_OPEN, Unanswered, replace};
use crate::clock;
use crate::connection::stream::framed::Framed;
use crate::connection::stream::resp::Nonsense;

/// How often the stream is read before other tasks run.
const READS_AT_ONCE: usize = 16;
/// This many answered callers are woken in two groups, if the server has nothing to do.
pub(super) const TWO_GROUPS: usize = 8;

/// Reads and writes the stream. It ends with the connection; the connection also ends if it is
/// dropped.
pub(in crate::connection) struct Driving<S> {
    multiplexer: Arc<Multiplexer>,
    framed: Framed<S>,
    /// The wakers of answered callers.
    wakers: Vec<Waker>,
    /// These callers are the second of two groups: the commands of the first are written before they run.
    second_group: bool,
    /// One timer for all callers. A timer for each would be set and cancelled with every call, and never
    /// fire.
    alarm: Option<Pin<Box<Sleep>>>,
}

impl Multiplexer {
    /// A multiplexer, and the future that drives the stream.
    pub(in crate::connection) fn new<S>(framed: Framed<S>) -> (Arc<Self>, Driving<S>) {
        let multiplexer = Arc::<Self>::default();
        let driving = Driving {
            multiplexer: Arc::clone(&multiplexer),
            framed,
            wakers: Vec::new(),
            second_group: false,
            alarm: None,
        };
        (multiplexer, driving)
    }

    /// The time until which the future may sleep. Commands that come later wake it.
    fn sleeps_until(&self, waker: &Waker) -> Due {
        let mut state = self.state();
        // Also if commands are left because the stream takes none: the next one may have an earlier time.
        let before = replace(&mut state.idle, waker);
        let due = state.next_due;
        drop(state);
        drop(before);
        due
    }

    /// Returns the wakers of callers whose time has come, and that have no reply.
    fn overdue(&self, now: Instant) -> Vec<Waker> {
        let state = &mut *self.state();
        let (due, later): (Vec<_>, Vec<_>) = state
            .open
            .iter()
            .filter_map(|open| Some((open.due?, open.place)))
            .partition(|(due, _)| *due <= now);
        state.next_due = later.into_iter().map(|(due, _)| due).min();
        let waker = |(_, place)| state.places.get(place)?.waker.clone();
        due.into_iter().filter_map(waker).collect()
    }

    /// Puts the commands into the empty buffer `writing`, or keeps the waker if there are none.
    fn take_commands(&self, waker: &Waker, writing: &mut Vec<u8>) {
        let mut state = self.state();
        std::mem::swap(writing, &mut state.out);
        if !writing.is_empty() {
            return;
        }
        let before = replace(&mut state.idle, waker);
        if state.open.is_empty() {
            state.open.shrink_to(USUALLY_OPEN);
        }
        drop(state);
        drop(before);
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
    /// Answers all replies that were read. The callers are still to be woken. Returns whether the server
    /// has replied to all commands.
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
            let Some(&Open { place, .. }) = open.filter(|open| open.until <= self.framed.written)
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

    /// Wakes the first half of many callers. Woken together, they would send their next commands together.
    /// The server would then wait while they run, and they while it works. After this each half sends while
    /// the server works for the other one.
    ///
    /// If the runtime stops right then, the others wait for it with their replies there, or for their own
    /// timers.
    fn wake_first_group(&mut self) {
        let first = self.wakers.len() / 2;
        self.wakers.drain(..first).for_each(Waker::wake);
        self.second_group = true;
    }

    /// Wakes callers whose time has come.
    fn poll_alarm(&mut self, cx: &mut Context<'_>) {
        while let Some(due) = self.multiplexer.sleeps_until(cx.waker()) {
            let new = || Box::pin(clock::sleep_until_tokio(due));
            let alarm = self.alarm.get_or_insert_with(new);
            if alarm.deadline() != due {
                alarm.as_mut().reset(due);
            }
            if alarm.as_mut().poll(cx).is_pending() {
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
            // Before the first write: bytes after the greeting are not a reply.
            let server_is_idle = match self.take_replies() {
                Ok(is_idle) => is_idle,
                Err(nonsense) => return Poll::Ready(Ended::Nonsense(nonsense)),
            };
            if server_is_idle && self.wakers.len() >= TWO_GROUPS && !self.second_group {
                self.wake_first_group();
                // After that group.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            // Replies are read even if the server takes no commands.
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

    /// The stream takes nothing more. Replies that came before are still there, and their commands have
    /// run. Returns why the connection ends.
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
