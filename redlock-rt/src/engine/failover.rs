//! The task that listens for failovers, for clients whose master is named by sentinels.

use std::sync::Arc;
use std::time::Duration;

use super::signal::Signal;
use crate::connection::{CurrentServer, Dialer, Timeouts, listen_for_switches};
use crate::pause::Pause;

/// Runs until the client ends.
pub(super) async fn run(
    signal: Arc<Signal>,
    dialer: Dialer,
    timeouts: Timeouts,
    server: Arc<CurrentServer>,
) {
    let within = timeouts.connect.min(timeouts.response);
    let mut pause = Pause::SUBSCRIBING;
    // Random, so that not all clients listen to the same sentinel.
    let mut turn = fastrand::usize(..1 << 16);
    while !signal.is_closed() {
        let started = crate::clock::now();
        tokio::select! {
            biased;
            () = signal.notified() => continue,
            end = listen_for_switches(&dialer, &server, within, turn) => {
                if let Err(fault) = end {
                    server.journal.failed_to_listen(&fault);
                }
            }
        }
        turn += 1;
        if started.elapsed() >= LASTING {
            pause.reset();
        }
        tokio::select! {
            biased;
            () = signal.notified() => {}
            () = tokio::time::sleep(pause.take()) => {}
        }
    }
}

/// After a connection that lasted this long, the next one is made soon.
const LASTING: Duration = Duration::from_secs(5);
