//! The first commands of every connection: login, and questions about the server and this client of
//! it. One round trip on the bare stream: a subscribing connection cannot ask later.

use std::io;
use std::time::Duration;

use redis::Pipeline;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::current::CurrentServer;
use super::info::Info;
use crate::clock;
use crate::connection::address::Address;
use crate::connection::dial::{BoxStream, Dialer, Expiry, LIB_NAME, LIB_VERSION, Target};
use crate::connection::fault::{Cause, Fault};
use crate::connection::stream::Framed;
use crate::wire::Value;

/// A connected server with its replies.
pub(in crate::connection) struct Reached {
    pub(in crate::connection) stream: Framed<BoxStream>,
    pub(in crate::connection) info: Info,
    /// `None` where an ACL forbids to ask.
    pub(in crate::connection) client_id: Option<i64>,
    /// The number of the dial; see [`CurrentServer::arrive`].
    pub(in crate::connection) number: u64,
    /// `None` behind a connector.
    pub(in crate::connection) at: Option<Address>,
    /// When the credentials expire.
    pub(in crate::connection) expiry: Option<Expiry>,
}

/// The replies of the server.
struct Greeting {
    info: Info,
    client_id: Option<i64>,
}

/// Why the first commands of a connection have no replies.
pub(in crate::connection) enum TurnedAway {
    /// The stream ended before the first byte.
    HungUp(Fault),
    Fault(Fault),
}

/// The time limit of the TLS probe.
const LOOK: Duration = Duration::from_millis(500);
/// A ClientHello that is too short. A TLS server refuses it with an alert.
const SHORT_HELLO: [u8; 10] = [0x16, 3, 1, 0, 5, 1, 0, 0, 1, 0];
/// The record types with which a server answers a ClientHello.
const ALERT: u8 = 0x15;
const HANDSHAKE: u8 = 0x16;

/// Opens a stream to `target`, logs in, chooses the database, and asks. `number`: see
/// [`Reached::number`].
pub(super) async fn greet_at<F>(
    dialer: &Dialer,
    server: &CurrentServer,
    login: &(Pipeline, Option<Expiry>),
    target: Target,
    number: u64,
    open: &impl Fn(Target) -> F,
) -> Result<Reached, Fault>
where
    F: Future<Output = io::Result<BoxStream>>,
{
    let stream = open(target.clone()).await;
    let stream = stream.map_err(|error| Fault::of_stream(error, server.was_reached()))?;
    let mut stream = Framed::new(stream);
    let (commands, expiry) = login;
    let looks = dialer.looks_for_the_master();
    let clustered = dialer.clustered;
    match greet(
        commands.clone(),
        dialer.client_name(),
        looks,
        clustered,
        &mut stream,
    )
    .await
    {
        Ok(Greeting { info, client_id }) => Ok(Reached {
            stream,
            info,
            client_id,
            number,
            at: target.address().cloned(),
            expiry: *expiry,
        }),
        Err(turned_away) => Err(turned_away.fault(server.was_reached(), target, open).await),
    }
}

impl TurnedAway {
    /// Why `target`, which `open` opens again, turned a connection away. `reached`: others led there
    /// before.
    pub(in crate::connection) async fn fault<F>(
        self,
        reached: bool,
        target: Target,
        open: impl Fn(Target) -> F,
    ) -> Fault
    where
        F: Future<Output = io::Result<BoxStream>>,
    {
        match self {
            Self::Fault(fault) => fault,
            // A TLS server hangs up on anything else without a reply, and so do other servers.
            Self::HungUp(fault) => {
                let suspect = target.is_plain() && !reached;
                match suspect && clock::timeout(LOOK, speaks_tls(open(target))).await == Ok(true) {
                    true => Fault::not_plain(),
                    false => fault,
                }
            }
        }
    }
}

async fn speaks_tls(stream: impl Future<Output = io::Result<BoxStream>>) -> bool {
    let Ok(mut stream) = stream.await else {
        return false;
    };
    let mut answer = [0; 2];
    stream.write_all(&SHORT_HELLO).await.is_ok()
        && stream.read_exact(&mut answer).await.is_ok()
        && matches!(answer, [ALERT | HANDSHAKE, 3])
}

