//! The release of a fair lock that gives the lock to the next task of the same client.

use std::time::Duration;

use redlock_rt::{FairLockGuard, Unlocked};
use tests::{Loss, Place, calls, eventually, within};
use tokio::task::JoinHandle;

use crate::{DEADLINE, RESPONSE, each, stage::Stage, tries};

const NEVER: Duration = Duration::from_secs(600);
/// The reply to a heartbeat about one lock: no waiter of this client is next, and the lock is held for 30 s.
const HELD: &str = "*1\r\n*2\r\n$0\r\n\r\n:30000\r\n";

/// The first waiter has the lock after that, and the second one waits on; both know it.
pub(crate) async fn a_turn_of_a_fair_lock_whatever_is_lost(place: Place) {
    each(place, &Loss::ALL, async |loss| {
        for dropped in [false, true] {
            for &times in tries(loss) {
                let stage = Stage::set(place, "fair-turn").await;
                let client = stage.client_with(|builder| {
                    let builder = builder.response_timeout(RESPONSE);
                    let builder = builder.connect_timeout(2 * RESPONSE);
                    builder.poll_interval(NEVER).waiter_timeout(NEVER)
                });
                let lock = client.fair_lock(&stage.name);
                // Loads the scripts.
                lock.lock().await.unwrap().unlock().await.unwrap();
                let waits = || -> JoinHandle<FairLockGuard> {
                    let waiter = lock.clone();
                    tokio::spawn(async move { waiter.lock().await.unwrap() })
                };
                let queued = async |count| {
                    eventually(DEADLINE, async || lock.queue_len().await.unwrap() == count).await;
                };
                let guard = lock.lock().await.unwrap();
                // By a heartbeat the waiter would learn that it has the lock, and ask for it.
                let beat = calls("fair_beat").mentioning(&stage.name);
                stage.proxy().answer(beat, HELD, usize::MAX);
                let first = waits();
                queued(1).await;
                let second = waits();
                queued(2).await;
                let releases = || calls("fair_release").mentioning(&stage.name);
                let asked = || calls("fair_acquire").mentioning(&stage.name);
                let before = stage.proxy().count(asked());
                stage.proxy().lose(loss, releases(), times);
                match dropped {
                    true => drop(guard),
                    false => {
                        let outcome = guard.unlock().await.unwrap();
                        assert_eq!(outcome, Unlocked::Released, "{loss:?} {times}");
                    }
                }
                let first = within(DEADLINE, first).await.unwrap();
                assert_eq!(stage.proxy().count(asked()), before, "it did not ask");
                let owners: Vec<String> = stage.hash().await.into_keys().collect();
                assert_eq!(owners, [first.hold_id().to_string()]);
                assert!(!second.is_finished());
                assert_eq!(lock.queue_len().await.unwrap(), 1);
                assert_eq!(first.unlock().await.unwrap(), Unlocked::Released);
                let second = within(DEADLINE, second).await.unwrap();
                assert_eq!(second.unlock().await.unwrap(), Unlocked::Released);
                stage.assert_clean().await;
            }
        }
    })
    .await;
}
