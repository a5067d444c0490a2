//! A call that Redis must still receive, for a hold or exactly once, with or without a caller that
//! waits for it.
//!
//! A caller (`unlock`, re-entry) or the release task runs a cleanup. If the caller stops in the
//! middle, the cleanup goes to the release queue, with the call in progress. A cleanup needs no
//! runtime of its own. It sets a state, so it may be repeated until Redis has answered, or until
//! the lease is over and no sent command can still run.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::{Duration, Instant};

use super::end::{Grant, end_of};
use super::tally::Open;
use crate::clock::{self, Moment};
use crate::connection::{Caller, Came, Delivery, Fault, To};
use crate::engine::Engine;
use crate::engine::hand_over::Pass;
use crate::engine::hold::{Hold, Request, Turn, Waiting};
use crate::engine::news::News;
use crate::error::{Error, ErrorKind};
use crate::name::LockName;
use crate::pause::Pause;
use crate::wire::{AcquireReply, Call, HoldReply, Malformed, Reply, Wanted};

/// The state to reach in Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goal {
    /// The hold is over.
    End,
    /// The permits stay taken, and no longer belong to the hold.
    Forget,
    /// The hold has the count of its guards, and at least this lease.
    Lengthen(Duration),
}

/// Separates a reply from the result of its announcement.
fn hear(reply: Reply, delivery: &Delivery, news: &mut News) -> Reply {
    let (reply, heard) = News::split(reply, delivery);
    *news = heard;
    reply
}

fn told(
    answer: Result<Reply, Fault>,
    delivery: &mut Delivery,
    news: &mut News,
) -> Result<HoldReply, Fault> {
    let reply = HoldReply::try_from(hear(answer?, delivery, news));
    reply.map_err(|malformed| delivery.misread(malformed))
}

/// The subject of a cleanup.
enum Subject {
    Hold(Arc<Hold>),
    /// An acquisition whose caller has gone, or gave up with the outcome unknown.
    OrphanedAttempt(Box<OrphanedAttempt>),
    /// A call without a lock, to be carried out once.
    OnceRequest(Box<OnceRequest>),
}

/// A call with an id. Redis notes the id for a while, so that it carries the call out once.
pub(in crate::engine) struct OnceRequest {
    pub(in crate::engine) engine: Arc<Engine>,
    pub(in crate::engine) name: LockName,
    pub(in crate::engine) call: Call,
    /// How long the call may be repeated after a try whose reply was lost.
    pub(in crate::engine) noted: Duration,
    pub(in crate::engine) read: fn(Reply) -> Result<u64, Malformed>,
    /// The place for what was read.
    pub(in crate::engine) reply: Arc<OnceLock<u64>>,
}

/// An owner that may have the lock, but must not have it.
pub(crate) struct OrphanedAttempt {
    /// Keeps the waiters, so that none of them tries before this has ended.
    pub(in crate::engine) request: Request,
    /// Whether something must be removed even if the owner does not have the lock.
    pub(in crate::engine) traces: bool,
    pub(in crate::engine) delivery: Delivery,
}

/// Hands an attempt whose caller has gone to the release queue.
pub(in crate::engine) fn abandon(orphan: OrphanedAttempt) {
    let engine = Arc::clone(&orphan.request.engine);
    engine.releases.push(Cleanup::orphan(orphan));
    engine.ensure_tasks();
}

/// One call that Redis must receive; see the module.
pub(crate) struct Cleanup {
    subject: Subject,
    goal: Goal,
    /// For the end of a hold: the call acquires for a waiter too.
    pass: Option<Box<Pass>>,
    /// For the end of a hold of a fair lock: the call names waiters, one of which may get the lock.
    grant: Option<Box<Grant>>,
    delivery: Delivery,
    /// What is known about the announcement.
    news: News,
    /// Held from the first try to the last, by any runner.
    turn: Option<Turn>,
    /// What the caller that waits has read from the clock just before; for the first try, if that needs
    /// no turn.
    now: Option<Moment>,
    /// When the lease is over by the local clock, with a margin.
    lapses: Instant,
    /// The lease of a lock that a late command takes or renews.
    lease: Duration,
    pause: Pause,
}

