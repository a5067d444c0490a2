//! Several locks as one: all or none.
//!
//! Parts are sorted by name first, because names are the same in all processes, while addresses differ
//! (`localhost` here, a host name there). The server decides the order only between locks of one name.

mod acquire;
mod guard;

use std::cmp::Ordering;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;

use self::acquire::MultiLockCall;
pub use self::guard::MultiLockGuard;
use super::group::Group;
use super::guard::GoesOn;
use super::kind::{AnyKind, Kind};
use super::lock::Lock;
use super::options::{LockOptions, unless_contended};
use crate::clock;
use crate::connection::ServerId;
use crate::engine::{Backoff, ClientEngine, GuardState, Handle, LostReason};
use crate::error::Error;
use crate::name::{BadName, HoldId, LockName};
use crate::wire::{Holder, LockRecipe};

const ACTION: &str = "acquire locks";

/// One lock of a [`MultiLock`], of any kind and client.
#[derive(Debug, Clone)]
pub struct Part(Lock<AnyKind>);

impl<K: Kind> From<&Lock<K>> for Part {
    fn from(lock: &Lock<K>) -> Self {
        Self(lock.as_kind())
    }
}

impl<K: Kind> From<Lock<K>> for Part {
    fn from(lock: Lock<K>) -> Self {
        Self::from(&lock)
    }
}

/// Several locks, of one or several clients, that are held together or not at all.
///
/// Use it if one step changes several things, each with its own lock: two accounts, or all seats of
/// a booking. The locks are taken in one fixed order, by name first, whatever the order of the
/// arguments, and each is taken once. So callers with overlapping sets never deadlock. The guard is
/// lost as soon as any of its locks is lost.
///
/// **When not to use it.** If things always change together, one lock of a common name is simpler
/// and cheaper. A `MultiLock` is not a quorum: each additional server is one more that may be down.
/// For the opposite, see [`Quorum`](crate::Quorum).
///
/// **With Redisson.** `RedissonMultiLock` takes its locks in the order of *its* caller. If such clients share
/// the locks, a client of ours and a client of theirs can deadlock. So limit the wait with
/// [`LockOptions::wait`], or name the locks in ascending order there.
///
/// The order is by name, then by server (host and port of the URL, or
/// [`server_name`](crate::ClientBuilder::server_name)). Only if one name is used on *several*
/// servers, all processes must use the same names for these servers.
///
/// If clients reach one server by several addresses (`localhost` and `127.0.0.1`, a proxy), the
/// acquisition detects that: a lock that is named twice is taken once, by the client whose address
/// comes first.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), redlock_rt::Error> {
/// use redlock_rt::{Client, MultiLock};
///
/// let client = Client::embedded();
/// let transfer = client.multi_lock(["account:7", "account:3"]);
///
/// let guard = transfer.lock().await?;
/// assert!(client.rlock("account:3").try_lock().await?.is_none());
/// guard.unlock().await?;
///
/// // Locks of several clients or kinds.
/// let (here, there) = (client.rlock("stock"), Client::embedded().rlock("ledger"));
/// MultiLock::new([&here, &there]).with(async |_guard| ()).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct MultiLock {
    parts: Result<Arc<[Checked]>, Flaw>,
    /// All names, for errors.
    name: Arc<str>,
}

/// A part whose name is valid.
#[derive(Clone)]
struct Checked {
    engine: Handle,
    recipe: Arc<dyn LockRecipe>,
    backoff: Option<Arc<Backoff>>,
    server: ServerId,
}

/// Why parts cannot be held together. Stored until the first use, since creating a handle cannot fail.
#[derive(Debug, Clone)]
enum Flaw {
    Empty,
    Name(BadName),
    /// Two kinds of lock of one name exclude each other.
    Kinds(LockName),
}

