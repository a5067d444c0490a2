//! A call in progress.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use super::fast::{Begun, Plain, Trial};
use super::link::{Link, left};
use crate::clock::{self, Moment};
use crate::connection::fault::Fault;
use crate::connection::stream::{Came, Due, InLine, Pending, Share, WakeUp, encode};
use crate::wire::{Call, Carried, FastPath, Malformed, Reply};

/// A call in progress on one link.
///
/// It needs no runtime of its own, so another task may take it over at any point: a caller that
/// stops hands it to the release queue, which reads the outcome.
pub(crate) struct Exchange {
    link: Arc<Link>,
    call: Call,
    step: Step,
    made: Instant,
    polled: bool,
    /// The connection wakes the caller at the end of its patience.
    watched: bool,
    /// Of what is in flight on the connection; `None`: the call does not wait for room.
    share: Option<Share>,
    /// The end of the caller's time.
    until: Option<Moment>,
    /// The server has said that somebody has the lock, and the script is asked for how long.
    found_taken: bool,
    /// What became of the announcement, where the reply does not say it; see [`Carried`].
    published: Option<u32>,
    /// A reply that came while no caller waited. Boxed, since it is rare.
    answer: Option<Box<Result<Reply, Fault>>>,
}

/// How far a call is.
enum Step {
    Unsent(Road),
    Plain(Plain),
    Script {
        road: Road,
        sent: Pending,
    },
    /// The script has answered.
    Trial(Trial),
    /// What is rare, and would make the future of every call larger.
    Apart(Pin<Box<dyn Future<Output = Result<Reply, Fault>> + Send>>),
}

/// How a call is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Road {
    /// By plain commands, and by its script if they changed nothing.
    Plain(FastPath),
    /// By its script, which is loaded if the server does not know it.
    Script,
    /// As `Script`, but once: a script that had to be loaded was not run. The caller holds a mutex, so the
    /// task of the connection writes the command.
    Once,
    /// By its script, which is loaded in the same write.
    Loading,
    /// By its script, behind ASKING.
    Asking,
}

