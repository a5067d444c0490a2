//! A lock that this client shares with one like Redisson's; both want it all the time.

use std::time::{Duration, Instant};

use futures::future::join_all;
use redlock_rt::{Kind, Lock};
use tests::{
    RedisServer, RedissonClient, RedissonFencedLock, RedissonModeLock, RedissonRLock,
    RedissonUnlock,
};

use crate::{
    figures::{Scene, Unit},
    pair::Pair,
    rounds::{Effort, Rounds},
    scenes::{calling, client},
    sides::{OURS, Side, Tasks},
};

/// The tasks of this client, and the threads of the other.
const RIVALS: usize = 4;
/// The name of the other client among the sides.
const THEIRS: &str = "like Redisson";
/// How long the lock is held.
const HOLD: Duration = Duration::from_millis(1);

/// A lock that is held for a time.
struct Held<K: Kind>(Lock<K>);

impl<K: Kind> Pair for Held<K> {
    const CALLS: &'static [&'static str] = &[];

    async fn pair(&mut self) -> Instant {
        let guard = self.0.lock().await.expect("it comes free");
        let held = Instant::now();
        tokio::time::sleep(HOLD).await;
        guard.unlock().await.expect("the server answers");
        held
    }
}

/// A lock of a client like Redisson's.
enum Theirs {
    RLock(RedissonRLock),
    Fenced(RedissonFencedLock),
    Write(RedissonModeLock),
}

impl Theirs {
    /// Waits without limit; returns whether it was acquired.
    async fn lock(&self, thread: u64) -> bool {
        let acquired = match self {
            Self::RLock(lock) => lock.lock_for(thread, None, None).await,
            Self::Fenced(lock) => {
                let token = lock.lock_and_get_token(thread, None).await;
                token.map(|token| token.is_some())
            }
            Self::Write(lock) => lock.lock_for(thread, None, None).await,
        };
        acquired.expect("the server answers")
    }

    async fn unlock(&self, thread: u64) -> RedissonUnlock {
        let unlocked = match self {
            Self::RLock(lock) => lock.unlock(thread).await,
            Self::Fenced(lock) => lock.unlock(thread).await,
            Self::Write(lock) => lock.unlock(thread).await,
        };
        unlocked.expect("the server answers")
    }
}

/// A thread of the other client, which holds the lock for as long.
struct Rival(Theirs, u64);

impl Pair for Rival {
    const CALLS: &'static [&'static str] = &[];

    async fn pair(&mut self) -> Instant {
        let Self(lock, thread) = self;
        assert!(lock.lock(*thread).await, "it waits without limit");
        let held = Instant::now();
        tokio::time::sleep(HOLD).await;
        assert_eq!(lock.unlock(*thread).await, RedissonUnlock::Freed);
        held
    }
}

/// Both sides of one lock.
struct Both {
    scene: &'static str,
    sides: [Box<dyn Side>; 2],
}

impl Both {
    fn of<K: Kind>(
        scene: &'static str,
        ours: impl FnOnce(&str) -> Lock<K>,
        theirs: impl Fn(&str) -> Theirs,
    ) -> Self {
        let name = format!("bench:{scene}");
        let tasks = vec![ours(&name); RIVALS].into_iter().map(Held);
        let threads = (0..).take(RIVALS);
        let threads = threads.map(|thread| Rival(theirs(&name), thread));
        Self {
            scene,
            sides: [Tasks::boxed(OURS, tasks), Tasks::boxed(THEIRS, threads)],
        }
    }
}

/// An RLock of a client that hands over inside its process and of one that does not, and other kinds.
pub(crate) async fn shared(server: &RedisServer, effort: Effort) -> Vec<Scene> {
    let (handing, calling) = (client(server).await, calling(server).await);
    let other = RedissonClient::connect(&server.url()).await;
    let other = other.expect("the server answers");
    let rlock = |name: &str| Theirs::RLock(other.rlock(name));
    let fenced = |name: &str| Theirs::Fenced(other.fenced_lock(name));
    let write = |name: &str| Theirs::Write(other.read_write_lock(name).write);
    let mut locks = [
        Both::of("shared", |name| handing.rlock(name), rlock),
        Both::of("shared, a call each", |name| calling.rlock(name), rlock),
        Both::of(
            "shared, FencedLock",
            |name| handing.fenced_lock(name),
            fenced,
        ),
        Both::of(
            "shared, WriteLock",
            |name| handing.read_write_lock(name).write_lock(),
            write,
        ),
    ];
    let mut all = locks.each_ref().map(|both| {
        both.sides
            .each_ref()
            .map(|side| Rounds::new(&**side, effort))
    });
    let span = effort.in_one().slice * 2;
    for round in 0..effort.rounds {
        for place in 0..locks.len() {
            let at = (round + place) % locks.len();
            let works = locks[at].sides.iter_mut().map(|side| side.work(span));
            for (side, work) in all[at].iter_mut().zip(join_all(works).await) {
                side.works[round].add(&work);
            }
        }
    }
    let about = "beside 4 threads of a client like Redisson's, each holds for 1 ms";
    let scenes = locks.iter().zip(&all);
    scenes
        .map(|(both, rounds)| Scene::against_last(both.scene, about, Unit::Shared, rounds))
        .collect()
}