/// The progress of a cleanup.
#[derive(Debug)]
enum Progress {
    Over(Result<HoldReply, Fault>),
    /// The waiting caller gets this result; the release queue continues the cleanup.
    Told(Result<HoldReply, Fault>),
}

const GOES_ON: &str = "it goes on in the background";
const REPEATED: &str = "it is sent again until it is allowed";
/// How much longer than the local deadline Redis may keep a key.
const MARGIN: Duration = Duration::from_secs(1);

impl Cleanup {
    pub(in crate::engine) fn new(hold: &Arc<Hold>, goal: Goal) -> Self {
        Self::until(hold, goal, hold.deadline())
    }

    /// As [`new`](Self::new), if the lease of the hold is over at `deadline`.
    pub(in crate::engine) fn until(hold: &Arc<Hold>, goal: Goal, deadline: Instant) -> Self {
        // The key outlives the local deadline by the margin and by the clock difference.
        let lapses = clock::after(deadline, MARGIN);
        Self {
            subject: Subject::Hold(Arc::clone(hold)),
            lease: hold.lease().asks(Duration::ZERO),
            goal,
            pass: None,
            grant: None,
            delivery: Delivery::of_upkeep(),
            news: News::Unknown,
            turn: None,
            now: None,
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
            pass: None,
            grant: None,
            delivery: Delivery::of_upkeep(),
            news: News::Unknown,
            turn: None,
            now: None,
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
            pass: None,
            grant: None,
            delivery: Delivery::of_upkeep(),
            news: News::Unknown,
            turn: None,
            now: None,
            pause: Pause::BACKGROUND,
        }
    }

    /// Makes the end of the hold acquire for a waiter, if it is sent in time.
    pub(in crate::engine) fn passes_on(&mut self, pass: Pass) {
        self.pass = Some(Box::new(pass));
    }

    /// The ordinary release takes the place of a pass that is not sent in time.
    fn pass_in_time(&mut self) {
        let sent = self.delivery.is_under_way() || self.delivery.open_since().is_some();
        let late = |pass: &mut Box<Pass>| !sent && !pass.is_wanted(clock::now_in_drop());
        if self.pass.take_if(late).is_some() {
            self.releases();
        }
    }

    /// The ordinary release of a hold begins, after all.
    fn releases(&self) {
        if let Subject::Hold(hold) = &self.subject {
            hold.releases(clock::now_in_drop());
        }
    }

    /// Gives nothing back.
    pub(in crate::engine) fn only_forgets(&mut self) {
        self.goal = Goal::Forget;
    }

    /// Sends the command at once if there is nothing to wait for: a connection, a reply, another
    /// command of the hold. Needs no runtime; [`run`](Self::run) does the rest. Returns whether the
    /// releases are woken by what comes for it.
    pub(in crate::engine) fn begin(&mut self) -> bool {
        self.pass_in_time();
        let waker = Waker::from(Arc::clone(&self.engine().releases));
        match &self.subject {
            Subject::Hold(hold) if self.goal == Goal::End => {
                let turn = match self.turn.take() {
                    None => Turn::try_take(hold),
                    kept => kept,
                };
                let Some(turn) = turn else { return false };
                let (pass, grant) = (self.pass.as_ref(), &mut self.grant);
                let is_first = self.delivery.open_since().is_none();
                let end = || end_of(hold, grant, is_first);
                let call = || pass.map_or_else(end, |pass| pass.call());
                let to = hold.engine.to(hold.recipe.name());
                let begun = self.delivery.begin(to, call, &waker);
                // Nothing was sent, now or before. With the turn, this cleanup would run before all
                // others, beside any number of such cleanups.
                self.turn = self.delivery.sent.map(|_| turn);
                begun
            }
            Subject::OnceRequest(once) => {
                let call = || once.call.clone();
                self.delivery
                    .begin(once.engine.to(&once.name), call, &waker)
            }
            // The end of the hold may supersede a reduced count, and the outcome of the acquisition
            // an orphaned attempt.
            Subject::Hold(_) | Subject::OrphanedAttempt(_) => false,
        }
    }

