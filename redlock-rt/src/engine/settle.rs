//! What must still be told to Redis for a hold, or once at all, whoever waits for it.
//!
//! A settlement is run by a caller (`unlock`, re-entry) or by the release task. Whoever stops in
//! the middle leaves it, with the call under way, to the release queue. It needs no runtime of its
//! own, sets the state that it means, and so may be repeated until Redis has answered, or the lease
//! is over and nothing that was sent can run any more.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tokio::sync::OwnedMutexGuard;

use super::Engine;
use super::hold::{Bid, Hold};
use super::news::News;
use super::releases::Open;
use crate::clock;
use crate::connection::{Caller, Connection, Exchange, Fault};
use crate::error::{Error, ErrorKind};
use crate::name::LockName;
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

/// A command's way to its answer, over as many connections as it takes.
#[derive(Debug, Default)]
pub(crate) struct Journey {
    exchange: Option<Exchange>,
    /// When the first of the tries was sent whose answers were lost.
    open_since: Option<Instant>,
    /// When the last try was handed to a connection.
    pub(crate) sent: Option<Instant>,
    /// The call under way was sent by who did not wait for it.
    unattended: bool,
    /// What is known of the announcement of what it did.
    pub(super) news: News,
}

impl Journey {
    /// Sends `call`, or what of it was not sent yet, where that takes no waiting. Its answer is for
    /// the next [`attempt`](Self::attempt).
    fn begin(&mut self, connection: &Connection, call: impl FnOnce() -> Call) {
        if self.exchange.is_none() {
            self.exchange = connection.last_call(call());
        }
        if let Some(exchange) = &mut self.exchange {
            exchange.send();
            self.sent = Some(exchange.made());
            self.unattended = true;
        }
    }

    /// Sends `call` once, or goes on waiting for the answer to the one under way; `None`: `until`
    /// came first.
    ///
    /// # Cancel safety
    ///
    /// The call under way stays here, to be waited for by the next who runs this; so it does where
    /// the time is over.
    pub(crate) async fn attempt(
        &mut self,
        connection: &Connection,
        call: impl FnOnce() -> Call,
        until: Option<Instant>,
    ) -> Option<Result<Reply, Fault>> {
        if self.exchange.is_none() {
            match start(connection, call(), until).await? {
                Ok(exchange) => self.exchange = Some(exchange),
                Err(fault) => return Some(Err(fault)),
            }
        }
        let exchange = self.exchange.as_mut()?;
        let sent = *self.sent.insert(exchange.made());
        // One timer for both ends: it is a good part of what a call costs here.
        // What was sent unattended may have stood in an idle runtime since, its answer unread.
        let since = if self.unattended { clock::now() } else { sent };
        let reply = connection.timeouts().reply();
        let patience = clock::after(since, reply);
        let (limit, cut_short) = match until {
            // A caller whose time ends a moment earlier gives the connection up all the same: it may be
            // that nobody calls who has more time.
            Some(until) if until < patience => (until, clock::after(until, reply / 4) < patience),
            _ => (patience, false),
        };
        let answer = clock::timeout_at(clock::to_tokio(limit), &mut *exchange).await;
        if answer.is_err() && cut_short {
            return None;
        }
        let exchange = self.exchange.take();
        self.unattended = false;
        Some(match answer {
            Ok(Err(fault)) => {
                if fault.may_have_run() {
                    self.open_since.get_or_insert(sent);
                }
                Err(fault)
            }
            Ok(answer) => answer,
            Err(_) => {
                // It may still run: the connection is given up, and its client is killed from the
                // next one before anything else is sent.
                if let Some(exchange) = exchange {
                    exchange.abandon();
                }
                self.open_since.get_or_insert(sent);
                let fault = Fault::timed_out("no answer within the response time-out");
                Err(fault.at(connection.place()))
            }
        })
    }

    /// Whether a call was sent whose outcome is not known.
    pub(crate) fn is_open(&self) -> bool {
        self.open_since.is_some() || self.exchange.as_ref().is_some_and(Exchange::is_sent)
    }

