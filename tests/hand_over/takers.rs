//! Those who take turns with one lock: tasks of our clients, and threads of one like Redisson's.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use redis::aio::MultiplexedConnection;
use redlock_rt::{Kind, Lock, LockOptions, embedded::Engine};
use tests::{
    RedissonClient, RedissonFencedLock, RedissonModeLock, RedissonRLock, RedissonUnlock, Wires,
    connection_over,
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use crate::stage::MS;

/// The name of the lock.
pub(crate) const NAME: &str = "shared";
/// `lockWatchdogTimeout`: longer than a turn, so nobody has to renew.
const WATCHDOG: Duration = Duration::from_secs(30);

/// Someone who takes turns.
pub(crate) trait Taker: Send + 'static {
    /// Takes the lock, has it for a millisecond, and releases it. Returns when it had it.
    fn turn(&self) -> impl Future<Output = Instant> + Send;
}

/// A task of one of our clients.
pub(crate) struct Ours<K: Kind> {
    pub(crate) lock: Lock<K>,
    pub(crate) options: LockOptions,
    pub(crate) outside: Outside,
}

impl<K: Kind> Taker for Ours<K> {
    async fn turn(&self) -> Instant {
        let guard = self.lock.lock_with(self.options.clone()).await.unwrap();
        let had = Instant::now();
        self.outside.sees_a_turn_of(guard.hold_id().as_str()).await;
        guard.unlock().await.unwrap();
        had
    }
}

/// A thread of a client like Redisson's, which waits in Redisson's way.
pub(crate) struct Theirs {
    pub(crate) lock: Object,
    pub(crate) thread: u64,
    pub(crate) outside: Outside,
}

/// What it takes. A lock that is not renewed has a lease.
#[derive(Clone)]
pub(crate) enum Object {
    Lock(RedissonRLock, Option<Duration>),
    Fenced(RedissonFencedLock),
    Write(RedissonModeLock),
}

impl Object {
    /// The sight of it at this engine.
    pub(crate) async fn outside(&self, engine: &Engine) -> Outside {
        Outside {
            connection: connection_over(engine.connect()).await.unwrap(),
            writes: matches!(self, Self::Write(_)),
        }
    }

    /// Waits without limit.
    async fn lock(&self, thread: u64) {
        let taken = match self {
            Self::Lock(lock, lease) => lock.lock_for(thread, None, *lease).await,
            Self::Write(lock) => lock.lock_for(thread, None, None).await,
            Self::Fenced(lock) => {
                let token = lock.lock_and_get_token(thread, None).await;
                token.map(|token| token.is_some())
            }
        };
        assert!(taken.unwrap());
    }

    async fn unlock(&self, thread: u64) {
        let unlocked = match self {
            Self::Lock(lock, _) => lock.unlock(thread).await,
            Self::Fenced(lock) => lock.unlock(thread).await,
            Self::Write(lock) => lock.unlock(thread).await,
        };
        assert_eq!(unlocked.unwrap(), RedissonUnlock::Freed);
    }

    fn owner(&self, thread: u64) -> String {
        match self {
            Self::Lock(lock, _) => lock.owner(thread),
            Self::Fenced(lock) => lock.as_rlock().owner(thread),
            Self::Write(lock) => lock.field(thread).trim_end_matches(WRITES).to_owned(),
        }
    }
}

impl Taker for Theirs {
    async fn turn(&self) -> Instant {
        self.lock.lock(self.thread).await;
        let had = Instant::now();
        let owner = self.lock.owner(self.thread);
        self.outside.sees_a_turn_of(&owner).await;
        self.lock.unlock(self.thread).await;
        had
    }
}

/// A client like Redisson's.
pub(crate) async fn redisson(wires: &Wires) -> RedissonClient {
    let client = RedissonClient::connect_from(wires.surroundings(), WATCHDOG).await;
    client.unwrap()
}

/// The end of the field of a writer.
const WRITES: &str = ":write";

/// Looks at the lock as any program may.
#[derive(Clone)]
pub(crate) struct Outside {
    connection: MultiplexedConnection,
    writes: bool,
}

impl Outside {
    /// For a millisecond.
    async fn sees_a_turn_of(&self, owner: &str) {
        self.shows(owner).await;
        sleep(MS).await;
        self.shows(owner).await;
    }

    /// The lock is what Redisson makes of it: with this owner and no other, who holds it once, for a
    /// time.
    async fn shows(&self, owner: &str) {
        let mut connection = self.connection.clone();
        let asks = redis::pipe().hgetall(NAME).pttl(NAME).to_owned();
        let seen = asks.query_async(&mut connection).await;
        let (fields, ttl): (BTreeMap<String, String>, i64) = seen.unwrap();
        let field = |name: String, value: &str| (name, value.to_owned());
        let expected = match self.writes {
            true => vec![
                field(format!("{owner}{WRITES}"), "1"),
                field("mode".into(), "write"),
            ],
            false => vec![field(owner.to_owned(), "1")],
        };
        assert_eq!(fields, expected.into_iter().collect());
        assert!(ttl > 0, "{ttl}");
    }
}

/// What a side had.
#[derive(Default, Clone)]
pub(crate) struct Share {
    pub(crate) turns: usize,
    /// The longest wait of one of its takers.
    pub(crate) longest: Duration,
}

impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} turns, {:?} at most", self.turns, self.longest)
    }
}

/// A lock that is taken whenever it is free, until there were so many turns.
pub(crate) struct Saturated {
    turns: usize,
    taken: Arc<AtomicUsize>,
    takers: JoinSet<(usize, Share)>,
}

impl Saturated {
    pub(crate) fn for_turns(turns: usize) -> Self {
        Self {
            turns,
            taken: Arc::default(),
            takers: JoinSet::new(),
        }
    }

    /// These take turns too, for this side.
    pub(crate) fn join<T: Taker>(&mut self, side: usize, takers: impl IntoIterator<Item = T>) {
        for taker in takers {
            let (taken, turns) = (Arc::clone(&self.taken), self.turns);
            self.takers.spawn(async move {
                let mut own = Share::default();
                while taken.fetch_add(1, Ordering::Relaxed) < turns {
                    let asked = Instant::now();
                    let waited = taker.turn().await - asked;
                    own.turns += 1;
                    own.longest = own.longest.max(waited);
                }
                (side, own)
            });
        }
    }

    /// What each of the sides had.
    pub(crate) async fn shares<const SIDES: usize>(self) -> [Share; SIDES] {
        let mut shares = [(); SIDES].map(|()| Share::default());
        for (side, own) in self.takers.join_all().await {
            shares[side].turns += own.turns;
            shares[side].longest = shares[side].longest.max(own.longest);
        }
        shares
    }
}
