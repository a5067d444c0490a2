//! Lost parts of a guard are acquired again, whatever it began with and wherever it lives.

use std::time::Duration;

use redlock_rt::{Client, LockOptions, Quorum, RedLockGuard, Unlocked};
use tests::{eventually, within};

use crate::{DEADLINE, NAME};

/// Renewed in time also where threads have to wait for a processor.
const LEASE: Duration = Duration::from_secs(3);

fn embedded() -> (Vec<Client>, Quorum) {
    let clients: Vec<_> = (0..3).map(|_| Client::embedded()).collect();
    let quorum = Quorum::new(clients.clone()).unwrap();
    (clients, quorum)
}

fn options() -> LockOptions {
    LockOptions::new().lease(LEASE)
}

/// Deletes the lock on one server, and waits until the guard has it there again.
async fn forgets(client: &Client, guard: &RedLockGuard) {
    let before = guard.hold_ids();
    assert!(client.rlock(NAME).force_unlock().await.unwrap());
    eventually(DEADLINE, async || {
        guard.servers() == before.len() && guard.hold_ids() != before
    })
    .await;
}

/// Once, a server where another owner had the lock at first was never asked again, so the lock was
/// lost with the next server.
#[tokio::test]
async fn a_server_that_another_had_at_first_joins_when_it_is_free() {
    let (clients, quorum) = embedded();
    let other = clients[2].rlock(NAME).lock().await.unwrap();
    let guard = quorum.redlock(NAME).lock_with(options()).await.unwrap();
    assert_eq!(guard.servers(), 2);
    other.unlock().await.unwrap();
    eventually(DEADLINE, async || guard.servers() == 3).await;
    forgets(&clients[0], &guard).await;
    assert!(guard.is_valid());
}

/// Once, bodies under the guard did not know the holds that had replaced the first ones.
#[tokio::test]
async fn a_body_reenters_what_was_acquired_again_meanwhile() {
    let (clients, quorum) = embedded();
    let lock = quorum.redlock(NAME);
    let guard = lock.lock_with(options()).await.unwrap();
    let body = guard.run(async {
        for client in &clients {
            forgets(client, &guard).await;
        }
        let inner = within(DEADLINE, lock.lock()).await.unwrap();
        assert_eq!((inner.servers(), inner.hold_count()), (3, 2));
        inner.unlock().await.unwrap();
    });
    within(DEADLINE, body).await.unwrap();
}

/// As above, with a server that joined after the body had started.
#[tokio::test(start_paused = true)]
async fn a_body_reenters_what_joined_meanwhile() {
    let (clients, quorum) = embedded();
    let lock = quorum.redlock(NAME);
    let other = clients[2].rlock(NAME).lock().await.unwrap();
    let guard = lock.lock_with(options()).await.unwrap();
    let body = guard.run(async {
        other.unlock().await.unwrap();
        eventually(DEADLINE, async || guard.servers() == 3).await;
        let inner = within(DEADLINE, lock.lock()).await.unwrap();
        assert_eq!(inner.servers(), 3);
        inner.unlock().await.unwrap();
    });
    within(DEADLINE, body).await.unwrap();
}

/// Once, each guard acquired the part for itself, so one of them never had that server again.
#[tokio::test]
async fn a_server_that_forgets_is_shared_again_by_all_guards_of_the_hold() {
    let (clients, quorum) = embedded();
    let lock = quorum.redlock(NAME);
    let outer = lock.lock_with(options()).await.unwrap();
    let inner = outer.reenter().await.unwrap();
    let inside = outer.run(lock.lock_with(options())).await.unwrap().unwrap();
    // More servers, one after the other, than a majority can lack.
    for client in &clients {
        assert!(client.rlock(NAME).force_unlock().await.unwrap());
        eventually(DEADLINE, async || {
            let counts = client.rlock(NAME).hold_count().await.unwrap();
            let servers = [outer.servers(), inner.servers(), inside.servers()];
            match (counts, servers) {
                (3, [3, 3, 3]) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
    }
    assert_eq!(outer.hold_ids(), inner.hold_ids());
    assert_eq!(outer.hold_ids(), inside.hold_ids());
    for guard in [outer, inside] {
        assert_eq!(guard.unlock().await.unwrap(), Unlocked::StillHeld);
    }
    assert_eq!(inner.unlock().await.unwrap(), Unlocked::Released);
}

/// Once, waiting time counted as holding time.
#[tokio::test(start_paused = true)]
async fn max_hold_of_what_is_acquired_again_begins_with_the_hold() {
    let (clients, quorum) = embedded();
    let lock = quorum.redlock(NAME);
    let before = lock.lock().await.unwrap();
    let waits = tokio::spawn({
        let options = options().max_hold(LEASE * 3);
        async move { lock.lock_with(options).await }
    });
    tokio::time::sleep(LEASE * 4).await;
    before.unlock().await.unwrap();
    let guard = within(DEADLINE, waits).await.unwrap().unwrap();
    assert_eq!(guard.servers(), 3);
    forgets(&clients[1], &guard).await;
}

/// Once, its task ended with the runtime in which the quorum was first used.
#[test]
fn a_guard_of_another_runtime_is_looked_after_when_the_first_has_ended() {
    let runtime = || tokio::runtime::Builder::new_multi_thread();
    let [first, second] = [(); 2].map(|()| {
        let mut builder = runtime();
        builder.worker_threads(1).enable_all().build().unwrap()
    });
    let (clients, quorum) = embedded();
    let lock = quorum.redlock(NAME);
    first
        .block_on(async { quorum.redlock("first").lock().await?.unlock().await })
        .unwrap();
    let guard = second.block_on(lock.lock_with(options())).unwrap();
    drop(first);
    second.block_on(forgets(&clients[1], &guard));
    second.block_on(guard.unlock()).unwrap();
}

/// Once, the repairer slept as long as for a server that was away for long.
#[tokio::test(start_paused = true)]
async fn a_server_that_stays_away_puts_off_no_other() {
    let clients: Vec<_> = (0..5).map(|_| Client::embedded()).collect();
    let quorum = Quorum::new(clients.clone()).unwrap();
    let _other = clients[4].rlock(NAME).lock().await.unwrap();
    let lease = Duration::from_secs(60);
    let options = LockOptions::new().lease(lease);
    let guard = quorum.redlock(NAME).lock_with(options).await.unwrap();
    for client in &clients[..3] {
        tokio::time::sleep(lease).await;
        assert_eq!(guard.servers(), 4);
        let before = guard.hold_ids();
        assert!(client.rlock(NAME).force_unlock().await.unwrap());
        // Asks every server, so that the loss is known.
        guard.extend(lease * 2).await.unwrap();
        eventually(Duration::from_secs(1), async || {
            guard.servers() == 4 && guard.hold_ids() != before
        })
        .await;
    }
}
