//! New credentials on a live connection.

use std::sync::Arc;
use std::time::Duration;

use crate::clock;
use crate::connection::dial::{Dialer, Expiry};
use crate::connection::fault::Fault;
use crate::connection::stream::{Multiplexer, WakeUp, last};
use crate::wire::Value;

/// With less time than this there is no other try.
const SHORTEST: Duration = Duration::from_millis(20);

/// Logs in again on a live connection, each time before its credentials expire. Ends when they have
/// expired: the connection is then useless.
pub(super) async fn log_in_again(multiplexer: Arc<Multiplexer>, dialer: Dialer, first: Expiry) {
    let mut expiry = first;
    loop {
        clock::sleep_until(expiry.renew_at).await;
        let again = async { log_in(&multiplexer, &dialer).await };
        match clock::timeout_at(clock::to_tokio(expiry.over_at), again).await {
            Ok(Ok(Some(next))) => expiry = next,
            // The new ones do not expire.
            Ok(Ok(None)) => std::future::pending().await,
            Ok(Err(fault)) => {
                tracing::debug!(reason = fault.reason(), "could not log in again");
                let rest = expiry.over_at.saturating_duration_since(clock::now());
                if rest < SHORTEST {
                    return;
                }
                expiry.renew_at = clock::after(clock::now(), rest / 4);
            }
            Err(_) => return,
        }
    }
}

async fn log_in(multiplexer: &Arc<Multiplexer>, dialer: &Dialer) -> Result<Option<Expiry>, Fault> {
    let (login, expiry) = dialer.login().await?;
    let send = |command: &redis::Cmd| {
        let sent = multiplexer.send(WakeUp::default(), |out| {
            command.write_packed_command(out);
            [out.len()]
        });
        sent.map_err(|ended| Fault::unreachable(ended.error()))
    };
    // All are sent before the first is answered: one round trip.
    let sent: Vec<_> = login.cmd_iter().map(send).collect::<Result<_, _>>()?;
    for sent in sent {
        match last(sent.await) {
            Ok(Value::Error(error)) => return Err(Fault::from_server(error).while_dialing()),
            Ok(_) => {}
            Err(unanswered) => return Err(unanswered.fault().while_dialing()),
        }
    }
    Ok(expiry)
}