    /// Reads the reply that came, or goes on with the call. Returns whether [`run`](Self::run) has
    /// nothing to wait for.
    fn is_answered(&mut self) -> bool {
        self.begin() && self.delivery.is_answered()
    }

    /// What came for the command that was sent.
    pub(in crate::engine) fn came(&self) -> Came {
        self.delivery.came()
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

    /// The moment after which nothing is sent any more; `None`: there is none, or it is not known
    /// yet.
    ///
    /// A sent command may run as long as the server may read it: a server that stopped for an hour
    /// runs it afterwards, and the lease begins then. So no lease is over before the connection has
    /// certainly ended. This is bounded: without a connection nothing more is sent.
    fn give_up(&self) -> Option<Instant> {
        match &self.subject {
            // Later the note may be gone, and the call would be carried out twice.
            Subject::OnceRequest(once) => {
                let response = once.engine.response_timeout();
                let noted = once.noted.saturating_sub(response * 2);
                Some(clock::after(self.delivery.open_since()?, noted))
            }
            // The call would only change a lease, and only of a lock that still exists.
            Subject::Hold(_) if matches!(self.goal, Goal::Lengthen(_)) => Some(self.lapses),
            // What remains besides the lock has no lease, and stays until it is removed.
            Subject::OrphanedAttempt(orphan) if orphan.request.recipe.profile().leaves_traces => {
                None
            }
            Subject::Hold(_) | Subject::OrphanedAttempt(_) => {
                let To { nodes, slot, lane } = self.engine().to(self.name());
                let quiet = nodes.known(slot)?.connection(lane).quiet_since()?;
                let late = clock::after(clock::after(quiet, self.lease), MARGIN);
                Some(self.lapses.max(late))
            }
        }
    }

    /// Runs until Redis has answered or refused for good, or there is nothing left to do, or there
    /// is a result for a caller that waits until `until`; `None`: `until` came first.
    async fn run(&mut self, until: Option<Instant>) -> Option<Progress> {
        match self.ended_before_it_began(until).await? {
            Ok(false) => {}
            Ok(true) => return Some(Progress::Over(Ok(HoldReply::Gone))),
            Err(fault) => return Some(Progress::Over(Err(fault))),
        }
        if let (Subject::Hold(hold), None) = (&self.subject, &self.turn) {
            self.turn = Some(match Turn::try_take(hold) {
                Some(turn) => turn,
                None => {
                    self.now = None;
                    clock::before(until, Turn::take(hold)).await?
                }
            });
        }
        loop {
            let fault = match self.step(until).await? {
                Ok(reply) => return Some(Progress::Over(Ok(reply))),
                Err(fault) => fault,
            };
            if self.is_passed_over(&fault) {
                continue;
            }
            let waits = self.waits_for_a_right(&fault);
            if !(waits || fault.is_passing_for(Caller::Cleanup)) {
                return Some(Progress::Over(Err(fault)));
            }
            if !fault.is_passing_for(Caller::Call) {
                if until.is_some() {
                    return Some(Progress::Told(Err(fault)));
                }
                // There is no caller to notify.
                let (current, name) = (self.engine().nodes.current(), self.name().as_str());
                match fault.is_of_dialing() {
                    true => current.holds_up(name, &fault),
                    false if waits && self.pause.is_first() => {
                        current.refuses(name, &fault, REPEATED);
                    }
                    false => current.will_repeat(name, &fault),
                }
            }
            let now = clock::now();
            let ends = self.goal == Goal::End && !matches!(self.subject, Subject::OnceRequest(_));
            if self.give_up().is_some_and(|moment| moment <= now) {
                // A lock whose lease is over needs no release.
                return Some(Progress::Over(match ends {
                    true => Ok(self.judged(HoldReply::Gone)),
                    false => Err(fault),
                }));
            }
            if ends && self.lapses <= now {
                // The cleanup is over for the waiting caller; the call to the server may still be
                // needed.
                if let Subject::Hold(hold) = &self.subject {
                    hold.settled(&News::Unknown);
                }
                if until.is_some() {
                    return Some(Progress::Told(Ok(self.judged(HoldReply::Gone))));
                }
            }
            if !fault.is_of_dialing() {
                let (pause, engine) = (self.pause.take(), Arc::clone(self.engine()));
                let _denied = waits.then(|| engine.releases.deny());
                clock::before(until, clock::sleep(pause)).await?;
            }
        }
    }

    /// Whether an operator may give this client a right that is missing: no lease would end what stays
    /// behind without it.
    fn waits_for_a_right(&self, fault: &Fault) -> bool {
        fault.is_denied() && self.is_lasting()
    }

    /// It failed, and nobody waits for it.
    fn failed_unheard(&self, fault: &Fault) {
        let effect = match self.is_lasting() {
            true => "permits without a lease stay taken, or a latch closed",
            false => "the lock ends with its lease",
        };
        let (current, name) = (self.engine().nodes.current(), self.name().as_str());
        current.refuses(name, fault, effect);
    }

    /// Whether the ordinary release is to follow a pass that failed in this way.
    fn is_passed_over(&mut self, fault: &Fault) -> bool {
        let Some(pass) = &self.pass else { return false };
        if fault.may_have_run() || fault.is_of_dialing() {
            pass.is_late();
            return false;
        }
        if let Some(pass) = self.pass.take() {
            pass.give_up(fault, &self.delivery);
            self.releases();
        }
        true
    }

    /// The result of the hold for this reply to a release, or without a reply. If an earlier try
    /// lost its reply while the lease was still running, that try released the hold.
    fn judged(&self, reply: HoldReply) -> HoldReply {
        match (&self.subject, self.delivery.open_since()) {
            _ if reply == HoldReply::Kept => reply,
            (Subject::Hold(hold), Some(sent)) if sent < hold.deadline() => HoldReply::Done,
            _ => reply,
        }
    }

    /// For an orphaned attempt: waits for the outcome of the acquisition. Returns whether there is
    /// nothing to release.
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
        // Nothing is sent here: the call is in progress.
        let to = request.engine.to(request.recipe.name());
        let answer = delivery.attempt(to, || request.call(false, None), until);
        let answer = answer.await?;
        let read = answer.and_then(|reply| {
            let read = request.recipe.acquired(reply);
            read.map_err(|malformed| delivery.misread(malformed))
        });
        Some(match read {
            Ok(
                AcquireReply::Held(_)
                | AcquireReply::Unset
                | AcquireReply::Queued(_)
                | AcquireReply::Orphaned,
            ) => {
                let profile = request.recipe.profile();
                let late = delivery.open_since().is_some() && profile.notes_withdrawals;
                // Kept for the next runtime, if this one ends before Redis has the withdrawal.
                *traces |= late || profile.leaves_traces;
                Ok(!*traces)
            }
            // From here on the number is used up: only its release is sent again.
            Ok(AcquireReply::Acquired(..)) => {
                delivery.reopen();
                Ok(false)
            }
            Err(_) => Ok(!*traces && delivery.open_since().is_none()),
        })
    }

