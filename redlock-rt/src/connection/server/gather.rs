//! Asking several servers at the same time.

use std::io;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;

use crate::clock;
use crate::connection::fault::{Cause, Fault};

/// Waits for the answers of all, at most for half of `within`. Once the answers are `enough`, it
/// waits only a little longer. Returns the answers, in the order in which they came, and the faults of the
/// others.
pub(in crate::connection) async fn gather<T, F>(
    asked: impl IntoIterator<Item = (String, F)>,
    within: Duration,
    enough: impl Fn(&[T]) -> bool,
) -> (Vec<T>, Vec<(String, Fault)>)
where
    F: Future<Output = Result<T, Fault>>,
{
    let started = clock::now();
    let mut until = clock::after(started, within / 2);
    let mut silent = Vec::new();
    let mut pending = FuturesUnordered::new();
    for (place, answer) in asked {
        silent.push(place.clone());
        pending.push(async move { (place, answer.await) });
    }
    let (mut answers, mut faults) = (Vec::new(), Vec::new());
    let mut is_enough = false;
    while let Ok(Some((place, answer))) =
        clock::timeout_at(clock::to_tokio(until), pending.next()).await
    {
        silent.retain(|other| *other != place);
        match answer {
            Ok(answer) => answers.push(answer),
            Err(fault) => faults.push((place, fault)),
        }
        if !is_enough && enough(&answers) {
            is_enough = true;
            let now = clock::now();
            until = until.min(clock::after(now, grace(now - started, within)));
        }
    }
    let silent = silent.into_iter();
    faults.extend(silent.map(|place| (place, Fault::connecting_took_too_long())));
    (answers, faults)
}

/// One fault for all, with the result of each. An answer counts for more than none, for waiting does not
/// change it. But if the servers were `reached` before, only a refused login is final.
pub(in crate::connection) fn all_failed(
    what: &str,
    faults: &[(String, Fault)],
    reached: bool,
) -> Fault {
    let each: Vec<String> = faults
        .iter()
        .map(|(place, fault)| format!("{place}: {}", fault.reason()))
        .collect();
    let text = io::Error::other(format!("{what}: {}", each.join("; ")));
    let cause = faults.iter().map(|(_, fault)| fault.cause).find(|cause| {
        let is_final = *cause != Cause::Passing;
        is_final && (!reached || *cause == Cause::Denied)
    });
    Fault::while_connecting(cause.unwrap_or(Cause::Passing), text)
}

/// How long to wait for the others after one has answered in `taken`.
fn grace(taken: Duration, within: Duration) -> Duration {
    const LEAST: Duration = Duration::from_millis(50);
    (taken * 4).clamp(LEAST.min(within / 4), within / 4)
}
