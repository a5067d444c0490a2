//! Barriers: parties that wait for each other.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::options::LockOptions;
use crate::clock;
use crate::engine::{
    AcquireParams, ClientEngine, Handle, Hold, HoldGuard, LostReason, Repeat, Unlocked, wait_latch,
};
use crate::error::{Error, ErrorKind};
use crate::name::{BadName, LockName};
use crate::wire::{BROKEN, BarrierWire, Generation, LEFT, Named, Recipe, was_done};

const WAIT: &str = "wait at barrier";
const LEAVE: &str = "leave barrier";
const RESET: &str = "reset barrier";
/// The most parties: their ids are in one value of Redis.
const MOST_PARTIES: u32 = 1000;

/// A barrier at which a number of parties, in any processes, wait for each other, again and again.
///
/// Each party calls [`wait`](Self::wait), which returns to all of them when the last one has arrived. Then the next
/// *generation* begins. A party that waits has a lease, which its client renews. If its process dies, the barrier is
/// *broken* when the lease is over: all other parties, also later ones, get
/// [`BarrierBroken`](ErrorKind::BarrierBroken) until a call [resets](Self::reset) the barrier. A dropped call, or
/// one that times out, only leaves: the barrier waits for another party in its place.
///
/// No party passes a generation unless Redis has counted it and all parties have arrived with running leases. All
/// handles of a name need the same number of parties. Redis keeps the number of the first party that arrives, and
/// refuses another number while a party waits. The state is kept for thirty days after the last use. Redisson has no
/// barrier, so the name has nothing in common with objects of Redisson.
///
/// **Do not use it** without a limit of the wait: if a process died *before* its arrival, no party notices that. Do
/// not use leases that are shorter than a reply may take: a party that receives the reply after its lease arrives
/// again, even if the others have already passed with it.
///
/// # Round trips
///
/// The last party needs two: to arrive, and to look. Each other party needs three and a subscription, then one look
/// after each announcement, whenever a lease could be over, and every one to two seconds (the poll interval). Tasks
/// of one client that wait in one generation share these looks. Each third of the lease adds a share of the
/// watchdog's call.
///
/// # Fairness
///
/// None is needed: all pass together.
///
/// # Cancel safety
///
/// A dropped [`wait`](Self::wait) leaves in the background, unless its generation has ended by then.
///
/// # Errors
///
/// [`BarrierBroken`](ErrorKind::BarrierBroken) and [`BarrierReset`](ErrorKind::BarrierReset), for which
/// [`is_barrier_broken`](Error::is_barrier_broken) is true; [`Lost`](ErrorKind::Lost) for a party that is no longer
/// in Redis: the keys were deleted or flushed, or its lease was over. The others are those of
/// [`Lock::lock`](crate::Lock::lock), with [`BadInput`](ErrorKind::BadInput) also for no parties, for more than
/// 1000, and for another number than the others have.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), redlock_rt::Error> {
/// use redlock_rt::Client;
///
/// let client = Client::embedded();
/// // In each of two processes:
/// let step = client.cyclic_barrier("simulation", 2);
/// let (first, second) = tokio::try_join!(step.wait(), step.wait())?;
/// assert_eq!(first.generation, second.generation);
/// // The last one to arrive could write the result of the step.
/// assert_eq!(first.index + second.index, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct CyclicBarrier {
    parties: Parties,
}

/// What a party gets when all have arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Arrival {
    /// The number of the generation; the first one is 1. It starts again after Redis has lost its data.
    pub generation: u64,
    /// From 0 to the number of parties less one, different for each party. The last one to arrive has the greatest;
    /// the others have no order.
    pub index: u32,
}

impl CyclicBarrier {
    pub(crate) fn handle(engine: &Arc<ClientEngine>, name: &str, parties: u32) -> Self {
        let parties = Parties::new(engine, name, parties, false);
        Self { parties }
    }

    /// Sets the lease of a party: how long the others wait for one that has died. Defaults to the client's
    /// [lease](crate::ClientBuilder::lease).
    #[must_use]
    pub fn lease(self, lease: Duration) -> Self {
        let parties = self.parties.lease(lease);
        Self { parties }
    }

    /// Arrives, and waits without a limit until all parties have.
    ///
    /// # Round trips, cancel safety
    ///
    /// See [`CyclicBarrier`].
    ///
    /// # Errors
    ///
    /// See [`CyclicBarrier`]. An outage of Redis that is shorter than the lease causes no error.
    pub async fn wait(&self) -> Result<Arrival, Error> {
        self.wait_with(None).await
    }

