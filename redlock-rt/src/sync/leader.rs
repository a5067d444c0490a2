//! The election of a leader: a fenced lock, of which each hold is a term.

use std::convert::Infallible;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt, TryStreamExt};
use tokio::sync::Notify;

use super::fenced::{FencedLock, FencedLockGuard};
use super::options::LockOptions;
use crate::clock;
use crate::connection::Message;
use crate::engine::{ChannelListener, ClientEngine, LostReason, Subscription, Unlocked};
use crate::error::Error;
use crate::name::HoldId;
use crate::shim::lock_std;
use crate::wire::{ClientIdentity, LockRecipe, ask_leader, identity, present_leader};

/// The first pause of an observer of an election without a leader. Each later pause is twice as long.
const SOON: Duration = Duration::from_millis(10);
const ACTION: &str = "ask for the leader";

/// An election of one leader among all processes, by a [`FencedLock`](crate::FencedLock) of its name.
///
/// Use it where one instance of a service is to do something for as long as it lives: to schedule, to compact, to
/// poll. Each leadership has a *term*, the fencing token: a later term is greater. At most one [`Leadership`]
/// reports that it leads, while clocks run at nearly the same speed and Redis keeps the key. A leader that was
/// paused may not know yet that it was deposed. So let the resource refuse a term that is less than one that it
/// has seen; see docs/fencing.md.
///
/// Use a name for nothing but this election. [`FencedLock::steal`](crate::FencedLock::steal) deposes a leader
/// with a reason.
///
/// # Round trips
///
/// Those of an [`RLock`](crate::RLock), and one more in the background for a client with an
/// [identity](crate::ClientBuilder::identity), which it writes when it wins.
///
/// # Fairness
///
/// As for an [`RLock`](crate::RLock). A leader that [resigns](Leadership::resign) lets others win first.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), redlock_rt::Error> {
/// use redlock_rt::Client;
///
/// let client = Client::embedded();
/// let election = client.leader_election("scheduler");
///
/// let leadership = election.campaign().await?;
/// assert!(leadership.is_leader());
/// let leader = election.leader().await?.expect("somebody leads");
/// assert_eq!(leader.term, leadership.term());
/// leadership.resign().await?;
/// assert!(election.leader().await?.is_none());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct LeaderElection {
    lock: FencedLock,
    options: LockOptions,
    /// The last term that this handle or a clone has resigned, and until when it lets others win.
    resigned: Arc<Mutex<Option<(u64, Instant)>>>,
}

/// The present leader.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// The id of the hold; it begins with the [UUID](crate::Client::uuid) of the client.
    pub hold: HoldId,
    /// The [identity](crate::ClientBuilder::identity) of the client. A leader that has just won may not have
    /// written it yet.
    pub identity: Option<ClientIdentity>,
    /// Its term.
    pub term: u64,
}

/// The guard of a leader. Dropping it ends the term as the drop of a [`LockGuard`](crate::LockGuard) does.
#[must_use = "dropping the guard ends the leadership"]
#[clippy::has_significant_drop]
#[derive(Debug)]
pub struct Leadership {
    guard: FencedLockGuard,
    election: LeaderElection,
}

impl LeaderElection {
    pub(crate) fn handle(engine: &Arc<ClientEngine>, name: &str) -> Self {
        Self {
            lock: FencedLock::leading(engine, name),
            options: LockOptions::new(),
            resigned: Arc::default(),
        }
    }

