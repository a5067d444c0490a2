//! What must still be told to Redis for a hold, or once at all, whoever waits for it.
//!
//! A cleanup is run by a caller (`unlock`, re-entry) or by the release task. Whoever stops in
//! the middle leaves it, with the call under way, to the release queue. It needs no runtime of its
//! own, sets the state that it means, and so may be repeated until Redis has answered, or the lease
//! is over and nothing that was sent can run any more.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tokio::sync::OwnedMutexGuard;

use super::tally::Open;
use crate::clock;
use crate::connection::{Caller, Delivery, Fault, before};
use crate::engine::Engine;
use crate::engine::hold::{Hold, Request};
use crate::engine::news::News;
use crate::error::{Error, ErrorKind};
use crate::name::LockName;
use crate::pause::Pause;
use crate::wire::{AcquireReply, Call, HoldReply, Reply};

/// What is to become true in Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goal {
    /// The hold is over.
    End,
    /// What is held stays so, and is the hold's no more.
    Forget,
    /// The hold has the count of its guards, and at least this lease.
    Lengthen(Duration),
}

/// What ends a hold.
fn end_of(hold: &Hold) -> Call {
    match (hold.min_hold_call(clock::now()), hold.repeated) {
        (Some(call), _) => call,
        (None, true) => hold.recipe.withdraw(&hold.id),
        (None, false) => hold.recipe.release(&hold.id),
    }
}

/// Takes out of an answer what became of the announcement.
fn hear(reply: Reply, delivery: &Delivery, news: &mut News) -> Reply {
    let (reply, heard) = News::split(reply, delivery);
    *news = heard;
    reply
}

fn told(
    answer: Result<Reply, Fault>,
    delivery: &Delivery,
    news: &mut News,
) -> Result<HoldReply, Fault> {
    Ok(HoldReply::try_from(hear(answer?, delivery, news))?)
}

/// Whose cleanup it is.
enum Subject {
    Hold(Arc<Hold>),
    /// An acquisition whose caller went away, or gave up with the outcome unknown.
    OrphanedAttempt(Box<OrphanedAttempt>),
    /// A call that is of no lock, and to be made once.
    OnceRequest(Box<OnceRequest>),
}

/// A call that says by an id which one it is: Redis, which notes the id for a while, carries it out
/// once.
pub(in crate::engine) struct OnceRequest {
    pub(in crate::engine) engine: Arc<Engine>,
    pub(in crate::engine) name: LockName,
    pub(in crate::engine) call: Call,
    /// For how long after a try whose answer was lost it may be repeated.
    pub(in crate::engine) noted: Duration,
    /// Where the answer goes.
    pub(in crate::engine) reply: Arc<OnceLock<Reply>>,
}

/// An owner that may have the lock, and must not.
pub(crate) struct OrphanedAttempt {
    /// Its waiters are kept, so that none of them tries before this is over.
    pub(in crate::engine) request: Request,
    /// Whether there is something to take away even where it does not have the lock.
    pub(in crate::engine) traces: bool,
    pub(in crate::engine) delivery: Delivery,
}

/// One thing that Redis must be told; see the module.
pub(crate) struct Cleanup {
    subject: Subject,
    goal: Goal,
    delivery: Delivery,
    /// What is known of the announcement of what Redis did.
    news: News,
    /// Held from the first try to the last, across whoever runs it.
    turn: Option<OwnedMutexGuard<()>>,
    /// When the lease is over by our own clock, with a margin.
    lapses: Instant,
    /// How long a lock stands that a late command takes or renews.
    lease: Duration,
    pause: Pause,
}

/// How far a cleanup got.
#[derive(Debug)]
enum Progress {
    Over(Result<HoldReply, Fault>),
    /// Who waits for it is told this; it is for the release queue to go on.
    Told(Result<HoldReply, Fault>),
}

const GOES_ON: &str = "it goes on in the background";
/// By how much Redis may keep a key longer than we count.
const MARGIN: Duration = Duration::from_secs(1);