    /// What is known of the call by who did not make it and takes no part in waiting for it: it was
    /// sent, and may have run.
    pub(super) fn shadow(&self) -> Self {
        Self {
            exchange: None,
            open_since: self.open_since.or(self.sent),
            sent: self.sent,
            unattended: false,
            news: News::Unknown,
        }
    }

    /// Takes out of an answer what became of the announcement.
    pub(super) fn hear(&mut self, reply: Reply) -> Reply {
        let (reply, announcement) = reply.split();
        self.news = match (announcement, self.sent) {
            (Some(announcement), Some(sent)) => News::Announced(announcement, sent),
            // An earlier try may have done it, and then it was that which published.
            _ if self.open_since.is_some() => News::Unknown,
            _ => News::Nothing,
        };
        reply
    }

    /// A call was answered: what was sent before is settled by it.
    pub(crate) fn close(&mut self) {
        self.exchange = None;
        self.open_since = None;
    }
}

/// What ends a hold.
fn end_of(hold: &Hold) -> Call {
    match (hold.stay(clock::now()), hold.repeated) {
        (Some(stay), _) => stay,
        (None, true) => hold.recipe.withdraw(&hold.owner),
        (None, false) => hold.recipe.release(&hold.owner),
    }
}

fn told(journey: &mut Journey, answer: Result<Reply, Fault>) -> Result<HoldReply, Fault> {
    Ok(HoldReply::try_from(journey.hear(answer?))?)
}

/// Starts a call, connecting first where there is no connection; `None`: `until` came first.
async fn start(
    connection: &Connection,
    call: Call,
    until: Option<Instant>,
) -> Option<Result<Exchange, Fault>> {
    let call = match connection.try_call(call) {
        Ok(exchange) => return Some(Ok(exchange)),
        Err(call) => call,
    };
    before(until, connection.call(call)).await
}

/// `None` where `until` comes before the future's output.
async fn before<F: Future>(until: Option<Instant>, future: F) -> Option<F::Output> {
    match until {
        Some(until) => clock::timeout_at(clock::to_tokio(until), future).await.ok(),
        None => Some(future.await),
    }
}

/// Whose settlement it is.
enum Subject {
    Hold(Arc<Hold>),
    /// An acquisition whose caller went away, or gave up with the outcome unknown.
    Ghost(Box<Ghost>),
    /// A call that is of no lock, and to be made once.
    Errand(Box<Errand>),
}

/// A call that says by an id which one it is: Redis, which notes the id for a while, carries it out
/// once.
pub(super) struct Errand {
    pub(super) engine: Arc<Engine>,
    pub(super) name: LockName,
    pub(super) call: Call,
    /// For how long after a try whose answer was lost it may be repeated.
    pub(super) noted: Duration,
    /// Where the answer goes.
    pub(super) reply: Arc<OnceLock<Reply>>,
}

/// An owner that may have the lock, and must not.
pub(crate) struct Ghost {
    /// Its line is kept, so that the local queue does not try before this is over.
    pub(super) bid: Bid,
    /// Whether there is something to take away even where it does not have the lock.
    pub(super) traces: bool,
    pub(super) journey: Journey,
}

/// One thing that Redis must be told; see the module.
pub(crate) struct Settlement {
    subject: Subject,
    goal: Goal,
    journey: Journey,
    /// Held from the first try to the last, across whoever runs it.
    turn: Option<OwnedMutexGuard<()>>,
    /// When the lease is over by our own clock, with a margin.
    lapses: Instant,
    /// How long a lock stands that a late command takes or renews.
    lease: Duration,
    pause: Duration,
}

/// How far a settlement got.
#[derive(Debug)]
enum Progress {
    Over(Result<HoldReply, Fault>),
    /// Who waits for it is told this; it is for the release queue to go on.
    Told(Result<HoldReply, Fault>),
}

const SHORTEST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
const GOES_ON: &str = "it goes on in the background";
/// By how much Redis may keep a key longer than we count.
const MARGIN: Duration = Duration::from_secs(1);

