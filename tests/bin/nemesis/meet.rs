//! Tasks that wait for each other: at a barrier, and at a latch in each round.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use redlock_rt::{Client, CountDownLatch, CyclicBarrier, Error, ErrorKind};
use tokio::time::{sleep, timeout};

use super::{
    crew::{PROCESSES, TASKS},
    event::{Act, Journal, Stage, nanos, now},
    worker::{WAIT, given_up, patience, rest},
};

/// Fewer than there are, so that others come meanwhile.
pub(crate) const PARTIES: u32 = 3;
/// A generation and an index are noted as one number.
pub(crate) const MOST_PARTIES: u64 = 1000;
/// All of them.
pub(crate) const COUNT: u32 = PROCESSES * TASKS;
/// A round begins at a moment of the clock that all tasks share.
pub(crate) const ROUND: Duration = Duration::from_secs(4);
/// They come by then: over a longer time than passes before a call is repeated whose reply is lost.
const COME: Duration = Duration::from_secs(2);
/// How long a task waits then.
const LEFT: Duration = Duration::from_millis(1900);
/// From the round before on: longer than a task that counts in a round is paused.
const KEPT: Duration = Duration::from_secs(15);

/// The name of the latches, before the number of the round.
pub(crate) const LATCH: &str = "latch";

fn failed(journal: &Journal<'_>, error: &Error, round: Option<u64>) {
    let kind = Some(format!("{:?}", error.kind()));
    journal.note_at(now(), Act::Meet, Stage::Fail, round, kind);
}

pub(crate) async fn at_barrier(
    barrier: CyclicBarrier,
    journal: Journal<'static>,
    stopped: Arc<AtomicBool>,
) {
    while !stopped.load(Ordering::Relaxed) {
        journal.note(Act::Meet, Stage::Invoke);
        // Who has left may have been counted, so few do.
        let patience = if fastrand::u8(..5) == 0 {
            patience()
        } else {
            WAIT * 2
        };
        match timeout(patience, barrier.wait_with(WAIT)).await {
            Err(_) => given_up(&journal, Act::Meet, patience),
            Ok(Ok(arrival)) => {
                let place = arrival.generation * MOST_PARTIES + u64::from(arrival.index);
                journal.note_at(now(), Act::Meet, Stage::Ok, Some(place), None);
            }
            Ok(Err(error)) => {
                failed(&journal, &error, None);
                if error.kind() == ErrorKind::BarrierBroken {
                    // A reset of what others have reset meanwhile is an error for those who wait there, and they reset nothing.
                    let _ = barrier.reset().await;
                }
                sleep(Duration::from_millis(20)).await;
            }
        }
        sleep(rest()).await;
    }
}

pub(crate) async fn at_latches(
    client: Client,
    start: String,
    journal: Journal<'static>,
    stopped: Arc<AtomicBool>,
) {
    while !stopped.load(Ordering::Relaxed) {
        let round = now() / nanos(ROUND) + 1;
        let latch = client.count_down_latch(format!("{start}:{LATCH}:{round}"));
        // Whoever comes first sets the count: before the round, so that the count of each is a call that may
        // be the first whose reply is lost.
        let asked = now();
        let set = latch.clone().ttl(KEPT).try_set_count(COUNT.into()).await;
        if let Err(error) = set {
            // Of no round: it has not counted there.
            journal.note_at(asked, Act::Meet, Stage::Invoke, None, None);
            failed(&journal, &error, None);
            sleep(Duration::from_millis(20)).await;
            continue;
        }
        let comes = round * nanos(ROUND) + fastrand::u64(..nanos(COME));
        sleep(Duration::from_nanos(comes.saturating_sub(now()))).await;
        journal.note_at(now(), Act::Meet, Stage::Invoke, Some(round), None);
        match in_a_round(&latch).await {
            Ok(()) => journal.note_at(now(), Act::Meet, Stage::Ok, Some(round), None),
            Err(error) => failed(&journal, &error, Some(round)),
        }
    }
}

async fn in_a_round(latch: &CountDownLatch) -> Result<(), Error> {
    latch.count_down().await?;
    latch.wait_with(LEFT).await
}
