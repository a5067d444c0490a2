//! Many clients want one lock: few of them try for it at each release, and each has its share.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use redlock_rt::{Client, LockOptions, embedded::Engine};
use tests::Wires;
use tokio::{
    sync::Mutex,
    task::JoinSet,
    time::{Instant, sleep},
};

use crate::{
    stage::{CHAIN, MS},
    takers::{NAME, Object, Ours, Saturated, Share, Theirs, redisson},
};

const CLIENTS: usize = 8;
const TASKS: usize = 4;
/// The longest time for which a client lets others try, and the tick of the timers.
const LONGEST: Duration = Duration::from_millis(64 + 1);

/// What they take.
#[derive(Debug, Clone, Copy, PartialEq)]
enum What {
    Lock,
    Fenced,
    Write,
    Permit,
}

/// Clients of one server that take turns.
struct Crowd {
    wires: Vec<Wires>,
    clients: Vec<Client>,
}

/// What some turns cost and brought.
#[derive(Debug)]
struct Turns {
    /// The calls of all clients for each turn.
    calls: f64,
    of: Vec<usize>,
    /// The longest time from a release to the next turn.
    free: Duration,
    /// The longest wait of a task.
    wait: Duration,
    /// All of them took so long.
    took: Duration,
}

impl Crowd {
    fn of(clients: usize) -> Self {
        let engine = Engine::new();
        let wires: Vec<_> = (0..clients).map(|_| Wires::to_engine(&engine)).collect();
        let clients = wires.iter().map(|wires| {
            // Each turn is a release and an acquisition.
            let builder = wires.builder().hand_over(None);
            builder.build().unwrap()
        });
        Self {
            clients: clients.collect(),
            wires,
        }
    }

    /// Each client has some tasks that take turns with a lock, until there were `turns`, each for `hold`.
    async fn take(&self, turns: usize, hold: Duration) -> Turns {
        self.turns_of(What::Lock, TASKS, turns, hold).await
    }

    async fn turns_of(&self, what: What, each: usize, turns: usize, hold: Duration) -> Turns {
        let start = Instant::now();
        let before: Vec<_> = self.wires.iter().map(Wires::count).collect();
        let taken = Arc::new(AtomicUsize::new(0));
        // When the lock was released last.
        let free_since = Arc::new(Mutex::new(Instant::now()));
        let mut tasks = JoinSet::new();
        for at in 0..self.clients.len() * each {
            let client = at % self.clients.len();
            let ours = self.clients[client].clone();
            let (taken, free_since) = (taken.clone(), free_since.clone());
            tasks.spawn(async move {
                let (mut own, mut longest, mut wait) = (0, Duration::ZERO, Duration::ZERO);
                while taken.fetch_add(1, Ordering::Relaxed) < turns {
                    let asked = Instant::now();
                    macro_rules! turn {
                        ($taken:expr, $end:ident) => {{
                            let guard = $taken.await.unwrap();
                            wait = wait.max(asked.elapsed());
                            let mut since = free_since.try_lock().unwrap();
                            longest = longest.max(since.elapsed());
                            own += 1;
                            sleep(hold).await;
                            *since = Instant::now();
                            drop(since);
                            guard.$end().await.unwrap();
                        }};
                    }
                    match what {
                        What::Lock => turn!(ours.rlock(NAME).lock(), unlock),
                        What::Fenced => turn!(ours.fenced_lock(NAME).lock(), unlock),
                        What::Write => turn!(ours.read_write_lock(NAME).write(), unlock),
                        What::Permit => {
                            let permits = ours.permit_expirable_semaphore(NAME).limit(1);
                            turn!(permits.acquire(), release);
                        }
                    }
                }
                (client, own, longest, wait)
            });
        }
        let mut of = vec![0; self.clients.len()];
        let (mut free, mut wait) = (Duration::ZERO, Duration::ZERO);
        for (client, own, longest, waited) in tasks.join_all().await {
            of[client] += own;
            free = free.max(longest);
            wait = wait.max(waited);
        }
        let took = start.elapsed();
        let wires = self.wires.iter().zip(before);
        let calls: usize = wires
            .map(|(wires, before)| {
                let frames = wires.frames(before);
                frames.iter().filter(|frame| frame.is_call()).count()
            })
            .sum();
        #[allow(clippy::cast_precision_loss, reason = "they are few")]
        let calls = calls as f64 / turns as f64;
        Turns {
            calls,
            of,
            free,
            wait,
            took,
        }
    }
}