/// Sends the commands and reads the replies. `needed`: this many of the first commands must
/// succeed.
pub(in crate::connection) async fn ask(
    commands: &Pipeline,
    needed: usize,
    stream: &mut Framed<BoxStream>,
) -> Result<Vec<Value>, TurnedAway> {
    let sent = stream.write_all(&commands.get_packed_pipeline()).await;
    let mut replies = Vec::with_capacity(commands.len());
    // After a failed write, earlier replies may still be readable.
    while replies.len() < commands.len() {
        let error = match stream.read().await {
            Ok(reply) => {
                replies.push(reply);
                continue;
            }
            Err(error) => error,
        };
        // A server that turns connections away gives the reason as the reply to the first command,
        // and closes. A forbidden optional command is not the reason.
        if let [Value::Error(error)] = &replies[..]
            && (needed > 0 || error.code() != "NOPERM")
        {
            let fault = Fault::from_server(error.clone());
            return Err(TurnedAway::Fault(fault.while_dialing()));
        }
        let fault = match sent {
            Err(error) => Fault::of_stream(error, true),
            Ok(()) => Fault::of_answer(error),
        };
        return Err(match replies.is_empty() && fault.cause == Cause::Passing {
            true => TurnedAway::HungUp(fault),
            false => TurnedAway::Fault(fault),
        });
    }
    Ok(replies)
}

/// Logs in with `commands`, and asks.
async fn greet(
    mut commands: Pipeline,
    name: &str,
    looks_for_the_master: bool,
    clustered: bool,
    stream: &mut Framed<BoxStream>,
) -> Result<Greeting, TurnedAway> {
    let needed = commands.len();
    commands.cmd("CLIENT").arg("SETNAME").arg(name);
    for (what, value) in [("LIB-NAME", LIB_NAME), ("LIB-VER", LIB_VERSION)] {
        commands.cmd("CLIENT").arg("SETINFO").arg(what).arg(value);
    }
    commands.cmd("CLIENT").arg("ID");
    Info::ask(&mut commands, looks_for_the_master);
    if clustered {
        commands.cmd("PUBSUB").arg("SHARDNUMSUB");
    }
    let replies = ask(&commands, needed, stream).await?;
    judge(&replies, needed, clustered).map_err(TurnedAway::Fault)
}

/// `needed`: this many of the first replies must not be errors.
fn judge(replies: &[Value], needed: usize, clustered: bool) -> Result<Greeting, Fault> {
    let (logged_in, told) = replies.split_at(needed);
    // Servers before 7.2 do not know SETINFO, and an ACL may forbid the name.
    let [_, _, _, id, infos @ ..] = told else {
        return Ok(Greeting {
            info: Info::default(),
            client_id: None,
        });
    };
    let client_id = match id {
        Value::Int(client_id) => Some(*client_id),
        _ => None,
    };
    let mut info = Info::of(infos);
    info.has_shard_channels = clustered && matches!(infos.last(), Some(Value::List(_)));
    // Checked first: a sentinel knows no SELECT, and a cluster has one database.
    if info.unfit(clustered).is_some() {
        return Ok(Greeting { info, client_id });
    }
    for reply in logged_in {
        if let Value::Error(error) = reply {
            return Err(Fault::from_server(error.clone()).while_dialing());
        }
    }
    // An ACL may forbid the question (NOPERM), which is accepted. A server that requires a login,
    // or is busy or loading, would not answer other commands either.
    for reply in std::iter::once(id).chain(infos) {
        if let Value::Error(error) = reply {
            let fault = Fault::from_server(error.clone());
            if fault.cause == Cause::Passing || error.code() == "NOAUTH" {
                return Err(fault.while_dialing());
            }
        }
    }
    Ok(Greeting { info, client_id })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is made of an answer to the first command, before the server hangs up.
    async fn cut_after(answer: &str, needed: usize) -> Fault {
        let (client, mut server) = tokio::io::duplex(1024);
        server.write_all(answer.as_bytes()).await.unwrap();
        let mut commands = redis::pipe();
        commands.cmd("FIRST").cmd("SECOND");
        let mut client = Framed::new(Box::new(client) as BoxStream);
        let asked = ask(&commands, needed, &mut client);
        let closed = async {
            let mut request = [0; 512];
            // The request is read, so that the end is that of the answers.
            let _ = server.read(&mut request).await;
            drop(server);
        };
        match futures::join!(asked, closed).0 {
            Ok(replies) => unreachable!("{replies:?}"),
            Err(TurnedAway::HungUp(fault) | TurnedAway::Fault(fault)) => fault,
        }
    }

    /// Every wait ended with `Denied` where a connection was cut while it was made.
    #[tokio::test]
    async fn a_right_that_need_not_be_there_was_why_a_connection_was_cut() {
        let denied = "-NOPERM this user has no permissions to run the 'client|setinfo' command\r\n";
        assert_eq!(cut_after(denied, 0).await.cause, Cause::Passing);
        assert_eq!(cut_after(denied, 1).await.cause, Cause::Denied);
        let mode = "-DENIED Redis is running in protected mode\r\n";
        assert_eq!(cut_after(mode, 0).await.cause, Cause::Misconfigured);
    }
}
