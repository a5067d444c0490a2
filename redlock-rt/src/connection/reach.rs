//! Finding the server to lock on, and the first commands there.
//!
//! Every connection looks for the master anew, whatever the others of its client have found:
//! [`CurrentServer`] makes them agree.

use std::io;
use std::time::Duration;

use super::dialer::{BoxStream, Dialer, Route, Target};
use super::fault::Fault;
use super::greeting::{Reached, greet_at};
use super::info::Unfit;
use super::server::CurrentServer;
use super::{replicated, sentinel};
use crate::clock;

/// Finds the server, connects and logs in there, and asks what it is. `within`: how long all of it
/// may take; the caller enforces this limit.
pub(super) async fn reach<F>(
    dialer: &Dialer,
    server: &CurrentServer,
    within: Duration,
    open: impl Fn(Target) -> F,
) -> Result<Reached, Fault>
where
    F: Future<Output = io::Result<BoxStream>>,
{
    let number = server.dial();
    let login = dialer.login().await?;
    let greet = |target| greet_at(dialer, server, &login, target, number, &open);
    match dialer.route() {
        Route::Only(target) => greet(target).await,
        // Any of them will do for what leads here.
        Route::Nodes(nodes) => match fastrand::choice(nodes) {
            Some(node) => greet(Target::Address(node.clone())).await,
            None => Err(Fault::passing("the cluster has no nodes".into())),
        },
        Route::Master(addresses) => {
            let greet = |address| greet(Target::Address(address));
            replicated::find_master(addresses, server.was_reached(), within, greet).await
        }
        Route::Sentinels(service) => loop {
            let mut switches = server.switches();
            let known = server.was_reached();
            let asked = sentinel::locate(dialer, service, known, within, &open).await?;
            let place = asked.place();
            // A hung master does not answer, and the sentinels may name another one meanwhile.
            let greeted = tokio::select! {
                biased;
                greeted = greet(Target::Address(asked.clone())) => greeted,
                () = switches.other_than(Some(&asked)) => continue,
            };
            let reached = greeted.map_err(|fault| fault.of_master(&place))?;
            // Right after a failover the sentinels may name a server that is not promoted yet.
            if let Some(Unfit::Replica(why)) = reached.info.unfit(false) {
                let why = format!("the master {place:?}: {why}");
                return Err(Fault::unreachable(io::Error::other(why)));
            }
            return Ok(reached);
        },
    }
}

/// How long to wait for the others after one has answered in `taken`.
pub(super) fn grace(taken: Duration, within: Duration) -> Duration {
    const LEAST: Duration = Duration::from_millis(50);
    (taken * 4).clamp(LEAST.min(within / 4), within / 4)
}

/// What became of several servers that were asked at the same time.
pub(super) struct Gathered<T> {
    /// In the order in which they answered.
    pub(super) answers: Vec<T>,
    /// Of the others; a server that did not answer in time has none.
    pub(super) faults: Vec<(String, Fault)>,
}

/// Waits for the answers of all, at most for half of `within`, and not much longer than for
/// the answers that are `enough`.
pub(super) async fn gather<T, F>(
    asked: impl IntoIterator<Item = (String, F)>,
    within: Duration,
    enough: impl Fn(&[T]) -> bool,
) -> Gathered<T>
where
    F: Future<Output = Result<T, Fault>>,
{
    use futures::StreamExt;
    use futures::stream::FuturesUnordered;

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

/// One fault for all, which says what became of each. `reached`: the servers were found before, so
/// whatever it is passes.
pub(super) fn all_failed(what: &str, faults: Vec<(String, Fault)>, reached: bool) -> Fault {
    let each: Vec<String> = faults
        .iter()
        .map(|(place, fault)| format!("{place}: {}", fault.reason()))
        .collect();
    let text = io::Error::other(format!("{what}: {}", each.join("; ")));
    let faults = faults.into_iter().map(|(_, fault)| fault);
    Fault::of_all(faults, text, reached)
}
