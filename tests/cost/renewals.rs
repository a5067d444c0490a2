//! The cost of a refused renewal, and the size of a renewing call.

use std::time::Duration;

use redlock_rt::{
    Client, GuardState, LeasedPermit, LockOptions, LostReason, RLockGuard, embedded::Engine,
};
use tests::{
    CALL, Frame, Proxy, RedisServer, ask, calls, connection_over, eventually, unique, within,
};

use crate::{DEADLINE, idle::recorded};

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

pub(crate) fn is_held(guard: &RLockGuard) -> bool {
    matches!(guard.state(), GuardState::Held { .. })
}

async fn hold(client: &Client, prefix: &str, locks: usize) -> Vec<RLockGuard> {
    let options = LockOptions::new().lease(30 * S).renew(200 * MS);
    let mut guards = Vec::new();
    for index in 0..locks {
        let lock = client.rlock(format!("{prefix}:{index}"));
        guards.push(lock.lock_with(options.clone()).await.unwrap());
    }
    guards
}

/// Once, each lock was renewed by a separate call, repeatedly, while the server could run none.
#[tokio::test]
async fn a_busy_or_loading_server_is_not_asked_for_each_lock_alone() {
    const LOCKS: usize = 300;
    let server = RedisServer::start();
    for reply in [
        "-BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.\r\n",
        "-LOADING Redis is loading the dataset in memory\r\n",
    ] {
        let proxy = Proxy::to(&server);
        let client = Client::builder().url(&proxy.url()).build().unwrap();
        let guards = hold(&client, &unique("busy"), LOCKS).await;
        proxy.wait_for_answer(calls("renew")).await;
        proxy.answer(calls("renew"), reply, usize::MAX);
        proxy.mark();
        // Each call was refused once, and again after the pause.
        let refused = || proxy.count(calls("renew"));
        eventually(DEADLINE, async || {
            guards.iter().all(|guard| !is_held(guard))
        })
        .await;
        tokio::time::sleep(2 * S).await;
        let calls = refused();
        assert!((1..=60).contains(&calls), "{reply}: {calls} calls");
        proxy.clear();
        eventually(DEADLINE, async || guards.iter().all(is_held)).await;
    }
}

/// One key that is no longer a lock costs its batch some calls, not a call for each lock.
#[tokio::test(start_paused = true)]
async fn a_key_of_another_type_is_found_by_halving() {
    let engine = Engine::new();
    let (client, wires) = recorded(&engine, |builder| builder);
    let prefix = unique("halves");
    let mut guards = hold(&client, &prefix, 100).await;
    tokio::time::sleep(S).await;
    let control = connection_over(engine.connect()).await.unwrap();
    let spoilt = format!("{prefix}:37");
    let _: () = ask(&control, &["SET", &spoilt, "no lock"]).await;
    wires.mark();
    let lost = guards.swap_remove(37);
    assert_eq!(within(DEADLINE, lost.lost()).await, LostReason::Taken);
    tokio::time::sleep(150 * MS).await;
    let calls = wires.counts()["EVALSHA"];
    assert!(calls <= 20, "{calls} calls to find one of 100");
    tokio::time::sleep(60 * S).await;
    assert!(guards.iter().all(is_held));
}

/// Sixteen calls were made one after the other: for as long, no other task of a thread could run.
#[tokio::test(start_paused = true)]
async fn between_the_calls_of_many_renewals_other_tasks_run() {
    const LOCKS: usize = 2_000;
    let engine = Engine::new();
    let (client, wires) = recorded(&engine, |builder| builder);
    let guards = hold(&client, &unique("bursts"), LOCKS).await;
    tokio::time::sleep(S).await;
    wires.mark();
    let calls = || wires.matching(CALL);
    let (mut before, mut most) = (0, 0);
    while before < LOCKS / 100 {
        tokio::time::advance(MS).await;
        for _ in 0..100 {
            tokio::task::yield_now().await;
            most = most.max(calls() - before);
            before = calls();
        }
    }
    assert!(most <= 3, "{most} calls at once");
    assert!(guards.iter().all(is_held));
}

/// The number of permits in a renewal.
fn permits_of(frame: &Frame) -> usize {
    let is_ids =
        |arg: &&[u8]| arg.len().is_multiple_of(32) && arg.iter().all(u8::is_ascii_hexdigit);
    let ids = frame.args.iter().map(AsRef::as_ref).filter(is_ids);
    ids.map(|ids| ids.len() / 32).sum()
}

/// Once, one script renewed 30 000 permits, and stopped the server for a quarter of a second.
#[tokio::test(start_paused = true)]
async fn a_renewal_of_permits_is_cut_by_permits_not_by_holds() {
    const HOLDS: usize = 20;
    let engine = Engine::new();
    let (client, wires) = recorded(&engine, |builder| builder.lease(9 * S));
    let prefix = unique("permits");
    let mut permits = Vec::new();
    for (count, at) in [30, 60, 250].into_iter().cycle().zip(0..HOLDS) {
        let semaphore = client.permit_expirable_semaphore(format!("{prefix}:{at}"));
        let semaphore = semaphore.limit(1000);
        let permit = semaphore.acquire_many(count).await;
        permits.push(permit.unwrap());
    }
    wires.mark();
    tokio::time::sleep(60 * S).await;
    assert!(permits.iter().all(LeasedPermit::is_valid));
    let frames = wires.frames(0);
    let calls: Vec<_> = frames.iter().filter(|frame| frame.is_call()).collect();
    let renewed: usize = calls.iter().map(|frame| permits_of(frame)).sum();
    assert!(renewed >= 20 * 7 * 100, "{renewed} permits");
    for frame in calls {
        let permits = permits_of(frame);
        // A larger hold goes alone: EVALSHA, its digest, the number of keys, the key and 5 words.
        let alone = frame.args.len() == 9;
        assert!(permits <= 100 || alone, "{permits} permits in one call");
    }
}
