//! A job and its fires on a server.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use redlock_rt::{Client, Error, Fire, FireGuard, Idempotent, Once};
use tests::{Backend, World, unique, within};
pub(crate) use tests::{DEADLINE, waits as waiting};
use tokio::task::JoinHandle;

/// The nominal time of a fire.
pub(crate) const FIRE_MS: u64 = 1_795_834_800_123;
/// How long marks stay.
pub(crate) const KEEP: Duration = Duration::from_secs(600);

pub(crate) fn fire_time() -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(FIRE_MS)
}

pub(crate) struct Stage {
    world: World,
}

tests::is_a_world!(Stage);

impl Stage {
    pub(crate) async fn open<B: Backend>(what: &str) -> Self {
        let world = World::of(&Arc::new(B::open(1)), 0, &unique(what)).await;
        Self { world }
    }

    pub(crate) fn of(world: World) -> Self {
        Self { world }
    }

    /// The fire, for this client.
    pub(crate) fn once(&self, client: &Client) -> Once {
        client.once(&self.name, fire_time()).keep(KEEP)
    }

    /// The request of this test.
    pub(crate) fn request(&self, client: &Client) -> Idempotent {
        client.idempotent(&self.name).keep(KEEP)
    }

    /// The name of the lock of the fire.
    pub(crate) fn lock(&self) -> String {
        format!("once:{}:{FIRE_MS}", self.name)
    }

    pub(crate) fn mark_key(&self) -> String {
        format!("redlock_once:{{{}}}", self.lock())
    }

    /// What Redis has of the fire.
    pub(crate) async fn mark(&self) -> HashMap<String, String> {
        self.redis(&["HGETALL", &self.mark_key()]).await
    }

    /// How many attempts have begun.
    pub(crate) async fn attempts(&self) -> u32 {
        let mark = self.mark().await;
        mark.get("attempts")
            .map_or(0, |count| count.parse().unwrap())
    }

    pub(crate) async fn is_done(&self) -> bool {
        self.mark().await.contains_key("done")
    }

    /// Asserts that nothing is left but marks and tokens, which expire.
    pub(crate) async fn assert_clean(self) {
        for prefix in ["redlock_once", "redisson_lock_token"] {
            let pattern = format!("{prefix}:*{}*", self.name);
            let left: Vec<String> = self.redis(&["KEYS", &pattern]).await;
            for key in left {
                let ttl: i64 = self.redis(&["PTTL", &key]).await;
                let most = i64::try_from(KEEP.as_millis()).unwrap();
                assert!((1..=most).contains(&ttl), "{key} stays for {ttl} ms");
                let _: bool = self.redis(&["DEL", &key]).await;
            }
        }
        self.world.assert_clean().await;
    }
}

/// Starts in a separate task.
pub(crate) fn start(once: &Once) -> JoinHandle<Result<Fire, Error>> {
    let once = once.clone();
    tokio::spawn(async move { once.start().await })
}

pub(crate) async fn started(starting: JoinHandle<Result<Fire, Error>>) -> Fire {
    within(DEADLINE, starting).await.unwrap().unwrap()
}

/// The guard of a caller that is to run the fire.
#[track_caller]
pub(crate) fn guard(fire: Fire) -> FireGuard {
    match fire {
        Fire::Run(guard) => guard,
        other => panic!("{other:?}"),
    }
}

/// Begins the fire.
pub(crate) async fn run(once: &Once) -> FireGuard {
    guard(within(DEADLINE, once.start()).await.unwrap())
}
