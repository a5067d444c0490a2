//! A call that Redis must still receive, for a hold or exactly once, with or without a caller that
//! waits for it.
//!
//! A caller (`unlock`, re-entry) or the release task runs a cleanup. If the caller stops in the middle, the
//! cleanup goes to the release queue, with the call in progress. A cleanup needs no runtime of its own. It
//! sets a state, so it may be repeated until Redis has answered, or until the lease is over and no sent
//! command can still run. `endings` has the differences between calls.
//!
//! # When it is given up
//!
//! * A release or a withdrawal: not at the end of the lease. A server that stopped for longer than that reads
//!   its sockets when it continues, and the lease begins then. So one whole lease after the old connection
//!   has certainly ended: CLIENT KILL was answered, or another process answers at the address. Never for a
//!   kind without a lease. A waiting caller (`unlock`) returns when the lease is over by the local clock.
//! * An update: at the end of the lease. A call without a hold: before Redis may forget its id.
//! * The number of kept cleanups is bounded. Without a connection nothing is sent, so only calls that were in
//!   progress when it broke, and guards held at that time, are kept.
//!
//! # At the drop of a guard
//!
//! A drop begins its cleanup only if there is nothing to wait for: the connection is up, and no other
//! command of the hold is in progress. A partial release is not begun, since the end of the hold supersedes
//! it. At most 128 are in progress at once, also after an outage; up to 384 that wait for a right do not
//! count. If the server is not known to have a script, SCRIPT LOAD is sent in the same write, because a
//! process that ends cannot react to NOSCRIPT.

use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use super::endings::{AnyEnding, Lapse, OnceRequest, OrphanedAttempt, Release, Sending, Update};
use super::outstanding::Outstanding;
use crate::clock;
use crate::connection::{Caller, Came, Fault};
use crate::engine::ClientEngine;
use crate::engine::announcement::News;
use crate::engine::hold::{CommandTurn, Hold, LockQueue};
use crate::error::{Error, ErrorKind};
use crate::name::LockName;
use crate::pause::Pause;
use crate::wire::HoldReply;

/// Hands an attempt whose caller has gone to the release queue.
pub(in crate::engine) fn abandon(orphan: OrphanedAttempt) {
    let engine = Arc::clone(&orphan.request.engine);
    engine.releases.push(Cleanup::orphan(orphan));
    engine.ensure_tasks();
}

/// One call that Redis must receive; see the module.
pub(crate) struct Cleanup {
    ending: AnyEnding,
    sending: Sending,
    /// Held from the first try to the last, by any runner.
    turn: Option<CommandTurn>,
    lapse: Lapse,
    pause: Pause,
}

/// The state of a cleanup.
#[derive(Debug)]
enum CleanupProgress {
    Over(Result<HoldReply, Fault>),
    /// The waiting caller gets this result. The release queue continues the cleanup.
    Told(Result<HoldReply, Fault>),
}

const GOES_ON: &str = "it goes on in the background";
const REPEATED: &str = "it is sent again until it is allowed";

impl Cleanup {
    fn new(ending: AnyEnding, lapse: Lapse) -> Self {
        Self {
            ending,
            sending: Sending::new(),
            turn: None,
            lapse,
            pause: Pause::BACKGROUND,
        }
    }

    fn of_hold(hold: &Hold, ending: AnyEnding, deadline: Instant) -> Self {
        let longest = hold.lease().asks(Duration::ZERO);
        Self::new(ending, Lapse::after(deadline, longest))
    }

    /// The end of a hold, whose lease is over at `deadline`.
    pub(in crate::engine) fn release(hold: &Arc<Hold>, deadline: Instant) -> Self {
        Self::of_hold(hold, AnyEnding::Release(Release::of(hold)), deadline)
    }

