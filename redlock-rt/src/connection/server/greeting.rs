//! The first commands of every connection: login, and questions about the server and this client's
//! connection. They take one round trip on the bare stream: a subscribing connection cannot ask later.

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
    /// `None` if an ACL forbids the question.
    pub(in crate::connection) client_id: Option<i64>,
    /// The number of the dial; see [`CurrentServer::arrive`].
    pub(in crate::connection) number: u64,
    /// `None` behind a connector.
    pub(in crate::connection) at: Option<Address>,
    /// When the credentials expire.
    pub(in crate::connection) expiry: Option<Expiry>,
}

/// The server-side client of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::connection) struct Identity {
    /// The server process; a restarted one counts its clients from one again.
    pub(in crate::connection) run_id: String,
    pub(in crate::connection) client_id: i64,
}

impl Reached {
    /// `None` if an ACL forbids the question.
    pub(in crate::connection) fn identity(&self) -> Option<Identity> {
        Some(Identity {
            run_id: self.info.run_id.clone()?,
            client_id: self.client_id?,
        })
    }
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
    let (mut commands, expiry) = login.clone();
    let needed = commands.len();
    let name = dialer.client_name();
    commands.cmd("CLIENT").arg("SETNAME").arg(name);
    for (what, value) in [("LIB-NAME", LIB_NAME), ("LIB-VER", LIB_VERSION)] {
        commands.cmd("CLIENT").arg("SETINFO").arg(what).arg(value);
    }
    commands.cmd("CLIENT").arg("ID");
    // Before Redis 7 INFO takes one section at a time.
    commands.cmd("INFO").arg("server");
    commands.cmd("INFO").arg("replication");
    if dialer.looks_for_the_master() {
        // Another way to ask for the role, since an ACL may forbid INFO.
        commands.cmd("ROLE");
    }
    if dialer.clustered && !dialer.plain_channels {
        commands.cmd("PUBSUB").arg("SHARDNUMSUB");
    }
    let at = target.clone();
    let asked = ask(&commands, needed, target, server.was_reached(), open);
    let (stream, replies) = asked.await?;
    let (info, client_id) = judge(&replies, needed, dialer.clustered)?;
    Ok(Reached {
        stream,
        info,
        client_id,
        number,
        at,
        expiry,
    })
}

/// Sends the first commands of a connection to `target`, and reads the replies. `needed`: this many of the
/// first commands must succeed. `reached`: others led there before.
pub(in crate::connection) async fn ask<F>(
    commands: &Pipeline,
    needed: usize,
    target: Target,
    reached: bool,
    open: impl Fn(Target) -> F,
) -> Result<(Framed<BoxStream>, Vec<Value>), Fault>
where
    F: Future<Output = io::Result<BoxStream>>,
{
    let stream = open(target.clone()).await;
    let mut stream = Framed::new(stream.map_err(|error| Fault::of_stream(error, reached))?);
    let (fault, hung_up) = match replies(commands, needed, &mut stream).await {
        Ok(replies) => return Ok((stream, replies)),
        Err(turned_away) => turned_away,
    };
    // A TLS server closes without a reply to anything else, and so do other servers.
    let suspect = hung_up && !reached && matches!(target, Some(Address::Tcp { tls: false, .. }));
    match suspect && clock::timeout(LOOK, speaks_tls(open(target))).await == Ok(true) {
        true => Err(Fault::not_plain()),
        false => Err(fault),
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

/// The replies to the first commands of a connection. On failure, the reason, and whether the stream ended
/// before the first byte.
async fn replies(
    commands: &Pipeline,
    needed: usize,
    stream: &mut Framed<BoxStream>,
) -> Result<Vec<Value>, (Fault, bool)> {
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
        // A server that turns connections away gives the reason as the reply to the first command, and
        // closes. A forbidden optional command is not the reason.
        if let [Value::Error(error)] = &replies[..]
            && (needed > 0 || error.code() != "NOPERM")
        {
            let fault = Fault::from_server(error.clone());
            return Err((fault.while_dialing(), false));
        }
        let fault = match sent {
            Err(error) => Fault::of_stream(error, true),
            Ok(()) => Fault::of_answer(error),
        };
        let hung_up = replies.is_empty() && fault.cause == Cause::Passing;
        return Err((fault, hung_up));
    }
    Ok(replies)
}

/// The kind of the server, and the id of this connection. `needed`: this many of the first replies must not
/// be errors.
fn judge(replies: &[Value], needed: usize, clustered: bool) -> Result<(Info, Option<i64>), Fault> {
    let (logged_in, told) = replies.split_at(needed);
    // Servers before 7.2 do not know SETINFO, and an ACL may forbid the name.
    let [_, _, _, id, infos @ ..] = told else {
        return Ok((Info::default(), None));
    };
    let client_id = match id {
        Value::Int(client_id) => Some(*client_id),
        _ => None,
    };
    let mut info = Info::of(infos);
    info.has_shard_channels = clustered && matches!(infos.last(), Some(Value::List(_)));
    // Checked first: a sentinel knows no SELECT, and a cluster has one database.
    if info.unfit(clustered).is_some() {
        return Ok((info, client_id));
    }
    for reply in logged_in {
        if let Value::Error(error) = reply {
            return Err(Fault::from_server(error.clone()).while_dialing());
        }
    }
    // An ACL may forbid the question (NOPERM), which is accepted. A server that requires a login, or is busy
    // or loading, would not answer other commands either.
    for reply in std::iter::once(id).chain(infos) {
        if let Value::Error(error) = reply {
            let fault = Fault::from_server(error.clone());
            if fault.cause == Cause::Passing || error.code() == "NOAUTH" {
                return Err(fault.while_dialing());
            }
        }
    }
    Ok((info, client_id))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fault after an answer to the first command, before the server closes.
    async fn cut_after(answer: &str, needed: usize) -> Fault {
        let (client, mut server) = tokio::io::duplex(1024);
        server.write_all(answer.as_bytes()).await.unwrap();
        let mut commands = redis::pipe();
        commands.cmd("FIRST").cmd("SECOND");
        let mut client = Framed::new(Box::new(client) as BoxStream);
        let asked = replies(&commands, needed, &mut client);
        let closed = async {
            let mut request = [0; 512];
            // The request is read, so that the end is that of the answers.
            let _ = server.read(&mut request).await;
            drop(server);
        };
        match futures::join!(asked, closed).0 {
            Ok(replies) => unreachable!("{replies:?}"),
            Err((fault, _)) => fault,
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
