//! A command or its reply is lost: the state in Redis is that of the guards.

use std::time::Duration;

use futures::future::join_all;
use redlock_rt::{Client, LockOptions, ReadWriteLock, Unlocked};
use tests::{Loss, Matcher, Proxy, calls, shared_server, within};

use crate::{DEADLINE, LATE, Stage, writer};

/// Short, since each lost reply costs half of it; and far longer than a reply takes.
const RESPONSE: Duration = Duration::from_millis(2400);

struct Faulty {
    stage: Stage,
    proxy: Proxy,
    client: Client,
    lock: ReadWriteLock,
}

impl Faulty {
    async fn set(what: &str) -> Self {
        let stage = Stage::set(what).await;
        let proxy = Proxy::to(&shared_server());
        let client = stage.client_with(|builder| {
            builder
                .url(&proxy.url())
                .response_timeout(RESPONSE)
                .connect_timeout(2 * RESPONSE)
        });
        let lock = stage.lock_of(&client);
        // Loads the scripts, so that each call is one frame.
        let reading = lock.read().await.unwrap();
        drop(reading.reenter().await.unwrap());
        let writing = reading.try_upgrade().await.unwrap();
        writing.downgrade().await.unwrap().unlock().await.unwrap();
        Self {
            stage,
            proxy,
            client,
            lock,
        }
    }

    fn lose(&self, loss: Loss, calls: Matcher) {
        let calls = calls.mentioning(&self.stage.name);
        self.proxy.lose(loss, calls, 1);
    }

    /// The mode, the hold counts, and the number of keys with leases.
    async fn shape(&self) -> (Option<String>, Vec<String>, usize) {
        let mut hash = self.stage.hash().await;
        let lock = usize::from(!hash.is_empty());
        let keys = self.stage.keys().await.len() - lock;
        (hash.remove("mode"), hash.into_values().collect(), keys)
    }

    async fn end(self) {
        assert!(self.stage.keys().await.is_empty());
        drop((self.lock, self.client, self.proxy));
        self.stage.end().await;
    }
}

fn mode(mode: &str, counts: &[u32], keys: usize) -> (Option<String>, Vec<String>, usize) {
    let counts = counts.iter().map(ToString::to_string);
    (Some(mode.to_owned()), counts.collect(), keys)
}

#[tokio::test]
async fn of_a_reader() {
    for loss in Loss::ALL {
        let faulty = Faulty::set("reader").await;
        faulty.lose(loss, calls("rw_read_acquire"));
        let guard = within(DEADLINE, faulty.lock.read()).await.unwrap();
        assert_eq!(faulty.shape().await, mode("read", &[1], 1), "{loss:?}");
        faulty.lose(loss, calls("rw_read_update"));
        let inner = within(DEADLINE, guard.reenter()).await.unwrap();
        assert_eq!(faulty.shape().await, mode("read", &[2], 2), "{loss:?}");
        faulty.lose(loss, calls("rw_read_update"));
        let unlocked = within(DEADLINE, inner.unlock()).await.unwrap();
        assert_eq!(unlocked, Unlocked::StillHeld, "{loss:?}");
        assert_eq!(faulty.shape().await, mode("read", &[1], 1), "{loss:?}");
        let other = faulty.stage.lock();
        let writer = tokio::spawn(async move { other.write().await.unwrap().unlock().await });
        faulty.stage.subscribed(1).await;
        faulty.lose(loss, calls("rw_read_release"));
        let unlocked = within(DEADLINE, guard.unlock()).await.unwrap();
        assert_eq!(unlocked, Unlocked::Released, "{loss:?}");
        within(DEADLINE, writer).await.unwrap().unwrap();
        faulty.end().await;
    }
}

#[tokio::test]
async fn of_a_writer() {
    for loss in Loss::ALL {
        let faulty = Faulty::set("writer").await;
        faulty.lose(loss, calls("rw_write_acquire"));
        let guard = within(DEADLINE, faulty.lock.write()).await.unwrap();
        assert_eq!(faulty.shape().await, mode("write", &[1], 0), "{loss:?}");
        faulty.lose(loss, calls("rw_read_acquire"));
        let joined = guard.run(faulty.lock.read());
        let joined = within(DEADLINE, joined).await.unwrap().unwrap();
        assert_eq!(faulty.shape().await, mode("write", &[1, 1], 1), "{loss:?}");
        faulty.lose(loss, calls("rw_read_release"));
        let unlocked = within(DEADLINE, joined.unlock()).await.unwrap();
        assert_eq!(unlocked, Unlocked::Released, "{loss:?}");
        assert_eq!(faulty.shape().await, mode("write", &[1], 0), "{loss:?}");
        let other = faulty.stage.lock();
        let reader = tokio::spawn(async move { other.read().await.unwrap().unlock().await });
        faulty.stage.subscribed(1).await;
        faulty.lose(loss, calls("rw_write_release"));
        let unlocked = within(DEADLINE, guard.unlock()).await.unwrap();
        assert_eq!(unlocked, Unlocked::Released, "{loss:?}");
        within(DEADLINE, reader).await.unwrap().unwrap();
        faulty.end().await;
    }
}