/// Clients with as many tasks each take turns. The lone task of a client forgot after each turn that it had
/// just had the lock, and so all tried at each release: as many calls as clients.
async fn shares(what: What, clients: usize, each: usize, hold: Duration, calls: f64) {
    let crowd = Crowd::of(clients);
    let _ = crowd.turns_of(what, each, 8 * clients, hold).await;
    let count = 16 * clients;
    let turns = crowd.turns_of(what, each, count, hold).await;
    assert!(
        turns.calls <= calls,
        "{what:?} {clients} x {each}: {turns:?}"
    );
    // The median is 16.
    assert!(
        turns.of.iter().all(|of| *of >= 8),
        "{what:?} {clients} x {each}: {turns:?}"
    );
    let fair = turns.took * u32::try_from(clients * each).unwrap() / u32::try_from(count).unwrap();
    assert!(
        turns.wait <= 4 * fair,
        "{what:?} {clients} x {each}, {fair:?}: {turns:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_turn_among_many_clients_with_one_task_each_costs_few_calls() {
    for (clients, calls) in [
        (2, 3.0),
        (3, 3.0),
        (8, 3.0),
        (20, 4.0),
        (50, 5.0),
        (100, 6.0),
    ] {
        shares(What::Lock, clients, 1, MS, calls).await;
    }
    for what in [What::Fenced, What::Write, What::Permit] {
        for (clients, calls) in [(2, 3.0), (8, 3.0), (20, 4.0)] {
            shares(what, clients, 1, MS, calls).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_among_eight_clients_costs_three_calls_whatever_their_tasks() {
    for each in [1, 2, 4] {
        for hold in [Duration::ZERO, MS, MS * 5] {
            shares(What::Lock, CLIENTS, each, hold, 3.0).await;
        }
    }
}

/// The clients that are next have no tasks any more, and nobody says so.
#[tokio::test(start_paused = true)]
async fn a_free_lock_is_not_left_alone_although_clients_give_way() {
    let crowd = Crowd::of(CLIENTS);
    for hold in [Duration::ZERO, MS, MS * 5] {
        for left in 1..CLIENTS {
            let all = crowd.take(20 * CLIENTS, hold).await;
            assert!(all.free <= LONGEST, "{all:?}");
            let some = Crowd {
                wires: crowd.wires[..left].to_vec(),
                clients: crowd.clients[..left].to_vec(),
            };
            let few = some.take(20 * left, hold).await;
            assert!(few.free <= LONGEST, "{left}: {few:?}");
        }
    }
}

/// Redisson gives way to nobody, but one that is far from the server always tries after those of ours
/// that try at once. Then it has the lock where none of ours does: at every other of its turns.
#[tokio::test(start_paused = true)]
async fn redisson_has_half_of_its_share_at_least_of_a_lock_that_seven_clients_want() {
    const TURNS: usize = 100 * CLIENTS;
    // Ours has the lock twice, where one of its tasks hands it over to another.
    for (hand_over, holds) in [(None, 1), (Some(CHAIN), 2)] {
        let engine = Engine::new();
        let java = redisson(&Wires::to_engine(&engine).slow()).await;
        let object = Object::Lock(java.rlock(NAME), None);
        let outside = object.outside(&engine).await;
        let mut saturated = Saturated::for_turns(TURNS);
        for at in 1..CLIENTS {
            let builder = Client::builder().embedded(&engine).hand_over(hand_over);
            let client = builder.build().unwrap();
            let ours = || Ours {
                lock: client.rlock(NAME),
                options: LockOptions::new(),
                outside: outside.clone(),
            };
            saturated.join(at, (0..TASKS).map(|_| ours()));
        }
        let theirs = Theirs {
            lock: object,
            thread: 1,
            outside,
        };
        saturated.join(0, [theirs]);
        let shares: [Share; CLIENTS] = saturated.shares().await;
        println!("{hand_over:?}: {shares:?}");
        let theirs = &shares[0];
        assert!(theirs.turns >= TURNS / holds / CLIENTS / 2, "{shares:?}");
        assert!(theirs.longest <= MS * 200, "{shares:?}");
    }
}
