//! Waiters and counters of several clients, and of Redisson, on a server that kills connections and
//! forgets scripts: each count counts once, and every waiter wakes. No client polls.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use fastrand::Rng;
use futures::future::join_all;
use redlock_rt::{Client, CountDownLatch};
use tests::{CALL, Proxy, RedisServer, RedissonClient, ask, eventually, trace_init, within};

use crate::stage::NEVER;

const ROUNDS: usize = 20;
const WAITERS: usize = 12;
const RESPONSE: Duration = Duration::from_millis(60);
const LONG: Duration = Duration::from_secs(60);

/// Waits to the end, or is dropped before, at any moment.
async fn waits(latch: CountDownLatch, mut random: Rng) {
    let soon = Duration::from_micros(random.u64(0..20_000));
    match random.u8(0..4) {
        0 => drop(tokio::time::timeout(soon, latch.wait()).await),
        1 => drop(latch.wait_with(soon).await),
        _ => within(LONG, latch.wait()).await.unwrap(),
    }
}

async fn counts(latch: CountDownLatch, mut random: Rng) {
    let guard = latch.count_down_guard().unwrap();
    tokio::time::sleep(Duration::from_micros(random.u64(0..20_000))).await;
    match random.u8(0..3) {
        0 => drop(guard),
        // The call continues in the background after its time-out.
        1 => drop(guard.count_down().await),
        _ => {
            let soon = Duration::from_micros(random.u64(0..1000));
            drop(tokio::time::timeout(soon, guard.count_down()).await);
        }
    }
}

#[tokio::test]
async fn everybody_wakes_whoever_is_cut_off() {
    let seed = fastrand::u64(0..1 << 32);
    eprintln!("seed {seed}");
    let mut random = Rng::with_seed(seed);
    trace_init();
    let server = RedisServer::start();
    let proxies = [Proxy::to(&server), Proxy::to(&server)];
    let clients = proxies.each_ref().map(|proxy| {
        let builder = Client::builder().url(&proxy.url()).poll_interval(NEVER);
        let builder = builder.response_timeout(10 * RESPONSE);
        builder.linger(Duration::from_millis(5)).build().unwrap()
    });
    let direct = Client::builder().url(&server.url()).build().unwrap();
    let java = RedissonClient::connect(&server.url()).await.unwrap();
    let done = AtomicBool::new(false);
    let redis = server.connect().await.unwrap();
    let mut fate = random.fork();
    let chaos = async {
        while !done.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(fate.u64(20..120))).await;
            let proxy = &proxies[fate.usize(0..2)];
            match fate.u8(0..5) {
                0 | 1 => drop(proxy.cut_all()),
                // Longer than the response time-out; commands that were sent meanwhile still arrive.
                2 => {
                    proxy.go_silent();
                    tokio::time::sleep(6 * RESPONSE).await;
                    proxy.resume();
                }
                3 => proxy.cut_after_request(CALL),
                _ => {
                    let _: () = ask(&redis, &["SCRIPT", "FLUSH"]).await;
                }
            }
        }
    };
    let rounds = match std::env::var_os("REDLOCK_SOAK") {
        Some(_) => 50 * ROUNDS,
        None => ROUNDS,
    };
    let work = async {
        for round in 0..rounds {
            let name = format!("latch-{round}");
            let count = random.usize(1..=8);
            let latch = direct.count_down_latch(&name);
            assert!(latch.try_set_count(1 + count as u64).await.unwrap());
            let ours = |at: usize| clients[at % 2].count_down_latch(&name);
            let waiters: Vec<_> = (0..WAITERS)
                .map(|at| waits(ours(at), random.fork()))
                .collect();
            let counters: Vec<_> = (1..count)
                .map(|at| counts(ours(at), random.fork()))
                .collect();
            let theirs = java.count_down_latch(&*name);
            let they_wait = async { assert!(theirs.wait(LONG).await.unwrap()) };
            let count_down = async {
                let they_count = async { theirs.count_down().await.unwrap() };
                tokio::join!(join_all(counters), they_count);
                idle(&clients).await;
                assert_eq!(latch.count_down().await.unwrap(), 0);
            };
            tokio::join!(join_all(waiters), they_wait, count_down);
        }
        done.store(true, Ordering::Relaxed);
    };
    tokio::join!(work, chaos);
    proxies.iter().for_each(Proxy::clear);
    idle(&clients).await;
    assert!(clients.iter().all(|client| client.stats().waiting == 0));
}

/// Waits until no work is left in the background.
async fn idle(clients: &[Client]) {
    eventually(LONG, async || {
        clients.iter().all(|client| client.stats().releases == 0)
    })
    .await;
}
