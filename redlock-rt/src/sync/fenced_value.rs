//! A value in Redis that compares fencing tokens by itself.

use std::sync::Arc;
use std::time::Duration;

use crate::connection::Fault;
use crate::engine::{Engine, Handle, Repeat};
use crate::error::{Error, ErrorKind};
use crate::name::{BadName, LockName};
use crate::wire::{
    Call, Fenced, FencedValueWire, LONGEST_SPAN, Malformed, Reply, was_run, was_set,
};

const SET: &str = "set fenced value";
const EXEC: &str = "run a script on fenced value";

/// A value in Redis that refuses writes with older fencing tokens than one that was seen before.
///
/// The value is that of its key, as every other program sees it; the last token stands beside it,
/// in `redlock_fence:{KEY}`. Comparing and writing are one script, so no write of an older hold
/// comes between. Writes that go past this (a plain SET) are not held back. It takes no lock: the
/// token comes from a [`FencedLockGuard`](crate::FencedLockGuard), and all that write the key take
/// theirs from the lock of one name.
///
/// The value must be in the Redis that guards it, or in one whose data is as safe: a fail-over that
/// loses the last token seen lets an older one pass.
///
/// Not for reading: GET the key with any client. In a cluster the two keys are in one slot.
///
/// # Cancel safety
///
/// A write that is dropped may or may not take effect, also a little later.
///
/// # Errors
///
/// [`StaleToken`](ErrorKind::StaleToken) where a newer token was seen: nothing was written, the
/// caller's lock is lost. [`Unavailable`](ErrorKind::Unavailable) where nothing was sent or Redis
/// refused it, [`OutcomeUnknown`](ErrorKind::OutcomeUnknown) where it may have been written;
/// [`BadInput`](ErrorKind::BadInput) for a key that cannot be one,
/// [`WrongType`](ErrorKind::WrongType), [`Denied`](ErrorKind::Denied),
/// [`ShutDown`](ErrorKind::ShutDown).
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), redlock_rt::Error> {
/// use redlock_rt::{Client, ErrorKind, Reply};
///
/// let client = Client::embedded();
/// let lock = client.fenced_lock("stock:7");
/// let stock = client.fenced_value("stock:7:left");
///
/// let late = lock.lock().await?;
/// stock.set("10", late.token()).await?;
/// # lock.force_unlock().await?;
/// // It is paused for longer than its lease, and another has the lock:
/// let guard = lock.lock().await?;
/// let sell = "return redis.call('DECRBY', KEYS[1], ARGV[1])";
/// let left = stock.exec(sell, &["3"], guard.token()).await?;
/// assert_eq!(left, Reply::Int(7));
///
/// let refused = stock.set("9", late.token()).await.unwrap_err();
/// assert_eq!(refused.kind(), ErrorKind::StaleToken);
/// # guard.unlock().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct FencedValue {
    engine: Handle,
    wire: Result<FencedValueWire, BadName>,
    fence_ttl: Option<Duration>,
}

impl FencedValue {
    pub(crate) fn open(engine: &Arc<Engine>, key: &str) -> Self {
        Self {
            engine: Handle::new(engine),
            wire: LockName::new(None, key).map(FencedValueWire::new),
            fence_ttl: None,
        }
    }

    /// Sets for how long after a write the token is remembered. Defaults to `None`: for good, which
    /// is one small key for each value.
    ///
    /// Once it is forgotten, every token passes: it must be longer than any holder may be paused.
    #[must_use]
    pub fn fence_ttl(mut self, ttl: impl Into<Option<Duration>>) -> Self {
        self.fence_ttl = ttl.into();
        self
    }

    /// Sets the value, as SET does: whatever was there is replaced, its TTL included.
    ///
    /// # Round trips
    ///
    /// One.
    ///
    /// # Errors
    ///
    /// See [above](Self#errors). After a lost reply it is repeated.
    pub async fn set(&self, value: impl AsRef<str>, token: u64) -> Result<(), Error> {
        let wire = self.wire(SET)?;
        let call = wire.set(value.as_ref(), token, self.fence_ttl);
        let read = was_set;
        self.write(SET, wire, call, Repeat::Always, read, token)
            .await
            .map(|_| ())
    }

    /// Runs a Lua script on the value, and answers what it returns.
    ///
    /// The script sees the key as `KEYS[1]` and `args` as `ARGV`, and runs as a whole or not at
    /// all (but for what it did before an error of its own). It is sent with every call. On the
    /// embedded engine it has the commands that the documentation of `Engine` lists.
    ///
    /// # Round trips
    ///
    /// One.
    ///
    /// # Errors
    ///
    /// See [above](Self#errors). It is repeated only where it surely did not run: not after a lost
    /// reply, and not after an error of the script, whatever its code or text.
    /// [`Protocol`](ErrorKind::Protocol) for an error of the script (also where a command in it was
    /// refused with BUSY, OOM and the like), [`WrongType`](ErrorKind::WrongType) and
    /// [`Denied`](ErrorKind::Denied) where that is what it says; where the script could be read, its
    /// token was seen.
    pub async fn exec(&self, script: &str, args: &[&str], token: u64) -> Result<Reply, Error> {
        let wire = self.wire(EXEC)?;
        let call = wire.exec(script, args, token, self.fence_ttl);
        self.write(EXEC, wire, call, Repeat::UnlessRun, was_run, token)
            .await
    }

    fn wire(&self, action: &'static str) -> Result<&FencedValueWire, Error> {
        let wire = self.wire.as_ref().map_err(|bad| bad.clone())?;
        let flaw = match self.fence_ttl {
            Some(ttl) if ttl < Duration::from_millis(1) => {
                "fence_ttl is shorter than a millisecond"
            }
            Some(ttl) if ttl > LONGEST_SPAN => "fence_ttl is longer than redis can keep",
            _ => return Ok(wire),
        };
        Err(Error::bad_input(action, flaw).named(wire.key().as_arc()))
    }

    async fn write(
        &self,
        action: &'static str,
        wire: &FencedValueWire,
        call: Call,
        repeat: Repeat,
        read: fn(Reply) -> Result<Fenced, Malformed>,
        token: u64,
    ) -> Result<Reply, Error> {
        let reply = self.engine.send(action, wire.key(), call, repeat).await?;
        let named = |error: Error| error.named(wire.key().as_arc());
        match read(reply) {
            Ok(Fenced::Done(reply)) => Ok(reply),
            Ok(Fenced::Stale(last)) => Err(named(
                Error::new(ErrorKind::StaleToken, action)
                    .detail(format!("token {token} is older than {last}")),
            )),
            Ok(Fenced::Raised(error)) => Err(named(Fault::raised(error).into_error(action))),
            Err(malformed) => Err(named(
                Error::new(ErrorKind::Protocol, action).caused_by(Arc::new(malformed)),
            )),
        }
    }
}