impl From<Flaw> for Error {
    fn from(flaw: Flaw) -> Self {
        match flaw {
            Flaw::Empty => Self::bad_input(ACTION, "there are no locks to acquire"),
            Flaw::Name(bad) => bad.into(),
            Flaw::Kinds(name) => {
                Self::bad_input(ACTION, "two kinds of lock of one name exclude each other")
                    .named(name.as_arc())
            }
        }
    }
}

impl Checked {
    /// This lock on the server of that client.
    fn seen_by(&self, engine: &Arc<ClientEngine>) -> Lock<AnyKind> {
        Lock::of(engine, Ok(Arc::clone(&self.recipe)))
    }

    /// By name first: names are the same in every process, even if server names differ.
    fn order(&self, other: &Self) -> Ordering {
        let name = |part: &Self| part.recipe.name().clone();
        let kind = |part: &Self| part.recipe.profile().kind;
        name(self)
            .cmp(&name(other))
            .then_with(|| self.server.cmp(&other.server))
            .then_with(|| kind(self).cmp(kind(other)))
    }
}

impl MultiLock {
    /// Returns one lock over these locks. Does no I/O.
    ///
    /// The locks may be of different kinds: `MultiLock::new([Part::from(&a), Part::from(&b)])`. A
    /// lock that is named twice is taken once. Every operation returns
    /// [`BadInput`](crate::ErrorKind::BadInput) if there are no locks, a name is invalid, or one
    /// name has two kinds of lock. If one name has two kinds by two addresses of one server,
    /// acquisitions return that error.
    #[must_use]
    pub fn new<P: Into<Part>>(parts: impl IntoIterator<Item = P>) -> Self {
        let parts: Vec<Part> = parts.into_iter().map(Into::into).collect();
        let parts = check(parts);
        let name = match &parts {
            Ok(parts) => parts
                .iter()
                .map(|part| part.recipe.name().as_str())
                .collect::<Vec<_>>()
                .join(","),
            Err(_) => String::new(),
        };
        Self {
            parts: parts.map(Into::into),
            name: name.into(),
        }
    }

    fn parts(&self) -> Result<&Arc<[Checked]>, Error> {
        self.parts.as_ref().map_err(|flaw| flaw.clone().into())
    }

    /// Acquires all locks, and waits without a limit.
    ///
    /// Inside a body that runs under a guard of one of the locks, that lock is re-entered.
    ///
    /// # Round trips
    ///
    /// One, however many locks there are, if all are free [`RLock`](crate::RLock)s of one client that it does
    /// not wait for. In a cluster they must be in one slot. The options must have no owner, `replica_ack`,
    /// `fsync` and `outlast_denial`. Otherwise the round trips of each lock, one lock after the other. A lock
    /// with the same name as an earlier one on another server needs one more, to check whether it is the same
    /// server.
    ///
    /// # Fairness
    ///
    /// Each lock has its own fairness. The call holds earlier locks while it waits for later ones,
    /// so a caller that wants many locks does not starve.
    ///
    /// # Cancel safety
    ///
    /// Nothing is left: acquired locks are released in the background.
    ///
    /// # Errors
    ///
    /// Those of [`Lock::lock`], with the name of the lock; the other locks are released.
    pub async fn lock(&self) -> Result<MultiLockGuard, Error> {
        self.lock_with(LockOptions::new()).await
    }

    /// Acquires all locks if all of them are free at this moment.
    ///
    /// # Round trips
    ///
    /// One where [`lock`](Self::lock) takes one; otherwise one for each lock, one after the other.
    ///
    /// # Cancel safety
    ///
    /// Nothing is left: acquired locks are released in the background.
    ///
    /// # Fairness
    ///
    /// None: the call bypasses waiting callers.
    ///
    /// # Errors
    ///
    /// Those of [`Lock::try_lock`]. Contention is not an error: the call returns `None`.
    pub async fn try_lock(&self) -> Result<Option<MultiLockGuard>, Error> {
        let options = LockOptions::new().wait(Duration::ZERO);
        unless_contended(self.lock_with(options).await)
    }