impl Settlement {
    pub(super) fn new(hold: &Arc<Hold>, goal: Goal) -> Self {
        // The key outlives the local deadline by the margin, and by what the clocks differ.
        let lapses = clock::after(hold.deadline(), MARGIN);
        Self {
            subject: Subject::Hold(Arc::clone(hold)),
            lease: hold.asked_for,
            goal,
            journey: Journey::default(),
            turn: None,
            lapses,
            pause: SHORTEST_PAUSE,
        }
    }

    pub(super) fn ghost(ghost: Ghost) -> Self {
        let sent = ghost.journey.sent.unwrap_or_else(clock::now);
        let lease = ghost.bid.terms.lease;
        let lapses = clock::after(clock::after(sent, lease), MARGIN);
        Self {
            lease,
            subject: Subject::Ghost(Box::new(ghost)),
            goal: Goal::End,
            journey: Journey::default(),
            turn: None,
            lapses,
            pause: SHORTEST_PAUSE,
        }
    }

    pub(super) fn errand(errand: Errand) -> Self {
        Self {
            lapses: clock::now(),
            lease: Duration::ZERO,
            subject: Subject::Errand(Box::new(errand)),
            goal: Goal::End,
            journey: Journey::default(),
            turn: None,
            pause: SHORTEST_PAUSE,
        }
    }

    /// Gives nothing back.
    pub(super) fn only_forgets(&mut self) {
        self.goal = Goal::Forget;
    }

    /// Sends its command at once where nothing has to be waited for: no connection, no answer, no
    /// other command of the hold. Needs no runtime; the rest is [`run`](Self::run)'s.
    pub(super) fn begin(&mut self) {
        match &self.subject {
            Subject::Hold(hold) if self.goal == Goal::End => {
                let turn = match self.turn.take() {
                    None => Arc::clone(&hold.serial).try_lock_owned().ok(),
                    kept => kept,
                };
                let Some(turn) = turn else { return };
                self.journey.begin(&hold.engine.main, || end_of(hold));
                // Nothing was sent, now or before: the turn would have it run before all others, and
                // beside any number of its like.
                self.turn = self.journey.sent.map(|_| turn);
            }
            Subject::Errand(errand) => {
                let call = || errand.call.clone();
                self.journey.begin(&errand.engine.main, call);
            }
            // A count that is set back may be overtaken by the end of the hold, and a ghost by the
            // outcome of its acquisition.
            Subject::Hold(_) | Subject::Ghost(_) => {}
        }
    }

    pub(super) fn engine(&self) -> &Arc<Engine> {
        match &self.subject {
            Subject::Errand(errand) => &errand.engine,
            Subject::Hold(hold) => &hold.engine,
            Subject::Ghost(ghost) => &ghost.bid.engine,
        }
    }