impl Exchange {
    /// The call is sent when the exchange is first polled. `made`: a moment that is not after the present
    /// one.
    pub(super) fn new(link: Arc<Link>, call: Call, road: Road, made: Instant) -> Self {
        Self {
            link,
            call,
            step: Step::Unsent(road),
            made,
            polled: false,
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
        let sent = match &self.step {
            Step::Plain(plain) => plain.admitted(),
            Step::Script { sent, .. } => sent.admitted(),
            _ => None,
        };
        sent.map_or(self.made, Instant::from)
    }

    /// Makes the call wait for its turn, where more are in flight than the connection has room for.
    pub(super) fn waits_for_room(&mut self, share: Share, until: Option<Moment>) {
        (self.share, self.until) = (Some(share), until);
    }

    /// Whether the call had to wait for room, so that the connection does not wake the caller.
    pub(super) fn was_queued(&self) -> bool {
        match &self.step {
            Step::Plain(plain) => plain.was_queued(),
            Step::Script { sent, .. } => sent.was_queued(),
            _ => false,
        }
    }

    /// Takes the call back, if it waits for room. Otherwise it was sent.
    pub(super) fn recall(&mut self) -> bool {
        match &mut self.step {
            Step::Plain(plain) => plain.recall(),
            Step::Script { sent, .. } => sent.recall(),
            _ => false,
        }
    }

    /// Makes the connection wake the caller too when there is no reply within its patience. Returns `false`
    /// where the caller needs a timer of its own: the call was sent without this, or the connection
    /// might be driven later than a timer.
    pub(super) fn watch(&mut self) -> bool {
        self.watched = !self.polled && self.link.is_as_sure_as_a_timer();
        self.watched
    }

    /// When the connection is to wake the caller. After a suspend this is earlier than it was before, never
    /// later.
    fn due(&self) -> Due {
        let end = || clock::to_tokio(clock::after(self.made, self.link.patience()));
        self.watched.then(end)
    }

    fn caller<'a>(&self, waker: Option<&'a Waker>) -> WakeUp<'a> {
        WakeUp {
            waker,
            due: self.due(),
            since: Some(self.made),
            line: None,
        }
    }

    /// As [`Multiplexer::gives_up_at`](crate::connection::stream::Multiplexer::gives_up_at), for the
    /// connection of the call.
    pub(crate) fn gives_up_at(&self, patience: Duration) -> Option<Instant> {
        self.link.gives_up_at(patience)
    }

    /// Whether the moment has come at which the connection wakes the caller.
    pub(super) fn is_overdue(&self) -> bool {
        self.due()
            .is_some_and(|due| due <= tokio::time::Instant::now())
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
    /// it without waiting. Needs no runtime. `waker`: woken by the reply, unless this is polled with
    /// another one.
    pub(crate) fn send(&mut self, waker: &Waker) {
        if self.answer.is_none() {
            match self.poll_call(&mut Context::from_waker(waker)) {
                Poll::Ready(answer) => self.answer = Some(Box::new(answer)),
                Poll::Pending => self.link.push(),
            }
        }
    }

    /// What came for the call. What a poll has returned has come.
    pub(super) fn came(&self) -> Came {
        match (&self.answer, &self.step) {
            (Some(answer), _) => match **answer {
                Ok(_) => Came::Reply,
                Err(_) => Came::Other,
            },
            (None, Step::Plain(plain)) => plain.came(),
            (None, Step::Script { sent, .. }) => sent.came(),
            (None, Step::Trial(trial)) => trial.came(),
            (None, Step::Unsent(_) | Step::Apart(_)) => Came::Other,
        }
    }

    /// Whether [`send`](Self::send) has read the reply, which the next poll returns.
    pub(super) fn is_answered(&self) -> bool {
        matches!(self.answer.as_deref(), Some(Ok(_)))
    }

    fn poll_call(&mut self, cx: &mut Context<'_>) -> Poll<Result<Reply, Fault>> {
        if !self.polled && self.link.is_left() {
            return Poll::Ready(Err(Fault::unreachable(left())));
        }
        self.polled = true;
        let answer = ready!(self.poll_steps(cx));
        // A reply of the old server is true only there.
        Poll::Ready(match self.link.is_left() {
            true => Err(Fault::unanswered(left()).at(self.link.place())),
            false => answer.map_err(|fault| self.link.said_here(fault.of_keys(&self.call))),
        })
    }

    fn poll_steps(&mut self, cx: &mut Context<'_>) -> Poll<Result<Reply, Fault>> {
        loop {
            self.step = match &mut self.step {
                Step::Unsent(road) => {
                    let road = *road;
                    let mut caller = self.caller(Some(cx.waker()));
                    let until = self.until;
                    // Not for what follows from the reply.
                    caller.line = self.share.take().map(|share| InLine { share, until });
                    match Step::send(road, &self.link, &self.call, caller) {
                        Ok(step @ Step::Apart(_)) => step,
                        // The connection has the waker.
                        Ok(step) => {
                            self.step = step;
                            return Poll::Pending;
                        }
                        Err(fault) => return Poll::Ready(Err(fault)),
                    }
                }
                Step::Plain(plain) => match ready!(plain.poll(&self.link, &self.call, cx)) {
                    Ok(Begun::Answered(Carried { reply, published })) => {
                        self.published = published;
                        return Poll::Ready(Ok(reply));
                    }
                    Ok(Begun::Unsettled { is_taken }) => {
                        self.made = plain.admitted().map_or(self.made, Instant::from);
                        self.found_taken = is_taken;
                        Step::Unsent(Road::Script)
                    }
                    Err(fault) => return Poll::Ready(Err(fault)),
                },
                Step::Script { road, sent } => {
                    let (link, script) = (&self.link, self.call.script());
                    let [answer] = ready!(Pin::new(&mut *sent).poll(cx));
                    self.made = sent.admitted().map_or(self.made, Instant::from);
                    let answer = match link.heard(answer) {
                        Ok(Err(error)) if error.code() == "NOSCRIPT" => {
                            let (link, call, road) = (Arc::clone(link), self.call.clone(), *road);
                            let caller = self.caller(None);
                            self.step = Step::Apart(Box::pin(load(link, call, road, caller)));
                            continue;
                        }
                        Ok(answer) => {
                            link.learned(script);
                            answer.map_err(Fault::from_server)
                        }
                        Err(fault) => Err(fault),
                    };
                    if *road != Road::Script {
                        return Poll::Ready(answer);
                    }
                    link.fast_paths().heard(&self.call, &answer);
                    let caller = self.caller(Some(cx.waker()));
                    match Trial::send(&self.link, &self.call, answer?, caller) {
                        Ok(trial) => Step::Trial(trial),
                        Err(reply) => return Poll::Ready(Ok(reply)),
                    }
                }
                Step::Trial(trial) => {
                    return trial.poll(&self.link, &self.call, cx).map(Ok);
                }
                Step::Apart(future) => return future.as_mut().poll(cx),
            }
        }
    }

    /// What became of the announcement, where the reply does not say it.
    pub(super) fn published(&self) -> Option<u32> {
        self.published
    }

    /// As [`Link::misread`], for this call.
    pub(crate) fn misread(&self, malformed: Malformed) -> Fault {
        self.link.misread(malformed)
    }

    /// The server's name in errors.
    pub(super) fn place(&self) -> &Arc<str> {
        self.link.place()
    }

    pub(super) fn into_link(self) -> Arc<Link> {
        self.link
    }

    /// Stops waiting: the link is closed, since the call may still be in progress on it.
    pub(crate) fn abandon(self) {
        self.link.give_up("no answer in time");
    }
}

impl Step {
    fn send(road: Road, link: &Arc<Link>, call: &Call, caller: WakeUp<'_>) -> Result<Self, Fault> {
        Ok(match road {
            Road::Plain(path) => Self::Plain(Plain::send(path, link, call, caller)?),
            Road::Script | Road::Once => {
                let encode = |out: &mut Vec<u8>| [encode::evalsha(out, call, link.publish())];
                let sent = match road {
                    Road::Once => link.leave(caller, encode)?,
                    _ => link.send(caller, encode)?,
                };
                Self::Script { road, sent }
            }
            Road::Loading => {
                let (link, call) = (Arc::clone(link), call.clone());
                Self::Apart(Box::pin(async move { link.load_and_run(&call).await }))
            }
            Road::Asking => {
                let (link, call) = (Arc::clone(link), call.clone());
                Self::Apart(Box::pin(async move { link.ask_and_run(&call).await }))
            }
        })
    }
}

/// The server did not know the script of a call.
async fn load(
    link: Arc<Link>,
    call: Call,
    road: Road,
    caller: WakeUp<'static>,
) -> Result<Reply, Fault> {
    link.load(call.script(), caller).await?;
    if road == Road::Once {
        return Err(Fault::loaded());
    }
    // Another SCRIPT FLUSH may come in between: then the caller tries again.
    let answer = link.run_known(&call, caller).await;
    link.fast_paths().heard(&call, &answer);
    answer
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

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange")
            .field("made", &self.made)
            .field("sent", &self.polled)
            .finish_non_exhaustive()
    }
}
