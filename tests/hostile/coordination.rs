//! The calls about jobs, requests, barriers and leaders, and of locks that change hands.
//!
//! No name has `lock:` in it: what Redis keeps of these on purpose is no lock that is left.

use std::time::{Duration, UNIX_EPOCH};

use futures::{StreamExt, future::LocalBoxFuture};
use redlock_rt::{Client, DoubleBarrier, Error, Fenced, Fire, LockOptions, Once};
use tokio::time::timeout;

use crate::calls::WAIT;

pub(crate) type Prepared<'a> = LocalBoxFuture<'a, Result<(), Error>>;

/// Asks how many keys there are of what these calls hold; what a ticket leaves behind ends with its lease.
pub(crate) const HELD: &str = "EXISTS once:job:1000 idempotent:request redlock_barrier_parties:{barrier} \
     redlock_double_barrier_parties:{double} leader stolen";

fn job(client: &Client) -> Once {
    let fire_time = UNIX_EPOCH + Duration::from_secs(1);
    client.once("job", fire_time).wait(WAIT)
}

pub(crate) fn start(client: &Client) -> Prepared<'static> {
    let job = job(client);
    Box::pin(async move {
        match job.start().await? {
            Fire::Run(guard) => guard.done().await,
            _ => Ok(()),
        }
    })
}

pub(crate) async fn done(client: &Client) -> Result<Prepared<'static>, Error> {
    match job(client).start().await? {
        Fire::Run(guard) => Ok(Box::pin(guard.done())),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn request(client: &Client) -> Prepared<'static> {
    let request = client.idempotent("request");
    let request = request.options(LockOptions::new().wait(WAIT));
    Box::pin(async move {
        let body = async { Ok::<_, Error>(b"answer".to_vec()) };
        request.run(body).await.map(drop)
    })
}

/// With one party nobody is waited for, and with two the other never comes.
pub(crate) fn barrier(client: &Client, parties: u32) -> Prepared<'static> {
    let barrier = client.cyclic_barrier("barrier", parties);
    Box::pin(async move { barrier.wait_with(WAIT).await.map(drop) })
}

pub(crate) fn reset(client: &Client) -> Prepared<'static> {
    let barrier = client.cyclic_barrier("barrier", 1);
    Box::pin(async move { barrier.reset().await.map(drop) })
}

fn double(client: &Client) -> DoubleBarrier {
    client.double_barrier("double", 1)
}

pub(crate) fn enter(client: &Client) -> Prepared<'static> {
    let barrier = double(client);
    Box::pin(async move {
        let inside = barrier.enter_with(WAIT).await?;
        inside.leave_with(WAIT).await
    })
}

pub(crate) async fn leave(client: &Client) -> Result<Prepared<'static>, Error> {
    let inside = double(client).enter().await?;
    Ok(Box::pin(inside.leave_with(WAIT)))
}

pub(crate) async fn broken(client: &Client) -> Result<Prepared<'static>, Error> {
    let inside = double(client).enter().await?;
    Ok(Box::pin(async move {
        // A server that is right has nothing to say.
        timeout(WAIT, inside.broken()).await.map_or(Ok(()), Err)
    }))
}

pub(crate) fn campaign(client: &Client) -> Prepared<'static> {
    let election = client.leader_election("leader");
    Box::pin(async move {
        // It has no limit of its own.
        match timeout(WAIT, election.campaign()).await {
            Ok(leadership) => leadership?.resign().await.map(drop),
            Err(_) => Ok(()),
        }
    })
}

pub(crate) async fn leader(client: &Client) -> Result<Prepared<'static>, Error> {
    let election = client.leader_election("leader");
    let leadership = election.campaign().await?;
    Ok(Box::pin(async move {
        election.leader().await?;
        leadership.resign().await.map(drop)
    }))
}

pub(crate) async fn observe(client: &Client) -> Result<Prepared<'static>, Error> {
    let election = client.leader_election("leader");
    let leadership = election.campaign().await?;
    Ok(Box::pin(async move {
        let mut leaders = election.observe();
        let first = timeout(WAIT, leaders.next()).await;
        drop(leadership);
        match first {
            Ok(Some(Err(error))) => Err(error),
            _ => Ok(()),
        }
    }))
}

pub(crate) async fn steal(client: &Client) -> Result<Prepared<'static>, Error> {
    let lock = client.rlock("stolen");
    let victim = lock.lock().await?;
    Ok(Box::pin(async move {
        let thief = lock.steal("a test").await;
        drop(victim);
        thief?.unlock().await.map(drop)
    }))
}

pub(crate) async fn adopt(client: &Client) -> Result<Prepared<'static>, Error> {
    let guard = client.fenced_lock("adopted").lock().await?;
    let ticket = guard.into_ticket();
    let ticket = ticket.map_err(|refused| refused.into_error())?;
    let client = client.clone();
    Ok(Box::pin(async move {
        let guard = client.adopt::<Fenced>(&ticket).await?;
        guard.unlock().await.map(drop)
    }))
}

pub(crate) fn inspect(client: &Client) -> Prepared<'static> {
    let client = client.clone();
    Box::pin(async move { client.inspect("lock:bystander").await.map(drop) })
}
