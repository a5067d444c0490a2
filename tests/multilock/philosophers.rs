//! Dining philosophers: neighbours share a fork, and half of them name the wrong one first.

use std::{sync::Arc, time::Duration};

use redlock_rt::Client;
use tests::{Driver, LeakCheck, ask, shared_server, unique, within};

use crate::DEADLINE;

const SEATS: usize = 5;
const MEALS: usize = 8;

/// Counts the holders of a fork in Redis, for all processes.
async fn eat(redis: &mut redis::aio::MultiplexedConnection, forks: [&str; 2]) {
    for fork in forks {
        let hands: i64 = ask(redis, &["INCR", &format!("{fork}:hands")]).await;
        assert_eq!(hands, 1, "two have {fork}");
    }
    for fork in forks {
        let _: i64 = ask(redis, &["DECR", &format!("{fork}:hands")]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn philosophers_of_several_processes_all_dine() {
    let server = shared_server();
    let table = unique("table");
    let leaks = LeakCheck::on(&server, &table).await;
    let forks: Vec<_> = (0..SEATS).map(|at| format!("{table}:{at}")).collect();
    let drivers: Vec<_> = (0..2)
        .map(|_| Arc::new(Driver::start(env!("CARGO_BIN_EXE_driver"))))
        .collect();
    for driver in &drivers {
        driver.ok(&format!("connect {}", server.url())).await;
    }
    let local = Client::connect(&server.url()).await.unwrap();

    let mut dinner = tokio::task::JoinSet::new();
    for seat in 0..SEATS * 2 {
        let (left, right) = (
            forks[seat % SEATS].clone(),
            forks[(seat + 1) % SEATS].clone(),
        );
        let named = if seat % 2 == 0 {
            [left, right]
        } else {
            [right, left]
        };
        let mut redis = server.connect().await.unwrap();
        // Some of them are tasks of this process.
        match drivers.get(seat % 3).cloned() {
            Some(driver) => dinner.spawn(async move {
                let name = named.join(",");
                for _ in 0..MEALS {
                    driver.ok(&format!("multi.lock {name} p{seat}")).await;
                    eat(&mut redis, [&named[0], &named[1]]).await;
                    assert_eq!(
                        driver.ok(&format!("multi.unlock {name} p{seat}")).await,
                        "true"
                    );
                }
            }),
            None => {
                let lock = local.multi_lock(&named);
                dinner.spawn(async move {
                    for _ in 0..MEALS {
                        let guard = lock.lock().await.unwrap();
                        eat(&mut redis, [&named[0], &named[1]]).await;
                        guard.unlock().await.unwrap();
                    }
                })
            }
        };
    }
    within(6 * DEADLINE, dinner.join_all()).await;

    let redis = server.connect().await.unwrap();
    for fork in &forks {
        let _: u8 = ask(&redis, &["DEL", &format!("{fork}:hands")]).await;
    }
    leaks.deadline(Duration::from_secs(10)).assert_clean().await;
}