    /// Sets how long a killed leader remains the leader. Defaults to the client's
    /// [lease](crate::ClientBuilder::lease).
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.options = self.options.lease(lease);
        self
    }

    /// Waits until this caller is the leader.
    ///
    /// After a leader has [resigned](Leadership::resign), the next one wins with one call. After a leader was
    /// killed, the next one wins when the lease is over. A handle that has resigned, and each of its clones,
    /// waits until another has won, but at most for twice the [poll
    /// interval](crate::ClientBuilder::poll_interval). Every other candidate has tried by then.
    ///
    /// # Cancel safety
    ///
    /// Nothing is left; see [`Lock::lock`](crate::Lock::lock).
    ///
    /// # Errors
    ///
    /// Those of [`Lock::lock`](crate::Lock::lock).
    pub async fn campaign(&self) -> Result<Leadership, Error> {
        let resigned = *lock_std(&self.resigned);
        if let Some((term, until)) = resigned.filter(|(_, until)| clock::now() < *until) {
            let _ = clock::before(Some(until), self.terms_after(term).next()).await;
        }
        let guard = self.lock.lock_with(self.options.clone()).await?;
        if self.lock.engine.config.identity.is_some() {
            // The client writes its identity when it renews, and this causes a renewal.
            guard.inner.doubt();
        }
        Ok(Leadership {
            guard,
            election: self.clone(),
        })
    }

    /// Campaigns for ever, and runs `body` for each term that is won.
    ///
    /// A body whose term is lost is dropped at its next await; tasks that it has spawned continue. When it
    /// returns, its term is resigned.
    ///
    /// # Cancel safety
    ///
    /// The body is dropped first, then the leadership.
    ///
    /// # Errors
    ///
    /// Those of [`campaign`](Self::campaign): [`ShutDown`](crate::ErrorKind::ShutDown) at the end of the client.
    /// An outage of Redis is no error: the next campaign begins. So it does if too few replicas have the lock, or
    /// if the lease is over before Redis answers.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn tick(term: u64) {}
    /// # async fn example(client: redlock_rt::Client) -> Result<(), redlock_rt::Error> {
    /// let election = client.leader_election("scheduler");
    /// let never = election.run(async |leadership| {
    ///     loop {
    ///         // The database refuses a term that is not the latest.
    ///         tick(leadership.term()).await;
    ///     }
    /// });
    /// never.await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run(
        &self,
        body: impl AsyncFnOnce(&Leadership) + Clone,
    ) -> Result<Infallible, Error> {
        loop {
            let leadership = match self.campaign().await {
                // Redis takes longer than the lease; no outage lasts for ever.
                Err(error) if error.is_lost() => continue,
                // Later the new master has replicas.
                Err(error) if error.is_not_replicated() || error.is_unavailable() => {
                    let engine = &self.lock.engine;
                    clock::sleep_until(engine.next_poll(clock::now())).await;
                    continue;
                }
                campaigned => campaigned?,
            };
            let body = body.clone()(&leadership);
            let ran = leadership.guard.inner.run("lead", body).await;
            if ran.is_ok() {
                // The release goes on in the background, whatever the reply is.
                let _ = leadership.resign().await;
            }
        }
    }

    /// Returns the present leader; `None` if there is none.
    ///
    /// # Round trips
    ///
    /// Two.
    ///
    /// # Cancel safety
    ///
    /// Safe: the call changes nothing.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](crate::ErrorKind::Unavailable), and those of [`Lock::holder`](crate::Lock::holder). If the
    /// client may not read an identity, that is no error.
    pub async fn leader(&self) -> Result<Option<Leader>, Error> {
        let seen = self.look().await?;
        self.identify(seen).await
    }

    /// Returns the last term, and the hold of its leader if it still leads.
    async fn look(&self) -> Result<(u64, Option<HoldId>), Error> {
        let call = |wire: &dyn LockRecipe| ask_leader(wire.name());
        self.lock.ask(ACTION, call, present_leader).await
    }

    async fn identify(&self, (term, hold): (u64, Option<HoldId>)) -> Result<Option<Leader>, Error> {
        let Some(hold) = hold else {
            return Ok(None);
        };
        let engine = &self.lock.engine;
        let said = async {
            let key = engine.client_key(hold.client())?;
            let said = engine.ask(ACTION, &key, identity(&key), ClientIdentity::decode);
            said.await.ok().flatten()
        };
        let identity = said.await;
        Ok(Some(Leader {
            hold,
            identity,
            term,
        }))
    }

    /// Returns the present leader, and each later one that is found, with increasing terms.
    ///
    /// A resignation is announced, and the next leader looked for at once. The successor of a killed leader is
    /// found within two [poll intervals](crate::ClientBuilder::poll_interval). A short leadership between two
    /// looks is not seen. The stream ends after an error; an outage is no error.
    ///
    /// # Round trips
    ///
    /// One look, of one or two calls, for each announcement and each poll interval; without a leader some more
    /// at first. Nothing is sent while the stream is not polled.
    ///
    /// # Cancel safety
    ///
    /// Nothing is left, but a subscription for its linger time.
    pub fn observe(&self) -> impl Stream<Item = Result<Leader, Error>> + Send + Unpin + use<> {
        let election = self.clone();
        let leaders = self.terms_after(0).try_filter_map(move |seen| {
            let election = election.clone();
            async move { election.identify(seen).await }
        });
        leaders.boxed()
    }

    /// The terms after this one that are seen, some of them only after their end.
    fn terms_after(&self, term: u64) -> BoxStream<'static, Result<(u64, Option<HoldId>), Error>> {
        let observer = Observer {
            election: self.clone(),
            announced: Arc::default(),
            subscription: Subscription::default(),
            seen: term,
        };
        let terms = stream::unfold(Some(observer), |observer| async {
            let mut observer = observer?;
            let next = observer.next().await;
            let observer = next.is_ok().then_some(observer);
            Some((next, observer))
        });
        terms.boxed()
    }
}

