//! What is said first on every connection: who we are, and which server and which client of it
//! this is. One round trip, on the bare stream: once a connection listens it cannot ask any more,
//! and of an answer that is not Redis's the client library keeps no more than that the stream ended.

use redis::Value;
use tokio::io::AsyncWriteExt;

use super::dialer::{BoxStream, Dialer, LIB_NAME, LIB_VERSION};
use super::fault::{Cause, Fault};
use super::info::Info;
use super::link::of_dialing;

/// What the server answered.
pub(super) struct Greeting {
    pub(super) info: Info,
    /// `None` where an ACL forbids to ask.
    pub(super) client_id: Option<i64>,
}

/// Logs in, chooses the database, and asks.
pub(super) async fn greet(dialer: &Dialer, stream: &mut BoxStream) -> Result<Greeting, Fault> {
    let mut commands = dialer.login();
    let needed = commands.len();
    for (what, value) in [("LIB-NAME", LIB_NAME), ("LIB-VER", LIB_VERSION)] {
        commands.cmd("CLIENT").arg("SETINFO").arg(what).arg(value);
    }
    commands.cmd("CLIENT").arg("ID");
    Info::ask(&mut commands);
    let bytes = commands.get_packed_pipeline();
    stream.write_all(&bytes).await.map_err(Fault::unreachable)?;
    stream.flush().await.map_err(Fault::unreachable)?;
    let mut replies = Vec::with_capacity(commands.len());
    // Shared by all replies: it may read ahead. Nothing comes after the last one.
    let mut decoder = Default::default();
    while replies.len() < commands.len() {
        let reply = redis::parse_redis_value_async(&mut decoder, stream).await;
        replies.push(reply.map_err(of_dialing)?);
    }
    let (logged_in, told) = replies.split_at(needed);
    // Servers before 7.2 do not know SETINFO.
    let [_, _, id, infos @ ..] = told else {
        return Ok(Greeting {
            info: Info::default(),
            client_id: None,
        });
    };
    let client_id = match id {
        Value::Int(client_id) => Some(*client_id),
        _ => None,
    };
    let info = Info::of(infos);
    // Looked at first: a sentinel knows no SELECT, and a cluster has one database.
    if info.unfit().is_some() {
        return Ok(Greeting { info, client_id });
    }
    for reply in logged_in {
        if let Value::ServerError(error) = reply {
            return Err(Fault::from_server(error.clone()).while_dialing());
        }
    }
    // An ACL may forbid to ask (NOPERM), and that is lived with. A server that wants a login,
    // or that is busy or loading, would answer nothing else either.
    for reply in std::iter::once(id).chain(infos) {
        if let Value::ServerError(error) = reply {
            let fault = Fault::from_server(error.clone());
            if fault.cause() == Cause::Passing || error.code() == "NOAUTH" {
                return Err(fault.while_dialing());
            }
        }
    }
    Ok(Greeting { info, client_id })
}
