//! The engine on TCP, for other processes.

use super::limits::{GUESS, MOST_CLIENTS, WRITE_PATIENCE};
use super::serve::SharedServer;
use super::session::Session;
use bytes::BytesMut;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, ToSocketAddrs};
use tokio::sync::Mutex;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

/// The reply to a connection beyond the limit.
const TOO_MANY: &[u8] = b"-ERR max number of clients reached\r\n";
/// The most bytes of one read from a socket.
const CHUNK: usize = 64 * 1024;

/// A TCP port on which an [`Engine`](super::Engine) is served.
///
/// Dropping it stops accepting and closes its connections.
///
/// It has at most 10 000 connections at a time, or [`max_clients`](Self::max_clients); further ones
/// get `-ERR max number of clients reached` and are closed. A connection that accepts no byte for 60 s
/// is closed. So is one without subscriptions that sends nothing for an hour, or for 10 s while a
/// password is missing. Wrong passwords are logged, and answered 100 ms apart for all connections
/// together. The other limits are those of [`Engine`](super::Engine#limits).
#[derive(Debug)]
#[must_use = "dropping the listener stops it"]
pub struct Listener {
    address: SocketAddr,
    accepting: AbortHandle,
    most: Arc<AtomicUsize>,
}

impl Listener {
    pub(super) async fn start(
        shared: Arc<SharedServer>,
        address: impl ToSocketAddrs,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        if !address.ip().to_canonical().is_loopback() && !shared.has_password() {
            let why = "an engine without a password listens on loopback addresses only";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        shared.listens_on(address.port());
        let most = Arc::new(AtomicUsize::new(MOST_CLIENTS));
        let accepting = tokio::spawn(accept(listener, shared, Arc::clone(&most))).abort_handle();
        Ok(Self {
            address,
            accepting,
            most,
        })
    }

    /// Sets how many connections there may be at a time. Defaults to 10 000. Existing connections
    /// stay.
    pub fn max_clients(self, most: usize) -> Self {
        self.most.store(most, Ordering::Relaxed);
        self
    }

    /// The address that was bound: with its port, when port 0 was asked for.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // The connections are in a set owned by the task, and end with it.
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<SharedServer>, most: Arc<AtomicUsize>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            // Ended ones first: they make room.
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) if connections.len() >= most.load(Ordering::Relaxed) => {
                    // Not waited for: there is room for it, or the peer has gone.
                    let _ = stream.try_write(TOO_MANY);
                }
                Ok((stream, _)) => {
                    connections.spawn(carry(stream, Session::open(Arc::clone(&shared))));
                }
                Err(error) => {
                    // Out of descriptors, most likely: give some time for connections to end.
                    tracing::warn!(%error, "embedded engine cannot accept");
                    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                }
            },
        }
    }
}

/// Carries bytes both ways until either side ends.
async fn carry(mut stream: TcpStream, mut session: Session) {
    if let Err(error) = copy(&mut stream, &mut session).await {
        tracing::debug!(%error, "embedded engine lost a connection");
    }
}

async fn copy(stream: &mut TcpStream, session: &mut Session) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut incoming = BytesMut::with_capacity(CHUNK);
    let mut outgoing = BytesMut::with_capacity(CHUNK);
    loop {
        // Both are empty after the last round, so the same memory is used again.
        incoming.reserve(CHUNK);
        outgoing.reserve(CHUNK);
        let patience = session.patience();
        // Replies go out before more commands are read: a client that does not read is not served.
        tokio::select! {
            biased;
            read = session.read_buf(&mut outgoing) => {
                if read? == 0 {
                    return stream.shutdown().await;
                }
                write(stream, session, &mut outgoing).await?;
            }
            () = tokio::time::sleep(patience) => return Ok(()),
            read = stream.read_buf(&mut incoming), if !session.stalled => {
                if read? == 0 {
                    return Ok(());
                }
                session.feed(&incoming);
                incoming.clear();
                while session.is_wrong {
                    slow_down(stream).await;
                    session.serve();
                }
            }
        }
    }
}

/// More connections do not allow faster guesses.
async fn slow_down(stream: &TcpStream) {
    static GUESSES: Mutex<()> = Mutex::const_new(());
    let _turn = GUESSES.lock().await;
    let peer = stream.peer_addr().ok();
    tracing::warn!(?peer, "embedded engine was given a wrong password");
    tokio::time::sleep(GUESS).await;
}

/// Writes all of it, unless the peer accepts nothing for too long, or is disconnected meanwhile.
async fn write(
    stream: &mut TcpStream,
    session: &Session,
    outgoing: &mut BytesMut,
) -> io::Result<()> {
    while !outgoing.is_empty() {
        tokio::select! {
            biased;
            written = timeout(WRITE_PATIENCE, stream.write_buf(outgoing)) => {
                written.map_err(|_| io::ErrorKind::TimedOut)??;
            }
            () = poll_fn(|cx| session.poll_cut(cx)) => {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::Engine;
    use super::*;

    /// Some machines do not allow a process this many sockets.
    #[tokio::test]
    async fn a_listener_takes_ten_thousand_clients_unless_told_otherwise() {
        let listener = Engine::new().listen("127.0.0.1:0").await.unwrap();
        assert_eq!(listener.most.load(Ordering::Relaxed), 10_000);
        let listener = listener.max_clients(2);
        assert_eq!(listener.most.load(Ordering::Relaxed), 2);
    }
}