impl Cleanup {
    pub(in crate::engine) fn new(hold: &Arc<Hold>, goal: Goal) -> Self {
        // The key outlives the local deadline by the margin, and by what the clocks differ.
        let lapses = clock::after(hold.deadline(), MARGIN);
        Self {
            subject: Subject::Hold(Arc::clone(hold)),
            lease: hold.asked_for,
            goal,
            delivery: Delivery::default(),
            news: News::Unknown,
            turn: None,
            lapses,
            pause: Pause::BACKGROUND,
        }
    }

    pub(in crate::engine) fn orphan(orphan: OrphanedAttempt) -> Self {
        let sent = orphan.delivery.sent.unwrap_or_else(clock::now);
        let lease = orphan.request.terms.lease;
        let lapses = clock::after(clock::after(sent, lease), MARGIN);
        Self {
            lease,
            subject: Subject::OrphanedAttempt(Box::new(orphan)),
            goal: Goal::End,
            delivery: Delivery::default(),
            news: News::Unknown,
            turn: None,
            lapses,
            pause: Pause::BACKGROUND,
        }
    }

    pub(in crate::engine) fn once(once: OnceRequest) -> Self {
        Self {
            lapses: clock::now(),
            lease: Duration::ZERO,
            subject: Subject::OnceRequest(Box::new(once)),
            goal: Goal::End,
            delivery: Delivery::default(),
            news: News::Unknown,
            turn: None,
            pause: Pause::BACKGROUND,
        }
    }

    /// Gives nothing back.
    pub(in crate::engine) fn only_forgets(&mut self) {
        self.goal = Goal::Forget;
    }

    /// Sends its command at once where nothing has to be waited for: no connection, no answer, no
    /// other command of the hold. Needs no runtime; the rest is [`run`](Self::run)'s.
    pub(in crate::engine) fn begin(&mut self) {
        match &self.subject {
            Subject::Hold(hold) if self.goal == Goal::End => {
                let turn = match self.turn.take() {
                    None => Arc::clone(&hold.serial).try_lock_owned().ok(),
                    kept => kept,
                };
                let Some(turn) = turn else { return };
                self.delivery.begin(&hold.engine.main, || end_of(hold));
                // Nothing was sent, now or before: the turn would have it run before all others, and
                // beside any number of its like.
                self.turn = self.delivery.sent.map(|_| turn);
            }
            Subject::OnceRequest(once) => {
                let call = || once.call.clone();
                self.delivery.begin(&once.engine.main, call);
            }
            // A count that is set back may be overtaken by the end of the hold, and a orphan by the
            // outcome of its acquisition.
            Subject::Hold(_) | Subject::OrphanedAttempt(_) => {}
        }
    }

    pub(in crate::engine) fn engine(&self) -> &Arc<Engine> {
        match &self.subject {
            Subject::OnceRequest(once) => &once.engine,
            Subject::Hold(hold) => &hold.engine,
            Subject::OrphanedAttempt(orphan) => &orphan.request.engine,
        }
    }

    fn name(&self) -> &LockName {
        match &self.subject {
            Subject::Hold(hold) => hold.recipe.name(),
            Subject::OrphanedAttempt(orphan) => orphan.request.recipe.name(),
            Subject::OnceRequest(once) => &once.name,
        }
    }

