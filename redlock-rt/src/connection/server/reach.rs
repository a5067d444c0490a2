//! Finding the server to lock on, and the first commands there.
//!
//! Every connection looks for the master on its own, whatever the others of its client have found:
//! [`CurrentServer`] makes them agree.

use std::io;
use std::time::Duration;

use super::current::CurrentServer;
use super::greeting::{Reached, greet_at};
use super::info::Unfit;
use super::{replicated, sentinel};
use crate::connection::dial::{BoxStream, Dialer, Servers, Target};
use crate::connection::fault::Fault;

/// Finds the server, connects and logs in there, and asks what kind of server it is. `within`: how
/// long all of it may take; the caller enforces this limit.
pub(in crate::connection) async fn reach<F>(
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
        None => greet(None).await,
        Some(Servers::One(address)) => greet(Some(address.clone())).await,
        // Any node will do for this purpose.
        Some(Servers::Cluster(nodes)) => match fastrand::choice(nodes) {
            Some(node) => greet(Some(node.clone())).await,
            None => Err(Fault::passing("the cluster has no nodes".into())),
        },
        Some(Servers::Several(addresses)) => {
            let greet = |address| greet(Some(address));
            replicated::find_master(addresses, server.was_reached(), within, greet).await
        }
        Some(Servers::Service(service)) => loop {
            let mut switches = server.switches();
            let known = server.was_reached();
            let asked = sentinel::locate(dialer, service, known, within, &open).await?;
            let place = asked.place();
            // A hung master does not answer, and the sentinels may name another one meanwhile.
            let greeted = tokio::select! {
                biased;
                greeted = greet(Some(asked.clone())) => greeted,
                () = switches.other_than(Some(&asked)) => continue,
            };
            let reached = greeted.map_err(|fault| fault.of_master(&place))?;
            // Right after a failover the sentinels may name a server that is not promoted yet.
            if let Some(Unfit::Replica(why)) = reached.info.unfit(false) {
                return Err(Fault::passing(format!("the master {place:?}: {why}")));
            }
            return Ok(reached);
        },
    }
}
