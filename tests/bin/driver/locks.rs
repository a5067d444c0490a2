//! The commands of locks of every kind.

use std::{sync::Arc, time::Duration};

use redlock_rt::LockOptions;

use super::{
    answer::{Failure, Outcome},
    clients::Connected,
    command::{LockCommand, OwnedCommand},
    kinds::{Handle, LockId},
    owners::OwnerState,
};

/// The commands about a lock that need no owner.
pub(crate) async fn lock_command(client: &Connected, id: &LockId, of: LockCommand) -> Outcome {
    let lock = id.open(client)?;
    Ok(match of {
        LockCommand::ForceUnlock => lock.force_unlock().await?.to_string(),
        LockCommand::IsLocked => lock.is_locked().await?.to_string(),
        LockCommand::Ttl => or_nil(lock.ttl().await?.map(|ttl| ttl.as_millis())),
        LockCommand::Holder => or_nil(lock.holders().await?.first()),
        LockCommand::Len => match lock.queue() {
            Some(lock) => lock.queue_len().await?.to_string(),
            None => or_nil(None::<u64>),
        },
    })
}

/// The commands of an owner about a lock or its hold.
pub(crate) async fn owned_command(
    client: &Connected,
    id: &LockId,
    owner: &Arc<OwnerState>,
    of: OwnedCommand,
) -> Outcome {
    let lock = id.open(client)?;
    match of {
        OwnedCommand::Lock { lease } => {
            let token = take(&*lock, id, owner, options(owner, lease)).await?;
            Ok(token.map_or_else(|| "ok".to_owned(), |token| token.to_string()))
        }
        OwnedCommand::TryLock { wait, lease } => {
            let taken = take(&*lock, id, owner, options(owner, lease).wait(wait)).await;
            try_answer(taken, lock.has_tokens())
        }
        OwnedCommand::Unlock => owner.unlock(id).await,
        OwnedCommand::Convert => owner.convert(id).await,
        OwnedCommand::Ticket => owner.ticket(id).await,
        OwnedCommand::Adopt(ticket) => {
            let guard = lock.adopt(&client.client, ticket).await?;
            let token = guard.token();
            owner.add(id, guard);
            Ok(token.map_or_else(|| "ok".to_owned(), |token| token.to_string()))
        }
        OwnedCommand::HeldBy => {
            let Some(ours) = owner.id(id) else {
                return Ok("false".to_owned());
            };
            Ok(lock.holders().await?.contains(&ours).to_string())
        }
        OwnedCommand::Held => Ok(owner.held(id).to_string()),
        OwnedCommand::Lost { wait } => owner.lost(id, wait).await,
        OwnedCommand::HoldCount => Ok(owner.hold_count(id).to_string()),
        OwnedCommand::Owner => identity(client, id, owner),
        OwnedCommand::Position => match lock.queue() {
            Some(lock) => Ok(or_nil(lock.position(&owner.identity).await?)),
            None => Ok(or_nil(None::<u64>)),
        },
    }
}

/// The owner's present hold, or its place in the queue; without a kind, of any kind.
fn identity(client: &Connected, id: &LockId, owner: &OwnerState) -> Outcome {
    for id in id.of_any_kind() {
        if let Some(held) = owner.id(&id) {
            return Ok(held.to_string());
        }
        // A kind that this client cannot have needs no wait.
        if let Ok(lock) = id.open(client)
            && let Some(lock) = lock.queue()
            && let Some(waiting) = lock.waiting_as(&owner.identity)?
        {
            return Ok(waiting.to_string());
        }
    }
    Ok(or_nil(None::<&str>))
}

fn try_answer(taken: Result<Option<u64>, Failure>, has_tokens: bool) -> Outcome {
    let taken = match taken {
        Ok(token) => Some(token),
        Err(failure) if matches!(failure.kind, "contended" | "timed_out") => None,
        Err(failure) => return Err(failure),
    };
    Ok(if has_tokens {
        or_nil(taken.flatten())
    } else {
        taken.is_some().to_string()
    })
}

/// The token, if the kind has one.
async fn take(
    lock: &dyn Handle,
    id: &LockId,
    owner: &OwnerState,
    options: LockOptions,
) -> Result<Option<u64>, Failure> {
    let guard = lock.lock(options).await?;
    let token = guard.token();
    owner.add(id, guard);
    Ok(token)
}

/// An explicit lease is not renewed.
fn options(owner: &OwnerState, lease: Option<Duration>) -> LockOptions {
    let options = LockOptions::new().owner(&owner.identity);
    match lease {
        Some(lease) => options.lease(lease).renew(false),
        None => options,
    }
}

pub(crate) fn or_nil(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "nil".to_owned(), |value| value.to_string())
}
