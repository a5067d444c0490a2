//! A lock that many want is shared: a client that releases lets others try first.
//!
//! The clock stands still while anything can run, so a client that did not pause would always be the
//! first to hear of its own release, and one that pauses lets everybody else run first.

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
    task::JoinSet,
    time::{Instant, sleep},
};

use crate::stage::{CHAIN, MS};

const NAME: &str = "saturated";
/// How the tasks of a client follow each other.
#[derive(Debug, Clone, Copy)]
struct Mode {
    hand_over: Option<Duration>,
    renew: bool,
}

/// By the announcement of a release, without a call, and with a fixed lease, which is not handed over.
const MODES: [Mode; 3] = [
    Mode {
        hand_over: None,
        renew: true,
    },
    Mode {
        hand_over: Some(CHAIN),
        renew: true,
    },
    Mode {
        hand_over: Some(CHAIN),
        renew: false,
    },
];

/// Lets `tasks` tasks of a client take turns until all clients together had `turns`; returns how many
/// were this client's.
fn saturate(
    tasks: &mut JoinSet<usize>,
    mode: Mode,
    client: &Client,
    crowd: usize,
    all: &Arc<AtomicUsize>,
    turns: usize,
) {
    for _ in 0..crowd {
        let (lock, all) = (client.rlock(NAME), Arc::clone(all));
        let options = LockOptions::new().renew(mode.renew);
        tasks.spawn(async move {
            let mut own = 0;
            while all.fetch_add(1, Ordering::Relaxed) < turns {
                let guard = lock.lock_with(options.clone()).await.unwrap();
                sleep(MS).await;
                guard.unlock().await.unwrap();
                own += 1;
            }
            own
        });
    }
}

/// How many turns of `turns` each client of these had, each with that many tasks.
async fn shares(mode: Mode, clients: &[(&Client, usize)], turns: usize) -> Vec<usize> {
    let all = Arc::new(AtomicUsize::new(0));
    let mut sets = Vec::new();
    for (client, crowd) in clients {
        let mut tasks = JoinSet::new();
        saturate(&mut tasks, mode, client, *crowd, &all, turns);
        sets.push(tasks);
    }
    let mut shares = Vec::new();
    for mut tasks in sets {
        let mut own = 0;
        while let Some(done) = tasks.join_next().await {
            own += done.unwrap();
        }
        shares.push(own);
    }
    shares
}

/// A client without a way to the server.
fn near(engine: &Engine, mode: Mode) -> Client {
    let builder = Client::builder().embedded(engine).hand_over(mode.hand_over);
    builder.build().unwrap()
}

/// A client with slow connections.
fn far(engine: &Engine, mode: Mode) -> Client {
    let builder = Wires::to_engine(engine).slow().builder();
    builder.hand_over(mode.hand_over).build().unwrap()
}

/// The client with fast connections had 199 of 200 turns.
#[tokio::test(start_paused = true)]
async fn a_client_with_slow_connections_gets_its_share_of_a_saturated_lock() {
    for mode in MODES {
        let engine = Engine::new();
        let near = near(&engine, mode);
        let far = far(&engine, mode);
        let turns = 200;
        let shares = shares(mode, &[(&near, 4), (&far, 1)], turns).await;
        assert!(shares[1] >= turns / 4, "{mode:?} {shares:?}");
        assert!(shares[0] >= turns / 4, "{mode:?} {shares:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_alone_does_not_pause() {
    for mode in MODES {
        let engine = Engine::new();
        let client = near(&engine, mode);
        let start = Instant::now();
        let turns = 100;
        assert_eq!(shares(mode, &[(&client, 4)], turns).await, [turns]);
        assert_eq!(start.elapsed(), MS * 100);
    }
}

/// A subscription lingers after its waiters, and nobody is behind it.
#[tokio::test(start_paused = true)]
async fn a_client_that_only_listens_costs_others_a_pause_now_and_then() {
    for mode in MODES {
        let engine = Engine::new();
        let client = near(&engine, mode);
        let idle = Client::builder().embedded(&engine);
        let idle = idle.linger(Duration::from_secs(60)).build().unwrap();
        let guard = client.rlock(NAME).lock().await.unwrap();
        let waited = idle.rlock(NAME);
        let options = LockOptions::new().wait(MS * 5);
        assert!(waited.lock_with(options).await.unwrap_err().is_timed_out());
        assert_eq!(idle.stats().subscriptions, 1);
        guard.unlock().await.unwrap();

        let start = Instant::now();
        let turns = 160;
        assert_eq!(shares(mode, &[(&client, 4)], turns).await, [turns]);
        let pauses = start.elapsed() - MS * 160;
        // Three, and one of 16 after that, each of 2 ms at most, and as the timers count.
        assert!(pauses >= MS && pauses <= MS * 3 * 14, "{pauses:?}");
    }
}

/// A try that is refused after a pause is the one further command of a turn.
#[tokio::test(start_paused = true)]
async fn a_shared_turn_costs_one_further_command_at_most() {
    for mode in MODES {
        let engine = Engine::new();
        let wires = Wires::to_engine(&engine);
        let near = wires.builder().hand_over(mode.hand_over).build().unwrap();
        let far = far(&engine, mode);
        // Subscribed, and what it is to know is known.
        let _ = shares(mode, &[(&near, 4), (&far, 1)], 20).await;
        let (before, turns) = (wires.count(), 200);
        let shares = shares(mode, &[(&near, 4), (&far, 1)], turns).await;
        let sent = wires.frames(before);
        let sent = sent.iter().filter(|frame| frame.is_call()).count();
        assert!(
            sent <= 3 * shares[0] + shares[1] + 10,
            "{mode:?}: {sent} for {shares:?}"
        );
    }
}