    fn name(&self) -> &LockName {
        match &self.subject {
            Subject::Hold(hold) => hold.recipe.name(),
            Subject::Ghost(ghost) => ghost.bid.recipe.name(),
            Subject::Errand(errand) => &errand.name,
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
            Subject::Errand(errand) => {
                let response = errand.engine.response_timeout();
                let noted = errand.noted.saturating_sub(response * 2);
                Some(clock::after(self.journey.open_since?, noted))
            }
            // Nothing but a lease would change, and only of a lock that is still there.
            Subject::Hold(_) if matches!(self.goal, Goal::Lengthen(_)) => Some(self.lapses),
            // What is left besides the lock has no lease, and stays until it is taken away.
            Subject::Ghost(ghost) if ghost.bid.recipe.leaves_traces() => None,
            Subject::Hold(_) | Subject::Ghost(_) => {
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
            if !fault.is_passing_for(Caller::Settlement) {
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
            let ends = self.goal == Goal::End && !matches!(self.subject, Subject::Errand(_));
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
                before(until, clock::sleep(self.pause)).await?;
                self.pause = (self.pause * 2).min(LONGEST_PAUSE);
            }
        }
    }

    /// What became of the hold if a release is answered so, or there is none left to answer. An
    /// earlier try whose answer was lost is what released it, if the lease was still running then.
    fn judged(&self, reply: HoldReply) -> HoldReply {
        match (&self.subject, self.journey.open_since) {
            _ if reply == HoldReply::Kept => reply,
            (Subject::Hold(hold), Some(sent)) if sent < hold.deadline() => HoldReply::Done,
            _ => reply,
        }
    }

    /// For a ghost: waits for the outcome of the acquisition. Answers whether there is nothing to
    /// release.
    async fn ended_before_it_began(
        &mut self,
        until: Option<Instant>,
    ) -> Option<Result<bool, Fault>> {
        let Subject::Ghost(ghost) = &mut self.subject else {
            return Some(Ok(false));
        };
        let Ghost {
            bid,
            traces,
            journey,
        } = &mut **ghost;
        if journey.exchange.is_none() {
            return Some(Ok(!*traces && journey.open_since.is_none()));
        }
        // Nothing is sent here: the call is under way.
        let answer = journey.attempt(&bid.engine.main, || bid.call(false, None), until);
        let answer = answer.await?;
        Some(
            match answer.and_then(|reply| Ok(bid.recipe.acquired(reply)?)) {
                Ok(
                    AcquireReply::Held(_)
                    | AcquireReply::Unset
                    | AcquireReply::Behind
                    | AcquireReply::Orphaned,
                ) => {
                    let late = journey.open_since.is_some() && bid.recipe.notes_withdrawals();
                    Ok(!(*traces || late || bid.recipe.leaves_traces()))
                }
                // From here on the number is used up: only its release is ever sent again.
                Ok(AcquireReply::Acquired(..)) => {
                    journey.open_since = journey.sent;
                    Ok(false)
                }
                Err(_) => Ok(!*traces && journey.open_since.is_none()),
            },
        )
    }

    async fn step(&mut self, until: Option<Instant>) -> Option<Result<HoldReply, Fault>> {
        let Self {
            subject,
            goal,
            journey,
            ..
        } = self;
        match (&*subject, *goal) {
            (Subject::Errand(errand), _) => {
                let call = || errand.call.clone();
                let answer = journey.attempt(&errand.engine.main, call, until).await?;
                Some(answer.map(|reply| {
                    // Set once: nothing is sent after an answer.
                    let _ = errand.reply.set(journey.hear(reply));
                    HoldReply::Done
                }))
            }
            (Subject::Hold(hold), Goal::Lengthen(lease)) => {
                let count = hold.count();
                if count == 0 {
                    // The last guard left meanwhile; the end of the hold is on its way.
                    return Some(Ok(HoldReply::Done));
                }
                let call = || hold.recipe.update(&hold.owner, lease, count);
                let answer = journey.attempt(&hold.engine.main, call, until).await?;
                let sent = journey.sent.unwrap_or_else(clock::now);
                let told = told(journey, answer);
                Some(told.inspect(|reply| hold.answered(*reply, sent, lease)))
            }
            (Subject::Hold(hold), Goal::End) => {
                let call = || end_of(hold);
                let answer = journey.attempt(&hold.engine.main, call, until).await?;
                Some(told(journey, answer).map(|reply| self.judged(reply)))
            }
            (Subject::Hold(hold), Goal::Forget) => {
                let Some(call) = hold.recipe.forget(&hold.owner, hold.repeated) else {
                    return Some(Ok(HoldReply::Done));
                };
                let main = &hold.engine.main;
                let answer = journey.attempt(main, || call, until).await?;
                Some(told(journey, answer))
            }
            (Subject::Ghost(ghost), _) => {
                let Bid {
                    engine,
                    recipe,
                    owner,
                    ..
                } = &ghost.bid;
                let call = || recipe.withdraw(owner);
                let answer = journey.attempt(&engine.main, call, until).await?;
                Some(told(journey, answer))
            }
        }
    }

    /// Whether others of its hold wait for it.
    pub(super) fn has_turn(&self) -> bool {
        self.turn.is_some()
    }

    /// Whether a lock stays behind unless this is run.
    pub(super) fn is_due(&self) -> bool {
        match &self.subject {
            Subject::Hold(hold) => self.goal == Goal::End && !hold.is_settled(),
            Subject::Ghost(_) | Subject::Errand(_) => true,
        }
    }

    /// Whether what stays behind has no lease that would end it.
    pub(super) fn is_lasting(&self) -> bool {
        match &self.subject {
            Subject::Hold(hold) => hold.recipe.is_lasting(),
            Subject::Ghost(ghost) => ghost.bid.recipe.is_lasting(),
            Subject::Errand(_) => true,
        }
    }

    fn over(&self, outcome: &Result<HoldReply, Fault>) {
        let news = match outcome {
            Ok(HoldReply::Gone | HoldReply::Taken) if self.journey.news == News::Nothing => {
                &News::Unknown
            }
            _ => &self.journey.news,
        };
        match &self.subject {
            Subject::Hold(hold) if self.goal == Goal::End => hold.settled(news),
            Subject::Hold(hold) if self.goal == Goal::Forget => hold.settled(&News::Unknown),
            Subject::Hold(_) => {}
            Subject::Errand(errand) => {
                if let Some(channel) = errand.call.channel() {
                    errand.engine.ended_on(channel, news);
                }
            }
            Subject::Ghost(ghost) => {
                if let News::Announced(..) = news {
                    ghost.bid.engine.ended(&*ghost.bid.recipe, news);
                }
                ghost.bid.line.notify();
            }
        }
    }
}

impl fmt::Debug for Settlement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settlement")
            .field("name", self.name())
            .field("goal", &self.goal)
            .field("journey", &self.journey)
            .finish_non_exhaustive()
    }
}

