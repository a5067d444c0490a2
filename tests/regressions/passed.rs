//! Releases that acquire the lock for the next task of the same client.

use redlock_rt::{LockOptions, Unlocked};
use tests::{Proxy, RedisServer, World, calls, eventually, within};

use crate::{DEADLINE, ms};

/// The ordinary release behind it counted from before the pass, when the lease was still running. Its
/// repeat found nothing, so the first try seemed to have released the lock, which was over by then.
#[tokio::test]
async fn a_release_behind_a_refused_pass_was_said_to_have_released_an_expired_lock() {
    let server = RedisServer::start();
    let proxy = Proxy::to(&server);
    let mut world = World::on(&server, "refused-pass").await;
    world.clients_connect_to(proxy.url());
    let client =
        world.client_with(|builder| builder.response_timeout(DEADLINE).hand_over(ms(1000)));
    let lock = client.fenced_lock(&world.name);
    const LEASE: u64 = 2000;
    let options = || LockOptions::new().lease(ms(LEASE)).renew(false);
    let waiter = || {
        let lock = lock.clone();
        tokio::spawn(async move { lock.lock_with(options()).await.unwrap() })
    };
    let waits = async || {
        eventually(DEADLINE, async || {
            let stats = client.stats();
            stats.waiting == 1 && stats.subscriptions == 1
        })
        .await;
    };
    // Loads the scripts, and subscribes.
    for _ in 0..2 {
        let guard = lock.lock_with(options()).await.unwrap();
        let next = waiter();
        waits().await;
        guard.unlock().await.unwrap();
        within(DEADLINE, next)
            .await
            .unwrap()
            .unlock()
            .await
            .unwrap();
    }
    let guard = lock.lock_with(options()).await.unwrap();
    let next = waiter();
    waits().await;
    proxy.mark();
    // The refusal comes when the lease is over, and the release behind it loses its reply.
    proxy.delay(calls("fenced_pass"), ms(LEASE + 200));
    proxy.answer(calls("fenced_pass"), "-NOPERM no permission\r\n", 1);
    proxy.cut_after_request(calls("rlock_release"));
    let unlocked = guard.unlock().await;
    assert_eq!(proxy.count(calls("fenced_pass")), 1);
    within(DEADLINE, next)
        .await
        .unwrap()
        .unlock()
        .await
        .unwrap();
    let token = format!("redisson_lock_token:{{{}}}", world.name);
    let _: u8 = world.redis(&["DEL", &token]).await;
    world.assert_clean().await;
    assert_eq!(unlocked.unwrap(), Unlocked::AlreadyExpired);
}
