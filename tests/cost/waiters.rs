//! What one of many waiting tasks costs does not depend on how many there are. Counted in polls and
//! commands on in-process streams, with a paused clock.

use std::{
    future::poll_fn,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use redlock_rt::{Client, LockOptions, RLockGuard, embedded::Engine};
use tests::{Wires, settle};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::AbortHandle,
    time::sleep,
};

use crate::NEVER;

const NAME: &str = "crowded";
const S: Duration = Duration::from_secs(1);

/// Tasks that wait for one lock.
struct Waiters {
    wires: Wires,
    client: Client,
    polls: Arc<AtomicUsize>,
    taken: UnboundedSender<RLockGuard>,
    guards: UnboundedReceiver<RLockGuard>,
}

/// What something cost.
#[derive(Debug, PartialEq, Eq)]
struct Cost {
    /// Of waiting tasks.
    polls: usize,
    calls: usize,
    subscriptions: usize,
}

impl Waiters {
    fn new(engine: &Engine) -> Self {
        let wires = Wires::to_engine(engine);
        let builder = wires.builder().poll_interval(NEVER).hand_over(None);
        let (taken, guards) = unbounded_channel();
        Self {
            client: builder.build().unwrap(),
            wires,
            polls: Arc::default(),
            taken,
            guards,
        }
    }

    /// Starts a task that waits.
    fn wait(&self, options: LockOptions) -> AbortHandle {
        let (lock, polls) = (self.client.rlock(NAME), Arc::clone(&self.polls));
        let taken = self.taken.clone();
        let task = tokio::spawn(async move {
            let mut waits = pin!(lock.lock_with(options));
            let guard = poll_fn(|cx| {
                polls.fetch_add(1, Ordering::Relaxed);
                waits.as_mut().poll(cx)
            });
            if let Ok(guard) = guard.await {
                // Nobody listens at the end of the test.
                let _ = taken.send(guard);
            }
        });
        task.abort_handle()
    }

    /// What happens until nothing is left to do costs this.
    async fn cost(&self, happens: impl Future<Output = ()>) -> Cost {
        settle().await;
        let (frames, polls) = (self.wires.count(), self.polls.load(Ordering::Relaxed));
        happens.await;
        settle().await;
        let frames = self.wires.frames(frames);
        let subscriptions = frames.iter().filter(|frame| frame.command() == "SUBSCRIBE");
        Cost {
            polls: self.polls.load(Ordering::Relaxed) - polls,
            calls: frames.iter().filter(|frame| frame.is_call()).count(),
            subscriptions: subscriptions.count(),
        }
    }
}

/// What a task costs that joins many, that gives up, is cancelled, and is served; and how many commands
/// they all took to wait.
async fn costs(waiters: usize) -> (Cost, [Cost; 4]) {
    let engine = Engine::new();
    let mut all = Waiters::new(&engine);
    let other = Client::builder().embedded(&engine).build().unwrap();
    let held = other.rlock(NAME).lock().await.unwrap();
    let arrival = all
        .cost(async {
            for _ in 0..waiters {
                all.wait(LockOptions::new());
            }
            settle().await;
        })
        .await;
    assert_eq!(all.client.stats().waiting, waiters);
    assert_eq!(all.client.stats().subscriptions, 1);

    let one = all.cost(async { drop(all.wait(LockOptions::new())) });
    let joins = one.await;
    all.wait(LockOptions::new().wait(S));
    let gives_up = all.cost(sleep(S + S / 10)).await;
    let last = all.wait(LockOptions::new());
    let is_cancelled = all.cost(async { last.abort() }).await;
    assert_eq!(all.client.stats().waiting, waiters + 1);

    held.unlock().await.unwrap();
    settle().await;
    let guard = all.guards.try_recv().unwrap();
    let is_served = all.cost(async { drop(guard.unlock().await) }).await;
    assert!(all.guards.try_recv().is_ok());
    assert_eq!(all.client.stats().waiting, waiters - 1);
    (arrival, [joins, gives_up, is_cancelled, is_served])
}

#[tokio::test(start_paused = true)]
async fn one_of_ten_thousand_waiting_tasks_costs_as_much_as_one_of_ten() {
    let (few_arrive, few) = costs(10).await;
    let (many_arrive, many) = costs(10_000).await;
    assert_eq!(few, many);
    let commands = |cost: &Cost| (cost.calls, cost.subscriptions);
    assert_eq!(commands(&few_arrive), commands(&many_arrive));
    assert_eq!(many_arrive.subscriptions, 1);
    let [joins, gives_up, is_cancelled, is_served] = many;
    let nothing = |polls| Cost {
        polls,
        calls: 0,
        subscriptions: 0,
    };
    assert_eq!(joins, nothing(1));
    assert_eq!(gives_up, nothing(1), "the one poll that tells it");
    assert_eq!(is_cancelled, nothing(0));
    // A release and an acquisition.
    assert_eq!((is_served.calls, is_served.subscriptions), (2, 0));
    assert!(is_served.polls <= 6, "{is_served:?}");
}
