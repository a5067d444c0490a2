//! Random operations of three clients and Redisson, against an oracle in this process.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use fastrand::Rng;
use redlock_rt::{Error, LockOptions, ReadGuard, ReadWriteLock, WriteGuard};
use tests::{RedissonClient, RedissonReadWriteLock, shared_server, within};
use tokio::{
    task::{JoinSet, yield_now},
    time::{Instant, sleep, timeout},
};

use crate::{DEADLINE, Stage};

const TASKS: u64 = 9;
/// Fewer say nothing. A busy machine needs longer for them.
const TURNS: u64 = 100;

fn runs_for() -> Duration {
    match std::env::var_os("REDLOCK_SOAK") {
        Some(_) => Duration::from_secs(60),
        None => Duration::from_secs(3),
    }
}

/// The number of readers, or [`WRITES`](Self::WRITES) while there is a writer.
#[derive(Clone, Default)]
struct Oracle(Arc<AtomicI64>);

impl Oracle {
    const WRITES: i64 = i64::MIN / 2;

    fn reads(&self) {
        let before = self.0.fetch_add(1, Ordering::SeqCst);
        assert!(before >= 0, "reads beside a writer");
    }

    fn reads_no_more(&self) {
        let before = self.0.fetch_sub(1, Ordering::SeqCst);
        assert!(before > 0, "nobody read");
    }

    /// From one of this many readers.
    fn writes(&self, reading: i64) {
        let before = self.0.swap(Self::WRITES, Ordering::SeqCst);
        assert_eq!(before, reading, "writes beside others");
    }

    /// To one of this many readers.
    fn writes_no_more(&self, reading: i64) {
        let before = self.0.swap(reading, Ordering::SeqCst);
        assert_eq!(before, Self::WRITES, "wrote beside others");
    }
}

async fn pause(random: &mut Rng) {
    match random.u64(..4) {
        0 => sleep(Duration::from_millis(random.u64(..4))).await,
        1 => yield_now().await,
        _ => {}
    }
}

struct Task {
    lock: ReadWriteLock,
    oracle: Oracle,
    random: Rng,
    done: Arc<AtomicU64>,
}

impl Task {
    /// Waits without a limit, with a limit, or until the call is cancelled.
    fn patience(&mut self) -> (LockOptions, Duration) {
        let options = LockOptions::new().lease(Duration::from_secs(5));
        match self.random.u64(..3) {
            0 => (options, DEADLINE),
            1 => {
                let wait = Duration::from_millis(self.random.u64(..20));
                (options.wait(wait), DEADLINE)
            }
            _ => (options, Duration::from_micros(self.random.u64(..3000))),
        }
    }

    async fn turn(&mut self) {
        let (options, until) = self.patience();
        if self.random.u64(..3) == 0 {
            let call = timeout(until, self.lock.write_with(options)).await;
            if let Some(guard) = acquired(call, until) {
                self.oracle.writes(0);
                self.write(guard).await;
            }
        } else {
            let call = timeout(until, self.lock.read_with(options)).await;
            if let Some(guard) = acquired(call, until) {
                self.oracle.reads();
                self.read(guard).await;
            }
        }
    }

    async fn write(&mut self, guard: WriteGuard) {
        pause(&mut self.random).await;
        self.done.fetch_add(1, Ordering::SeqCst);
        assert!(guard.is_valid());
        match self.random.u64(..4) {
            0 => {
                self.oracle.writes_no_more(0);
                guard.unlock().await.unwrap();
            }
            1 => {
                self.oracle.writes_no_more(0);
                drop(guard);
            }
            2 => {
                let joined = guard.run(self.lock.read()).await.unwrap().unwrap();
                let inner = guard.reenter().await.unwrap();
                pause(&mut self.random).await;
                guard.unlock().await.unwrap();
                self.oracle.writes_no_more(1);
                inner.unlock().await.unwrap();
                self.end_reading(joined).await;
            }
            _ => {
                self.oracle.writes_no_more(1);
                let reading = guard.downgrade().await.unwrap();
                self.end_reading(reading).await;
            }
        }
    }