    /// Arrives, and waits for at most `timeout` until all parties have. Zero asks once whether they have.
    ///
    /// # Round trips
    ///
    /// See [`CyclicBarrier`]; two more after the time-out, to leave and to look, within one
    /// [response time-out](crate::ClientBuilder::response_timeout) together.
    ///
    /// # Cancel safety
    ///
    /// See [`CyclicBarrier`].
    ///
    /// # Errors
    ///
    /// See [`CyclicBarrier`], and [`TimedOut`](ErrorKind::TimedOut) if parties were missing. The party has then
    /// left: if all had arrived before, the call would have returned an [`Arrival`]. The outcome is unknown only if
    /// Redis does not answer the leave.
    pub async fn wait_with(&self, timeout: impl Into<Option<Duration>>) -> Result<Arrival, Error> {
        let party = self.parties.arrive(timeout.into()).await?;
        match party.passes().await {
            Ok(arrival) => {
                party.guard.forget();
                Ok(arrival)
            }
            Err(error) if error.is_timed_out() => party.withdraw(error).await,
            outcome => outcome,
        }
    }

    /// Ends the present generation, and returns whether there was one. Parties that wait in it get
    /// [`BarrierReset`](ErrorKind::BarrierReset), and a broken barrier can be used again.
    ///
    /// # Round trips
    ///
    /// One.
    ///
    /// # Cancel safety
    ///
    /// The call may or may not take effect.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](ErrorKind::Unavailable) if Redis cannot be reached,
    /// [`OutcomeUnknown`](ErrorKind::OutcomeUnknown) if it does not answer. A repeat after a lost reply does not
    /// reset anything else.
    pub async fn reset(&self) -> Result<bool, Error> {
        self.parties.reset().await
    }
}

/// A barrier around a common piece of work: all parties enter together, and leave together.
///
/// [`enter`](Self::enter) returns a guard to each party when all have come, and [`leave`](DoubleBarrierGuard::leave)
/// returns when all have left. Then the next round begins. A party that comes while others are inside waits for the
/// next round. A party has a lease from its `enter` to its `leave`. If a party dies, the barrier is *broken* when
/// its lease is over, as described for [`CyclicBarrier`].
///
/// # Round trips
///
/// Those of a [`CyclicBarrier`] to enter, and one less to leave.
///
/// # Cancel safety
///
/// A dropped [`enter`](Self::enter) leaves in the background, even if all parties have come by then.
///
/// # Errors
///
/// Those of a [`CyclicBarrier`].
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), redlock_rt::Error> {
/// use redlock_rt::Client;
///
/// let client = Client::embedded();
/// let migration = client.double_barrier("migration", 2);
/// let party = async || {
///     let inside = migration.enter().await?;
///     // … nobody serves requests, since all are here.
///     inside.leave().await
/// };
/// tokio::try_join!(party(), party())?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct DoubleBarrier {
    parties: Parties,
}

impl DoubleBarrier {
    pub(crate) fn handle(engine: &Arc<ClientEngine>, name: &str, parties: u32) -> Self {
        let parties = Parties::new(engine, name, parties, true);
        Self { parties }
    }

    /// Sets the lease of a party; see [`CyclicBarrier::lease`].
    #[must_use]
    pub fn lease(self, lease: Duration) -> Self {
        let parties = self.parties.lease(lease);
        Self { parties }
    }

    /// Waits without a limit until all parties have come.
    ///
    /// # Round trips, cancel safety
    ///
    /// See [`DoubleBarrier`].
    ///
    /// # Errors
    ///
    /// See [`DoubleBarrier`].
    pub async fn enter(&self) -> Result<DoubleBarrierGuard, Error> {
        self.enter_with(None).await
    }

    /// Waits for at most `timeout` until all parties have come. Zero asks once whether they have.
    ///
    /// # Cancel safety
    ///
    /// See [`DoubleBarrier`].
    ///
    /// # Errors
    ///
    /// See [`DoubleBarrier`], and [`TimedOut`](ErrorKind::TimedOut) if others were missing; the party then
    /// leaves in the background. For zero, [`Contended`](ErrorKind::Contended) while others are inside.
    pub async fn enter_with(
        &self,
        timeout: impl Into<Option<Duration>>,
    ) -> Result<DoubleBarrierGuard, Error> {
        let party = self.parties.arrive(timeout.into()).await?;
        party.passes().await?;
        Ok(DoubleBarrierGuard { party })
    }

    /// Ends the present round, and returns whether there was one: parties that wait or are inside get
    /// [`BarrierReset`](ErrorKind::BarrierReset), and a broken barrier can be used again.
    ///
    /// # Round trips, cancel safety
    ///
    /// See [`CyclicBarrier::reset`].
    ///
    /// # Errors
    ///
    /// See [`CyclicBarrier::reset`].
    pub async fn reset(&self) -> Result<bool, Error> {
        self.parties.reset().await
    }
}

