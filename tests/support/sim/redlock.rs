//! A turn with a `RedLock`, whose hold is on several servers.

use std::future::Future;
use std::time::Duration;

use redlock_rt::{Error, GuardState, RedLock, RedLockGuard, Unlocked};

use super::act::{Host, sleep, told};
use super::guard::{Hold, Maybe, nested};
use super::log::Entry;
use super::plan::{Meanwhile, Turn};
use super::turn::{cut, options};
use crate::history::{Ms, Outcome};

/// How often a body says that it runs.
const OFTEN: Ms = 5;

/// A guard, with the lock.
struct Majority(RedLockGuard, RedLock);

impl Host {
    /// The lock of this key on all servers.
    pub(super) fn redlock(&self, key: &str) -> RedLock {
        let quorum = self.clients().quorum;
        let quorum = quorum.expect("a plan with a RedLock has several servers");
        quorum.redlock(key)
    }

    pub(super) async fn red(&self, entry: Entry, turn: Turn, key: &str) {
        let lock = self.redlock(key);
        if turn.meanwhile == Meanwhile::Body {
            return self.body(entry, turn, &lock).await;
        }
        let acquire = async {
            let guard = lock.lock_with(options(turn)).await?;
            Ok(Majority(guard, lock.clone()))
        };
        self.hold(entry, turn, acquire, |_| None).await;
    }

    /// A body that runs under it, with the options that are not set.
    async fn body(&self, entry: Entry, turn: Turn, lock: &RedLock) {
        let lease = self.terms().lease;
        let call = lock.with(async |guard: &RedLockGuard| {
            let owner = first(guard);
            entry.granted(&owner, None, (Some(lease), true), guard.is_valid());
            let mut left = turn.hold;
            while left > 0 {
                let nap = left.min(OFTEN);
                sleep(nap).await;
                left -= nap;
                // The body is polled before the loss drops it.
                match guard.is_valid() {
                    true => entry.believes(&parts(guard)),
                    false => entry.loses(),
                }
            }
            entry.ends("is at the end of the body with");
        });
        match cut(turn.cut, call).await {
            Some(Ok(())) => entry.over("has returned from the body with"),
            Some(Err(error)) if entry.is_granted() => {
                entry.note(&format!("was dropped in the body ({})", told(&error)));
            }
            Some(Err(error)) => entry.refused(Outcome::Failed(told(&error))),
            None if entry.is_granted() => {}
            None => entry.refused(Outcome::Cancelled),
        }
    }

    /// Whether it is locked, for what that says.
    pub(super) async fn look_at_redlock(&self, process: u32, key: &str) {
        let timeout = self.plan.quorum.map_or(0, |servers| servers.timeout);
        let lock = self.redlock(key);
        let _ = self
            .timed(process, "is_locked", timeout, lock.is_locked())
            .await;
    }
}

fn parts(guard: &RedLockGuard) -> Vec<String> {
    let ids = guard.hold_ids();
    ids.iter().map(|id| id.as_str().to_owned()).collect()
}

fn first(guard: &RedLockGuard) -> String {
    parts(guard).into_iter().next().unwrap_or_default()
}

impl Hold for Majority {
    type Again = RedLockGuard;

    fn state(&self) -> Option<GuardState> {
        Some(self.0.state())
    }

    fn owner(&self) -> String {
        first(&self.0)
    }

    fn parts(&self) -> Vec<String> {
        parts(&self.0)
    }

    async fn extend(&self, lease: Duration) -> Maybe {
        Some(self.0.extend(lease).await)
    }

    async fn again(&self) -> Option<Result<RedLockGuard, Error>> {
        Some(self.0.reenter().await)
    }

    async fn nest(&self, stay: impl Future<Output = ()> + Send) -> Maybe {
        let body = nested(self.1.lock(), stay);
        Some(self.0.run(body).await.and_then(|inner| inner))
    }

    async fn end(self) -> Result<Unlocked, Error> {
        self.0.unlock().await
    }
}
