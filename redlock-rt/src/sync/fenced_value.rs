//! A value in Redis with a check of fencing tokens.

use std::sync::Arc;
use std::time::Duration;

use crate::connection::Fault;
use crate::engine::{ClientEngine, Handle, Repeat};
use crate::error::{Error, ErrorKind};
use crate::name::{BadName, LockName};
use crate::wire::{FencedWrite, LONGEST_SPAN, Named, Reply, exec_fenced, was_run};

const SET: &str = "set fenced value";
const GET: &str = "read fenced value";
const EXEC: &str = "run a script on fenced value";

/// A value in Redis that refuses writes with a fencing token older than one seen before.
///
/// The value is the plain value of its key, as every other program sees it. The last token is in a second key,
/// `redlock_fence:{KEY}`. One script compares and writes, so no write of an older hold can come in between. Other
/// writes (a plain SET) are not checked. This type takes no lock: the token comes from a
/// [`FencedLockGuard`](crate::FencedLockGuard), and all writers of the key must use tokens of the same lock name.
///
/// The value must be in the Redis of the lock, or in one whose data is as safe: after a failover that loses the last
/// token, an older token passes.
///
/// To look at the value, GET the key with any client. If a holder writes data that depends on the value, it must read
/// with [`get`](Self::get). After a plain GET, an older holder may still write before the newer one does, and that
/// write would be lost. In a cluster the two keys are in one slot.
///
/// # Cancel safety
///
/// A dropped write may or may not take effect, possibly a little later.
///
/// # Errors
///
/// [`StaleToken`](ErrorKind::StaleToken) if a newer token was seen: nothing was written, and the
/// caller's lock is lost. [`Unavailable`](ErrorKind::Unavailable) if nothing was sent or Redis
/// refused the call, [`OutcomeUnknown`](ErrorKind::OutcomeUnknown) if the value may have been
/// written; [`BadInput`](ErrorKind::BadInput) for an invalid key,
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
/// // The holder is paused for longer than its lease, and another holder takes the lock:
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
    key: Result<LockName, BadName>,
    fence_ttl: Option<Duration>,
}

impl FencedValue {
    pub(crate) fn handle(engine: &Arc<ClientEngine>, key: &str) -> Self {
        Self {
            engine: Handle::new(engine),
            key: engine.key(Named::FencedValue, key),
            fence_ttl: None,
        }
    }

    /// Sets how long Redis keeps the token after a write. Defaults to `None`: for ever, which is
    /// one small key per value.
    ///
    /// After that time every token passes, so it must be longer than any pause of a holder.
    #[must_use]
    pub fn fence_ttl(mut self, ttl: impl Into<Option<Duration>>) -> Self {
        self.fence_ttl = ttl.into();
        self
    }

    /// Sets the value, as SET does: it replaces the old value and its TTL.
    ///
    /// # Round trips
    ///
    /// One.
    ///
    /// # Errors
    ///
    /// See [above](Self#errors). The command is repeated after a lost reply.
    pub async fn set(&self, value: impl AsRef<str>, token: u64) -> Result<(), Error> {
        let (script, args) = ("redis.call('SET', KEYS[1], ARGV[1])", [value.as_ref()]);
        let set = self.write(SET, script, &args, Repeat::Always, token);
        set.await.map(drop)
    }

    /// Reads the value; `None` if there is none. From then on writes with older tokens are refused, so the value does
    /// not change until this holder, or a newer one, writes.
    ///
    /// # Round trips
    ///
    /// One.
    ///
    /// # Errors
    ///
    /// See [above](Self#errors); [`WrongType`](ErrorKind::WrongType) for a value of another type, and
    /// [`Protocol`](ErrorKind::Protocol) for bytes that are no UTF-8.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redlock_rt::Error> {
    /// let client = redlock_rt::Client::embedded();
    /// let guard = client.fenced_lock("visits").lock().await?;
    /// let visits = client.fenced_value("visits:count");
    ///
    /// let count: u64 = visits.get(guard.token()).await?.map_or(0, |count| count.parse().unwrap_or(0));
    /// visits.set((count + 1).to_string(), guard.token()).await?;
    /// # guard.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn get(&self, token: u64) -> Result<Option<String>, Error> {
        let script = "return redis.call('GET', KEYS[1])";
        let read = self.write(GET, script, &[], Repeat::Always, token);
        Ok(match read.await? {
            Reply::Text(value) => Some(value),
            _ => None,
        })
    }

    /// Runs a Lua script on the value, and returns its result.
    ///
    /// The script gets the key as `KEYS[1]` and `args` as `ARGV`, and runs as a whole or not at all (except that the
    /// effects before an error of the script stay). The script is sent with every call. A result of more than 16 MiB or
    /// 262 144 items, or with more than 32 nested tables, counts as an invalid reply. On the embedded engine the script
    /// can use the commands in the documentation of `Engine`.
    ///
    /// # Round trips
    ///
    /// One.
    ///
    /// # Errors
    ///
    /// See [above](Self#errors). The call is repeated only if the script certainly did not run: not
    /// after a lost reply, and not after an error of the script, whatever its code or text. An
    /// error of the script is [`Protocol`](ErrorKind::Protocol) (also if a command in it was
    /// refused with BUSY, OOM and the like), or [`WrongType`](ErrorKind::WrongType) or
    /// [`Denied`](ErrorKind::Denied) if that is its code. If the script compiles, its token counts
    /// as seen.
    pub async fn exec(&self, script: &str, args: &[&str], token: u64) -> Result<Reply, Error> {
        self.write(EXEC, script, args, Repeat::UnlessRun, token)
            .await
    }

    fn key(&self, action: &'static str) -> Result<&LockName, Error> {
        let key = self.key.as_ref().map_err(|bad| bad.clone())?;
        let flaw = match self.fence_ttl {
            Some(ttl) if ttl < Duration::from_millis(1) => {
                "fence_ttl is shorter than a millisecond"
            }
            Some(ttl) if ttl > LONGEST_SPAN => "fence_ttl is longer than redis can keep",
            _ => return Ok(key),
        };
        Err(Error::bad_input(action, flaw).named(key.as_arc()))
    }

    async fn write(
        &self,
        action: &'static str,
        script: &str,
        args: &[&str],
        repeat: Repeat,
        token: u64,
    ) -> Result<Reply, Error> {
        let key = self.key(action)?;
        let call = exec_fenced(key, script, args, token, self.fence_ttl);
        let sent = self.engine.send(action, key, call, repeat, was_run);
        let written = sent.await?;
        let named = |error: Error| error.named(key.as_arc());
        match written {
            FencedWrite::Done(reply) => Ok(reply),
            FencedWrite::Stale(last) => Err(named(
                Error::new(ErrorKind::StaleToken, action)
                    .detail(format!("token {token} is older than {last}")),
            )),
            FencedWrite::Raised(error) => Err(named(Fault::raised(error).into_error(action))),
        }
    }
}
