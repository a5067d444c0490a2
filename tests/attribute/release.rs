//! Every end of a body releases its lock, and the call waits for the release as long as that matters.

use std::{pin::pin, task::Poll, time::Duration};

use redlock_rt::{Client, Error, distributed_lock};
use tests::within;
use tokio::{task::yield_now, time::Instant};

use crate::world::*;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Value,
    Return,
    QuestionMark,
    Error,
}

#[derive(Debug)]
struct Failed;

impl From<Error> for Failed {
    fn from(_: Error) -> Self {
        Self
    }
}

impl From<std::num::ParseIntError> for Failed {
    fn from(_: std::num::ParseIntError) -> Self {
        Self
    }
}

#[distributed_lock(key = "<name>", client = client)]
async fn ends(client: &Client, name: &str, end: End) -> Result<u8, Failed> {
    if end == End::Return {
        return Ok(2);
    }
    if end == End::QuestionMark {
        "no number".parse::<u8>()?;
    }
    yield_now().await;
    if end == End::Error {
        return Err(Failed);
    }
    Ok(1)
}

pub(crate) async fn every_end_releases(world: &World) {
    let client = world.client();
    for end in [End::Value, End::Return, End::QuestionMark, End::Error] {
        let value = ends(&client, &world.name, end).await.ok();
        // Succeeds at once, since the release was awaited.
        assert!(!world.is_there(&world.name).await, "{end:?}");
        let expected = match end {
            End::Value => Some(1),
            End::Return => Some(2),
            End::QuestionMark | End::Error => None,
        };
        assert_eq!(value, expected, "{end:?}");
    }
}

#[distributed_lock(key = "<name>", client = client)]
async fn panics(client: Client, name: String, late: bool) -> Done {
    if late {
        client.rlock(&name).is_locked().await?;
    }
    panic!("in the body")
}

/// Waits for the release in the background.
async fn is_released(world: &World) {
    tests::eventually(DEADLINE, async || !world.is_there(&world.name).await).await;
}

pub(crate) async fn a_panic_releases(world: &World) {
    let client = world.client();
    for late in [false, true] {
        let call = tokio::spawn(panics(client.clone(), world.name.clone(), late));
        assert!(call.await.unwrap_err().is_panic());
        is_released(world).await;
    }
}

#[distributed_lock(key = "<name>", wait = "10s", client = client)]
async fn steps(client: &Client, name: &str) -> Done {
    assert!(client.rlock(name).is_locked().await?);
    yield_now().await;
    Ok(())
}

/// Has all options that change the expansion.
#[distributed_lock(
    key = "<name>",
    wait = "10s",
    guard = held,
    on_timeout = skip,
    on_unavailable = skip,
    client = client
)]
async fn more_steps(client: &Client, name: &str) -> Done {
    assert!(client.rlock(name).is_locked().await?);
    yield_now().await;
    assert!(held.is_valid());
    Ok(())
}

/// Drops a call after this many pending polls; returns its value if it completes before.
async fn stopped_after<T>(pendings: usize, call: impl Future<Output = T>) -> Option<T> {
    let (mut call, mut left) = (pin!(call), pendings);
    std::future::poll_fn(|cx| match call.as_mut().poll(cx) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending if left == 0 => Poll::Ready(None),
        Poll::Pending => {
            left -= 1;
            Poll::Pending
        }
    })
    .await
}

pub(crate) async fn a_call_dropped_anywhere_leaves_nothing(world: &World) {
    let (client, other, name) = (world.client(), world.client(), &world.name);
    for contended in [false, true] {
        for pendings in 0.. {
            let held = match contended {
                true => Some(other.rlock(name).lock().await.unwrap()),
                false => None,
            };
            let release = async {
                if let Some(held) = held {
                    held.unlock().await.unwrap();
                }
            };
            let call = async {
                let one = stopped_after(pendings, steps(&client, name)).await;
                let two = stopped_after(pendings, more_steps(&client, name)).await;
                one.and(two)
            };
            let (outcome, ()) = tokio::join!(call, release);
            // The next caller gets the lock.
            within(DEADLINE, steps(&other, name)).await.unwrap();
            is_released(world).await;
            let Some(outcome) = outcome else {
                continue;
            };
            outcome.unwrap();
            // Where replies are there at the next poll, a call has fewer places to be dropped at.
            assert!(pendings > 0, "it was dropped nowhere");
            if pendings > 2 {
                break;
            }
        }
    }
}

#[distributed_lock(key = "<name>", lease = "20s", client = client)]
async fn hangs(client: &Client, name: &str, wires: &tests::Wires) -> Result<u8, Error> {
    wires.hang();
    Ok(1)
}

#[distributed_lock(key = "<name>", lease = "2s", renew = false, client = client)]
async fn hangs_with_short_lease(
    client: &Client,
    name: &str,
    wires: &tests::Wires,
) -> Result<u8, Error> {
    wires.hang();
    Ok(1)
}

pub(crate) async fn a_release_is_awaited_for_a_response_time_out(world: &World) {
    let (client, wires) = world.wired(|builder| builder.response_timeout(SPAN));
    let start = Instant::now();
    let value = within(DEADLINE, hangs(&client, &world.name, &wires)).await;
    assert_eq!(value.unwrap(), 1);
    assert_passed(start, SPAN);
    assert_eq!(client.stats().late_losses, 0, "nothing is known");
    // The release continues without the caller.
    wires.speak();
    is_released(world).await;
}

pub(crate) async fn a_release_is_awaited_for_the_rest_of_the_lease(world: &World) {
    let long = Duration::from_secs(8);
    let (client, wires) = world.wired(|builder| builder.response_timeout(long));
    let start = Instant::now();
    let value = within(
        DEADLINE,
        hangs_with_short_lease(&client, &world.name, &wires),
    )
    .await;
    assert_eq!(value.unwrap(), 1);
    assert_passed(start, SPAN);
    wires.speak();
    is_released(world).await;
}
