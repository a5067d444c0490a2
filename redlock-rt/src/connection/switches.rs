//! Listening to one sentinel for `+switch-master`.
//!
//! What it says is a hint only: the sentinels are asked, and if they name another master than
//! before, connections to the old one are closed. An old master that hangs, or is not yet told that
//! it is a replica, is left at once by all clients.

use std::time::Duration;

use futures::{Stream, StreamExt, stream};
use redis::{PushKind, Value};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};

use super::dialer::{BoxStream, Dialer, Target};
use super::endpoint::{Address, Service};
use super::fault::Fault;
use super::sentinel::{GET_MASTER, locate, master_of, refused, text_of};
use super::server::CurrentServer;
use crate::clock;

/// A sentinel is asked this often, in case its announcement was lost.
const EVERY: Duration = Duration::from_secs(5);
/// Every so often all sentinels are asked although that one says the same: a failover may have gone past a
/// sentinel that was cut off from the others.
const ALL_EVERY: u32 = 2;
const CHANNEL: &str = "+switch-master";
/// After this many bytes it is asked on a new connection: days of replies, or one without end.
const MOST_HEARD: u64 = 16 * 1024 * 1024;

/// Listens to one of the sentinels until that connection ends; the next call begins with another
/// one. `turn`: counts the calls. `within`: the longest time for connecting, and for a reply.
pub(crate) async fn listen(
    dialer: &Dialer,
    server: &CurrentServer,
    within: Duration,
    turn: usize,
) -> Result<(), Fault> {
    let Some(service) = dialer.sentinels() else {
        return Ok(());
    };
    let Some(sentinel) = service.sentinels.get(turn % service.sentinels.len()) else {
        return Ok(());
    };
    let open = async { open(dialer, sentinel, within).await };
    let stream = clock::timeout(within, open).await;
    let stream = stream.unwrap_or_else(|_| Err(Fault::connecting_took_too_long()))?;
    follow(dialer, server, service, sentinel, within, stream).await
}

/// Connects, and subscribes. With RESP3 questions are allowed on the same connection.
async fn open(dialer: &Dialer, sentinel: &Address, within: Duration) -> Result<BoxStream, Fault> {
    let target = Target::Address(sentinel.clone());
    let stream = dialer.dial(&target, within).await;
    let mut stream = stream.map_err(Fault::unreachable)?;
    let mut commands = dialer.sentinel_login();
    commands.cmd("HELLO").arg(3);
    commands.cmd("SUBSCRIBE").arg(CHANNEL);
    let bytes = commands.get_packed_pipeline();
    stream.write_all(&bytes).await.map_err(Fault::unreachable)?;
    Ok(stream)
}

async fn follow(
    dialer: &Dialer,
    server: &CurrentServer,
    service: &Service,
    sentinel: &Address,
    within: Duration,
    stream: BoxStream,
) -> Result<(), Fault> {
    let (reader, mut writer) = tokio::io::split(stream);
    let mut heard = Box::pin(values(reader.take(MOST_HEARD)));
    let mut question = redis::pipe();
    question.cmd("SENTINEL").arg(GET_MASTER).arg(&service.name);
    let question = question.get_packed_pipeline();
    // The master that this sentinel named last. A switch may have happened before the subscription.
    let mut named: Option<Address> = None;
    let mut ask_at = clock::now();
    let mut silent_at = None;
    let mut unchanged = 0;
    loop {
        let wake_at = silent_at.unwrap_or(ask_at);
        let value = tokio::select! {
            biased;
            value = heard.next() => value.unwrap_or_else(|| Err(Fault::timed_out("it hung up")))?,
            () = clock::sleep_until(wake_at) => {
                if silent_at.is_some() {
                    return Err(Fault::timed_out("a sentinel does not answer"));
                }
                writer.write_all(&question).await.map_err(Fault::unreachable)?;
                silent_at = Some(clock::after(clock::now(), within));
                continue;
            }
        };
        let says = match value {
            Value::Push {
                kind: PushKind::Message,
                data,
            } => match data.get(1).and_then(text_of) {
                // Of another service that it watches.
                Some(text) if text.split(' ').next() != Some(&service.name) => continue,
                _ => None,
            },
            Value::ServerError(error) => return Err(refused(error)),
            // The reply to the question; others confirm the login and the subscription.
            reply @ (Value::Array(_) | Value::Nil) => {
                silent_at = None;
                ask_at = clock::after(clock::now(), EVERY);
                Some(master_of(&reply, sentinel)?)
            }
            _ => continue,
        };
        if says.is_some() && says == named {
            unchanged += 1;
            if unchanged % ALL_EVERY != 0 {
                continue;
            }
        }
        named = says;
        let open = |target| async move { dialer.dial(&target, within).await };
        let located = clock::timeout(within, locate(dialer, service, true, within, &open)).await;
        if let Ok(Ok(master)) = located {
            server.is_named(&master);
        }
    }
}

/// What arrives, until the connection ends.
fn values(
    reader: impl AsyncRead + Unpin + Send,
) -> impl Stream<Item = Result<Value, Fault>> + Send {
    let state = Some((reader, Default::default()));
    stream::unfold(state, |state| async move {
        let (mut reader, mut decoder) = state?;
        match redis::parse_redis_value_async(&mut decoder, &mut reader).await {
            Ok(value) => Some((Ok(value), Some((reader, decoder)))),
            Err(error) => Some((Err(Fault::unreachable(error)), None)),
        }
    })
}