#[tokio::test]
async fn of_a_conversion() {
    for loss in Loss::ALL {
        let faulty = Faulty::set("conversion").await;
        let writing = faulty.lock.write().await.unwrap();
        // Two missing replies take all the time of both calls.
        let both = matches!(loss, Loss::CutAfter | Loss::CutBefore);
        faulty.lose(loss, calls("rw_read_acquire"));
        if both {
            faulty.lose(loss, calls("rw_write_release"));
        }
        let reading = within(DEADLINE, writing.downgrade()).await.unwrap();
        assert!(reading.is_valid());
        assert_eq!(faulty.shape().await, mode("read", &[1], 1), "{loss:?}");
        faulty.lose(loss, calls("rw_write_acquire"));
        if both {
            faulty.lose(loss, calls("rw_read_release"));
        }
        let writing = within(DEADLINE, reading.try_upgrade()).await.unwrap();
        assert!(writing.is_valid());
        assert_eq!(faulty.shape().await, mode("write", &[1], 0), "{loss:?}");
        let unlocked = within(DEADLINE, writing.unlock()).await.unwrap();
        assert_eq!(unlocked, Unlocked::Released, "{loss:?}");
        faulty.end().await;
    }
}

/// A preferred writer whose wait ends with the outcome unknown keeps nobody out.
#[tokio::test]
async fn of_a_preferred_writer_that_gives_up() {
    for loss in Loss::ALL {
        let faulty = Faulty::set("preferred").await;
        let reading = faulty.stage.lock().read().await.unwrap();
        let preferred = faulty.lock.clone().prefer_writers(true);
        faulty.lose(loss, calls("rw_write_acquire"));
        let wait = LockOptions::new().wait(RESPONSE / 2);
        let outcome = within(DEADLINE, preferred.write_with(wait)).await;
        let error = outcome.unwrap_err();
        assert!(error.is_unavailable() || error.is_timed_out(), "{error}");
        let other = faulty.stage.lock();
        let second = within(DEADLINE, other.read()).await.unwrap();
        second.unlock().await.unwrap();
        reading.unlock().await.unwrap();
        tests::eventually(DEADLINE, async || faulty.client.stats().releases == 0).await;
        faulty.end().await;
    }
}

/// A call that sets the TTL keeps the shortest hold. A repeat never lengthens it, and never changes the
/// TTL of the next holder.
#[tokio::test]
async fn of_the_end_of_a_shortest_hold() {
    // One ends before the call is repeated, one after.
    let holds = [RESPONSE / 4, 2 * RESPONSE];
    let cases = Loss::ALL
        .into_iter()
        .flat_map(|loss| holds.map(|min_hold| (loss, min_hold)));
    join_all(cases.map(|(loss, min_hold)| end_of_a_shortest_hold(loss, min_hold))).await;
}

async fn end_of_a_shortest_hold(loss: Loss, min_hold: Duration) {
    let faulty = Faulty::set("min-hold").await;
    let options = LockOptions::new().min_hold(min_hold);
    // The hold begins between the two.
    let earliest = tokio::time::Instant::now() + min_hold;
    let guard = faulty.lock.write_with(options).await.unwrap();
    let until = tokio::time::Instant::now() + min_hold;
    let other = faulty.stage.lock();
    let writer = writer(&other);
    faulty.stage.subscribed(1).await;
    // On a busy machine its time may be over before it is released.
    let (kept, over) = (calls("rw_write_min_hold"), calls("rw_write_release"));
    let ends = Matcher::when(move |frame| kept.matches(frame) || over.matches(frame));
    faulty.lose(loss, ends);
    let unlocked = within(DEADLINE, guard.unlock()).await.unwrap();
    let ended = tokio::time::Instant::now();
    match unlocked {
        Unlocked::Kept { until: kept } => assert!(kept <= until.into_std(), "{loss:?}"),
        // The time was over when the call was repeated.
        Unlocked::Released => {
            assert!(ended + Duration::from_millis(5) > earliest, "{loss:?}");
        }
        other => panic!("{loss:?}: {other:?}"),
    }
    let (next, served) = within(DEADLINE, writer).await.unwrap();
    // If the time was over before the call arrived, the call released the lock.
    let late = served.saturating_duration_since(until.max(ended));
    assert!(late < LATE, "{loss:?} {min_hold:?}: {late:?}");
    assert!(
        served + Duration::from_millis(5) > earliest,
        "{loss:?} {min_hold:?}"
    );
    let ttl = other.write_lock().remaining_ttl().await.unwrap().unwrap();
    assert!(
        ttl > Duration::from_secs(25),
        "{loss:?} {min_hold:?}: {ttl:?}"
    );
    next.unlock().await.unwrap();
    faulty.end().await;
}