    /// Acquires all locks as the options say.
    ///
    /// The wait is one limit for all locks together. All leases begin when the last lock is
    /// acquired. Until then the earlier locks are renewed, whatever the options say.
    ///
    /// # Round trips, fairness, cancel safety
    ///
    /// The options change nothing of what [`lock`](Self::lock) says.
    ///
    /// # Errors
    ///
    /// Those of [`Lock::lock_with`], with the name of the lock. The locks that were acquired by
    /// then are released: before this returns if there is time, and otherwise in the background.
    pub async fn lock_with(&self, options: LockOptions) -> Result<MultiLockGuard, Error> {
        let parts = self.parts()?;
        let started = clock::now();
        let mut terms = Vec::with_capacity(parts.len());
        for part in parts.iter() {
            let backoff = part.backoff.as_deref();
            terms.push(options.terms_of(&part.engine, &*part.recipe, backoff)?);
        }
        let asking = MultiLockCall {
            parts,
            terms: &terms,
            options: &options,
            started,
        };
        let mut tries = 0;
        loop {
            let gathered = asking.gather().await;
            // The common call failed for all locks.
            let gathered = gathered.map_err(|error| match error.name() {
                Some(_) => error,
                None => error.named(&self.name),
            })?;
            let group = Group::new(&self.name, gathered.len(), parts.len(), gathered);
            match group.state() {
                state if state.is_valid() => {
                    let holds = group.holds();
                    holds.values().for_each(|hold| options.set_min_hold(hold));
                    return Ok(MultiLockGuard::new(group, parts));
                }
                GuardState::Lost(reason) => {
                    // One lock was lost during the wait for another, so all are released.
                    group.leave();
                    tries += 1;
                    if tries == MOST_TRIES || asking.is_over() {
                        return Err(self.lost_while_waiting(reason));
                    }
                }
                _ => return Err(self.lost_while_waiting(LostReason::ShutDown)),
            }
        }
    }

    /// Acquires all locks, runs `body` under them, and releases them.
    ///
    /// If any lock is lost, the body is dropped; see [`MultiLockGuard::run`].
    ///
    /// # Cancel safety
    ///
    /// The body is dropped first, then the locks are released in the background.
    ///
    /// # Errors
    ///
    /// Those of [`lock`](Self::lock), and [`Lost`](crate::ErrorKind::Lost) or `ShutDown` if the body was
    /// dropped. Neither replaces the result of a completed body, whatever the releases return.
    pub async fn with<T>(&self, body: impl AsyncFnOnce(&MultiLockGuard) -> T) -> Result<T, Error> {
        let guard = self.lock_with(LockOptions::new().for_body()).await?;
        let output = guard.run(body(&guard)).await?;
        static RELEASES: GoesOn = GoesOn::new("the releases go on in the background");
        RELEASES.note(guard.unlock().await);
        Ok(output)
    }

    /// Frees all locks from any holder, and returns whether any was held.
    ///
    /// # Round trips
    ///
    /// One for each lock, concurrently.
    ///
    /// # Errors
    ///
    /// Those of [`Lock::force_unlock`], for the first lock that fails; the others are freed
    /// nevertheless.
    pub async fn force_unlock(&self) -> Result<bool, Error> {
        let freed = self.ask(async |lock| lock.force_unlock().await).await?;
        Ok(freed.into_iter().any(|freed| freed))
    }

    /// Returns whether any of the locks is held.
    ///
    /// # Round trips
    ///
    /// One for each lock, concurrently; the same for the methods below.
    ///
    /// # Errors
    ///
    /// Those of [`Lock::is_locked`].
    pub async fn is_locked(&self) -> Result<bool, Error> {
        Ok(!self.holders().await?.is_empty())
    }

    /// Returns a holder of the first lock that is held; any of them if there are several.
    ///
    /// # Errors
    ///
    /// Those of [`Lock::is_locked`].
    pub async fn holder(&self) -> Result<Option<HoldId>, Error> {
        Ok(self.holders().await?.into_iter().next())
    }

