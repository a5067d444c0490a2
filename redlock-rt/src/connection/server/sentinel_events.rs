//! Listening to one sentinel for `+switch-master`.
//!
//! The message is only a hint: the sentinels are asked, and if they name another master than before, connections to the
//! old one are closed. So all clients at once leave an old master that hangs, or does not know yet that it is a
//! replica.
//!
//! Every 5 s the client subscribes again, to check whether the sentinel still answers. That needs no other right, and a
//! listening connection allows no other commands. Every 10 s all sentinels are asked, in case this one was cut off from
//! the others. The connection is replaced after 1 000 replies and announcements, or after an unrequested reply.
//! Announcements are followed at most ten times a second. The hint also ends a dial to a master that hangs, and the
//! pause before the next one.

use std::time::Duration;

use super::current::CurrentServer;
use super::greeting::ask;
use super::sentinel::{locate, refused};
use crate::clock;
use crate::connection::address::Address;
use crate::connection::dial::{BoxStream, Dialer, Service};
use crate::connection::fault::Fault;
use crate::connection::stream::{Framed, Nonsense, encode, nonsense};
use crate::wire::Value;

/// How often a sentinel shows that it still answers.
const EVERY: Duration = Duration::from_secs(5);
/// After this many times all sentinels are asked: a sentinel that was cut off from the others may have missed a
/// failover.
const ALL_EVERY: u32 = 2;
const CHANNEL: &str = "+switch-master";
/// After this many replies and announcements, which takes more than an hour, a new connection is used.
const MOST_HEARD: usize = 1000;
/// Announcements are followed no faster, whatever a sentinel sends.
const PACE: Duration = Duration::from_millis(100);

/// Listens to one of the sentinels until that connection ends. The next call begins with another one. `turn`: counts
/// the calls. `within`: the longest time for connecting, and for a reply.
pub(crate) async fn listen(
    dialer: &Dialer,
    server: &CurrentServer,
    within: Duration,
    turn: usize,
) -> Result<(), Fault> {
    let Some(service) = dialer.sentinels() else {
        return Ok(());
    };
    let sentinel = &service.sentinels[turn % service.sentinels.len()];
    let stream = clock::timeout(within, open(dialer, sentinel, within)).await;
    let stream = stream.unwrap_or_else(|_| Err(Fault::connecting_took_too_long()))?;
    follow(dialer, server, service, within, stream).await
}

/// Connects, and subscribes.
async fn open(
    dialer: &Dialer,
    sentinel: &Address,
    within: Duration,
) -> Result<Framed<BoxStream>, Fault> {
    let mut commands = dialer.sentinel_login();
    commands.cmd("SUBSCRIBE").arg(CHANNEL);
    let target = Some(sentinel.clone());
    let open = |target| async move { dialer.dial(&target, within).await };
    let (stream, replies) = ask(&commands, commands.len(), target, true, open).await?;
    for reply in replies {
        if let Value::Error(error) = reply {
            return Err(refused(error));
        }
    }
    Ok(stream)
}

async fn follow(
    dialer: &Dialer,
    server: &CurrentServer,
    service: &Service,
    within: Duration,
    mut stream: Framed<BoxStream>,
) -> Result<(), Fault> {
    let mut again = Vec::new();
    encode::command(&mut again, &[b"SUBSCRIBE", CHANNEL.as_bytes()]);
    // A switch may have happened before the subscription.
    let mut ask_at = clock::now();
    let mut silent_at = None;
    let (mut confirmed, mut heard) = (0, 0);
    while heard < MOST_HEARD {
        let value = tokio::select! {
            biased;
            value = stream.read() => value.map_err(Fault::unreachable)?,
            () = clock::sleep_until(silent_at.unwrap_or(ask_at)) => {
                if silent_at.is_some() {
                    return Err(Fault::timed_out("a sentinel does not answer"));
                }
                stream.write_all(&again).await.map_err(Fault::unreachable)?;
                silent_at = Some(clock::after(clock::now(), within));
                continue;
            }
        };
        heard += 1;
        let words = match value {
            Value::List(words) => words,
            Value::Error(error) => return Err(refused(error)),
            _ => return Err(unasked()),
        };
        let word = |at: usize| words.get(at).and_then(Value::text);
        let asks_all = match word(0).as_deref() {
            // It announces the switches of all services that it watches.
            Some("message") => {
                word(2).is_none_or(|text| text.split(' ').next() == Some(&service.name))
            }
            Some("subscribe") if silent_at.take().is_some() => {
                ask_at = clock::after(clock::now(), EVERY);
                confirmed += 1;
                confirmed % ALL_EVERY == 1
            }
            _ => return Err(unasked()),
        };
        if !asks_all {
            continue;
        }
        let open = |target| async move { dialer.dial(&target, within).await };
        let located = clock::timeout(within, locate(dialer, service, true, within, &open)).await;
        if let Ok(Ok(master)) = located {
            server.is_named(&master);
        }
        clock::sleep(PACE).await;
    }
    Ok(())
}

fn unasked() -> Fault {
    Fault::unreachable(nonsense(Nonsense::Unasked))
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::connection::dial::Connector;
    use tokio::io::AsyncWriteExt;

    const WITHIN: Duration = Duration::from_secs(1);

    /// How a client takes what a sentinel sends of its own accord. The sentinel answers nothing.
    async fn followed(sent: &str, times: usize) -> Result<(), Fault> {
        let sentinel = Address::tcp("10.0.0.1", 26379);
        let service = Service {
            name: "orders".to_owned(),
            sentinels: vec![sentinel],
        };
        let sent = sent.repeat(times);
        let (client, mut server) = tokio::io::duplex(sent.len() + 1024);
        server.write_all(sent.as_bytes()).await.unwrap();
        let stream = Framed::new(Box::new(client) as BoxStream);
        let dialer = Dialer::through(Connector::new(|_: &str, _: u16| async {
            Err::<BoxStream, _>(io::Error::other("no"))
        }));
        let master = CurrentServer::new("here".into(), WITHIN, || {});
        follow(&dialer, &master, &service, WITHIN, stream).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_sentinel_that_announces_without_end_is_left_after_a_thousand() {
        let other = "*3\r\n+message\r\n+switch-master\r\n+users 10.0.0.1 1 10.0.0.2 1\r\n";
        assert!(followed(other, MOST_HEARD).await.is_ok());
        // One reply less, since the next SUBSCRIBE is not answered.
        let fault = followed(other, MOST_HEARD - 1).await.unwrap_err();
        let text = format!("{fault:?}");
        assert!(text.contains("does not answer"), "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_sentinel_that_answers_what_nobody_asked_is_left() {
        let fault = followed("+OK\r\n", 1).await.unwrap_err();
        let text = format!("{fault:?}");
        assert!(text.contains("Unasked"), "{text}");
    }
}
