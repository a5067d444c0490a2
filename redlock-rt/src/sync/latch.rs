//! The count-down latch.

use std::sync::Arc;
use std::time::Duration;

use super::options::check_lease;
use crate::engine::{self, ClientEngine, Handle, OnceCall, Repeat};
use crate::error::Error;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::name::BadName;
use crate::wire::{GREATEST_COUNT, Gate, GateState, LatchWire, Named, Reply, count_left, was_done};

const SET: &str = "set latch";
const COUNT_DOWN: &str = "count down latch";
const COUNT: &str = "read the count of latch";
const DELETE: &str = "delete latch";

/// A latch that blocks all waiters, in all processes, until it is counted down to zero; shared with
/// Redisson's `RCountDownLatch` of the same name.
///
/// One party sets the count, several parties count down, and any number of tasks wait. A latch is a
/// key with a number: it exists from [`try_set_count`](Self::try_set_count) until the number is
/// zero. Without a latch no one waits, so set the count before the first wait. A latch has no
/// holder and no lease: if a process dies before it counts down, the latch stays closed for ever,
/// unless it has a [`ttl`](Self::ttl).
///
/// **Do not use it** to exclude other holders (use a lock), to pass on results, or for repeated rounds.
/// A new count on the same name blocks waiters that did not wake in time: use a new name for each
/// round.
///
/// In a cluster, a name with braces is refused ([`BadInput`](ErrorKind::BadInput)), because its channel
/// is in another slot, as in Redisson.
///
/// # Round trips
///
/// One for each operation, and one to wait for an open latch. To wait for a closed latch: a look, a
/// subscription and a second look, then one look after each announcement, and one every one to two
/// seconds (the poll interval). All tasks of one client that wait for one name share these: ten
/// thousand tasks need one subscription and one look. Poll every waiting task, since the first one
/// looks for the others; see [futures that are not polled](crate::Lock#futures-that-are-not-polled).
///
/// # Cancel safety
///
/// A dropped wait leaves nothing. A dropped [`count_down`](Self::count_down) counts once or not at all.
/// To count in any case, use a [`count_down_guard`](Self::count_down_guard).
///
/// # Errors
///
/// [`BadInput`](ErrorKind::BadInput) for an invalid name, count or TTL;
/// [`Unavailable`](ErrorKind::Unavailable) if nothing was sent or Redis refused the call,
/// [`OutcomeUnknown`](ErrorKind::OutcomeUnknown) if the command may have run;
/// [`WrongType`](ErrorKind::WrongType), [`Denied`](ErrorKind::Denied),
/// [`ShutDown`](ErrorKind::ShutDown). Calls are repeated after a lost reply, with an id that marks
/// the repeat: nothing counts twice.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), redlock_rt::Error> {
/// use std::time::Duration;
/// use redlock_rt::Client;
///
/// let client = Client::embedded();
/// let warm = client.count_down_latch("warm:42");
/// assert!(warm.try_set_count(2).await?);
///
/// for _ in 0..2 {
///     let warm = warm.clone();
///     tokio::spawn(async move {
///         let _done = warm.count_down_guard()?;
///         // … fills a cache; the guard counts down when the task ends, in any way.
///         Ok::<_, redlock_rt::Error>(())
///     });
/// }
/// warm.wait_with(Duration::from_secs(5)).await?;
/// assert_eq!(warm.count().await?, 0);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct CountDownLatch {
    engine: Handle,
    wire: Result<LatchWire, BadName>,
    ttl: Option<Duration>,
}

impl CountDownLatch {
    pub(crate) fn handle(engine: &Arc<ClientEngine>, name: &str) -> Self {
        Self {
            engine: Handle::new(engine),
            wire: engine.name(Named::Latch, name).map(LatchWire::new),
            ttl: None,
        }
    }

    /// Sets the TTL of latches that this handle sets. Defaults to `None`: the latch lives until it
    /// is counted down or deleted, as in Redisson.
    ///
    /// When the latch expires, waiters get [`LatchExpired`](ErrorKind::LatchExpired).
    #[must_use]
    pub fn ttl(mut self, ttl: impl Into<Option<Duration>>) -> Self {
        self.ttl = ttl.into();
        self
    }

    /// Sets the count of the latch, from 1 to 2^53, if it has none, and returns whether it was set.
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
    /// See [above](Self#errors).
    pub async fn try_set_count(&self, count: u64) -> Result<bool, Error> {
        let wire = self.wire()?;
        let refuse = |why| Err(Error::bad_input(SET, why).named(wire.name.as_arc()));
        match count {
            0 => return refuse("the count is zero"),
            _ if count > GREATEST_COUNT => return refuse("the count is greater than 2^53"),
            _ => {}
        }
        if let Some(ttl) = self.ttl {
            check_lease(SET, ttl).map_err(|_| {
                let why = "the ttl is shorter than a millisecond, or longer than redis can keep";
                Error::bad_input(SET, why).named(wire.name.as_arc())
            })?;
        }
        let call = wire.set(count, self.ttl, &self.engine.operation());
        let (engine, name) = (&self.engine, &wire.name);
        engine.send(SET, name, call, Repeat::Always, was_done).await
    }

    /// Counts down by one, and returns the remaining count. At zero all waiters continue.
    ///
    /// If there is no latch, the call does nothing and returns zero.
    ///
    /// # Round trips
    ///
    /// One.
    ///
    /// # Cancel safety
    ///
    /// The call counts once or not at all. A new call counts in addition: use a
    /// [guard](Self::count_down_guard) to count exactly once.
    ///
    /// # Errors
    ///
    /// See [above](Self#errors).
    pub async fn count_down(&self) -> Result<u64, Error> {
        let wire = self.wire()?;
        let call = wire.count_down(&self.engine.operation());
        let (engine, name) = (&self.engine, &wire.name);
        engine
            .send(COUNT_DOWN, name, call, Repeat::Always, count_left)
            .await
    }