    async fn step(&mut self, until: Option<Instant>) -> Option<Result<HoldReply, Fault>> {
        self.pass_in_time();
        // For this try alone: what follows a pass that was refused is sent later.
        let now = self.now.take().map(Instant::from);
        let Self {
            subject,
            goal,
            pass,
            grant,
            delivery,
            news,
            ..
        } = self;
        match (&*subject, *goal) {
            (Subject::OnceRequest(once), _) => {
                let call = || once.call.clone();
                let to = once.engine.to(&once.name);
                let answer = delivery.attempt(to, call, until).await?;
                Some(answer.and_then(|reply| {
                    let read = (once.read)(hear(reply, delivery, news));
                    let reply = read.map_err(|malformed| delivery.misread(malformed))?;
                    // Set once: nothing is sent after a reply.
                    let _ = once.reply.set(reply);
                    Ok(HoldReply::Done)
                }))
            }
            (Subject::Hold(hold), Goal::Lengthen(lease)) => {
                let count = hold.count();
                if count == 0 {
                    // The last guard has ended meanwhile; the end of the hold follows.
                    return Some(Ok(HoldReply::Done));
                }
                let most = hold.lease().asks(lease);
                let wanted = Wanted { lease, most };
                let Some(call) = hold.recipe.update(&hold.id(), wanted, count) else {
                    return Some(Ok(HoldReply::Done));
                };
                let to = hold.engine.to(hold.recipe.name());
                let answer = delivery.attempt(to, || call, until).await?;
                let sent = delivery.sent.unwrap_or_else(clock::now);
                let told = told(answer, delivery, news);
                Some(told.inspect(|reply| hold.answered(*reply, sent, lease)))
            }
            (Subject::Hold(hold), Goal::End) => {
                let to = hold.engine.to(hold.recipe.name());
                let ended = match pass {
                    None => {
                        let is_first = delivery.open_since().is_none();
                        let call = || end_of(hold, grant, is_first);
                        let answer = delivery.attempt_at(to, call, until, now).await?;
                        told(answer, delivery, news)
                    }
                    Some(pass) => {
                        let answer = delivery.attempt(to, || pass.call(), until).await?;
                        answer.and_then(|reply| {
                            let read = pass.read(reply, delivery);
                            read.map_err(|malformed| delivery.misread(malformed))
                        })
                    }
                };
                Some(ended.map(|reply| self.judged(reply)))
            }
            (Subject::Hold(hold), Goal::Forget) => {
                let Some(call) = hold.recipe.forget(&hold.id(), hold.repeated) else {
                    return Some(Ok(HoldReply::Done));
                };
                let to = hold.engine.to(hold.recipe.name());
                let answer = delivery.attempt(to, || call, until).await?;
                Some(told(answer, delivery, news))
            }
            (Subject::OrphanedAttempt(orphan), _) => {
                let request = &orphan.request;
                let Request { engine, recipe, .. } = request;
                let call = || recipe.withdraw(&request.id());
                let to = engine.to(recipe.name());
                let answer = delivery.attempt(to, call, until).await?;
                Some(told(answer, delivery, news))
            }
        }
    }

