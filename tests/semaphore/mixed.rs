//! Our clients and Redisson's on one semaphore, on a server that kills connections and forgets scripts:
//! no waiter sleeps for ever, and in the end all permits are free. No client polls.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use fastrand::Rng;
use futures::future::join_all;
use redlock_rt::{Client, PermitOptions};
use tests::{CALL, Proxy, RedisServer, RedissonClient, ask, eventually, trace_init, within};

use crate::stage::NEVER;

const PERMITS: u32 = 3;
const TASKS: usize = 8;
const ROUNDS: usize = 40;
const RESPONSE: Duration = Duration::from_millis(60);
const LONG: Duration = Duration::from_secs(60);

async fn ours(client: &Client, leased: bool, seed: u64) {
    let mut random = Rng::with_seed(seed);
    let plain = client.semaphore("s");
    let permits = client.permit_expirable_semaphore("s");
    for _ in 0..ROUNDS {
        let many = random.u32(1..=2);
        let wait = match random.u8(0..3) {
            0 => Some(Duration::from_millis(random.u64(1..20))),
            _ => None,
        };
        // Half of the dropped calls are dropped during their first try.
        let longest = if random.bool() { 400 } else { 5000 };
        let cancel = (random.u8(0..10) < 5).then(|| Duration::from_micros(random.u64(0..longest)));
        let hold = Duration::from_micros(random.u64(0..3000));
        let waits = random.bool();
        let acquire = async {
            match leased {
                false => {
                    if let Ok(guard) = plain
                        .acquire_with(PermitOptions::new().permits(many).wait(wait))
                        .await
                    {
                        tokio::time::sleep(hold).await;
                        match waits {
                            true => drop(guard.release().await),
                            false => drop(guard),
                        }
                    }
                }
                true => {
                    let options = PermitOptions::new().wait(wait);
                    if let Ok(permit) = permits.acquire_with(options.permits(many)).await {
                        tokio::time::sleep(hold).await;
                        match waits {
                            true => drop(permit.release().await),
                            false => drop(permit),
                        }
                    }
                }
            }
        };
        match cancel {
            Some(cancel) => drop(tokio::time::timeout(cancel, acquire).await),
            None => within(LONG, acquire).await,
        }
    }
}

async fn theirs(java: &RedissonClient, leased: bool) {
    let (plain, permits) = (java.semaphore("s"), java.permits("s"));
    for _ in 0..ROUNDS {
        if leased {
            let id = within(LONG, permits.acquire(None)).await.unwrap();
            assert!(permits.try_release(&id).await.unwrap());
        } else {
            assert!(within(LONG, plain.acquire(1, None)).await.unwrap());
            plain.release(1).await.unwrap();
        }
    }
}

async fn round(leased: bool, kills: bool, seed: u64) {
    trace_init();
    eprintln!("seed {seed}, kills {kills}");
    let server = RedisServer::start();
    let proxies = [Proxy::to(&server), Proxy::to(&server)];
    // A command in a broken connection of Redisson may run at any later time.
    let redis = server.connect().await.unwrap();
    let all = ["ACL", "SETUSER", "meek", "on", ">pw", "~*", "&*", "+@all"];
    let _: () = ask(&redis, &[&all[..], &["-client|kill"]].concat()).await;
    let clients = proxies.each_ref().map(|proxy| {
        let url = match kills {
            true => proxy.url(),
            false => proxy.url().replace("redis://", "redis://meek:pw@"),
        };
        let builder = Client::builder().url(&url).poll_interval(NEVER);
        let builder = builder.response_timeout(10 * RESPONSE);
        builder.linger(Duration::from_millis(5)).build().unwrap()
    });
    let java = RedissonClient::connect(&server.url()).await.unwrap();
    let semaphore = clients[0].semaphore("s");
    assert!(semaphore.try_set_permits(PERMITS).await.unwrap());
    let done = AtomicBool::new(false);
    let chaos = async {
        let mut random = Rng::with_seed(seed);
        while !done.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(random.u64(10..60))).await;
            match random.u8(0..4) {
                0 => drop(proxies[random.usize(0..2)].cut_all()),
                // Longer than the response time-out; commands that were sent meanwhile still arrive.
                1 => {
                    let proxy = &proxies[random.usize(0..2)];
                    proxy.go_silent();
                    tokio::time::sleep(6 * RESPONSE).await;
                    proxy.resume();
                }
                2 => proxies[random.usize(0..2)].cut_after_request(CALL),
                _ => {
                    let _: () = ask(&redis, &["SCRIPT", "FLUSH"]).await;
                }
            }
        }
    };
    let work = async {
        let ours = (0..TASKS * 2).map(|task| ours(&clients[task % 2], leased, seed + task as u64));
        let theirs = (0..2).map(|_| theirs(&java, leased));
        tokio::join!(join_all(ours), join_all(theirs));
        done.store(true, Ordering::Relaxed);
    };
    tokio::join!(work, chaos);
    proxies.iter().for_each(Proxy::clear);
    let direct = Client::builder().url(&server.url()).build().unwrap();
    eventually(LONG, async || {
        let free = direct.semaphore("s").available_permits().await.unwrap();
        let stats = clients.each_ref().map(Client::stats);
        match stats.iter().all(|s| s.releases == 0 && s.waiting == 0) && free == i64::from(PERMITS)
        {
            true => Ok(()),
            false => Err(format!("{free} are free: {stats:?}")),
        }
    })
    .await;
}

#[tokio::test]
async fn permits_without_leases_are_neither_lost_nor_made() {
    for seed in seeds() {
        round(false, seed % 2 == 0, seed).await;
    }
}

#[tokio::test]
async fn permits_with_leases_are_neither_lost_nor_made() {
    for seed in seeds() {
        round(true, seed % 2 == 0, seed).await;
    }
}

fn seeds() -> std::ops::Range<u64> {
    let first = fastrand::u64(0..1 << 32);
    let many = match std::env::var_os("REDLOCK_SOAK") {
        Some(_) => 40,
        None => 3,
    };
    first..first + many
}
