//! The latch that many wait for until it is counted down.

use std::sync::Arc;
use std::time::Duration;

use super::options::check_lease;
use crate::engine::{self, Engine, Handle, OnceCall, Repeat};
use crate::error::{Error, ErrorKind};
use crate::name::{BadName, LockName};
use crate::wire::{
    Call, Ended, GREATEST_COUNT, LatchWire, Look, Malformed, Reply, count_left, was_done,
};

const SET: &str = "set latch";
const COUNT_DOWN: &str = "count down latch";
const COUNT: &str = "read the count of latch";
const DELETE: &str = "delete latch";

/// A latch that holds up all who wait for it, in all processes, until it was counted down to zero;
/// shared with Redisson's `RCountDownLatch` of the same name.
///
/// One party sets the count, several count down, and anybody waits. A latch is a key with a number:
/// it is there from [`try_set_count`](Self::try_set_count) until it is zero, and where there is none
/// nobody is held up. So it is to be set before anybody waits. It has no holder and no lease: a
/// process that dies before it counted down leaves the latch closed for good, unless it has a
/// [`ttl`](Self::ttl).
///
/// **Not for** keeping others out (a lock), for one turn after another (a new count on the same name
/// holds up those that did not wake in time: use a name a turn), or for passing on results.
///
/// In a cluster (which this crate does not do yet) a name with braces has its channel in another
/// slot, as in Redisson: do not use braces in the name of a latch.
///
/// # Round trips
///
/// One for each operation. Waiting for an open latch: one. For a closed one: a look, a subscription
/// and a second look, then nothing until something is announced, but for a look every one to two
/// seconds (the poll interval). All tasks of one client that wait for one name share that: ten
/// thousand of them are one subscription and one look. A task that waits must be polled, as the one
/// that came first looks for the others.
///
/// # Cancel safety
///
/// A wait that is dropped leaves nothing. A dropped [`count_down`](Self::count_down) may or may not
/// count, once; for one that counts whatever happens see [`count_down_guard`](Self::count_down_guard).
///
/// # Errors
///
/// [`BadInput`](ErrorKind::BadInput) for a name, count or TTL that cannot be one;
/// [`Unavailable`](ErrorKind::Unavailable) where nothing was sent or Redis refused it,
/// [`OutcomeUnknown`](ErrorKind::OutcomeUnknown) where it may have been done;
/// [`WrongType`](ErrorKind::WrongType), [`Denied`](ErrorKind::Denied),
/// [`ShutDown`](ErrorKind::ShutDown). After a lost reply calls are repeated, and say by an id that
/// they are repeats: nothing counts twice.
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
///         // … fills a cache; counted down when this ends, however it does.
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
    pub(crate) fn open(engine: &Arc<Engine>, name: &str) -> Self {
        Self {
            engine: Handle::new(engine),
            wire: LockName::new(engine.namespace(), name).map(LatchWire::new),
            ttl: None,
        }
    }

    /// Sets for how long a latch lives that this handle gives a count. Defaults to `None`: until it
    /// is counted down or deleted, as with Redisson.
    ///
    /// When it expires, those that wait get [`LatchExpired`](ErrorKind::LatchExpired).
    #[must_use]
    pub fn ttl(mut self, ttl: impl Into<Option<Duration>>) -> Self {
        self.ttl = ttl.into();
        self
    }

    /// Gives the latch its count, from 1 to 2^53, unless it has one; answers whether it did.
    ///
    /// # Round trips
    ///
    /// One.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it may or may not take effect.
    ///
    /// # Errors
    ///
    /// See [above](Self#errors).
    pub async fn try_set_count(&self, count: u64) -> Result<bool, Error> {
        let wire = self.wire()?;
        let refuse = |why| Err(Error::bad_input(SET, why).named(wire.name().as_arc()));
        match count {
            0 => return refuse("the count is zero"),
            _ if count > GREATEST_COUNT => return refuse("the count is greater than 2^53"),
            _ => {}
        }
        if let Some(ttl) = self.ttl {
            check_lease(ttl).map_err(|_| {
                let why = "the ttl is shorter than a millisecond, or longer than redis can keep";
                Error::bad_input(SET, why).named(wire.name().as_arc())
            })?;
        }
        let call = wire.set(count, self.ttl, &self.engine.operation());
        self.send(SET, wire, call, was_done).await
    }

    /// Counts down by one; answers the count that is left. At zero all who wait go on.
    ///
    /// Where there is no latch this does nothing, and answers zero: nothing goes below it.
    ///
    /// # Round trips
    ///
    /// One.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it counts once or not at all. Who tries again does so with another call, which
    /// counts besides: use a [guard](Self::count_down_guard) where it must be once.
    ///
    /// # Errors
    ///
    /// See [above](Self#errors).
    pub async fn count_down(&self) -> Result<u64, Error> {
        let wire = self.wire()?;
        let call = wire.count_down(&self.engine.operation());
        self.send(COUNT_DOWN, wire, call, count_left).await
    }

    /// Returns a guard that counts down by one when it is dropped. Does no I/O.
    ///
    /// # Errors
    ///
    /// [`BadInput`](ErrorKind::BadInput) for a name that cannot be one.
    pub fn count_down_guard(&self) -> Result<CountDownGuard, Error> {
        let wire = self.wire()?;
        let id = self.engine.operation();
        let call = wire.count_down(&id);
        Ok(CountDownGuard {
            once: OnceCall::new(&self.engine, wire.name(), call, id.noted),
            name: wire.name().clone(),
        })
    }

    /// Waits until the latch is at zero, as long as it takes, also through outages of Redis.
    ///
    /// Returns at once where there is none. A latch that gets a new count before this has seen the
    /// zero is waited for again, as with Redisson.
    ///
    /// # Round trips
    ///
    /// See [above](Self#round-trips).
    ///
    /// # Cancel safety
    ///
    /// Nothing is left but a subscription, for its short linger.
    ///
    /// # Errors
    ///
    /// [`LatchDeleted`](ErrorKind::LatchDeleted) and [`LatchExpired`](ErrorKind::LatchExpired) where
    /// the latch was not counted down: known for ten minutes after it, unless there is a new one.
    /// One that a client of Redisson's deleted counts as counted down. See also
    /// [above](Self#errors).
    pub async fn wait(&self) -> Result<(), Error> {
        self.wait_with(None).await
    }

    /// As [`wait`](Self::wait), for at most `timeout`, which bounds everything: connecting,
    /// subscribing and looking. Zero looks once, and has the response time-out for the answer.
    ///
    /// # Cancel safety
    ///
    /// As [`wait`](Self::wait).
    ///
    /// # Errors
    ///
    /// [`TimedOut`](ErrorKind::TimedOut) where it was closed all the time,
    /// [`Unavailable`](ErrorKind::Unavailable) where Redis did not answer; and those of
    /// [`wait`](Self::wait).
    pub async fn wait_with(&self, timeout: impl Into<Option<Duration>>) -> Result<(), Error> {
        let wire = self.wire()?;
        let kind = match engine::wait_latch(&self.engine, wire, timeout.into()).await? {
            Ended::Open => return Ok(()),
            Ended::Deleted => ErrorKind::LatchDeleted,
            Ended::Expired => ErrorKind::LatchExpired,
        };
        Err(Error::new(kind, engine::WAIT_LATCH).named(wire.name().as_arc()))
    }

    /// Returns the count; zero where there is no latch.
    ///
    /// # Round trips
    ///
    /// One.
    ///
    /// # Cancel safety
    ///
    /// It changes nothing.
    ///
    /// # Errors
    ///
    /// See [above](Self#errors).
    pub async fn count(&self) -> Result<u64, Error> {
        let wire = self.wire()?;
        let reply = self.engine.ask(COUNT, wire.name(), wire.check()).await?;
        let look = Look::try_from(reply);
        match look.map_err(|malformed| misread(COUNT, wire.name(), malformed))? {
            Look::Closed(count, _) => Ok(count),
            Look::Ended(_) => Ok(0),
        }
    }

    /// Deletes the latch; answers whether there was one. Those that wait get
    /// [`LatchDeleted`](ErrorKind::LatchDeleted); threads of Redisson's wait on.
    ///
    /// # Round trips
    ///
    /// One.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it may or may not take effect.
    ///
    /// # Errors
    ///
    /// See [above](Self#errors).
    pub async fn delete(&self) -> Result<bool, Error> {
        let wire = self.wire()?;
        let call = wire.delete(&self.engine.operation());
        self.send(DELETE, wire, call, was_done).await
    }

    fn wire(&self) -> Result<&LatchWire, Error> {
        Ok(self.wire.as_ref().map_err(|bad| bad.clone())?)
    }

    async fn send<T>(
        &self,
        action: &'static str,
        wire: &LatchWire,
        call: Call,
        read: impl FnOnce(Reply) -> Result<T, Malformed>,
    ) -> Result<T, Error> {
        let sent = self.engine.send(action, wire.name(), call, Repeat::Always);
        read(sent.await?).map_err(|malformed| misread(action, wire.name(), malformed))
    }
}