    /// Whether others of its hold wait for it.
    pub(in crate::engine) fn has_turn(&self) -> bool {
        self.turn.is_some()
    }

    /// Whether a lock stays behind if this does not run.
    pub(in crate::engine) fn is_due(&self) -> bool {
        match &self.subject {
            Subject::Hold(hold) => self.goal == Goal::End && !hold.is_settled(),
            Subject::OrphanedAttempt(_) | Subject::OnceRequest(_) => true,
        }
    }

    /// Those who wait for the end of the hold, if there are any.
    pub(in crate::engine) fn followers(&self) -> Option<Arc<Waiting>> {
        match &self.subject {
            Subject::Hold(hold) if self.goal == Goal::End => {
                let waiters = hold.waiters();
                (!waiters.is_empty()).then(|| Arc::clone(waiters))
            }
            _ => None,
        }
    }

    /// Whether no lease would end what stays behind.
    pub(in crate::engine) fn is_lasting(&self) -> bool {
        match &self.subject {
            Subject::Hold(hold) => hold.recipe.profile().is_lasting(),
            Subject::OrphanedAttempt(orphan) => orphan.request.recipe.profile().is_lasting(),
            Subject::OnceRequest(_) => true,
        }
    }

    fn over(&mut self, outcome: &Result<HoldReply, Fault>) {
        if let (Subject::Hold(hold), Some(pass)) = (&self.subject, self.pass.take()) {
            return pass.finish(hold);
        }
        let news = match outcome {
            Ok(HoldReply::Gone | HoldReply::Taken) if self.news == News::Nothing => &News::Unknown,
            _ => &self.news,
        };
        if let (Subject::Hold(hold), Some(grant)) = (&self.subject, &self.grant) {
            grant.over(hold, news, &self.delivery, outcome.is_ok());
        }
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

/// A cleanup that goes to the release queue if it is not run to its end.
#[derive(Debug)]
pub(crate) struct PendingCleanup {
    cleanup: Option<Cleanup>,
    /// Dropped last.
    _open: Open,
}

impl PendingCleanup {
    pub(in crate::engine) fn new(cleanup: Cleanup) -> Self {
        let open = cleanup.engine().releases.open(cleanup.is_lasting());
        Self::opened(cleanup, open)
    }

    /// Registers a cleanup of this hold that is to come.
    pub(in crate::engine) fn open(hold: &Hold) -> Open {
        let lasting = hold.recipe.profile().is_lasting();
        hold.engine.releases.open(lasting)
    }

    /// With what [`open`](Self::open) has returned.
    pub(in crate::engine) fn opened(cleanup: Cleanup, open: Open) -> Self {
        Self {
            cleanup: Some(cleanup),
            _open: open,
        }
    }

    /// As [`Cleanup::only_forgets`].
    pub(in crate::engine) fn only_forgets(&mut self) {
        if let Some(cleanup) = &mut self.cleanup {
            cleanup.only_forgets();
        }
    }

    /// As [`Cleanup::is_answered`].
    pub(in crate::engine) fn is_answered(&mut self) -> bool {
        self.cleanup.as_mut().is_some_and(Cleanup::is_answered)
    }

    /// As [`Cleanup::is_due`].
    pub(in crate::engine) fn is_due(&self) -> bool {
        self.cleanup.as_ref().is_some_and(Cleanup::is_due)
    }

    /// As [`Cleanup::is_lasting`].
    pub(in crate::engine) fn is_lasting(&self) -> bool {
        self.cleanup.as_ref().is_some_and(Cleanup::is_lasting)
    }

    /// Runs to the end, or until there is a result for a caller that waits until `until`; `None`:
    /// `until` came first. `now`: what that caller has read from the clock just before.
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at any point, and the cleanup may be run again.
    pub(in crate::engine) async fn run(
        &mut self,
        until: Option<Instant>,
        now: Option<Instant>,
    ) -> Option<Result<HoldReply, Fault>> {
        let Some(cleanup) = &mut self.cleanup else {
            return Some(Ok(HoldReply::Done));
        };
        cleanup.now = now.map(Moment::from);
        let outcome = match cleanup.run(until).await? {
            Progress::Told(outcome) => return Some(outcome),
            Progress::Over(outcome) => outcome,
        };
        if let Some(mut cleanup) = self.cleanup.take() {
            cleanup.over(&outcome);
            if let (None, Err(fault)) = (until, &outcome) {
                cleanup.failed_unheard(fault);
            }
        }
        Some(outcome)
    }

    /// Runs nothing: another hold goes on under the same owner number.
    pub(in crate::engine) fn spare(mut self) {
        if let Some(Cleanup {
            subject: Subject::Hold(hold),
            ..
        }) = self.cleanup.take()
        {
            hold.continued();
        }
    }

    /// As if Redis had answered a pass in this way.
    #[cfg(all(test, redlock_loom))]
    pub(in crate::engine) fn pass_answered(mut self, reply: Reply) {
        let Some(mut cleanup) = self.cleanup.take() else {
            return;
        };
        let Cleanup { pass, delivery, .. } = &mut cleanup;
        let pass = pass.as_mut().expect("it is a pass");
        let ended = pass
            .read(reply, delivery)
            .expect("it is the reply of a pass");
        cleanup.over(&Ok(ended));
    }

    /// As if the end of a hold had been sent. Call what is returned with what Redis answers.
    #[cfg(all(test, redlock_loom))]
    pub(in crate::engine) fn release_sent(mut self) -> impl FnOnce(Reply) + 'static {
        let mut cleanup = self.cleanup.take().expect("nothing has run");
        if let Subject::Hold(hold) = &cleanup.subject {
            let _ = end_of(hold, &mut cleanup.grant, true);
        }
        cleanup.delivery.sent = Some(clock::now());
        move |reply| {
            let Cleanup { delivery, news, .. } = &mut cleanup;
            let told = told(Ok(reply), delivery, news);
            cleanup.over(&told);
            drop(self);
        }
    }

    /// The error for a caller that is told of this fault.
    pub(in crate::engine) fn failed(self, fault: Fault, action: &'static str) -> Error {
        let error = fault.into_error(action);
        match self.cleanup {
            Some(_) => error.and(GOES_ON),
            None => error,
        }
    }

    /// The error for a caller that cannot wait any longer. The cleanup goes on in the background.
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
            let name = cleanup.name();
            error = error.named(name.as_arc());
            let server = cleanup.engine().place_of(name);
            error = error.detail(format!("{server}: {GOES_ON}"));
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