/// The guard of a party inside a [`DoubleBarrier`]. Dropping it leaves in the background, without waiting for the
/// others.
#[derive(Debug)]
#[must_use = "dropping the guard leaves the barrier"]
#[clippy::has_significant_drop]
pub struct DoubleBarrierGuard {
    party: Party,
}

impl DoubleBarrierGuard {
    /// Leaves, and waits without a limit until all parties have.
    ///
    /// # Round trips
    ///
    /// See [`DoubleBarrier`].
    ///
    /// # Cancel safety
    ///
    /// The party leaves in the background.
    ///
    /// # Errors
    ///
    /// [`BarrierBroken`](ErrorKind::BarrierBroken) if one of them died inside,
    /// [`BarrierReset`](ErrorKind::BarrierReset), `ShutDown`, and [`Lost`](ErrorKind::Lost) if this party is no
    /// longer in Redis, or its lease was over; and those of [`LockGuard::unlock`](crate::LockGuard::unlock).
    pub async fn leave(self) -> Result<(), Error> {
        self.leave_with(None).await
    }

    /// Leaves, and waits for at most `timeout` until all parties have.
    ///
    /// # Cancel safety
    ///
    /// The party leaves in the background.
    ///
    /// # Errors
    ///
    /// Those of [`leave`](Self::leave), and [`TimedOut`](ErrorKind::TimedOut) while others are inside.
    pub async fn leave_with(self, timeout: impl Into<Option<Duration>>) -> Result<(), Error> {
        let (timeout, started) = (timeout.into(), clock::now());
        let (leaving, hold) = (self.party.generation(1), Arc::clone(&self.party.guard.hold));
        let left = self.party.guard.unlock().await;
        let lost = left.map_err(|error| error.trying(LEAVE))? == Unlocked::AlreadyExpired;
        let rest = timeout.map(|timeout| timeout.saturating_sub(clock::now() - started));
        let wait = if lost { Some(Duration::ZERO) } else { rest };
        match wait_latch(&hold.engine, &leaving, wait).await {
            Ok(how) if !lost && &*how == LEFT => Ok(()),
            Err(error) if !lost || error.is_barrier_broken() => Err(error.trying(LEAVE)),
            _ => {
                let known = hold.lost_reason(clock::now());
                Err(hold.lost_error(LEAVE, known.unwrap_or(LostReason::Deleted)))
            }
        }
    }

    /// Waits until the barrier is broken or reset, or this party is lost, and returns the error that
    /// [`leave`](Self::leave) would return.
    ///
    /// # Round trips
    ///
    /// One look whenever a lease could be over, and one per poll interval, as long as it is polled. Without this
    /// call only [`leave`](Self::leave) notices that another party has died.
    ///
    /// # Cancel safety
    ///
    /// Safe: the call changes nothing.
    pub async fn broken(&self) -> Error {
        match self.party.ended(1, None).await {
            Ok(_) => self.party.lost(LostReason::Deleted),
            Err(error) => error,
        }
    }

    /// Returns whether this party is inside at this moment, by the local clock alone.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.party.guard.state().is_valid()
    }
}

/// A barrier and its number of parties: the common part of both kinds of barriers.
#[derive(Debug, Clone)]
struct Parties {
    engine: Handle,
    name: Result<LockName, BadName>,
    number: u32,
    double: bool,
    options: LockOptions,
}

impl Parties {
    fn new(engine: &Arc<ClientEngine>, name: &str, number: u32, double: bool) -> Self {
        Self {
            engine: Handle::new(engine),
            name: engine.name(Named::Barrier, name),
            number,
            double,
            options: LockOptions::new(),
        }
    }

    fn lease(mut self, lease: Duration) -> Self {
        self.options = self.options.lease(lease);
        self
    }

    fn wire(&self, action: &'static str) -> Result<Arc<BarrierWire>, Error> {
        let name = self.name.clone()?;
        let why = match self.number {
            0 => "a barrier without parties",
            1..=MOST_PARTIES => {
                let wire = BarrierWire::new(name, self.double, self.number);
                return Ok(Arc::new(wire));
            }
            _ => "more than 1000 parties",
        };
        Err(Error::bad_input(action, why).named(name.as_arc()))
    }

