//! Redis has no memory left.

use std::time::Duration;

use redlock_rt::{Client, Fenced, GuardState, Kind, LockGuard, Unlocked};
use tests::{RedisServer, ask, assert_held, is_renewed, trace_init, within};

use crate::DEADLINE;

/// Longer than threads wait for a processor.
const LEASE: Duration = Duration::from_secs(3);

/// The guard is renewed, and its hold re-entered and extended.
async fn stays<K: Kind>(guard: LockGuard<K>) -> Unlocked {
    is_renewed(LEASE, || guard.state()).await;
    let inner = within(DEADLINE, guard.reenter()).await.unwrap();
    let inner = within(DEADLINE, inner.unlock()).await.unwrap();
    assert_eq!(inner, Unlocked::StillHeld, "{guard:?}");
    within(DEADLINE, guard.extend(4 * LEASE)).await.unwrap();
    assert_held(&guard.state());
    within(DEADLINE, guard.unlock()).await.unwrap()
}

/// A renewal of permits in front of others was refused, so all in the same call lost their leases.
#[tokio::test]
async fn without_memory_renewals_and_extensions_were_refused() {
    trace_init();
    let server = RedisServer::start();
    let builder = Client::builder().url(&server.url()).lease(LEASE);
    let client = builder.build().unwrap();
    let semaphore = client.permit_expirable_semaphore("permits");
    assert!(semaphore.try_set_permits(2).await.unwrap());
    let permit = semaphore.acquire().await.unwrap();
    let inside = client.double_barrier("barrier", 1).enter().await.unwrap();
    let (rw, shared) = (
        client.read_write_lock("rw"),
        client.read_write_lock("shared"),
    );
    let plain = client.rlock("plain").lock().await.unwrap();
    let fair = client.fair_lock("fair").lock().await.unwrap();
    let fenced = client.fenced_lock("fenced").lock().await.unwrap();
    let (write, read) = (rw.write().await.unwrap(), shared.read().await.unwrap());
    let ticket = client.fenced_lock("ticket").lock().await.unwrap();
    let ticket = ticket.into_ticket().unwrap();
    let redis = server.connect().await.unwrap();
    let _: () = ask(&redis, &["CONFIG", "SET", "maxmemory", "1"]).await;
    let adopted = within(DEADLINE, client.adopt::<Fenced>(&ticket)).await;
    assert_eq!(stays(adopted.unwrap()).await, Unlocked::Released);
    let ended = tokio::join!(
        stays(plain),
        stays(fair),
        stays(fenced),
        stays(write),
        stays(read),
        is_renewed(LEASE, || permit.state())
    );
    let released = Unlocked::Released;
    assert_eq!(
        ended,
        (released, released, released, released, released, ())
    );
    within(DEADLINE, permit.extend(4 * LEASE)).await.unwrap();
    assert!(matches!(permit.state(), GuardState::Held { .. }));
    assert_eq!(permit.release().await.unwrap(), released);
    assert!(inside.is_valid());
    within(DEADLINE, inside.leave()).await.unwrap();
}
