//! A failover of three real sentinels: when locks are given out again, and what guards say
//! meanwhile.

use std::time::{Duration, Instant};

use redlock_rt::{Client, Event, GuardState, LockOptions, RLockGuard, ServerEvent};
use tests::{RedisServer, Replicated, Sentinels, trace_init, within};
use tokio::task::{JoinHandle, block_in_place};

/// Longer than the sentinels take on a busy machine, where they vote more than once.
const DEADLINE: Duration = Duration::from_secs(100);
/// So that guards live through it.
const LEASE: Duration = Duration::from_secs(200);
const RENEW: Duration = Duration::from_secs(4);
/// Once all sentinels name the new master, a client takes no longer: a pause, and a few time-outs
/// of a connection to the old one.
const SOON: Duration = Duration::from_secs(5);

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
        let builder = Client::builder().url(&sentinels.url(""));
        builder.lease(LEASE).connect().await.unwrap()
    };
    let (holder, other) = (client().await, client().await);
    let mut events = holder.events();
    let mut guards = Vec::new();
    for at in 0..8 {
        let lock = holder.rlock(format!("held:{at}"));
        let options = LockOptions::new().renew(RENEW);
        guards.push(lock.lock_with(options).await.unwrap());
    }
    // The replicas have them: what is not replicated may be lost, which is another test.
    for (replica, at) in [(1, 0), (1, 7), (2, 0), (2, 7)] {
        servers.receives(replica, &format!("held:{at}")).await;
    }
    let lock = other.rlock("held:0");
    let waiter = tokio::spawn(async move { lock.lock().await.unwrap() });

    let switched = sentinels.switched().await.unwrap();
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
        there += servers.command::<usize>(at, &["EXISTS", "fresh"]).await;
    }
    assert!(there > 0 && fresh.is_valid(), "it is on the new master");
    let switched = within(DEADLINE, switched).await.duration_since(began);

    // Every lock was replicated, so every guard is held again. On a busy machine two sentinels may be
    // elected, and a second failover follows the first one.
    let mut longest = Duration::ZERO;
    for watched in watched {
        let (guard, said) = within(DEADLINE, watched).await.unwrap();
        eprintln!("{end:?}: {}: {said:?}", guard.name());
        let (says, _) = said.last().unwrap();
        assert_eq!(*says, "renewed", "{said:?}");
        longest = longest.max(said.last().map_or(Duration::ZERO, |(_, at)| *at));
        if guard.name() == "held:0" {
            assert!(!waiter.is_finished(), "two holders");
        }
        guard.unlock().await.unwrap();
    }
    let guard = within(DEADLINE, waiter).await.unwrap();
    assert!(guard.is_valid());
    // A listener heard of it.
    let is_failover = |event| {
        let Event::Server { what, .. } = event else {
            return false;
        };
        what == ServerEvent::Failover
    };
    while !is_failover(within(DEADLINE, events.next()).await.unwrap()) {}
    eprintln!(
        "{end:?}: all sentinels name the new master after {switched:?}; locks are given out again \
         after {given_out:?}; the last guard was renewed after {longest:?}"
    );
    assert!(given_out < switched + SOON, "{given_out:?}");
    assert!(longest < switched + RENEW + SOON, "{longest:?}");
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
