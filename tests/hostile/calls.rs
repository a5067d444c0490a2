//! A call of every primitive, each within a bound.

use std::time::Duration;

use redlock_rt::{Client, Error, FencedLockGuard, Kind, Lock, LockOptions, Owner, PermitOptions};

use crate::coordination::{self, Prepared};

pub(crate) const WAIT: Duration = Duration::from_secs(1);

/// What a caller asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Try,
    Lock,
    Contend,
    Extend,
    Reenter,
    Unlock,
    With,
    Look,
    Force,
    Fair,
    FairContend,
    Position,
    Read,
    Write,
    Fenced,
    Token,
    Set,
    Exec,
    Spin,
    Multi,
    MultiTry,
    SetPermits,
    Acquire,
    Release,
    Drain,
    Available,
    Leased,
    LeasedExtend,
    LeasedLook,
    SetCount,
    CountDown,
    Await,
    Count,
    Delete,
    Start,
    Done,
    Request,
    Pass,
    Meet,
    Reset,
    Enter,
    Leave,
    Broken,
    Campaign,
    Leader,
    Observe,
    Steal,
    Adopt,
    Inspect,
}

pub(crate) const CALLS: [Call; 49] = [
    Call::Try,
    Call::Lock,
    Call::Contend,
    Call::Extend,
    Call::Reenter,
    Call::Unlock,
    Call::With,
    Call::Look,
    Call::Force,
    Call::Fair,
    Call::FairContend,
    Call::Position,
    Call::Read,
    Call::Write,
    Call::Fenced,
    Call::Token,
    Call::Set,
    Call::Exec,
    Call::Spin,
    Call::Multi,
    Call::MultiTry,
    Call::SetPermits,
    Call::Acquire,
    Call::Release,
    Call::Drain,
    Call::Available,
    Call::Leased,
    Call::LeasedExtend,
    Call::LeasedLook,
    Call::SetCount,
    Call::CountDown,
    Call::Await,
    Call::Count,
    Call::Delete,
    Call::Start,
    Call::Done,
    Call::Request,
    Call::Pass,
    Call::Meet,
    Call::Reset,
    Call::Enter,
    Call::Leave,
    Call::Broken,
    Call::Campaign,
    Call::Leader,
    Call::Observe,
    Call::Steal,
    Call::Adopt,
    Call::Inspect,
];

async fn hold<K: Kind>(lock: &Lock<K>) -> Result<(), Error> {
    let options = LockOptions::new().wait(WAIT);
    lock.lock_with(options).await?.unlock().await.map(drop)
}

impl Call {
    /// Whether the first command is its own: a lock that this client holds itself is waited for
    /// without asking, and who observes subscribes first.
    pub(crate) fn asks(self) -> bool {
        !matches!(self, Self::Contend | Self::FairContend | Self::Observe)
    }

