//! A call in progress.

use std::fmt::Debug;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use super::fast::{self, Begun};
use super::link::{Link, left, load_command};
use crate::clock;
use crate::connection::fault::Fault;
use crate::connection::stream::{Answers, Came, Due, InLine, Pending, Share, WakeUp, encode, last};
use crate::error::ErrorKind;
use crate::wire::{Call, Carried, FastPath, Malformed, Reply};

/// A call in progress on one link.
///
/// It needs no runtime of its own, so another task may take it over at any point: a caller that
/// stops hands it to the release queue, which reads the outcome.
pub(crate) struct Exchange {
    pub(super) link: Arc<Link>,
    call: Call,
    /// The step to be sent next, or sent last.
    step: Step,
    sent: Option<Pending>,
    /// A script that had to be loaded must run again.
    repeat: bool,
    made: Instant,
    /// The call was handed to the connection. The first poll does that.
    pub(super) is_sent: bool,
    /// The connection wakes the caller at the end of its patience.
    watched: bool,
    /// Its share of the calls in flight on the connection; `None`: the call does not wait for room.
    share: Option<Share>,
    /// The end of the caller's time.
    until: Option<Instant>,
    /// The server has replied that the lock is taken, and the script is asked for how long.
    pub(super) found_taken: bool,
    /// The result of the announcement, if the reply does not contain it; see [`Carried`].
    pub(super) published: Option<u32>,
    /// A reply that came while no caller waited. Boxed, since it is rare.
    answer: Option<Box<Result<Reply, Fault>>>,
}

/// The progress of a call.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// Plain commands, then the script if they change nothing.
    Plain(FastPath),
    /// The script, which is loaded if the server does not know it.
    Script(Prelude),
    /// The server did not know the script.
    Load(Prelude),
}

/// A command that is sent before a script, in the same write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::connection) enum Prelude {
    None,
    /// SCRIPT LOAD.
    Load,
    /// ASKING: the keys are of a slot that is being moved to this node.
    Asking,
}

impl Exchange {
    /// Starts a call, which is sent when the exchange is first polled. `prelude`: [`Prelude::Load`] for a
    /// caller that may not read the reply, [`Prelude::Asking`] for keys of a slot that is being moved to this
    /// node. Without `repeat` the call is sent once, by its script; if the server only now knows it, the
    /// result is [`Cause::Loaded`](crate::connection::Cause::Loaded). `made`: a moment that is not after the
    /// present one.
    pub(super) fn new(
        link: Arc<Link>,
        call: Call,
        prelude: Prelude,
        repeat: bool,
        made: Instant,
    ) -> Self {
        let path = match prelude {
            Prelude::None if repeat => link.fast_paths.of(&call),
            // Only a waiting caller would notice a refusal of the plain commands.
            Prelude::Load if link.deletes.load(Ordering::Relaxed) => link.fast_paths.of(&call),
            _ => None,
        };
        let step = match (path, prelude) {
            (Some(path), _) => Step::Plain(path),
            (None, Prelude::Load) if link.knows(call.script()) => Step::Script(Prelude::None),
            (None, prelude) => Step::Script(prelude),
        };
        Self {
            link,
            call,
            step,
            sent: None,
            repeat,
            made,
            is_sent: false,
            watched: false,
            share: None,
            until: None,
            found_taken: false,
            published: None,
            answer: None,
        }
    }

    /// A moment before the call was sent. A lease is counted from here.
    pub(crate) fn made(&self) -> Instant {
        let sent = self.sent.as_ref().and_then(Pending::admitted);
        sent.unwrap_or(self.made)
    }

    /// Makes the call wait for its turn if the connection has no room for another call in flight.
    pub(super) fn waits_for_room(&mut self, share: Share, until: Option<Instant>) {
        (self.share, self.until) = (Some(share), until);
    }

    /// Takes the call back, if it waits for room. Otherwise it was sent.
    pub(super) fn recall(&mut self) -> bool {
        self.sent.as_mut().is_some_and(Pending::recall)
    }