impl Leadership {
    /// Returns the term: greater than all before it. Send it with each write, so that the resource can refuse the
    /// writes of a deposed leader.
    #[must_use]
    pub fn term(&self) -> u64 {
        self.guard.token()
    }

    /// Returns whether this is the leader at this moment, by the local clock alone.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.guard.is_valid()
    }

    /// Waits until the leadership is lost, and returns the reason; see
    /// [`LockGuard::lost`](crate::LockGuard::lost).
    ///
    /// # Cancel safety
    ///
    /// Safe: the call changes nothing.
    pub async fn lost(&self) -> LostReason {
        self.guard.lost().await
    }

    /// Ends the term, so that another candidate can win: [`campaign`](LeaderElection::campaign) of this handle waits
    /// for that if others listen. With a [linger](crate::ClientBuilder::linger) of zero it always waits.
    ///
    /// # Round trips
    ///
    /// One.
    ///
    /// # Cancel safety
    ///
    /// The release continues in the background.
    ///
    /// # Errors
    ///
    /// Those of [`LockGuard::unlock`](crate::LockGuard::unlock).
    pub async fn resign(self) -> Result<Unlocked, Error> {
        let Self { guard, election } = self;
        let engine = &election.lock.engine;
        // A waiter without announcements looks at least as often.
        let until = clock::after(clock::now(), engine.config.poll_interval * 2);
        *lock_std(&election.resigned) = Some((guard.token(), until));
        let outcome = guard.unlock().await;
        let channel = election.lock.wire()?.channel();
        let rivals =
            channel.and_then(|channel| engine.hub.rivals(channel, |rivals| rivals.listen()));
        // Without a linger, listeners are not counted.
        if outcome.is_ok() && !rivals.unwrap_or_else(|| engine.config.linger.is_zero()) {
            *lock_std(&election.resigned) = None;
        }
        outcome
    }
}

/// Looks for the next leader.
struct Observer {
    election: LeaderElection,
    /// Woken when something is announced.
    announced: Arc<Notify>,
    subscription: Subscription,
    /// Its term.
    seen: u64,
}

impl Observer {
    async fn next(&mut self) -> Result<(u64, Option<HoldId>), Error> {
        let engine = &self.election.lock.engine;
        let channel = self.election.lock.wire()?.channel();
        let mut pause = SOON;
        loop {
            // Before the look, so that no announcement is missed; the runtime of the tasks may have ended.
            engine.ensure_tasks();
            if let Some(channel) = channel {
                self.subscription
                    .start(&engine.hub, channel, &self.announced);
            }
            let poll = engine.config.poll_interval;
            match self.election.look().await {
                Ok((term, hold)) if term > self.seen => {
                    self.seen = term;
                    return Ok((term, hold));
                }
                Ok((_, Some(_))) => pause = poll,
                Ok((_, None)) => pause = (pause * 2).min(poll),
                Err(error) if error.is_unavailable() => pause = poll,
                Err(error) => return Err(error),
            }
            let until = clock::after(clock::now(), pause);
            if clock::before(Some(until), self.announced.notified())
                .await
                .is_some()
            {
                pause = SOON;
            }
        }
    }
}

impl ChannelListener for Notify {
    fn confirmed(&self) {
        self.notify_one();
    }

    fn heard(&self, _: &Message, _: Option<Duration>) {
        self.notify_one();
    }
}

impl fmt::Debug for LeaderElection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaderElection")
            .field("lock", &self.lock)
            .finish_non_exhaustive()
    }
}