fn misread(action: &'static str, name: &LockName, malformed: Malformed) -> Error {
    Error::new(ErrorKind::Protocol, action)
        .named(name.as_arc())
        .caused_by(Arc::new(malformed))
}

/// Counts a [`CountDownLatch`] down by one, once: when [`count_down`](Self::count_down) is called,
/// or in the background when this is dropped.
///
/// The background tries until Redis has answered, also through outages; but where a try may have
/// been carried out and its answer was lost, for no more than two minutes after it, since only for
/// so long Redis knows a repeat from another count. After the client was shut down nothing is counted
/// any more. A process that ends with `main` waits for nothing: shut its client down before, or
/// the count may be missing for ever; see [the end of a program](crate#the-end-of-a-program).
#[derive(Debug)]
#[must_use = "dropping the guard counts down"]
#[clippy::has_significant_drop]
pub struct CountDownGuard {
    once: OnceCall,
    name: LockName,
}

impl CountDownGuard {
    /// Counts down, and answers the count that is left.
    ///
    /// # Round trips
    ///
    /// One.
    ///
    /// # Cancel safety
    ///
    /// It goes on in the background, as after an error that time ran out.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](ErrorKind::Unavailable) where Redis cannot be reached, and
    /// [`OutcomeUnknown`](ErrorKind::OutcomeUnknown) where it does not answer, for the connect
    /// time-out and two response time-outs; it then goes on in the background, so that there is
    /// nothing to try again. See also [`CountDownLatch`](CountDownLatch#errors).
    pub async fn count_down(self) -> Result<u64, Error> {
        let Self { once, name } = self;
        let reply = once.run(COUNT_DOWN).await?;
        count_left(reply).map_err(|malformed| misread(COUNT_DOWN, &name, malformed))
    }
}