    /// Makes the connection wake the caller also if there is no reply within its patience. Returns `false` if
    /// the caller needs its own timer: the call was sent without this, or the connection might be driven later
    /// than a timer.
    pub(super) fn watch(&mut self) -> bool {
        self.watched = !self.is_sent && self.link.driver.is_as_sure_as_a_timer();
        self.watched
    }

    /// When the connection wakes the caller. After a suspend this is earlier than before, never later.
    fn due(&self) -> Due {
        let end = || clock::to_tokio(clock::after(self.made, self.link.patience));
        self.watched.then(end)
    }

    /// As [`Multiplexer::gives_up_at`](crate::connection::stream::Multiplexer::gives_up_at), for the
    /// connection of the call.
    pub(crate) fn gives_up_at(&self, patience: Duration) -> Option<Instant> {
        self.link.multiplexer.gives_up_at(patience)
    }

    /// Waits for the reply, or until the connection wakes the caller without one. The result is `None` at once
    /// for a call that waits for room: the connection does not wake its caller.
    pub(super) fn watched(&mut self) -> impl Future<Output = Option<Result<Reply, Fault>>> {
        let mut was_polled = false;
        poll_fn(move |cx| {
            if let Poll::Ready(answer) = Pin::new(&mut *self).poll(cx) {
                return Poll::Ready(Some(answer));
            }
            // The clock is not read at the first poll, which has just sent the call.
            let is_late = match std::mem::replace(&mut was_polled, true) {
                false => self.sent.as_ref().is_some_and(|sent| sent.queued),
                true => {
                    let now = tokio::time::Instant::now();
                    self.due().is_some_and(|due| due <= now)
                }
            };
            match is_late {
                true => Poll::Ready(None),
                false => Poll::Pending,
            }
        })
    }

    /// Hands the call to the connection, and writes it to the socket as far as the socket accepts
    /// it without waiting. Needs no runtime. `waker`: woken by the reply, unless this is polled with
    /// another one.
    pub(crate) fn send(&mut self, waker: &Waker) {
        if self.answer.is_none() {
            match self.poll_call(&mut Context::from_waker(waker)) {
                Poll::Ready(answer) => self.answer = Some(Box::new(answer)),
                Poll::Pending => self.link.driver.push(),
            }
        }
    }

    /// The result so far of the call. A result that a poll has returned counts too.
    pub(super) fn came(&self) -> Came {
        match (&self.answer, &self.sent, self.step) {
            (Some(answer), ..) if answer.is_ok() => Came::Reply,
            (None, Some(sent), Step::Plain(_) | Step::Script(_)) => sent.came(),
            _ => Came::Other,
        }
    }

    /// Whether [`send`](Self::send) has read the reply, which the next poll returns.
    pub(super) fn is_answered(&self) -> bool {
        matches!(self.answer.as_deref(), Some(Ok(_)))
    }

    fn poll_call(&mut self, cx: &mut Context<'_>) -> Poll<Result<Reply, Fault>> {
        if !self.is_sent && self.link.tie.is_left() {
            return Poll::Ready(Err(Fault::unreachable(left())));
        }
        if !std::mem::replace(&mut self.is_sent, true) {
            self.call.traced_at(self.link.place());
        }
        let answer = ready!(self.poll_steps(cx));
        let cause = answer
            .as_ref()
            .err()
            .map(|fault| &fault.cause as &dyn Debug);
        self.call.span().answered(cause);
        // A reply of the old server is true only there.
        Poll::Ready(match self.link.tie.is_left() {
            true => Err(Fault::unanswered(left()).at(self.link.place())),
            false => answer.map_err(|fault| self.link.said_here(fault.of_keys(&self.call))),
        })
    }

    fn poll_steps(&mut self, cx: &mut Context<'_>) -> Poll<Result<Reply, Fault>> {
        loop {
            let Some(sent) = &mut self.sent else {
                self.send_step(cx.waker())?;
                // The connection has the waker.
                return Poll::Pending;
            };
            let answers = match Pin::new(&mut *sent).poll(cx) {
                Poll::Ready(answers) => answers,
                // A server with invalid replies may not answer the second of two plain commands.
                Poll::Pending if matches!(self.step, Step::Plain(_)) => {
                    match sent.take_first(|first| !fast::is_one(first)) {
                        Some(first) => Answers::from_iter([first]),
                        None => return Poll::Pending,
                    }
                }
                Poll::Pending => return Poll::Pending,
            };
            self.made = sent.admitted().unwrap_or(self.made);
            if let Some(reply) = self.heard(answers)? {
                return Poll::Ready(Ok(reply));
            }
            self.sent = None;
        }
    }