/// A settlement that goes to the release queue unless it is run to its end.
#[derive(Debug)]
pub(crate) struct Unsettled {
    settlement: Option<Settlement>,
    /// Dropped last.
    _open: Open,
}

impl Unsettled {
    pub(super) fn new(settlement: Settlement) -> Self {
        let open = settlement.engine().releases.open(settlement.is_lasting());
        Self {
            settlement: Some(settlement),
            _open: open,
        }
    }

    /// As [`Settlement::is_due`].
    pub(super) fn is_due(&self) -> bool {
        self.settlement.as_ref().is_some_and(Settlement::is_due)
    }

    /// As [`Settlement::is_lasting`].
    pub(super) fn is_lasting(&self) -> bool {
        self.settlement.as_ref().is_some_and(Settlement::is_lasting)
    }

    /// Runs it to its end, or until there is something to tell a caller who waits for it until
    /// `until`; `None`: that came first.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and run again at any point.
    pub(super) async fn run(&mut self, until: Option<Instant>) -> Option<Result<HoldReply, Fault>> {
        let Some(settlement) = &mut self.settlement else {
            return Some(Ok(HoldReply::Done));
        };
        let outcome = match settlement.run(until).await? {
            Progress::Told(outcome) => return Some(outcome),
            Progress::Over(outcome) => outcome,
        };
        if let Some(settlement) = self.settlement.take() {
            settlement.over(&outcome);
        }
        Some(outcome)
    }

    /// The error for a caller who was told of this fault.
    pub(super) fn failed(self, fault: Fault, action: &'static str) -> Error {
        let error = fault.into_error(action);
        match self.settlement {
            Some(_) => error.and(GOES_ON),
            None => error,
        }
    }

    /// The error for a caller who cannot wait any longer; it goes on in the background.
    pub(super) fn out_of_time(self, action: &'static str) -> Error {
        let open = self
            .settlement
            .as_ref()
            .is_some_and(|settlement| settlement.journey.is_open());
        let kind = if open {
            ErrorKind::OutcomeUnknown
        } else {
            ErrorKind::Unavailable
        };
        let mut error = Error::new(kind, action);
        if let Some(settlement) = &self.settlement {
            error = error.named(settlement.name().as_arc());
            error = error.detail(GOES_ON);
        }
        error
    }
}

impl Drop for Unsettled {
    fn drop(&mut self) {
        if let Some(settlement) = self.settlement.take() {
            let engine = Arc::clone(settlement.engine());
            engine.leave(settlement);
        }
    }
}
