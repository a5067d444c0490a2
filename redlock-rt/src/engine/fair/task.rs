//! The task that beats.

use std::sync::Arc;

use futures::StreamExt;
use futures::stream::FuturesUnordered;

use super::FairMap;
use super::batch::PendingBeat;
use crate::clock;
use crate::connection::{Caller, Connection, Delivery, Fault};
use crate::shim::lock;
use crate::wire::{Beat, Heartbeat, Reply, beat};

/// Calls under way at once: while one of them is not answered the others go on.
const MOST_CALLS: usize = 4;

/// Runs until the client is shut down.
pub(in crate::engine) async fn run(map: Arc<FairMap>, connection: Arc<Connection>) {
    let mut under_way = FuturesUnordered::new();
    while !map.signal.is_closed() {
        while under_way.len() < MOST_CALLS {
            let batch = map.pick(clock::now());
            if batch.is_empty() {
                break;
            }
            under_way.push(send(&map, batch, &connection));
        }
        let next = lock(&map.schedule).arm(clock::now());
        // Where no more calls may be sent, the end of one is waited for.
        let next = next.filter(|_| under_way.len() < MOST_CALLS);
        tokio::select! {
            () = map.signal.notified() => {}
            () = clock::sleep_until(next.unwrap_or_else(clock::now)), if next.is_some() => {}
            Some(()) = under_way.next(), if !under_way.is_empty() => {}
        }
    }
}

/// Sends the beats of a batch, and hands on the answers. If Redis refuses them, which one of several
/// names may have brought about, it sends each half alone.
async fn send(map: &FairMap, batch: Vec<PendingBeat>, connection: &Connection) {
    let together = batch.len() > 1;
    let mut parts = vec![batch];
    while let Some(mut part) = parts.pop() {
        let of: Vec<Heartbeat<'_>> = part.iter().filter_map(heartbeat).collect();
        let call = beat(&map.client, &of);
        let asked = Delivery::default().attempt(connection, || call, None).await;
        let Some(asked) = asked else {
            // What is dropped counts as failed.
            return;
        };
        let decode = |reply: Reply| Beat::decode_all(reply, part.len()).map_err(Fault::from);
        let now = clock::now();
        match asked.and_then(decode) {
            Ok(beats) => {
                // One draw for all: they go on together.
                let spread = fastrand::f64();
                for (pending, beat) in part.into_iter().zip(&beats) {
                    if !together {
                        pending.waiters.rejoin();
                    }
                    pending.answered(|waiters| waiters.beat_answered(beat, spread, now));
                }
            }
            Err(fault) if fault.is_passing_for(Caller::Beat) => {
                tracing::debug!(names = part.len(), ?fault, "beats failed");
            }
            Err(_) if part.len() > 1 => {
                let rest = part.split_off(part.len() / 2);
                parts.extend([rest, part]);
            }
            Err(fault) => {
                for pending in part {
                    let lock = pending.waiters.name().as_str();
                    tracing::debug!(lock, ?fault, "beat refused");
                    pending.answered(|waiters| waiters.beat_refused(now));
                }
            }
        }
    }
}

fn heartbeat(pending: &PendingBeat) -> Option<Heartbeat<'_>> {
    Some(Heartbeat {
        queue: pending.waiters.keys()?,
        left_over: &pending.request.left_over,
        oldest: &pending.request.oldest,
    })
}