    /// Sets the count of the hold to that of its guards, and its lease to at least this one. The present
    /// lease is over at `deadline`.
    pub(in crate::engine) fn update(hold: &Arc<Hold>, lease: Duration, deadline: Instant) -> Self {
        let of = Arc::clone(hold);
        let update = Update { hold: of, lease };
        Self::of_hold(hold, AnyEnding::Update(update), deadline)
    }

    fn orphan(orphan: OrphanedAttempt) -> Self {
        let sent = orphan.delivery.sent.unwrap_or_else(clock::now);
        let lease = orphan.request.terms.lease;
        let lapse = Lapse::after(clock::after(sent, lease), lease);
        Self::new(AnyEnding::Withdrawal(Box::new(orphan)), lapse)
    }

    pub(super) fn once(once: OnceRequest) -> Self {
        let lapse = Lapse::after(clock::now_in_drop(), Duration::ZERO);
        Self::new(AnyEnding::Once(Box::new(once)), lapse)
    }

    /// Sends the command at once if there is nothing to wait for: a connection, a reply, another command of
    /// the hold. Needs no runtime; [`run`](Self::run) does the rest. Returns whether its result wakes the
    /// releases.
    pub(in crate::engine) fn begin(&mut self) -> bool {
        if !self.ending.begins() {
            return false;
        }
        let turn = match (self.turn.take(), self.ending.hold()) {
            (None, Some(hold)) => match CommandTurn::try_take(hold) {
                None => return false,
                taken => taken,
            },
            (kept, _) => kept,
        };
        let waker = Waker::from(Arc::clone(&self.engine().releases));
        let begun = self.ending.begin(&mut self.sending.delivery, &waker);
        // Nothing was sent, now or before. With the turn, this cleanup would run before all others, and any
        // number of such cleanups at a time.
        self.turn = turn.filter(|_| self.sending.delivery.sent.is_some());
        begun
    }

    /// Reads the reply if it has come, or continues the call. Returns whether [`run`](Self::run) has nothing
    /// to wait for.
    pub(super) fn is_answered(&mut self) -> bool {
        self.begin() && self.sending.delivery.is_answered()
    }

    /// The result so far of the command that was sent.
    pub(in crate::engine) fn came(&self) -> Came {
        self.sending.delivery.came()
    }

    pub(in crate::engine) fn engine(&self) -> &Arc<ClientEngine> {
        self.ending.engine()
    }

    /// Runs until Redis has answered or refused for good, or nothing is left to do, or there is a result for
    /// a caller that waits until `until`; `None`: `until` came first.
    async fn run(&mut self, until: Option<Instant>) -> Option<CleanupProgress> {
        if let AnyEnding::Withdrawal(orphan) = &mut self.ending {
            match orphan.ended_before_it_began(until).await? {
                Ok(false) => {}
                Ok(true) => return Some(CleanupProgress::Over(Ok(HoldReply::Gone))),
                Err(fault) => return Some(CleanupProgress::Over(Err(fault))),
            }
        }
        self.take_turn(until).await?;
        loop {
            let fault = match self.ending.step(&mut self.sending, until).await? {
                Ok(reply) => return Some(CleanupProgress::Over(Ok(reply))),
                Err(fault) => fault,
            };
            // An operator may give this client the missing right. Without it, something would stay that
            // no lease ends.
            let waits = fault.is_denied() && self.is_lasting();
            if !(waits || fault.is_passing_for(Caller::Cleanup)) {
                return Some(CleanupProgress::Over(Err(fault)));
            }
            if !fault.is_passing_for(Caller::Call) {
                if until.is_some() {
                    return Some(CleanupProgress::Told(Err(fault)));
                }
                self.tell_nobody(&fault, waits);
            }
            let (ending, now) = (self.ending.get(), clock::now());
            let gone = ending.judged(HoldReply::Gone, &self.sending.delivery);
            let ends = ending.ends_with_lease();
            let give_up = ending.give_up(&self.sending, self.lapse);
            if give_up.is_some_and(|moment| moment <= now) {
                // A lock whose lease is over needs no release.
                return Some(CleanupProgress::Over(if ends {
                    Ok(gone)
                } else {
                    Err(fault)
                }));
            }
            if ends && self.lapse.at <= now {
                // The cleanup is over for the waiting caller; the call to the server may still be needed.
                ending.lapsed();
                if until.is_some() {
                    return Some(CleanupProgress::Told(Ok(gone)));
                }
            }
            if !fault.is_of_dialing() {
                let (pause, engine) = (self.pause.take(), Arc::clone(self.engine()));
                let _denied = waits.then(|| engine.releases.deny());
                clock::before(until, clock::sleep(pause)).await?;
            }
        }
    }

