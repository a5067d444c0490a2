//! A chain of hand-overs has fencing tokens that nobody else was given, without a call.

use std::time::Duration;

use futures::{FutureExt, future::BoxFuture};
use redlock_rt::{ClientBuilder, Fenced, FencedLockGuard, Unlocked};
use tests::RedissonClient;
use tokio::time::{advance, sleep};
use tokio_test::{assert_ready, task::Spawn};

use crate::stage::{self, MS, NAME, waiter};

type Stage = stage::Stage<Fenced>;
type Waiter = Spawn<BoxFuture<'static, FencedLockGuard>>;

impl Stage {
    async fn open() -> Self {
        Self::built(|builder| builder).await
    }

    async fn built(build: impl FnOnce(ClientBuilder) -> ClientBuilder) -> Self {
        let stage = Self::connect(build, |client| client.fenced_lock(NAME), 2).await;
        // Loads the scripts of the other client, too.
        drop(stage.other.lock().await.unwrap());
        stage
    }

    async fn waiter(&self) -> Waiter {
        let lock = self.lock.clone();
        let locks = async move { lock.lock().await.unwrap() };
        waiter(locks.boxed()).await
    }

    /// Releases and acquisitions since.
    fn called(&self, before: usize) -> [usize; 2] {
        self.calls_of(before, ["rlock_release", "fenced_acquire"])
    }

    /// A guard that was acquired so long `after` another while these wait behind.
    async fn chain<const N: usize>(&self, after: Duration) -> (FencedLockGuard, [Waiter; N]) {
        sleep(MS).await;
        let first = self.held().await;
        let head = self.waiter().await;
        let mut behind = Vec::new();
        for _ in 0..N {
            behind.push(self.waiter().await);
        }
        advance(after).await;
        // Nobody had waited when it was acquired, so it has no token for another.
        let before = self.wires.count();
        first.unlock().await.unwrap();
        let head = head.await;
        assert_eq!(self.called(before), [1, 1]);
        let behind = behind.try_into();
        (head, behind.unwrap_or_else(|_| unreachable!("N waiters")))
    }

    async fn last(&self) -> u64 {
        self.lock.token().await.unwrap().unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn each_turn_has_a_greater_token_and_no_call() {
    let stage = Stage::open().await;
    let before = stage.last().await;
    let (mut guard, waiters) = stage.chain::<20>(MS).await;
    let mut tokens = vec![before, guard.token()];
    let counted = stage.wires.count();
    for mut next in waiters {
        assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
        guard = assert_ready!(next.poll());
        tokens.push(guard.token());
    }
    assert_eq!(stage.called(counted), [0, 0]);
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
    let last = stage.last().await;
    assert!(*tokens.last().unwrap() <= last);
    guard.unlock().await.unwrap();
    // The next holders, of this library and of Redisson.
    let next = stage.other.lock().await.unwrap();
    let token = next.token();
    assert!(token > last);
    next.unlock().await.unwrap();
    let java = RedissonClient::connect_from(stage.wires.surroundings(), Duration::from_secs(1));
    let java = java.await.unwrap().fenced_lock(NAME);
    let theirs = java.lock_and_get_token(1, None).await.unwrap().unwrap();
    assert!(theirs > token.cast_signed());
    java.unlock(1).await.unwrap();
}

/// A chain has as many as there are microseconds since the last token.
#[tokio::test(start_paused = true)]
async fn a_chain_ends_with_its_tokens() {
    for tokens in [0, 1, 4_u8] {
        let stage = Stage::open().await;
        let (mut guard, waiters) = stage.chain::<6>(Duration::from_micros(tokens.into())).await;
        let mut own = 1;
        let counted = stage.wires.count();
        for next in waiters {
            guard.unlock().await.unwrap();
            guard = next.await;
            match stage.called(counted) {
                [0, 0] => own += 1,
                _ => break,
            }
        }
        assert_eq!(own, tokens.max(1));
        guard.unlock().await.unwrap();
    }
}

/// Its acquisition sets how long the last token stays.
#[tokio::test(start_paused = true)]
async fn a_handle_with_another_token_ttl_asks_redis() {
    let stage = Stage::open().await;
    let (guard, []) = stage.chain::<0>(MS).await;
    let day = stage.lock.clone().token_ttl(Duration::from_secs(86_400));
    let next = waiter(day.lock()).await;
    let counted = stage.wires.count();
    guard.unlock().await.unwrap();
    next.await.unwrap().unlock().await.unwrap();
    assert_eq!(stage.called(counted), [2, 1]);
}

/// The tasks of the chain do not know that the server lost the lock, and its counter, or both.
#[tokio::test(start_paused = true)]
async fn what_is_handed_over_after_a_loss_has_a_token_that_is_refused() {
    for lost in [&[NAME][..], &[NAME, "redisson_lock_token:{passed}"]] {
        let stage = Stage::open().await;
        let (guard, [mut second, mut third]) = stage.chain::<2>(MS).await;
        guard.unlock().await.unwrap();
        let second = assert_ready!(second.poll());
        let deleted: usize = stage.command(&[&["DEL"], lost].concat()).await;
        assert_eq!(deleted, lost.len());
        let taken = stage.other.lock().await.unwrap();
        assert_eq!(second.unlock().await.unwrap(), Unlocked::Released);
        let third = assert_ready!(third.poll());
        assert!(third.token() < taken.token(), "{lost:?}");
        assert_eq!(third.unlock().await.unwrap(), Unlocked::AlreadyExpired);
    }
}

/// The one that asks is alone whenever it asks.
#[tokio::test(start_paused = true)]
async fn two_tasks_hand_the_lock_over_too() {
    let stage = Stage::open().await;
    let (mut guard, []) = stage.chain::<0>(MS).await;
    let counted = stage.wires.count();
    for _ in 0..9 {
        let mut next = stage.waiter().await;
        guard.unlock().await.unwrap();
        guard = assert_ready!(next.poll());
    }
    assert_eq!(stage.called(counted), [0, 0]);
}

/// Those before its own may have been given before the loss.
#[tokio::test(start_paused = true)]
async fn without_a_last_token_an_acquisition_has_one_alone() {
    let stage = Stage::open().await;
    sleep(MS).await;
    let first = stage.held().await;
    let (head, _behind) = (stage.waiter().await, stage.waiter().await);
    let deleted: u8 = stage
        .command(&["DEL", "redisson_lock_token:{passed}"])
        .await;
    assert_eq!(deleted, 1);
    advance(MS).await;
    first.unlock().await.unwrap();
    assert_eq!(head.await.token(), stage.last().await);
}

/// The lock's token was above that of its holder.
#[tokio::test(start_paused = true)]
async fn where_locks_are_not_handed_over_an_acquisition_has_one_alone() {
    let stage = Stage::built(|builder| builder.hand_over(Duration::ZERO)).await;
    let (guard, [_waiter]) = stage.chain::<1>(MS).await;
    assert_eq!(guard.token(), stage.last().await);
}
