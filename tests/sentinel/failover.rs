//! A failover of three real sentinels: when locks are given out again, and what guards say
//! meanwhile.

use std::time::{Duration, Instant};

use redlock_rt::{Client, GuardState, LockOptions, RLockGuard};
use tests::{RedisServer, Replicated, Sentinels, trace_init, within};
use tokio::task::{JoinHandle, block_in_place};

const DEADLINE: Duration = Duration::from_secs(25);
/// Longer than a failover takes, so that guards live through it.
const LEASE: Duration = Duration::from_secs(12);

/// How a master ends.
#[derive(Debug, Clone, Copy)]
enum End {
    Killed,
    Hanging,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_are_given_out_again_after_the_master_was_killed() {
    fail_over(End::Killed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_are_given_out_again_while_the_master_hangs() {
    fail_over(End::Hanging).await;
}

async fn fail_over(end: End) {
    trace_init();
    let servers = Replicated::start(RedisServer::options(), 2).await;
    let sentinels = Sentinels::options().watch(servers.server(0), 2, 3).await;
    let client = async || {
        let builder = Client::builder().url(&sentinels.url("")).lease(LEASE);
        builder.connect().await.unwrap()
    };
    let (holder, other) = (client().await, client().await);
    let mut guards = Vec::new();
    for at in 0..8 {
        guards.push(holder.rlock(format!("held:{at}")).lock().await.unwrap());
    }
    // The replicas have them: what is not replicated may be lost, which is another test.
    for (replica, at) in [(1, 0), (1, 7), (2, 0), (2, 7)] {
        servers.receives(replica, &format!("held:{at}")).await;
    }
    let lock = other.rlock("held:0");
    let waiter = tokio::spawn(async move { lock.lock().await.unwrap() });

    let began = Instant::now();
    block_in_place(|| match end {
        End::Killed => servers.server(0).kill(),
        End::Hanging => servers.server(0).pause(),
    });
    let watched: Vec<_> = guards
        .into_iter()
        .map(|guard| watch(guard, began))
        .collect();
    let wait = LockOptions::new().wait(DEADLINE);
    let fresh = other.rlock("fresh").lock_with(wait).await.unwrap();
    let given_out = began.elapsed();
    let mut there = 0;
    for at in [1, 2] {
        let info: String = servers.command(at, &["INFO", "replication"]).await;
        if info.contains("role:master") {
            there += servers.command::<usize>(at, &["EXISTS", "fresh"]).await;
        }
    }
    assert!(there == 1 && fresh.is_valid(), "it is on the new master");

    // Every lock was replicated, so every guard is held again, and was valid all the time.
    let mut longest = Duration::ZERO;
    for watched in watched {
        let (guard, said) = within(DEADLINE, watched).await.unwrap();
        eprintln!("{end:?}: {}: {said:?}", guard.name());
        assert!(guard.is_valid(), "{said:?}");
        longest = longest.max(said.last().map_or(Duration::ZERO, |(_, at)| *at));
        if guard.name() == "held:0" {
            assert!(!waiter.is_finished(), "two holders");
        }
        guard.unlock().await.unwrap();
    }
    let guard = within(DEADLINE, waiter).await.unwrap();
    assert!(guard.is_valid());
    eprintln!(
        "{end:?}: locks are given out again after {given_out:?}; the last guard was renewed after \
         {longest:?}"
    );
    assert!(given_out < Duration::from_secs(10), "{given_out:?}");
}

/// What a guard said, and when it began to say so.
type Said = Vec<(&'static str, Duration)>;

/// Writes down what the guard says, until it was renewed on the new master, or is lost.
fn watch(guard: RLockGuard, began: Instant) -> JoinHandle<(RLockGuard, Said)> {
    tokio::spawn(async move {
        let mut said: Said = Vec::new();
        let renewed_since = began + LEASE.mul_f64(0.99);
        loop {
            let says = match guard.state() {
                GuardState::Held { until } if until > renewed_since => "renewed",
                GuardState::Held { .. } => "held",
                GuardState::Suspect { .. } => "suspect",
                _ => "lost",
            };
            if said.last().is_none_or(|(last, _)| *last != says) {
                said.push((says, began.elapsed()));
            }
            if matches!(says, "renewed" | "lost") {
                return (guard, said);
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
}
