//! Passes: the release of a lock, fenced or with a fixed lease, that acquires it for the next task of the
//! same client.

use std::time::{Duration, Instant};

use redlock_rt::{Client, Fenced, Lock, LockGuard, Reentrant, Unlocked};
use tests::{Loss, Matcher, Passed, Place, calls, eventually, within};
use tokio::task::JoinHandle;

use crate::{DEADLINE, each, stage::Stage, tries};

/// The longest that there is: a call that was lost is repeated before the chain is over, as a rule.
const CHAIN: Duration = Duration::from_secs(1);

/// A lock whose next holder waits.
struct Turn<K: Passed> {
    guard: LockGuard<K>,
    next: JoinHandle<LockGuard<K>>,
    /// A moment before the chain began.
    began: Instant,
}

impl<K: Passed> Turn<K> {
    async fn of(stage: &Stage, chain: Duration) -> Self {
        let client = stage.client_with(|builder| {
            let builder = builder.response_timeout(crate::RESPONSE);
            builder
                .connect_timeout(2 * crate::RESPONSE)
                .hand_over(chain)
        });
        let lock = K::lock(&client, &stage.name);
        // Loads the scripts, and subscribes.
        for _ in 0..2 {
            let guard = lock.lock_with(K::options()).await.unwrap();
            let next = Self::waits(&client, &lock).await;
            guard.unlock().await.unwrap();
            let next = within(DEADLINE, next).await.unwrap();
            next.unlock().await.unwrap();
        }
        let began = Instant::now();
        let guard = lock.lock_with(K::options()).await.unwrap();
        let next = Self::waits(&client, &lock).await;
        Self { guard, next, began }
    }

    async fn waits(client: &Client, lock: &Lock<K>) -> JoinHandle<LockGuard<K>> {
        let waiter = lock.clone();
        let next = tokio::spawn(async move { waiter.lock_with(K::options()).await.unwrap() });
        eventually(DEADLINE, async || {
            let stats = client.stats();
            stats.waiting == 1 && stats.subscriptions == 1
        })
        .await;
        next
    }
}

fn passes<K: Passed>(stage: &Stage) -> Matcher {
    calls(K::SCRIPT).mentioning(&stage.name)
}

/// Only the next task has the lock, and with a newer token than `token` if there are tokens: the one
/// that Redis has.
async fn served<K: Passed>(stage: &Stage, next: JoinHandle<LockGuard<K>>, token: Option<u64>) {
    let next = within(DEADLINE, next).await.unwrap();
    let last: Option<u64> = stage.redis(&["GET", &counter(stage)]).await;
    assert_eq!(K::token(&next), last);
    assert_eq!(last > token, token.is_some());
    let owners: Vec<String> = stage.hash().await.into_keys().collect();
    assert_eq!(owners, [next.hold_id().to_string()]);
    assert_eq!(next.unlock().await.unwrap(), Unlocked::Released);
}

async fn end(stage: Stage) {
    stage.assert_free().await;
    let _: u8 = stage.redis(&["DEL", &counter(&stage)]).await;
    stage.assert_clean().await;
}

fn counter(stage: &Stage) -> String {
    format!("redisson_lock_token:{{{}}}", stage.name)
}

/// Both tasks have the same answers as without a loss: the first one has released, and the other one has
/// the lock, with the token that Redis has.
async fn whatever_is_lost<K: Passed>(place: Place) {
    each(place, &Loss::ALL, async |loss| {
        for dropped in [false, true] {
            for &times in tries(loss) {
                let stage = Stage::set(place, "pass").await;
                let Turn { guard, next, began } = Turn::<K>::of(&stage, CHAIN).await;
                let token = K::token(&guard);
                let before = stage.proxy().count(passes::<K>(&stage));
                stage.proxy().lose(loss, passes::<K>(&stage), times);
                match dropped {
                    true => drop(guard),
                    false => {
                        let outcome = guard.unlock().await.unwrap();
                        assert_eq!(outcome, Unlocked::Released, "{loss:?} {times}");
                    }
                }
                served(&stage, next, token).await;
                // On a machine that stands still meanwhile it may be over.
                let passed = stage.proxy().count(passes::<K>(&stage)) > before;
                assert!(passed || began.elapsed() >= CHAIN);
                end(stage).await;
            }
        }
    })
    .await;
}

/// The chain is over when the answer comes, so what was acquired is released, and whoever waits has it
/// after that.
async fn repeated_too_late<K: Passed>(place: Place) {
    each(place, &Loss::ALL, async |loss| {
        let stage = Stage::set(place, "late").await;
        let Turn { guard, next, .. } = Turn::<K>::of(&stage, Duration::from_millis(200)).await;
        let token = K::token(&guard);
        // After the time-out of a call it is repeated; the other way is as fast as without a loss.
        stage.proxy().lose(loss, passes::<K>(&stage), 1);
        assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
        served(&stage, next, token).await;
        end(stage).await;
    })
    .await;
}

/// Redis refuses the script: the lock is released as ever, and whoever waits has it.
async fn refused<K: Passed>(place: Place) {
    const REFUSALS: [&str; 3] = [
        "-NOPERM this user has no permissions to run the 'evalsha' command\r\n",
        "-OOM command not allowed when used memory > 'maxmemory'.\r\n",
        "-TRYAGAIN Multiple keys request during rehashing of slot\r\n",
    ];
    for refusal in REFUSALS {
        let stage = Stage::set(place, "refused").await;
        let Turn { guard, next, .. } = Turn::<K>::of(&stage, CHAIN).await;
        let token = K::token(&guard);
        stage.proxy().answer(passes::<K>(&stage), refusal, 1);
        assert_eq!(
            guard.unlock().await.unwrap(),
            Unlocked::Released,
            "{refusal}"
        );
        served(&stage, next, token).await;
        end(stage).await;
    }
}

/// Makes a case of each kind of lock.
macro_rules! cases {
    ($($case:ident: $fenced:ident $fixed:ident;)*) => {
        $(
            pub(crate) async fn $fenced(place: Place) {
                $case::<Fenced>(place).await;
            }

            pub(crate) async fn $fixed(place: Place) {
                $case::<Reentrant>(place).await;
            }
        )*
    };
}

cases! {
    whatever_is_lost: a_pass_whatever_is_lost a_pass_of_a_fixed_lease_whatever_is_lost;
    repeated_too_late:
        a_pass_that_is_repeated_too_late_is_released
        a_pass_of_a_fixed_lease_that_is_repeated_too_late_is_released;
    refused:
        a_pass_that_is_refused_is_a_release
        a_pass_of_a_fixed_lease_that_is_refused_is_a_release;
}
