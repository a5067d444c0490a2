//! Asking several servers at the same time.

use std::io;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;

use crate::clock;
use crate::connection::fault::Fault;

/// The results of several servers that were asked at the same time.
pub(in crate::connection) struct Gathered<T> {
    /// In the order in which they answered.
    pub(in crate::connection) answers: Vec<T>,
    /// The faults of the others; a server that did not answer in time has none.
    pub(in crate::connection) faults: Vec<(String, Fault)>,
}

/// Waits for the answers of all, at most for half of `within`. Once the answers are `enough`, it
/// waits only a little longer.
pub(in crate::connection) async fn gather<T, F>(
    asked: impl IntoIterator<Item = (String, F)>,
    within: Duration,
    enough: impl Fn(&[T]) -> bool,
) -> Gathered<T>
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
    let mut gathered = Gathered {
        answers: Vec::new(),
        faults: Vec::new(),
    };
    let mut is_enough = false;
    while let Ok(Some((place, answer))) =
        clock::timeout_at(clock::to_tokio(until), pending.next()).await
    {
        silent.retain(|other| *other != place);
        match answer {
            Ok(answer) => gathered.answers.push(answer),
            Err(fault) => gathered.faults.push((place, fault)),
        }
        if !is_enough && enough(&gathered.answers) {
            is_enough = true;
            let now = clock::now();
            until = until.min(clock::after(now, grace(now - started, within)));
        }
    }
    let silent = silent.into_iter();
    gathered
        .faults
        .extend(silent.map(|place| (place, Fault::connecting_took_too_long())));
    gathered
}

/// One fault for all, with the result of each. `reached`: the servers were found before, so any
/// fault is temporary.
pub(in crate::connection) fn all_failed(
    what: &str,
    faults: Vec<(String, Fault)>,
    reached: bool,
) -> Fault {
    let each: Vec<String> = faults
        .iter()
        .map(|(place, fault)| format!("{place}: {}", fault.reason()))
        .collect();
    let text = io::Error::other(format!("{what}: {}", each.join("; ")));
    let faults = faults.into_iter().map(|(_, fault)| fault);
    Fault::of_all(faults, text, reached)
}

/// How long to wait for the others after one has answered in `taken`.
fn grace(taken: Duration, within: Duration) -> Duration {
    const LEAST: Duration = Duration::from_millis(50);
    (taken * 4).clamp(LEAST.min(within / 4), within / 4)
}