    /// Waits for the turn of the hold, if there is one; `None`: `until` came first.
    async fn take_turn(&mut self, until: Option<Instant>) -> Option<()> {
        if let (None, Some(hold)) = (&self.turn, self.ending.hold()) {
            let hold = Arc::clone(hold);
            self.turn = Some(match CommandTurn::try_take(&hold) {
                Some(turn) => turn,
                None => {
                    self.sending.now = None;
                    clock::before(until, CommandTurn::take(&hold)).await?
                }
            });
        }
        Some(())
    }

    /// A try failed, and no caller waits for the result.
    fn tell_nobody(&self, fault: &Fault, waits: bool) {
        let journal = &self.engine().nodes.current().journal;
        let name = self.ending.name().as_str();
        match fault.is_of_dialing() {
            true => journal.holds_up(name, fault),
            false if waits && self.pause.is_first() => journal.refuses(name, fault, REPEATED),
            false => journal.will_repeat(name, fault),
        }
    }

    /// The cleanup failed, and no caller waits for it.
    fn failed_unheard(&self, fault: &Fault) {
        let effect = match self.is_lasting() {
            true => "permits without a lease stay taken, or a latch closed",
            false => "the lock ends with its lease",
        };
        let journal = &self.engine().nodes.current().journal;
        let name = self.ending.name().as_str();
        journal.refuses(name, fault, effect);
    }

    /// The error for a caller that cannot wait any longer. The cleanup continues in the background.
    fn out_of_time(&self, action: &'static str) -> Error {
        let kind = match self.sending.delivery.is_open() {
            true => ErrorKind::OutcomeUnknown,
            false => ErrorKind::Unavailable,
        };
        let server = self.engine().place_of(self.ending.name());
        Error::new(kind, action).detail(format!("{server}: {GOES_ON}"))
    }

    /// Whether other cleanups of its hold wait for it.
    pub(in crate::engine) fn has_turn(&self) -> bool {
        self.turn.is_some()
    }

    /// Whether a lock stays in Redis if this does not run.
    pub(in crate::engine) fn is_due(&self) -> bool {
        self.ending.get().is_due()
    }

    /// The waiters for the end of the hold, if there are any.
    pub(in crate::engine) fn followers(&self) -> Option<Arc<LockQueue>> {
        let ends = self.ending.get().ends_with_lease();
        let waiters = &self.ending.hold().filter(|_| ends)?.waiters;
        (!waiters.is_empty()).then(|| waiters.share())
    }

    /// Whether something stays in Redis that no lease ends.
    pub(in crate::engine) fn is_lasting(&self) -> bool {
        self.ending.is_lasting()
    }

    fn over(&self, outcome: &Result<HoldReply, Fault>) {
        let Sending { news, delivery, .. } = &self.sending;
        let news = match outcome {
            Ok(HoldReply::Gone | HoldReply::Taken) if *news == News::Nothing => &News::Unknown,
            _ => news,
        };
        self.ending.get().over(news, delivery, outcome.is_ok());
    }
}

/// A cleanup that goes to the release queue if it is not run to its end.
pub(crate) struct PendingCleanup {
    cleanup: Option<Cleanup>,
    /// Dropped last.
    _open: Outstanding,
}