    /// After this nothing is sent any more; `None`: there is no such moment, or it is not known yet.
    ///
    /// What was sent may run as long as the server may read it: a server that stood still for an hour
    /// runs it then, and the lease begins there. So no lease is over before the end of the connection
    /// is sure. This is bounded: as long as there is no connection nothing more is sent.
    fn give_up(&self) -> Option<Instant> {
        match &self.subject {
            // Later it might not be known again, and be carried out twice.
            Subject::OnceRequest(once) => {
                let response = once.engine.response_timeout();
                let noted = once.noted.saturating_sub(response * 2);
                Some(clock::after(self.delivery.open_since()?, noted))
            }
            // Nothing but a lease would change, and only of a lock that is still there.
            Subject::Hold(_) if matches!(self.goal, Goal::Lengthen(_)) => Some(self.lapses),
            // What is left besides the lock has no lease, and stays until it is taken away.
            Subject::OrphanedAttempt(orphan) if orphan.request.recipe.profile().leaves_traces => {
                None
            }
            Subject::Hold(_) | Subject::OrphanedAttempt(_) => {
                let quiet = self.engine().main.quiet_since()?;
                let late = clock::after(clock::after(quiet, self.lease), MARGIN);
                Some(self.lapses.max(late))
            }
        }
    }

    /// Runs until Redis has answered or refused for good, or there is nothing left to settle; or until
    /// there is something to tell a caller who waits for it until `until`; `None`: that came first.
    async fn run(&mut self, until: Option<Instant>) -> Option<Progress> {
        match self.ended_before_it_began(until).await? {
            Ok(false) => {}
            Ok(true) => return Some(Progress::Over(Ok(HoldReply::Gone))),
            Err(fault) => return Some(Progress::Over(Err(fault))),
        }
        if let (Subject::Hold(hold), None) = (&self.subject, &self.turn) {
            self.turn = Some(match Arc::clone(&hold.serial).try_lock_owned() {
                Ok(turn) => turn,
                Err(_) => before(until, Arc::clone(&hold.serial).lock_owned()).await?,
            });
        }
        loop {
            let fault = match self.step(until).await? {
                Ok(reply) => return Some(Progress::Over(Ok(reply))),
                Err(fault) => fault,
            };
            if !fault.is_passing_for(Caller::Cleanup) {
                return Some(Progress::Over(Err(fault)));
            }
            if !fault.is_passing_for(Caller::Call) {
                if until.is_some() {
                    return Some(Progress::Told(Err(fault)));
                }
                // Nobody else is there to be told.
                let current = &self.engine().current;
                current.holds_up(self.name().as_str(), &fault);
            }
            let now = clock::now();
            let ends = self.goal == Goal::End && !matches!(self.subject, Subject::OnceRequest(_));
            if self.give_up().is_some_and(|moment| moment <= now) {
                // A lock whose lease is over needs no release any more.
                return Some(Progress::Over(match ends {
                    true => Ok(self.judged(HoldReply::Gone)),
                    false => Err(fault),
                }));
            }
            if ends && self.lapses <= now {
                // It is over for who waits here; the server may still have to be told.
                if let Subject::Hold(hold) = &self.subject {
                    hold.settled(&News::Unknown);
                }
                if until.is_some() {
                    return Some(Progress::Told(Ok(self.judged(HoldReply::Gone))));
                }
            }
            if !fault.is_of_dialing() {
                before(until, clock::sleep(self.pause.take())).await?;
            }
        }
    }

    /// What became of the hold if a release is answered so, or there is none left to answer. An
    /// earlier try whose answer was lost is what released it, if the lease was still running then.
    fn judged(&self, reply: HoldReply) -> HoldReply {
        match (&self.subject, self.delivery.open_since()) {
            _ if reply == HoldReply::Kept => reply,
            (Subject::Hold(hold), Some(sent)) if sent < hold.deadline() => HoldReply::Done,
            _ => reply,
        }
    }

