//! The task that sends the beats.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::StreamExt;
use futures::stream::FuturesUnordered;

use super::FairMap;
use super::batch::{HeldUp, PendingBeat};
use crate::clock;
use crate::connection::{Caller, Delivery, Lane, Nodes, To};
use crate::name::LockName;
use crate::shim::lock;
use crate::wire::{Beat, Heartbeat, Slot, beat};

/// The number of calls in progress at once at one server: a call without a reply does not block the
/// others.
const MOST_CALLS: usize = 4;

/// The calls in progress, by the number of their server; `None`: it is not known.
type Busy = BTreeMap<Option<u64>, usize>;

/// Runs until the client is shut down.
pub(in crate::engine) async fn run(map: Arc<FairMap>, nodes: Arc<Nodes>) {
    let mut under_way = FuturesUnordered::new();
    let mut busy = Busy::new();
    let mut held_up = BTreeMap::<Option<u64>, Vec<HeldUp>>::new();
    let is_full = |busy: &Busy, at| busy.get(&at).is_some_and(|calls| *calls >= MOST_CALLS);
    let at = |slot| nodes.known(slot).map(|node| node.number);
    // With one server, nothing is picked while it has enough calls.
    let stops = |busy: &Busy| nodes.cluster().is_none() && is_full(busy, at(Slot::ONLY));
    while !map.signal.is_closed() {
        while !stops(&busy) {
            let slot_of = |name: &LockName| nodes.slot_of(name);
            let (batch, held) = map.pick(clock::now(), slot_of, |slot| is_full(&busy, at(slot)));
            for held in held {
                held_up.entry(at(held.slot)).or_default().push(held);
            }
            let Some(first) = batch.first() else { break };
            let at = at(nodes.slot_of(first.waiters.name()));
            *busy.entry(at).or_default() += 1;
            let sent = send(&map, batch, &nodes);
            under_way.push(async move {
                sent.await;
                at
            });
        }
        // None of these servers has a call in progress: their slots have moved.
        held_up.retain(|at, _| busy.contains_key(at));
        let next = lock(&map.schedule).arm(clock::now());
        // If no more calls may be sent, waits for the end of one.
        let next = next.filter(|_| !stops(&busy));
        tokio::select! {
            // Every turn checks what is due and what a signal announces.
            biased;
            Some(at) = under_way.next(), if !under_way.is_empty() => {
                if let Some(calls) = busy.get_mut(&at) {
                    *calls -= 1;
                }
                // Forgets servers without calls, since servers come and go.
                busy.retain(|_, calls| *calls > 0);
                // The names of one call become due again.
                if let Some(held) = held_up.get_mut(&at) {
                    let first = held[0].slot;
                    held.retain(|held| held.slot != first);
                }
                held_up.retain(|_, held| !held.is_empty());
            }
            () = clock::sleep_until(next.unwrap_or_else(clock::now)), if next.is_some() => {}
            () = map.signal.notified() => {}
        }
    }
}

/// Sends the beats of a batch, and passes the replies on. If Redis refuses several names, one of
/// which may be the reason, it sends each half separately.
async fn send(map: &FairMap, batch: Vec<PendingBeat>, nodes: &Nodes) {
    let Some(first) = batch.first() else { return };
    let slot = nodes.slot_of(first.waiters.name());
    let to = To::new(nodes, slot, Lane::Renewals);
    let mut parts = vec![batch];
    while let Some(mut part) = parts.pop() {
        let of: Vec<Heartbeat<'_>> = part.iter().filter_map(heartbeat).collect();
        let call = beat(&map.client, &of);
        let mut delivery = Delivery::of_upkeep();
        let asked = delivery.attempt(to, || call, None).await;
        let Some(asked) = asked else {
            // Dropped beats count as failed.
            return;
        };
        let decode = |reply| Beat::decode_all(reply, part.len());
        let now = clock::now();
        match delivery.read(asked, decode) {
            Ok(beats) => {
                // One random value for all, so that they stay together.
                let spread = fastrand::f64();
                for (pending, beat) in part.into_iter().zip(&beats) {
                    pending.answered(|waiters| waiters.beat_answered(beat, spread, now));
                }
            }
            Err(fault) if fault.is_passing_for(Caller::Beat) => {
                tracing::debug!(names = part.len(), reason = fault.reason(), "beats failed");
            }
            Err(_) if part.len() > 1 => {
                let rest = part.split_off(part.len() / 2);
                parts.extend([rest, part]);
            }
            Err(fault) => {
                for pending in part {
                    let lock = pending.waiters.name().as_str();
                    tracing::debug!(lock, reason = fault.reason(), "beat refused");
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
