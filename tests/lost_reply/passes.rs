//! Passes: the release of a fenced lock that acquires it for the next task of the same client.

use std::time::{Duration, Instant};

use redlock_rt::{FencedLock, FencedLockGuard, Unlocked};
use tests::{Loss, Matcher, Place, calls, eventually, within};
use tokio::task::JoinHandle;

use crate::{DEADLINE, each, stage::Stage, tries};

/// The longest that there is: a call that was lost is repeated before the chain is over, as a rule.
const CHAIN: Duration = Duration::from_secs(1);

/// A lock whose next holder waits.
struct Turn {
    lock: FencedLock,
    guard: FencedLockGuard,
    next: JoinHandle<FencedLockGuard>,
    /// A moment before the chain began.
    began: Instant,
}

impl Turn {
    async fn of(stage: &Stage, chain: Duration) -> Self {
        let client = stage.client_with(|builder| {
            let builder = builder.response_timeout(crate::RESPONSE);
            builder
                .connect_timeout(2 * crate::RESPONSE)
                .hand_over(chain)
        });
        let lock = client.fenced_lock(&stage.name);
        // Loads the scripts, and subscribes.
        for _ in 0..2 {
            let guard = lock.lock().await.unwrap();
            let next = Self::waits(&client, &lock).await;
            guard.unlock().await.unwrap();
            let next = within(DEADLINE, next).await.unwrap();
            next.unlock().await.unwrap();
        }
        let began = Instant::now();
        let guard = lock.lock().await.unwrap();
        let next = Self::waits(&client, &lock).await;
        Self {
            lock,
            guard,
            next,
            began,
        }
    }

    async fn waits(client: &redlock_rt::Client, lock: &FencedLock) -> JoinHandle<FencedLockGuard> {
        let waiter = lock.clone();
        let next = tokio::spawn(async move { waiter.lock().await.unwrap() });
        eventually(DEADLINE, async || {
            let stats = client.stats();
            stats.waiting == 1 && stats.subscriptions == 1
        })
        .await;
        next
    }
}

fn passes(stage: &Stage) -> Matcher {
    calls("fenced_pass").mentioning(&stage.name)
}

async fn end(stage: Stage) {
    stage.assert_free().await;
    let counter = format!("redisson_lock_token:{{{}}}", stage.name);
    let _: u8 = stage.redis(&["DEL", &counter]).await;
    stage.assert_clean().await;
}

/// Both tasks have the same answers as without a loss: the first one has released, and the other one has
/// the lock, with the token that Redis has.
pub(crate) async fn a_pass_whatever_is_lost(place: Place) {
    each(place, &Loss::ALL, async |loss| {
        for dropped in [false, true] {
            for &times in tries(loss) {
                let stage = Stage::set(place, "pass").await;
                let turn = Turn::of(&stage, CHAIN).await;
                let Turn {
                    lock, guard, next, ..
                } = turn;
                let token = guard.token();
                let before = stage.proxy().count(passes(&stage));
                stage.proxy().lose(loss, passes(&stage), times);
                match dropped {
                    true => drop(guard),
                    false => {
                        let outcome = guard.unlock().await.unwrap();
                        assert_eq!(outcome, Unlocked::Released, "{loss:?} {times}");
                    }
                }
                let next = within(DEADLINE, next).await.unwrap();
                // On a machine that stands still meanwhile it may be over.
                let passed = stage.proxy().count(passes(&stage)) > before;
                assert!(passed || turn.began.elapsed() >= CHAIN);
                assert!(next.token() > token);
                assert_eq!(lock.token().await.unwrap(), Some(next.token()));
                let owners: Vec<String> = stage.hash().await.into_keys().collect();
                assert_eq!(owners, [next.hold_id().to_string()]);
                assert_eq!(next.unlock().await.unwrap(), Unlocked::Released);
                end(stage).await;
            }
        }
    })
    .await;
}

/// The chain is over when the answer comes, so what was acquired is released, and whoever waits has it
/// after that.
pub(crate) async fn a_pass_that_is_repeated_too_late_is_released(place: Place) {
    each(place, &Loss::ALL, async |loss| {
        let stage = Stage::set(place, "late").await;
        let Turn { guard, next, .. } = Turn::of(&stage, Duration::from_millis(200)).await;
        let token = guard.token();
        // After the time-out of a call it is repeated; the other way is as fast as without a loss.
        stage.proxy().lose(loss, passes(&stage), 1);
        assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
        let next = within(DEADLINE, next).await.unwrap();
        assert!(next.token() > token);
        let owners: Vec<String> = stage.hash().await.into_keys().collect();
        assert_eq!(owners, [next.hold_id().to_string()]);
        assert_eq!(next.unlock().await.unwrap(), Unlocked::Released);
        end(stage).await;
    })
    .await;
}

/// Redis refuses the script: the lock is released as ever, and whoever waits has it.
pub(crate) async fn a_pass_that_is_refused_is_a_release(place: Place) {
    const REFUSALS: [&str; 3] = [
        "-NOPERM this user has no permissions to run the 'evalsha' command\r\n",
        "-OOM command not allowed when used memory > 'maxmemory'.\r\n",
        "-TRYAGAIN Multiple keys request during rehashing of slot\r\n",
    ];
    for refusal in REFUSALS {
        let stage = Stage::set(place, "refused").await;
        let Turn { guard, next, .. } = Turn::of(&stage, CHAIN).await;
        let token = guard.token();
        stage.proxy().answer(passes(&stage), refusal, 1);
        assert_eq!(
            guard.unlock().await.unwrap(),
            Unlocked::Released,
            "{refusal}"
        );
        let next = within(DEADLINE, next).await.unwrap();
        assert!(next.token() > token);
        assert_eq!(next.unlock().await.unwrap(), Unlocked::Released);
        end(stage).await;
    }
}