    /// For a orphan: waits for the outcome of the acquisition. Answers whether there is nothing to
    /// release.
    async fn ended_before_it_began(
        &mut self,
        until: Option<Instant>,
    ) -> Option<Result<bool, Fault>> {
        let Subject::OrphanedAttempt(orphan) = &mut self.subject else {
            return Some(Ok(false));
        };
        let OrphanedAttempt {
            request,
            traces,
            delivery,
        } = &mut **orphan;
        if !delivery.is_under_way() {
            return Some(Ok(!*traces && delivery.open_since().is_none()));
        }
        // Nothing is sent here: the call is under way.
        let answer = delivery.attempt(&request.engine.main, || request.call(false, None), until);
        let answer = answer.await?;
        Some(
            match answer.and_then(|reply| Ok(request.recipe.acquired(reply)?)) {
                Ok(
                    AcquireReply::Held(_)
                    | AcquireReply::Unset
                    | AcquireReply::Behind
                    | AcquireReply::Orphaned,
                ) => {
                    let profile = request.recipe.profile();
                    let late = delivery.open_since().is_some() && profile.notes_withdrawals;
                    Ok(!(*traces || late || profile.leaves_traces))
                }
                // From here on the number is used up: only its release is ever sent again.
                Ok(AcquireReply::Acquired(..)) => {
                    delivery.reopen();
                    Ok(false)
                }
                Err(_) => Ok(!*traces && delivery.open_since().is_none()),
            },
        )
    }

    async fn step(&mut self, until: Option<Instant>) -> Option<Result<HoldReply, Fault>> {
        let Self {
            subject,
            goal,
            delivery,
            news,
            ..
        } = self;
        match (&*subject, *goal) {
            (Subject::OnceRequest(once), _) => {
                let call = || once.call.clone();
                let answer = delivery.attempt(&once.engine.main, call, until).await?;
                Some(answer.map(|reply| {
                    // Set once: nothing is sent after an answer.
                    let _ = once.reply.set(hear(reply, delivery, news));
                    HoldReply::Done
                }))
            }
            (Subject::Hold(hold), Goal::Lengthen(lease)) => {
                let count = hold.count();
                if count == 0 {
                    // The last guard left meanwhile; the end of the hold is on its way.
                    return Some(Ok(HoldReply::Done));
                }
                let Some(call) = hold.recipe.update(&hold.id, lease, count) else {
                    return Some(Ok(HoldReply::Done));
                };
                let main = &hold.engine.main;
                let answer = delivery.attempt(main, || call, until).await?;
                let sent = delivery.sent.unwrap_or_else(clock::now);
                let told = told(answer, delivery, news);
                Some(told.inspect(|reply| hold.answered(*reply, sent, lease)))
            }
            (Subject::Hold(hold), Goal::End) => {
                let call = || end_of(hold);
                let answer = delivery.attempt(&hold.engine.main, call, until).await?;
                Some(told(answer, delivery, news).map(|reply| self.judged(reply)))
            }
            (Subject::Hold(hold), Goal::Forget) => {
                let Some(call) = hold.recipe.forget(&hold.id, hold.repeated) else {
                    return Some(Ok(HoldReply::Done));
                };
                let main = &hold.engine.main;
                let answer = delivery.attempt(main, || call, until).await?;
                Some(told(answer, delivery, news))
            }
            (Subject::OrphanedAttempt(orphan), _) => {
                let Request {
                    engine, recipe, id, ..
                } = &orphan.request;
                let call = || recipe.withdraw(id);
                let answer = delivery.attempt(&engine.main, call, until).await?;
                Some(told(answer, delivery, news))
            }
        }
    }

    /// Whether others of its hold wait for it.
    pub(in crate::engine) fn has_turn(&self) -> bool {
        self.turn.is_some()
    }

    /// Whether a lock stays behind unless this is run.
    pub(in crate::engine) fn is_due(&self) -> bool {
        match &self.subject {
            Subject::Hold(hold) => self.goal == Goal::End && !hold.is_settled(),
            Subject::OrphanedAttempt(_) | Subject::OnceRequest(_) => true,
        }
    }

    /// Whether what stays behind has no lease that would end it.
    pub(in crate::engine) fn is_lasting(&self) -> bool {
        match &self.subject {
            Subject::Hold(hold) => hold.recipe.profile().is_lasting(),
            Subject::OrphanedAttempt(orphan) => orphan.request.recipe.profile().is_lasting(),
            Subject::OnceRequest(_) => true,
        }
    }