    /// Returns a guard that counts down by one when it is dropped. Does no I/O.
    ///
    /// # Errors
    ///
    /// [`BadInput`](ErrorKind::BadInput) for an invalid name.
    pub fn count_down_guard(&self) -> Result<CountDownGuard, Error> {
        let wire = self.wire()?;
        let id = self.engine.operation();
        let call = wire.count_down(&id);
        Ok(CountDownGuard {
            once: OnceCall::new(&self.engine, &wire.name, call, id.noted, count_left),
        })
    }

    /// Waits until the latch is at zero, without a limit, also through outages of Redis, unless
    /// [`RetryPolicy::attempts`](crate::RetryPolicy::attempts) limits the tries.
    ///
    /// Returns at once if there is no latch. If the latch gets a new count before this call has
    /// seen the zero, the call waits for the new count, as in Redisson.
    ///
    /// # Round trips
    ///
    /// See [above](Self#round-trips).
    ///
    /// # Cancel safety
    ///
    /// Nothing is left but a subscription, for its short linger time.
    ///
    /// # Errors
    ///
    /// [`LatchDeleted`](ErrorKind::LatchDeleted) and [`LatchExpired`](ErrorKind::LatchExpired) if the
    /// latch ended without being counted down. Redis keeps this for ten minutes, unless there is a new
    /// latch. A latch counts as counted down if a Redisson client deleted it, or if Redis has lost it
    /// (a flush, a restart without persistence, a failover). See also [above](Self#errors).
    pub async fn wait(&self) -> Result<(), Error> {
        self.wait_with(None).await
    }

    /// Waits until the latch is at zero, for at most `timeout`, which limits everything: connecting,
    /// subscribing and looking. Zero looks once, and waits for the reply for the response time-out.
    ///
    /// # Cancel safety
    ///
    /// Nothing is left but a subscription, for its short linger time.
    ///
    /// # Errors
    ///
    /// [`TimedOut`](ErrorKind::TimedOut) if the latch was closed all the time,
    /// [`Unavailable`](ErrorKind::Unavailable) if Redis did not answer; and those of
    /// [`wait`](Self::wait).
    pub async fn wait_with(&self, timeout: impl Into<Option<Duration>>) -> Result<(), Error> {
        let wire = self.wire()?;
        let waited = engine::wait_latch(&self.engine, wire, timeout.into()).await;
        waited.map(drop)
    }

    /// Returns the count; zero if there is no latch.
    ///
    /// # Round trips
    ///
    /// One.
    ///
    /// # Cancel safety
    ///
    /// The call changes nothing.
    ///
    /// # Errors
    ///
    /// See [above](Self#errors).
    pub async fn count(&self) -> Result<u64, Error> {
        let wire = self.wire()?;
        let read = |reply: Reply| wire.read(reply);
        match self
            .engine
            .ask(COUNT, &wire.name, wire.check(), read)
            .await?
        {
            GateState::Closed(count, _) => Ok(count),
            GateState::Ended(_) => Ok(0),
        }
    }

    /// Deletes the latch, and returns whether there was one. Waiters get
    /// [`LatchDeleted`](ErrorKind::LatchDeleted); Redisson threads continue to wait.
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
    /// See [above](Self#errors).
    pub async fn delete(&self) -> Result<bool, Error> {
        let wire = self.wire()?;
        let call = wire.delete(&self.engine.operation());
        let (engine, name) = (&self.engine, &wire.name);
        engine
            .send(DELETE, name, call, Repeat::Always, was_done)
            .await
    }

    fn wire(&self) -> Result<&LatchWire, Error> {
        Ok(self.wire.as_ref().map_err(|bad| bad.clone())?)
    }
}

/// A guard that counts a [`CountDownLatch`] down by one, exactly once: when
/// [`count_down`](Self::count_down) is called, or in the background when the guard is dropped.
///
/// The background task tries until Redis has answered, also through outages and while an ACL right is
/// missing. There are three limits:
///
/// * If a try may have run and its reply was lost, it tries for at most two minutes, or twice the
///   response time-out, after that try: Redis may not recognise a later repeat.
/// * After a shut-down of the client nothing is counted.
/// * A process that ends does not wait: shut the client down before, or the count may be missing
///   for ever; see [the end of a program](crate#the-end-of-a-program).
#[derive(Debug)]
#[must_use = "dropping the guard counts down"]
#[clippy::has_significant_drop]
pub struct CountDownGuard {
    once: OnceCall,
}

impl CountDownGuard {
    /// Counts down, and returns the remaining count.
    ///
    /// # Round trips
    ///
    /// One.
    ///
    /// # Cancel safety
    ///
    /// The call continues in the background, as after a time-out.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](ErrorKind::Unavailable) if Redis cannot be reached, and
    /// [`OutcomeUnknown`](ErrorKind::OutcomeUnknown) if Redis does not answer within the
    /// [response time-out](crate::ClientBuilder::response_timeout), and
    /// [`Denied`](ErrorKind::Denied) if Redis refuses the call; the call then continues in the
    /// background, so do not try again. See also [`CountDownLatch`](CountDownLatch#errors).
    pub async fn count_down(self) -> Result<u64, Error> {
        self.once.run(COUNT_DOWN).await
    }
}