    /// Adds a party, which leaves when it is dropped.
    async fn arrive(&self, wait: Option<Duration>) -> Result<Party, Error> {
        let (wire, started) = (self.wire(WAIT)?, clock::now());
        let terms = self.options.terms_of(&self.engine, &*wire, None)?;
        let params = AcquireParams {
            wait,
            ..AcquireParams::default()
        };
        let recipe: Arc<dyn Recipe> = Arc::clone(&wire) as _;
        let guard = self.engine.lock(recipe, terms, params).await;
        let guard = guard.map_err(|error| {
            let error = error.trying(WAIT);
            match wire.refused.get() {
                Some(why) if why == BROKEN => error.known_as(ErrorKind::BarrierBroken),
                Some(number) => error
                    .known_as(ErrorKind::BadInput)
                    .detail(format!("the others wait for {number} parties")),
                None => error,
            }
        })?;
        if guard.token() == u64::MAX {
            // No barrier gets this far, and the next generation would have no number.
            let error = Error::new(ErrorKind::Protocol, WAIT).named(wire.name().as_arc());
            return Err(error.detail("the generation has the greatest number"));
        }
        let due = wait.map(|wait| clock::after(started, wait));
        Ok(Party { guard, wire, due })
    }

    async fn reset(&self) -> Result<bool, Error> {
        let wire = self.wire(RESET)?;
        let call = wire.reset(&self.engine.operation());
        let (name, always) = (wire.name(), Repeat::Always);
        let sent = self.engine.send(RESET, name, call, always, was_done);
        sent.await
    }
}

/// A party that has arrived. Dropping it leaves in the background.
#[derive(Debug)]
struct Party {
    guard: HoldGuard,
    wire: Arc<BarrierWire>,
    /// The end of its wait.
    due: Option<Instant>,
}

impl Party {
    /// The generation of its arrival (0), or the next one (1).
    fn generation(&self, later: u64) -> Generation {
        Generation {
            wire: Arc::clone(&self.wire),
            // `arrive` has refused the greatest number.
            number: self.guard.token() + later,
        }
    }

    fn lost(&self, reason: LostReason) -> Error {
        self.guard.hold.lost_error(WAIT, reason)
    }

    /// Waits until the generation has ended, or the party is lost. Returns how it ended.
    async fn ended(&self, later: u64, wait: Option<Duration>) -> Result<Arc<str>, Error> {
        let (engine, generation) = (&self.guard.hold.engine, self.generation(later));
        let waits = pin!(wait_latch(engine, &generation, wait));
        let ended = tokio::select! {
            biased;
            ended = waits => ended,
            reason = self.guard.lost() => {
                // A renewal may see the end first.
                let looked = wait_latch(engine, &generation, Some(Duration::ZERO)).await;
                looked.map_err(|error| match reason {
                    _ if error.is_barrier_broken() || error.is_shut_down() => error,
                    LostReason::ShutDown => self.lost(LostReason::Deleted),
                    reason => self.lost(reason),
                })
            }
        };
        ended.map_err(|error| error.trying(WAIT))
    }

    /// Waits until all have arrived.
    async fn passes(&self) -> Result<Arrival, Error> {
        let rest = self
            .due
            .map(|due| due.saturating_duration_since(clock::now()));
        counted(&self.guard.hold, &self.ended(0, rest).await?)
    }

    /// Leaves after a time-out, unless the generation has ended by now, within one response time-out.
    async fn withdraw(self, error: Error) -> Result<Arrival, Error> {
        let (generation, hold) = (self.generation(0), Arc::clone(&self.guard.hold));
        let until = hold.engine.patience(self.due.unwrap_or_else(clock::now));
        let leaves = async {
            let left = self.guard.unlock().await.ok()?;
            // Needed also if the party has left: the repeat of a lost call does not report that it was too late.
            let looked = wait_latch(&hold.engine, &generation, Some(Duration::ZERO)).await;
            Some((left, looked))
        };
        let Some(Some((left, looked))) = clock::before(Some(until), leaves).await else {
            return Err(error);
        };
        match looked {
            Ok(ended) => counted(&hold, &ended).map_err(|lost| match left {
                Unlocked::AlreadyExpired => lost,
                _ => error,
            }),
            Err(now) if now.is_barrier_broken() => Err(now.trying(WAIT)),
            Err(_) => Err(error),
        }
    }
}

/// The arrival of a party, if its generation has ended with this party in it.
fn counted(hold: &Hold, ended: &str) -> Result<Arrival, Error> {
    match BarrierWire::place(ended, &hold.id()) {
        Some(place) => Ok(Arrival {
            generation: hold.token().unwrap_or_default(),
            index: u32::try_from(place).unwrap_or(u32::MAX),
        }),
        None => Err(hold.lost_error(WAIT, LostReason::Deleted)),
    }
}
