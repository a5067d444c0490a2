//! A node that refuses everything is asked by one caller at a time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::future::join_all;
use redlock_rt::{ErrorKind, LockOptions};
use tests::{
    CALL, Cluster, Frame, Matcher, RedisServer, ask, calls, eventually, lock_and_unlock, slot_of,
    told, within,
};
use tokio::task::{JoinHandle, block_in_place};

use crate::{DEADLINE, assert_clean, builder};

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
    // A busy server may also answer nothing for that long; callers know of a refusal once one has read it.
    let refusals = AtomicU64::new(0);
    eventually(DEADLINE, async || {
        let wait = LockOptions::new().wait(SPAN / 20);
        let error = client.rlock(&names[0]).lock_with(wait).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        refusals.fetch_add(4, Ordering::Relaxed);
        told(&error).contains("BUSY")
    })
    .await;
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
        within(DEADLINE, lock_and_unlock(&elsewhere)).await;
        turns += 1;
    }
    assert!(tasks.iter().all(|task| !task.is_finished()));
    let redis = cluster.node(0).connect().await.unwrap();
    ask::<()>(&redis, &["SCRIPT", "KILL"]).await;
    for outcome in within(DEADLINE, join_all(tasks)).await {
        outcome.unwrap().unwrap();
    }
    endless.await.unwrap();
    let asked = refused(&cluster, 0).await;
    eprintln!("{CALLERS} tasks asked {asked} times in {SPAN:?}, with {turns} turns elsewhere");
    // 20, 40, 80, 160, 320, 500 ms, …, at least half of each; and the first calls.
    let most = 16 + refusals.into_inner();
    assert!((3..=most).contains(&asked), "{asked} of {most}");
    assert!(turns > 20, "{turns}");
}

/// A call was answered by the master that its slot had left meanwhile. The answer was taken for one of
/// the next master, which refused all calls: so each caller there asked for itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_of_the_last_master_sent_everybody_to_the_next() {
    const BUSY: &str = "-BUSY Redis is busy running a script.\r\n";
    let options = Cluster::options().masters(2).replicas(0).behind_proxies();
    let cluster = block_in_place(|| options.start());
    let proxies = cluster.proxies();
    let seed = format!("redis+cluster://{}", cluster.node(0).address());
    let options = builder(&cluster).url(&seed).response_timeout(DEADLINE);
    let client = options.connect().await.unwrap();
    let name = cluster.name_at(0, "last").await;
    let renewed = format!("{{{name}}}:renewed");
    let guard = client.rlock(&name).lock().await.unwrap();
    let often = LockOptions::new().renew(SPAN / 20);
    let kept = client.rlock(&renewed).lock_with(often).await.unwrap();

    // The release is on its way while the slot moves. A renewal tells the client, on another
    // connection.
    let release = calls("rlock_release").mentioning(guard.hold_id().as_str());
    let gate = proxies[0].hold_request(release.clone());
    drop(guard);
    gate.reached().await;
    cluster.migrate(slot_of(&name), 1).await.finish().await;
    proxies[1]
        .wait_for_answer(Matcher::any().mentioning(&renewed))
        .await;

    let acquisitions = Matcher::command(CALL).mentioning("busy:");
    proxies[1].answer(acquisitions, BUSY, usize::MAX);
    // The release comes there next, and whatever is answered lets everybody ask.
    proxies[1].answer(release.clone(), BUSY, usize::MAX);
    let asked = || {
        let frames = proxies[1].frames();
        let asking = |frame: &&Frame| frame.is_call() && frame.mentions("busy:");
        frames.iter().filter(asking).count()
    };
    let mut tasks = Vec::new();
    for which in 0..CALLERS {
        let lock = client.rlock(cluster.name_at(1, &format!("busy:{which}")).await);
        tasks.push(tokio::spawn(async move { lock.lock().await.map(drop) }));
        // It has read the first refusal then, and all others ask behind that.
        eventually(DEADLINE, async || asked() > 1).await;
    }
    let before = asked();
    gate.open();
    proxies[0].wait_for_answer(release).await;
    tokio::time::sleep(SPAN / 2).await;
    let asked = asked() - before;
    eprintln!("{CALLERS} tasks asked {before} times before the answer, and {asked} times after it");
    assert!(asked <= 10, "{asked}");

    proxies[1].clear();
    for outcome in within(DEADLINE, join_all(tasks)).await {
        outcome.unwrap().unwrap();
    }
    kept.unlock().await.unwrap();
    assert_clean(&cluster, &name, &[&client]).await;
}