    /// Returns the holders of the locks, in the order of the locks.
    ///
    /// # Errors
    ///
    /// Those of [`Lock::is_locked`].
    pub async fn holders(&self) -> Result<Vec<HoldId>, Error> {
        let holders = self.survey().await?.into_iter().flatten();
        // A lock under two addresses would return its holder twice.
        let mut seen = HashSet::new();
        let owners = holders.map(|holder| holder.owner);
        Ok(owners.filter(|owner| seen.insert(owner.clone())).collect())
    }

    /// Returns the smallest hold count of the locks; zero if any of them is free.
    ///
    /// # Errors
    ///
    /// Those of [`Lock::is_locked`].
    pub async fn hold_count(&self) -> Result<u64, Error> {
        let counts = self.survey().await?.into_iter();
        let counts = counts.map(|holders| {
            let counts = holders.iter().map(|holder| holder.count);
            counts.fold(0, u64::saturating_add)
        });
        Ok(counts.min().unwrap_or(0))
    }

    /// Returns the longest remaining lease of the locks; `None` if they are free, or if a key has
    /// no TTL.
    ///
    /// # Errors
    ///
    /// Those of [`Lock::is_locked`].
    pub async fn remaining_ttl(&self) -> Result<Option<Duration>, Error> {
        let held = self.survey().await?.into_iter();
        let rests = held
            .filter(|holders| !holders.is_empty())
            .map(|holders| holders.into_iter().filter_map(|holder| holder.ttl).max());
        let rests: Option<Vec<_>> = rests.collect();
        Ok(rests.and_then(|rests| rests.into_iter().max()))
    }

    /// The holders of each lock.
    async fn survey(&self) -> Result<Vec<Vec<Holder>>, Error> {
        self.ask(async |lock| lock.inspect().await).await
    }

    /// Inspects all locks concurrently.
    async fn ask<T>(
        &self,
        question: impl AsyncFn(&Lock<AnyKind>) -> Result<T, Error>,
    ) -> Result<Vec<T>, Error> {
        let locks = self.parts()?.iter();
        let locks: Vec<_> = locks.map(|part| part.seen_by(&part.engine)).collect();
        let answers = join_all(locks.iter().map(|lock| question(lock))).await;
        answers.into_iter().collect()
    }

    fn lost_while_waiting(&self, reason: LostReason) -> Error {
        Error::lost(ACTION, reason)
            .named(&self.name)
            .and("one of them, before the last was acquired")
    }

    /// Returns the names of the locks in Redis, with their namespaces, in the order in which they
    /// are taken.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        let parts = self.parts.as_ref().map_or(&[][..], |parts| parts);
        parts
            .iter()
            .map(|part| part.recipe.name().as_str())
            .collect()
    }
}

/// After a part was lost this often before the last was acquired, the error says that the lease is
/// too short.
const MOST_TRIES: usize = 3;

/// Checks, sorts and removes duplicates.
fn check(parts: Vec<Part>) -> Result<Vec<Checked>, Flaw> {
    let checked = parts.into_iter().map(|Part(lock)| {
        Ok(Checked {
            server: lock.engine.server(),
            recipe: lock.wire.map_err(Flaw::Name)?,
            engine: lock.engine,
            backoff: lock.backoff,
        })
    });
    let mut checked = checked.collect::<Result<Vec<_>, Flaw>>()?;
    if checked.is_empty() {
        return Err(Flaw::Empty);
    }
    checked.sort_by(Checked::order);
    checked.dedup_by(|a, b| a.order(b).is_eq());
    for pair in checked.windows(2) {
        let name = pair[0].recipe.name();
        if name == pair[1].recipe.name() && pair[0].server == pair[1].server {
            return Err(Flaw::Kinds(name.clone()));
        }
    }
    Ok(checked)
}

impl fmt::Debug for MultiLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MultiLock")
            .field("names", &self.names())
            .finish_non_exhaustive()
    }
}