    /// Prepares what the call is about, on a server that behaves, and returns the call.
    pub(crate) async fn prepared<'a>(self, client: &'a Client) -> Result<Prepared<'a>, Error> {
        let lock = client.rlock("lock:a");
        let fair = client.fair_lock("lock:fair");
        let rw = client.read_write_lock("lock:rw");
        let fenced = client.fenced_lock("lock:fenced");
        let value = client.fenced_value("value");
        let plain = client.semaphore("plain");
        let leased = client.permit_expirable_semaphore("leased");
        let latch = client.count_down_latch("latch");
        let waiting = LockOptions::new().wait(WAIT);
        let permits = PermitOptions::new().wait(WAIT);
        Ok(match self {
            Self::Try => Box::pin(async move {
                match lock.try_lock().await? {
                    Some(guard) => guard.unlock().await.map(drop),
                    None => Ok(()),
                }
            }),
            Self::Lock => Box::pin(async move { hold(&lock).await }),
            Self::Contend => {
                let holder = lock.lock().await?;
                Box::pin(async move {
                    let outcome = hold(&lock).await;
                    drop(holder);
                    outcome
                })
            }
            Self::Extend => {
                let guard = lock.lock().await?;
                Box::pin(async move { guard.extend(Duration::from_secs(90)).await })
            }
            Self::Reenter => {
                let guard = lock.lock().await?;
                Box::pin(async move { guard.reenter().await.map(drop) })
            }
            Self::Unlock => {
                let guard = lock.lock().await?;
                Box::pin(async move { guard.unlock().await.map(drop) })
            }
            Self::With => Box::pin(async move {
                let limited = lock.lock_with(waiting).await?;
                limited.run(std::future::ready(())).await
            }),
            Self::Look => Box::pin(async move { lock.hold_count().await.map(drop) }),
            Self::Force => Box::pin(async move { lock.force_unlock().await.map(drop) }),
            Self::Fair => Box::pin(async move { hold(&fair).await }),
            Self::FairContend => {
                let holder = fair.lock().await?;
                Box::pin(async move {
                    let outcome = hold(&fair).await;
                    drop(holder);
                    outcome
                })
            }
            Self::Position => {
                let owner = Owner::new();
                Box::pin(async move {
                    fair.position(&owner).await?;
                    fair.queue_len().await.map(drop)
                })
            }
            Self::Read => Box::pin(async move { hold(&rw.read_lock()).await }),
            Self::Write => Box::pin(async move { hold(&rw.write_lock()).await }),
            Self::Fenced => Box::pin(async move {
                let guard: FencedLockGuard = fenced.lock_with(waiting).await?;
                assert!(guard.token() > 0);
                guard.unlock().await.map(drop)
            }),
            Self::Token => Box::pin(async move { fenced.token().await.map(drop) }),
            Self::Set => Box::pin(async move { value.set("v", 1).await }),
            Self::Exec => Box::pin(async move {
                value
                    .exec("return {1, {2, 'x'}}", &["a"], 1)
                    .await
                    .map(drop)
            }),
            Self::Spin => {
                let spin = client.spin_lock("lock:spin");
                Box::pin(async move { hold(&spin).await })
            }
            Self::Multi => {
                let multi = client.multi_lock(["lock:a", "lock:b", "lock:c"]);
                Box::pin(async move { multi.lock_with(waiting).await?.unlock().await.map(drop) })
            }
            Self::MultiTry => {
                let multi = client.multi_lock(["lock:a", "lock:b", "lock:c"]);
                Box::pin(async move {
                    match multi.try_lock().await? {
                        Some(guard) => guard.unlock().await.map(drop),
                        None => Ok(()),
                    }
                })
            }
            Self::SetPermits => Box::pin(async move { plain.try_set_permits(3).await.map(drop) }),
            Self::Acquire => {
                plain.try_set_permits(3).await?;
                Box::pin(async move {
                    let permit = plain.acquire_with(permits).await?;
                    permit.release().await.map(drop)
                })
            }
            Self::Release => Box::pin(async move { plain.release(2).await }),
            Self::Drain => {
                plain.try_set_permits(3).await?;
                Box::pin(async move { plain.drain().await.map(drop) })
            }
            Self::Available => Box::pin(async move { plain.available_permits().await.map(drop) }),
            Self::Leased => {
                leased.try_set_permits(3).await?;
                Box::pin(async move {
                    let permit = leased.acquire_with(permits.permits(2)).await?;
                    permit.release().await.map(drop)
                })
            }
            Self::LeasedExtend => {
                leased.try_set_permits(3).await?;
                let permit = leased.acquire().await?;
                Box::pin(async move { permit.extend(Duration::from_secs(90)).await })
            }
            Self::LeasedLook => Box::pin(async move { leased.permits().await.map(drop) }),
            Self::SetCount => Box::pin(async move { latch.try_set_count(2).await.map(drop) }),
            Self::CountDown => {
                latch.try_set_count(2).await?;
                let guard = latch.count_down_guard()?;
                Box::pin(async move { guard.count_down().await.map(drop) })
            }
            Self::Await => {
                latch.try_set_count(2).await?;
                Box::pin(async move { latch.wait_with(WAIT).await })
            }
            Self::Count => Box::pin(async move { latch.count().await.map(drop) }),
            Self::Delete => Box::pin(async move { latch.delete().await.map(drop) }),
            Self::Start => coordination::start(client),
            Self::Done => coordination::done(client).await?,
            Self::Request => coordination::request(client),
            Self::Pass => coordination::barrier(client, 1),
            Self::Meet => coordination::barrier(client, 2),
            Self::Reset => coordination::reset(client),
            Self::Enter => coordination::enter(client),
            Self::Leave => coordination::leave(client).await?,
            Self::Broken => coordination::broken(client).await?,
            Self::Campaign => coordination::campaign(client),
            Self::Leader => coordination::leader(client).await?,
            Self::Observe => coordination::observe(client).await?,
            Self::Steal => coordination::steal(client).await?,
            Self::Adopt => coordination::adopt(client).await?,
            Self::Inspect => coordination::inspect(client),
        })
    }
}
