//! A node that refuses everything is asked by one caller at a time.

use std::time::{Duration, Instant};

use futures::future::join_all;
use redlock_rt::{ErrorKind, LockOptions};
use tests::{Cluster, RedisServer, eventually, lock_and_unlock, within};
use tokio::task::{JoinHandle, block_in_place};

use crate::{DEADLINE, builder};

const SPAN: Duration = Duration::from_secs(2);
const CALLERS: usize = 100;

/// A script that runs until it is killed: whatever else the server is asked, it answers BUSY.
async fn make_busy(server: &RedisServer) -> JoinHandle<()> {
    let mut redis = server.connect().await.unwrap();
    let endless = tokio::spawn(async move {
        let mut script = redis::cmd("EVAL");
        script.arg("while true do end").arg(0);
        let ended: Result<(), _> = script.query_async(&mut redis).await;
        assert!(ended.is_err());
    });
    let redis = server.connect().await.unwrap();
    eventually(DEADLINE, async || {
        let mut redis = redis.clone();
        let answer: Result<(), _> = redis::cmd("TIME").query_async(&mut redis).await;
        answer.is_err_and(|error| error.to_string().contains("BUSY"))
    })
    .await;
    endless
}

/// How often a server has refused a call.
async fn refused(cluster: &Cluster, at: usize) -> u64 {
    let info: String = cluster.command(at, &["INFO", "commandstats"]).await;
    let is_call = |line: &&str| {
        let calls = ["evalsha", "restore", "hdel"];
        calls
            .iter()
            .any(|call| line.starts_with(&format!("cmdstat_{call}:")))
    };
    let rejected = |line: &str| -> Option<u64> {
        let (_, rest) = line.split_once("rejected_calls=")?;
        rest.split(',').next()?.parse().ok()
    };
    info.lines().filter(is_call).filter_map(rejected).sum()
}

/// Each caller asked for itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_refused_was_asked_by_each_of_a_hundred_tasks() {
    let cluster = block_in_place(|| {
        let options = Cluster::options().masters(2).replicas(0).partial_coverage();
        let options = options.each(|server| server.args(["--lua-time-limit", "50"]));
        options.node_timeout(4 * DEADLINE).start()
    });
    let options = builder(&cluster).response_timeout(DEADLINE);
    let client = options.connect().await.unwrap();
    let mut names = Vec::new();
    for which in 0..CALLERS {
        names.push(cluster.name_at(0, &format!("busy:{which}")).await);
    }
    let elsewhere = client.rlock(cluster.name_at(1, "busy").await);
    for lock in [&client.rlock(&names[0]), &elsewhere] {
        lock_and_unlock(lock).await;
    }
    let endless = make_busy(cluster.node(0)).await;
    let wait = LockOptions::new().wait(SPAN / 20);
    let error = client.rlock(&names[0]).lock_with(wait).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let tasks: Vec<_> = names
        .iter()
        .enumerate()
        .map(|(at, name)| {
            let lock = client.rlock(name);
            tokio::spawn(async move {
                match at % 2 {
                    0 => lock.is_locked().await.map(drop),
                    _ => lock.lock().await.map(drop),
                }
            })
        })
        .collect();
    let (started, mut turns) = (Instant::now(), 0);
    while started.elapsed() < SPAN {
        let guard = within(SPAN / 2, elsewhere.lock()).await.unwrap();
        within(SPAN / 2, guard.unlock()).await.unwrap();
        turns += 1;
    }
    assert!(tasks.iter().all(|task| !task.is_finished()));
    let mut redis = cluster.node(0).connect().await.unwrap();
    redis::cmd("SCRIPT")
        .arg("KILL")
        .exec_async(&mut redis)
        .await
        .unwrap();
    for outcome in within(DEADLINE, join_all(tasks)).await {
        outcome.unwrap().unwrap();
    }
    endless.await.unwrap();
    let asked = refused(&cluster, 0).await;
    eprintln!("{CALLERS} tasks asked {asked} times in {SPAN:?}, with {turns} turns elsewhere");
    // 20, 40, 80, 160, 320, 500 ms, …, at least half of each; and the first call.
    assert!((3..=20).contains(&asked), "{asked}");
    assert!(turns > CALLERS, "{turns}");
}