    /// Sends the next step.
    fn send_step(&mut self, waker: &Waker) -> Result<(), Fault> {
        let until = self.until;
        let caller = WakeUp {
            waker: Some(waker),
            due: self.due(),
            since: Some(self.made),
            // Not for the steps that follow from the reply.
            line: self.share.take().map(|share| InLine { share, until }),
        };
        let (link, call) = (&self.link, &self.call);
        let script = |out: &mut Vec<u8>| encode::evalsha(out, call, link.publish());
        let load = |out: &mut Vec<u8>| encode::command(out, &load_command(call.script()));
        self.sent = Some(match self.step {
            Step::Plain(path) => fast::send(path, link, call, caller)?,
            // The caller may hold a mutex, so the task of the connection writes the command.
            Step::Script(Prelude::None) if !self.repeat => {
                link.leave(caller, |out| [script(out)])?
            }
            Step::Script(Prelude::None) => link.send(caller, |out| [script(out)])?,
            Step::Script(Prelude::Asking) => link.send(caller, |out| {
                [encode::command(out, &[b"ASKING"]), script(out)]
            })?,
            Step::Script(Prelude::Load) => {
                let sent = link.send(caller, |out| [load(out), script(out)])?;
                // Known from now on, unless it is refused: later commands arrive after the load.
                link.learned(call.script(), true);
                sent
            }
            Step::Load(_) => {
                tracing::debug!(script = call.script().name, "loading a script");
                link.send(caller, |out| [load(out)])?
            }
        });
        Ok(())
    }

    /// Processes the answers to a step. Returns the reply to the call, if no other step follows.
    fn heard(&mut self, answers: Answers) -> Result<Option<Reply>, Fault> {
        let (link, call) = (&self.link, &self.call);
        match self.step {
            Step::Plain(path) => match fast::begun(path, link, call, answers)? {
                Begun::Answered(Carried { reply, published }) => {
                    self.published = published;
                    return Ok(Some(reply));
                }
                Begun::Unsettled { is_taken } => {
                    self.found_taken = is_taken;
                    self.step = Step::Script(Prelude::None);
                }
            },
            Step::Script(prelude) => match link.heard(last(answers))? {
                Err(error) if error.code() == "NOSCRIPT" => {
                    self.step = Step::Load(match prelude {
                        Prelude::Asking => prelude,
                        // A refused load is repeated alone, to get the reason.
                        Prelude::None | Prelude::Load => Prelude::None,
                    });
                }
                answer => {
                    // A server that refuses a call before it runs (LOADING, MOVED, …) has not looked for its
                    // script, nor loaded it.
                    link.learned(call.script(), answer.is_ok());
                    let answer = answer.map_err(Fault::from_server);
                    link.fast_paths.heard(call, &answer);
                    return answer.map(Some);
                }
            },
            Step::Load(prelude) => {
                link.heard(last(answers))?.map_err(Fault::from_server)?;
                // Another SCRIPT FLUSH may come in between: then the caller tries again.
                if !std::mem::take(&mut self.repeat) {
                    return Err(Fault::loaded());
                }
                self.step = Step::Script(prelude);
            }
        }
        Ok(None)
    }

    /// As [`Link::misread`], for this call.
    pub(crate) fn misread(&self, malformed: Malformed) -> Fault {
        self.link.misread(malformed)
    }

    /// Stops waiting: the link is closed, since the call may still be in progress on it.
    pub(crate) fn abandon(mut self) {
        self.call.span().answered(Some(&ErrorKind::TimedOut));
        self.link.give_up("no answer in time");
    }
}

impl Future for Exchange {
    type Output = Result<Reply, Fault>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.answer.take() {
            Some(answer) => Poll::Ready(*answer),
            None => self.poll_call(cx),
        }
    }
}
