//! The task that beats.

use std::sync::Arc;

use futures::StreamExt;
use futures::stream::FuturesUnordered;

use super::{Asked, Rooms};
use crate::clock;
use crate::connection::{Caller, Connection, Delivery, Fault};
use crate::shim::lock;
use crate::wire::{Beat, Heartbeat, Reply, beat};

/// Calls under way at once: while one of them is not answered the others go on.
const MOST_CALLS: usize = 4;

/// Runs until the rooms are closed.
pub(crate) async fn run(rooms: Arc<Rooms>, connection: Arc<Connection>) {
    let mut under_way = FuturesUnordered::new();
    while !rooms.signal.is_closed() {
        while under_way.len() < MOST_CALLS {
            let batch = rooms.pick(clock::now());
            if batch.is_empty() {
                break;
            }
            under_way.push(ask(&rooms, batch, &connection));
        }
        let next = lock(&rooms.schedule).arm(clock::now());
        // Where no more calls may be sent, the end of one is waited for.
        let next = next.filter(|_| under_way.len() < MOST_CALLS);
        tokio::select! {
            () = rooms.signal.notified() => {}
            () = clock::sleep_until(next.unwrap_or_else(clock::now)), if next.is_some() => {}
            Some(()) = under_way.next(), if !under_way.is_empty() => {}
        }
    }
}

/// Sends the beats of a batch, and takes in the answer. Where that is a refusal, which one of several
/// rooms may have brought about, it asks for each half alone.
async fn ask(rooms: &Rooms, batch: Vec<Asked>, connection: &Connection) {
    let together = batch.len() > 1;
    let mut parts = vec![batch];
    while let Some(mut part) = parts.pop() {
        let of: Vec<Heartbeat<'_>> = part.iter().filter_map(heartbeat).collect();
        let call = beat(&rooms.client, &of);
        let asked = Delivery::default().attempt(connection, || call, None).await;
        let Some(asked) = asked else {
            // Unanswered, as dropped rooms see.
            return;
        };
        let decode = |reply: Reply| Beat::decode_all(reply, part.len()).map_err(Fault::from);
        let now = clock::now();
        match asked.and_then(decode) {
            Ok(beats) => {
                // One draw for all: they go on together.
                let spread = fastrand::f64();
                for (asked, beat) in part.into_iter().zip(&beats) {
                    if !together {
                        asked.room.rejoin();
                    }
                    asked.answered(|room| room.told(beat, spread, now));
                }
            }
            Err(fault) if fault.is_passing_for(Caller::Beat) => {
                tracing::debug!(rooms = part.len(), ?fault, "beats failed");
            }
            Err(_) if part.len() > 1 => {
                let rest = part.split_off(part.len() / 2);
                parts.extend([rest, part]);
            }
            Err(fault) => {
                for asked in part {
                    let lock = asked.room.name().as_str();
                    tracing::debug!(lock, ?fault, "beat refused");
                    asked.answered(|room| room.refused(now));
                }
            }
        }
    }
}

fn heartbeat(asked: &Asked) -> Option<Heartbeat<'_>> {
    Some(Heartbeat {
        queue: asked.room.queue()?,
        gone: &asked.question.gone,
        oldest: &asked.question.oldest,
    })
}