    async fn end_reading(&mut self, guard: ReadGuard) {
        pause(&mut self.random).await;
        assert!(guard.is_valid());
        self.oracle.reads_no_more();
        guard.unlock().await.unwrap();
    }

    async fn read(&mut self, guard: ReadGuard) {
        pause(&mut self.random).await;
        self.done.fetch_add(1, Ordering::SeqCst);
        assert!(guard.is_valid());
        match self.random.u64(..4) {
            0 => self.end_reading(guard).await,
            1 => {
                let inner = guard.reenter().await.unwrap();
                drop(guard);
                self.end_reading(inner).await;
            }
            2 => {
                self.oracle.reads_no_more();
                drop(guard);
            }
            _ => match guard.try_upgrade().await {
                Ok(writing) => {
                    self.oracle.writes(1);
                    pause(&mut self.random).await;
                    self.oracle.writes_no_more(0);
                    writing.unlock().await.unwrap();
                }
                Err(refused) => {
                    assert!(refused.error().is_contended(), "{refused}");
                    self.end_reading(refused.into_guard()).await;
                }
            },
        }
    }
}

fn acquired<G>(
    call: Result<Result<G, Error>, tokio::time::error::Elapsed>,
    until: Duration,
) -> Option<G> {
    match call {
        Ok(Ok(guard)) => Some(guard),
        Ok(Err(error)) => {
            // The shortest waits end before a reply comes.
            assert!(error.is_contended() || error.is_unavailable(), "{error}");
            None
        }
        Err(_) => {
            assert!(until < DEADLINE, "it waits for ever");
            None
        }
    }
}

async fn java(lock: &RedissonReadWriteLock, thread: u64, oracle: &Oracle, random: &mut Rng) {
    let wait = Some(Duration::from_millis(30));
    if random.u64(..3) == 0 {
        if lock.write.lock_for(thread, wait, None).await.unwrap() {
            oracle.writes(0);
            pause(random).await;
            oracle.writes_no_more(0);
            lock.write.unlock(thread).await.unwrap();
        }
    } else if lock.read.lock_for(thread, wait, None).await.unwrap() {
        oracle.reads();
        pause(random).await;
        oracle.reads_no_more();
        lock.read.unlock(thread).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_excludes_all_others() {
    let stage = Stage::set("random").await;
    let seed: u64 = match std::env::var("REDLOCK_SEED") {
        Ok(seed) => seed.parse().unwrap(),
        Err(_) => std::process::id().into(),
    };
    // A failure prints its seed, which repeats the run.
    println!("REDLOCK_SEED={seed}");
    // A message of Redisson wakes one waiter; the others poll.
    let clients = [(); 3]
        .map(|()| stage.client_with(|builder| builder.poll_interval(Duration::from_millis(50))));
    let (oracle, done) = (Oracle::default(), Arc::new(AtomicU64::new(0)));
    let end = Instant::now() + runs_for();
    let mut tasks = JoinSet::new();
    for number in 0..TASKS {
        let lock = stage.lock_of(&clients[number as usize % 3]);
        let mut task = Task {
            lock: lock.prefer_writers(number % 2 == 0),
            oracle: oracle.clone(),
            random: Rng::with_seed(seed * 100 + number + 1),
            done: Arc::clone(&done),
        };
        tasks.spawn(async move {
            while Instant::now() < end || task.done.load(Ordering::SeqCst) <= TURNS {
                task.turn().await;
            }
        });
    }
    let redisson = RedissonClient::connect(&shared_server().url()).await;
    let redisson = redisson.unwrap();
    for thread in 1..=2 {
        let lock = redisson.read_write_lock(&stage.name);
        let (oracle, mut random) = (oracle.clone(), Rng::with_seed(seed * 100 + 50 + thread));
        let done = Arc::clone(&done);
        tasks.spawn(async move {
            while Instant::now() < end || done.load(Ordering::SeqCst) <= TURNS {
                java(&lock, thread, &oracle, &mut random).await;
            }
        });
    }
    while let Some(ended) = within(runs_for() + DEADLINE, tasks.join_next()).await {
        ended.unwrap();
    }
    stage.end().await;
}