    fn over(&self, outcome: &Result<HoldReply, Fault>) {
        let news = match outcome {
            Ok(HoldReply::Gone | HoldReply::Taken) if self.news == News::Nothing => &News::Unknown,
            _ => &self.news,
        };
        match &self.subject {
            Subject::Hold(hold) if self.goal == Goal::End => hold.settled(news),
            Subject::Hold(hold) if self.goal == Goal::Forget => hold.settled(&News::Unknown),
            Subject::Hold(_) => {}
            Subject::OnceRequest(once) => {
                if let Some(channel) = once.call.channel() {
                    once.engine.ended_on(channel, news);
                }
            }
            Subject::OrphanedAttempt(orphan) => {
                let Request {
                    engine,
                    recipe,
                    waiters,
                    ..
                } = &orphan.request;
                if let News::Announced(..) = news {
                    engine.ended(&**recipe, news);
                }
                waiters.notify();
            }
        }
    }
}

impl fmt::Debug for Cleanup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cleanup")
            .field("name", self.name())
            .field("goal", &self.goal)
            .field("delivery", &self.delivery)
            .finish_non_exhaustive()
    }
}

/// A cleanup that goes to the release queue unless it is run to its end.
#[derive(Debug)]
pub(crate) struct PendingCleanup {
    cleanup: Option<Cleanup>,
    /// Dropped last.
    _open: Open,
}

impl PendingCleanup {
    pub(in crate::engine) fn new(cleanup: Cleanup) -> Self {
        let open = cleanup.engine().releases.open(cleanup.is_lasting());
        Self {
            cleanup: Some(cleanup),
            _open: open,
        }
    }

    /// As [`Cleanup::is_due`].
    pub(in crate::engine) fn is_due(&self) -> bool {
        self.cleanup.as_ref().is_some_and(Cleanup::is_due)
    }

    /// As [`Cleanup::is_lasting`].
    pub(in crate::engine) fn is_lasting(&self) -> bool {
        self.cleanup.as_ref().is_some_and(Cleanup::is_lasting)
    }

    /// Runs it to its end, or until there is something to tell a caller who waits for it until
    /// `until`; `None`: that came first.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and run again at any point.
    pub(in crate::engine) async fn run(
        &mut self,
        until: Option<Instant>,
    ) -> Option<Result<HoldReply, Fault>> {
        let Some(cleanup) = &mut self.cleanup else {
            return Some(Ok(HoldReply::Done));
        };
        let outcome = match cleanup.run(until).await? {
            Progress::Told(outcome) => return Some(outcome),
            Progress::Over(outcome) => outcome,
        };
        if let Some(cleanup) = self.cleanup.take() {
            cleanup.over(&outcome);
        }
        Some(outcome)
    }

    /// The error for a caller who was told of this fault.
    pub(in crate::engine) fn failed(self, fault: Fault, action: &'static str) -> Error {
        let error = fault.into_error(action);
        match self.cleanup {
            Some(_) => error.and(GOES_ON),
            None => error,
        }
    }

    /// The error for a caller who cannot wait any longer; it goes on in the background.
    pub(in crate::engine) fn out_of_time(self, action: &'static str) -> Error {
        let open = self
            .cleanup
            .as_ref()
            .is_some_and(|cleanup| cleanup.delivery.is_open());
        let kind = if open {
            ErrorKind::OutcomeUnknown
        } else {
            ErrorKind::Unavailable
        };
        let mut error = Error::new(kind, action);
        if let Some(cleanup) = &self.cleanup {
            error = error.named(cleanup.name().as_arc());
            error = error.detail(GOES_ON);
        }
        error
    }
}

impl Drop for PendingCleanup {
    fn drop(&mut self) {
        if let Some(cleanup) = self.cleanup.take() {
            let engine = Arc::clone(cleanup.engine());
            engine.leave(cleanup);
        }
    }
}
