//! What other programs, and forced releases, do to a read-write lock.

use std::time::Duration;

use redlock_rt::{Client, GuardState, LostReason, Unlocked, embedded::Engine};
use tests::{DEADLINE, RedisServer, ask, within};

/// Scripts of read-write locks read as many leases as the hash said, so the server stopped.
#[tokio::test]
async fn a_hold_count_that_somebody_made_up_stopped_the_server() {
    let server = RedisServer::start();
    let redis = server.connect().await.unwrap();
    let client = Client::connect(&server.url()).await.unwrap();
    let lock = client.read_write_lock("made-up");
    for mode in ["read", "write"] {
        let _: i64 = ask(
            &redis,
            &["HSET", "made-up", "mode", mode, "u:1", "9007199254740991"],
        )
        .await;
        within(DEADLINE, async {
            drop(lock.try_read().await);
            drop(lock.try_write().await);
            let _ = lock.read_lock().holders().await;
            let _ = lock.write_lock().holders().await;
            let _ = lock.read_lock().force_unlock().await;
            let _ = lock.write_lock().force_unlock().await;
        })
        .await;
    }
    within(DEADLINE, async { drop(lock.write().await.unwrap()) }).await;
}

/// The first field of that hash is no owner, which was an "unexpected reply".
#[tokio::test]
async fn looking_at_a_read_write_lock_as_at_an_rlock_was_an_unexpected_reply() {
    let client = Client::embedded();
    let guard = client.read_write_lock("both").write().await.unwrap();
    let rlock = client.rlock("both");
    let holder = rlock.holder().await.unwrap().unwrap();
    assert_eq!(holder.as_str(), format!("{}:write", guard.hold_id()));
    assert_eq!(rlock.hold_count().await.unwrap(), 1);
    assert!(rlock.is_locked().await.unwrap());
    assert!(rlock.try_lock().await.unwrap().is_none());
    guard.unlock().await.unwrap();
}

/// Readers and both kinds of writers had separate local queues, and looked for a forced guard only in
/// their own.
#[tokio::test(start_paused = true)]
async fn a_forced_writer_reported_held_beside_a_reader_or_preferred_writer_of_its_client() {
    let engine = Engine::new();
    let client = || Client::builder().embedded(&engine).build().unwrap();
    let (client, other) = (client(), client());
    let lock = client.read_write_lock("forced");
    let other = other.read_write_lock("forced").write_lock();
    let preferred = lock.clone().prefer_writers(true);
    for [one, another] in [[&lock, &preferred], [&preferred, &lock]] {
        let first = one.write().await.unwrap();
        assert!(other.force_unlock().await.unwrap());
        let second = within(Duration::from_secs(5), another.write())
            .await
            .unwrap();
        assert!(second.is_valid());
        assert_eq!(first.state(), GuardState::Lost(LostReason::Taken));
        assert!(other.force_unlock().await.unwrap());
        let third = within(Duration::from_secs(5), one.read()).await.unwrap();
        assert!(third.is_valid());
        assert_eq!(second.state(), GuardState::Lost(LostReason::Taken));
        assert_eq!(third.unlock().await.unwrap(), Unlocked::Released);
    }
}

/// The error said that others read, also when the call was repeated.
#[tokio::test(start_paused = true)]
async fn an_upgrade_of_a_deleted_lock_was_called_contended() {
    let engine = Engine::new();
    let client = || Client::builder().embedded(&engine).build().unwrap();
    let (client, other) = (client(), client());
    let lock = client.read_write_lock("forced");
    let other = other.read_write_lock("forced");
    for written in [false, true] {
        let reading = lock.read().await.unwrap();
        assert!(other.read_lock().force_unlock().await.unwrap());
        let writing = match written {
            true => Some(other.write().await.unwrap()),
            false => None,
        };
        let refused = reading.try_upgrade().await.unwrap_err();
        assert!(refused.error().is_lost(), "{}", refused.error());
        assert!(!refused.into_guard().is_valid());
        drop(writing);
    }
}
