//! Writers that are preferred to later readers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use redlock_rt::{Client, LockOptions, ReadWriteLock, Shutdown};
use tests::{eventually, shared_server, within};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use crate::{DEADLINE, LATE, Stage, reader, served, waits};

/// Readers that overlap, so that the lock is never free.
struct Stream {
    over: Arc<AtomicBool>,
    reads: Arc<AtomicUsize>,
    readers: JoinSet<()>,
}

impl Stream {
    const READERS: usize = 6;
    const HOLDS: Duration = Duration::from_millis(60);

    async fn start(locks: [ReadWriteLock; 2]) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let reads = Arc::new(AtomicUsize::new(0));
        let mut readers = JoinSet::new();
        for reader in 0..Self::READERS {
            let (lock, over) = (locks[reader % 2].clone(), Arc::clone(&over));
            let reads = Arc::clone(&reads);
            readers.spawn(async move {
                sleep(Self::HOLDS * reader as u32 / Self::READERS as u32).await;
                while !over.load(Ordering::SeqCst) {
                    let guard = lock.read().await.unwrap();
                    reads.fetch_add(1, Ordering::SeqCst);
                    sleep(Self::HOLDS).await;
                    guard.unlock().await.unwrap();
                }
            });
        }
        let stream = Self {
            over,
            reads,
            readers,
        };
        stream.reads_on().await;
        stream
    }

    /// Waits until all readers have had time to read once more.
    async fn reads_on(&self) {
        let enough = self.reads.load(Ordering::SeqCst) + 2 * Self::READERS;
        eventually(DEADLINE, async || {
            self.reads.load(Ordering::SeqCst) >= enough
        })
        .await;
    }

    async fn end(self) {
        self.over.store(true, Ordering::SeqCst);
        within(DEADLINE, self.readers.join_all()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_of_readers_does_not_keep_a_preferred_writer_out() {
    let stage = Stage::set("stream").await;
    let stream = Stream::start([stage.lock(), stage.lock()]).await;

    // Without preference the writer waits in vain; otherwise this test would show nothing. It may get in
    // where all readers are late together.
    let (plain, wait) = (stage.lock(), LockOptions::new().wait(3 * Stream::HOLDS));
    eventually(DEADLINE, async || {
        let writes = plain.write_with(wait.clone()).await;
        writes.is_err_and(|error| error.is_timed_out())
    })
    .await;

    let preferred = stage.lock().prefer_writers(true);
    for _ in 0..3 {
        let start = Instant::now();
        let guard = preferred.write_with(LockOptions::new().wait(DEADLINE));
        let guard = guard.await;
        let waited = start.elapsed();
        assert!(waited < Stream::HOLDS + LATE, "{waited:?}");
        guard.unwrap().unlock().await.unwrap();
        assert!(!stage.keys().await.contains(&stage.writers_key()));
        stream.reads_on().await;
    }
    stream.end().await;
    stage.end().await;
}

/// A writer without preference that waits before it in the same process does not delay it either.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_preferred_writer_does_not_stand_behind_others() {
    let stage = Stage::set("behind").await;
    let stream = Stream::start([stage.lock(), stage.lock()]).await;
    let client = stage.client();
    let lock = stage.lock_of(&client);
    let plain = lock.clone();
    let plain = tokio::spawn(async move { plain.write().await.unwrap().unlock().await });
    waits(&client, 1).await;
    let start = Instant::now();
    let guard = within(DEADLINE, lock.prefer_writers(true).write()).await;
    let waited = start.elapsed();
    assert!(waited < Stream::HOLDS + LATE, "{waited:?}");
    guard.unwrap().unlock().await.unwrap();
    stream.end().await;
    within(DEADLINE, plain).await.unwrap().unwrap();
    stage.end().await;
}

#[tokio::test]
async fn while_a_preferred_writer_waits_only_who_holds_it_reads() {
    let stage = Stage::set("holds").await;
    let (client, other) = (stage.client(), stage.client());
    let (lock, elsewhere) = (stage.lock_of(&client), stage.lock_of(&other));
    let reading = lock.read().await.unwrap();
    let waiter = elsewhere.clone().prefer_writers(true);
    let writer = tokio::spawn(async move { waiter.write().await.unwrap() });
    stage.subscribed(1).await;
    stage.wished().await;
    let ttl = stage.ttl_of(&stage.writers_key()).await.unwrap();
    assert!(ttl > Duration::ZERO);

    // Through any handle and any client.
    for lock in [&lock, &elsewhere, &stage.lock()] {
        assert!(lock.try_read().await.unwrap().is_none());
    }
    let again = reading.reenter().await.unwrap();
    let body = async { lock.try_read().await.unwrap().expect("it reads already") };
    let third = reading.run(body).await.unwrap();
    reading.extend(Duration::from_secs(100)).await.unwrap();

    let behind = lock.clone();
    let behind = tokio::spawn(async move { behind.read().await.unwrap() });
    waits(&client, 1).await;
    drop((again, third));
    reading.unlock().await.unwrap();
    let writing = within(DEADLINE, writer).await.unwrap();
    assert!(!behind.is_finished());
    let keys = stage.keys().await;
    assert!(!keys.contains(&stage.writers_key()), "it waits no more");
    // Readers under the writer itself are admitted.
    let another = elsewhere.clone().prefer_writers(true);
    let another = tokio::spawn(async move { another.write().await.unwrap() });
    waits(&other, 1).await;
    let joined = writing.run(elsewhere.read()).await.unwrap().unwrap();
    joined.unlock().await.unwrap();
    writing.unlock().await.unwrap();
    let (read, written) = (behind, another);
    let read = async { read.await.unwrap().unlock().await.unwrap() };
    let written = async { written.await.unwrap().unlock().await.unwrap() };
    within(DEADLINE, async { tokio::join!(read, written) }).await;
    stage.end().await;
}

/// A writer that gives up, in any way, no longer keeps readers out, and wakes them.
#[tokio::test]
async fn a_preferred_writer_that_gives_up_wakes_the_readers() {
    let stage = Stage::set("gives-up").await;
    let (client, other) = (stage.client(), stage.client());
    let (lock, elsewhere) = (stage.lock_of(&client), stage.lock_of(&other));
    let preferred = elsewhere.prefer_writers(true);
    for cancelled in [false, true] {
        let reading = lock.read().await.unwrap();
        let wait = match cancelled {
            true => None,
            false => Some(Duration::from_secs(3)),
        };
        let waiter = preferred.clone();
        let options = LockOptions::new().wait(wait);
        let writer = tokio::spawn(async move { waiter.write_with(options).await });
        stage.wished().await;
        let behind = reader(&lock);
        waits(&client, 1).await;
        stage.subscribed(2).await;
        assert!(!behind.is_finished());
        let mut gone = Instant::now();
        if cancelled {
            writer.abort();
            assert!(writer.await.unwrap_err().is_cancelled());
        } else {
            assert!(writer.await.unwrap().unwrap_err().is_timed_out());
            gone = Instant::now();
        }
        let second = served(behind, gone).await;
        assert!(!stage.keys().await.contains(&stage.writers_key()));
        reading.unlock().await.unwrap();
        second.unlock().await.unwrap();
        stage.subscribed(0).await;
    }
    stage.end().await;
}

/// A writer whose process dies keeps readers out until its next try would be due, and 3 s.
#[tokio::test]
async fn the_preference_dies_with_its_writer() {
    const POLL: Duration = Duration::from_millis(100);
    let stage = Stage::set("dies").await;
    let lock = stage.lock();
    let reading = lock.read().await.unwrap();
    let dying = Client::builder()
        .url(&shared_server().url())
        .poll_interval(POLL)
        .build()
        .unwrap();
    let waiter = stage.lock_of(&dying).prefer_writers(true);
    let writer = tokio::spawn(async move { waiter.write().await });
    let is_kept_out = async || lock.try_read().await.unwrap().is_none();
    eventually(DEADLINE, is_kept_out).await;
    // The writer repeats its wish, for longer than one wish lasts.
    sleep(4 * Duration::from_secs(1)).await;
    assert!(is_kept_out().await);
    dying.shutdown(Shutdown::Abandon).await.unwrap();
    assert!(writer.await.unwrap().unwrap_err().is_shut_down());
    let start = Instant::now();
    let second = within(DEADLINE, lock.read()).await.unwrap();
    let kept_out = start.elapsed();
    let most = 2 * POLL + Duration::from_secs(3) + LATE;
    assert!(kept_out < most, "{kept_out:?}");
    reading.unlock().await.unwrap();
    second.unlock().await.unwrap();
    let key = stage.writers_key();
    eventually(DEADLINE, async || stage.ttl_of(&key).await.is_none()).await;
    stage.end().await;
}

/// The wish of a dead writer was over, but its entry was still there.
#[tokio::test]
async fn the_last_preferred_writer_that_gives_up_wakes_the_readers_beside_one_that_died() {
    let stage = Stage::set("last-wish").await;
    let (client, other) = (stage.client(), stage.client());
    let (lock, elsewhere) = (stage.lock_of(&client), stage.lock_of(&other));
    let reading = lock.read().await.unwrap();
    let waiter = elsewhere.prefer_writers(true);
    let writer = tokio::spawn(async move { waiter.write().await });
    stage.wished().await;
    let behind = lock.clone();
    let behind = tokio::spawn(async move { behind.read().await.unwrap() });
    waits(&client, 1).await;
    stage.subscribed(2).await;
    let _: i64 = stage
        .redis(&["ZADD", &stage.writers_key(), "1", "dead"])
        .await;
    writer.abort();
    let second = within(DEADLINE, behind).await.unwrap();
    second.unlock().await.unwrap();
    reading.unlock().await.unwrap();
    stage.end().await;
}
