//! The lock or permit that is held while the command runs.

use std::pin::Pin;

use redlock_rt::{
    Client, Error, LeasedPermit, Lock, LockGuard, LockOptions, LostReason, PermitOptions, Unlocked,
};

use super::{Kind, Run};

type Answer<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// A lock or a permit.
pub(super) struct Held {
    pub(super) guard: Box<dyn Guard>,
    /// The fencing token, of a kind that has one.
    pub(super) token: Option<u64>,
}

/// The guard of a lock or a permit.
pub(super) trait Guard {
    /// The name in Redis.
    fn name(&self) -> &str;
    fn lost(&self) -> Answer<'_, LostReason>;
    fn release(self: Box<Self>) -> Answer<'static, Result<Unlocked, Error>>;
}

impl<K: redlock_rt::Kind> Guard for LockGuard<K> {
    fn name(&self) -> &str {
        Self::name(self)
    }

    fn lost(&self) -> Answer<'_, LostReason> {
        Box::pin(Self::lost(self))
    }

    fn release(self: Box<Self>) -> Answer<'static, Result<Unlocked, Error>> {
        Box::pin((*self).unlock())
    }
}

impl Guard for LeasedPermit {
    fn name(&self) -> &str {
        Self::name(self)
    }

    fn lost(&self) -> Answer<'_, LostReason> {
        Box::pin(Self::lost(self))
    }

    fn release(self: Box<Self>) -> Answer<'static, Result<Unlocked, Error>> {
        Box::pin((*self).release())
    }
}

/// Acquires what the arguments say.
pub(super) async fn acquire(client: &Client, run: &Run) -> Result<Held, Error> {
    let key = &run.key;
    match run.kind() {
        Kind::Rlock => lock(&client.rlock(key), run).await,
        Kind::Fair => lock(&client.fair_lock(key), run).await,
        Kind::Read => lock(&client.read_write_lock(key).read_lock(), run).await,
        Kind::Write => lock(&client.read_write_lock(key).write_lock(), run).await,
        Kind::Spin => lock(&client.spin_lock(key), run).await,
        Kind::Fenced => {
            let guard = client.fenced_lock(key).lock_with(options(run)).await?;
            Ok(Held {
                token: Some(guard.token()),
                guard: Box::new(guard),
            })
        }
        Kind::Semaphore => permit(client, run).await,
    }
}

async fn lock<K: redlock_rt::Kind>(lock: &Lock<K>, run: &Run) -> Result<Held, Error> {
    let guard = lock.lock_with(options(run)).await?;
    Ok(Held {
        guard: Box::new(guard),
        token: None,
    })
}

fn options(run: &Run) -> LockOptions {
    let mut options = LockOptions::new()
        .wait(run.longest_wait())
        .max_hold(run.max_hold)
        .min_hold(run.min_hold);
    if let Some(lease) = run.lease() {
        options = options.lease(lease);
    }
    if let Some(ack) = run.ack {
        options = options.replica_ack(ack);
    }
    if let Some(fsync) = run.fsync {
        options = options.fsync(fsync);
    }
    options
}

async fn permit(client: &Client, run: &Run) -> Result<Held, Error> {
    let mut semaphore = client.permit_expirable_semaphore(&run.key);
    if let Some(permits) = run.permits {
        semaphore = semaphore.limit(permits);
    }
    let mut options = PermitOptions::new()
        .wait(run.longest_wait())
        .max_hold(run.max_hold);
    if let Some(lease) = run.lease() {
        options = options.lease(lease);
    }
    if let Some(ack) = run.ack {
        options = options.replica_ack(ack);
    }
    if let Some(fsync) = run.fsync {
        options = options.fsync(fsync);
    }
    Ok(Held {
        guard: Box::new(semaphore.acquire_with(options).await?),
        token: None,
    })
}
