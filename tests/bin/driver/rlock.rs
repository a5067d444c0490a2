//! The commands of RLock.

use std::{sync::Arc, time::Duration};

use redlock_rt::{LockOptions, RLock};

use super::{
    answer::{Failure, Outcome},
    clients::Connected,
    command::{LockCommand, OwnedCommand},
    owners::OwnerState,
};

/// What can be asked of a lock without being one of its owners.
pub(crate) async fn lock_command(client: &Connected, name: &str, of: LockCommand) -> Outcome {
    let lock = client.client.rlock(name);
    Ok(match of {
        LockCommand::ForceUnlock => lock.force_unlock().await?.to_string(),
        LockCommand::IsLocked => lock.is_locked().await?.to_string(),
        LockCommand::Ttl => or_nil(lock.remaining_ttl().await?.map(|ttl| ttl.as_millis())),
        LockCommand::Holder => or_nil(lock.holder().await?),
    })
}

/// What an owner does with a lock or asks about its hold.
pub(crate) async fn owned_command(
    client: &Connected,
    name: &str,
    owner: &Arc<OwnerState>,
    of: OwnedCommand,
) -> Outcome {
    let lock = client.client.rlock(name);
    match of {
        OwnedCommand::Lock { lease } => {
            let taken = take(&lock, name, owner, options(owner, lease)).await;
            taken.map(|()| "ok".to_owned())
        }
        OwnedCommand::TryLock { wait, lease } => try_lock(&lock, name, owner, wait, lease).await,
        OwnedCommand::Unlock => owner.unlock(name).await,
        OwnedCommand::HeldBy => {
            let Some(id) = owner.id(name) else {
                return Ok("false".to_owned());
            };
            Ok((lock.holder().await? == Some(id)).to_string())
        }
        OwnedCommand::Held => Ok(owner.held(name).to_string()),
        OwnedCommand::Lost { wait } => owner.lost(name, wait).await,
        OwnedCommand::HoldCount => Ok(owner.hold_count(name).to_string()),
        OwnedCommand::Owner => Ok(or_nil(owner.id(name))),
    }
}

async fn try_lock(
    lock: &RLock,
    name: &str,
    owner: &OwnerState,
    wait: Duration,
    lease: Option<Duration>,
) -> Outcome {
    match take(lock, name, owner, options(owner, lease).wait(wait)).await {
        Ok(()) => Ok("true".to_owned()),
        Err(failure) if matches!(failure.kind, "contended" | "timed_out") => Ok("false".to_owned()),
        Err(failure) => Err(failure),
    }
}

async fn take(
    lock: &RLock,
    name: &str,
    owner: &OwnerState,
    options: LockOptions,
) -> Result<(), Failure> {
    owner.add(name, lock.lock_with(options).await?);
    Ok(())
}

/// A lease that is given is not renewed.
fn options(owner: &OwnerState, lease: Option<Duration>) -> LockOptions {
    let options = LockOptions::new().owner(&owner.identity);
    match lease {
        Some(lease) => options.lease(lease).renew(false),
        None => options,
    }
}

fn or_nil(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "nil".to_owned(), |value| value.to_string())
}