impl PendingCleanup {
    pub(in crate::engine) fn new(cleanup: Cleanup) -> Self {
        let open = cleanup.engine().releases.register(cleanup.is_lasting());
        Self::registered(cleanup, open)
    }

    /// Registers a future cleanup of this hold.
    pub(in crate::engine) fn register(hold: &Hold) -> Outstanding {
        let lasting = hold.recipe.profile().is_lasting();
        hold.engine.releases.register(lasting)
    }

    /// Uses the value that [`register`](Self::register) has returned.
    pub(in crate::engine) fn registered(cleanup: Cleanup, open: Outstanding) -> Self {
        Self {
            cleanup: Some(cleanup),
            _open: open,
        }
    }

    /// The release of a hold gives nothing back.
    pub(in crate::engine) fn only_forgets(&mut self) {
        if let Some(AnyEnding::Release(release)) = self.get().map(|cleanup| &mut cleanup.ending) {
            release.forgets = true;
        }
    }

    /// `None`: it is over.
    pub(super) fn get(&mut self) -> Option<&mut Cleanup> {
        self.cleanup.as_mut()
    }

    /// Runs for a caller that waits until `until`. `name`: of its lock, for the error. `now`: the time that
    /// this caller has just read from the clock.
    pub(in crate::engine) async fn finish(
        &mut self,
        action: &'static str,
        name: &LockName,
        until: Instant,
        now: Option<Instant>,
    ) -> Result<HoldReply, Error> {
        let outcome = self.run(Some(until), now).await;
        let error = match (outcome, &self.cleanup) {
            (Some(Ok(reply)), _) => return Ok(reply),
            (Some(Err(fault)), None) => fault.into_error(action),
            (Some(Err(fault)), Some(_)) => fault.into_error(action).and(GOES_ON),
            (None, Some(cleanup)) => cleanup.out_of_time(action),
            (None, None) => Error::new(ErrorKind::Unavailable, action),
        };
        Err(error.named(name.as_arc()))
    }

    /// Runs to the end, or until there is a result for a caller that waits until `until`; `None`: `until`
    /// came first. `now`: as for [`finish`](Self::finish).
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at any point, and the cleanup may be run again.
    pub(super) async fn run(
        &mut self,
        until: Option<Instant>,
        now: Option<Instant>,
    ) -> Option<Result<HoldReply, Fault>> {
        let Some(cleanup) = &mut self.cleanup else {
            return Some(Ok(HoldReply::Done));
        };
        cleanup.sending.now = now;
        let outcome = match cleanup.run(until).await? {
            CleanupProgress::Told(outcome) => return Some(outcome),
            CleanupProgress::Over(outcome) => outcome,
        };
        if let Some(cleanup) = self.cleanup.take() {
            cleanup.over(&outcome);
            if let (None, Err(fault)) = (until, &outcome) {
                cleanup.failed_unheard(fault);
            }
        }
        Some(outcome)
    }

    /// Runs nothing: another hold continues under the same owner number.
    pub(in crate::engine) fn spare(mut self) {
        let cleanup = self.cleanup.take();
        if let Some(hold) = cleanup.as_ref().and_then(|cleanup| cleanup.ending.hold()) {
            hold.continued();
        }
    }

    /// Behaves as if the end of a hold had been sent. Call the result with the answer of Redis.
    #[cfg(test)]
    pub(in crate::engine) fn release_sent(mut self) -> impl FnOnce(crate::wire::Reply) + 'static {
        let mut cleanup = self.cleanup.take().expect("nothing has run");
        if let AnyEnding::Release(release) = &mut cleanup.ending {
            release.was_sent();
        }
        cleanup.sending.delivery.sent = Some(clock::now());
        move |reply| {
            let outcome = cleanup.sending.read(Ok(reply));
            cleanup.over(&outcome);
            drop(self);
        }
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
