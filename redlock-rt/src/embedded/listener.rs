//! The engine on TCP, for other processes.

use super::serve::Shared;
use super::session::Session;
use bytes::BytesMut;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, ToSocketAddrs};
use tokio::task::{AbortHandle, JoinSet};

/// What one read from a socket takes at most.
const CHUNK: usize = 64 * 1024;

/// A TCP port on which an [`Engine`](super::Engine) is served.
///
/// Dropping it stops accepting and closes its connections.
#[derive(Debug)]
#[must_use = "dropping the listener stops it"]
pub struct Listener {
    address: SocketAddr,
    accepting: AbortHandle,
}

impl Listener {
    pub(super) async fn start(
        shared: Arc<Shared>,
        address: impl ToSocketAddrs,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        shared.listens_on(address.port());
        let accepting = tokio::spawn(accept(listener, shared)).abort_handle();
        Ok(Self { address, accepting })
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

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(carry(stream, Session::open(Arc::clone(&shared))));
                }
                Err(error) => {
                    // Out of descriptors, most likely: give some time for connections to end.
                    tracing::warn!(%error, "embedded engine cannot accept");
                    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                }
            },
            Some(_) = connections.join_next() => {}
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
        // Nothing of the last round is left in either: the same memory is used again.
        incoming.reserve(CHUNK);
        outgoing.reserve(CHUNK);
        // Replies go out before more commands come in: a client that does not read is not served.
        tokio::select! {
            biased;
            read = session.read_buf(&mut outgoing) => {
                if read? == 0 {
                    return stream.shutdown().await;
                }
                stream.write_all_buf(&mut outgoing).await?;
            }
            read = stream.read_buf(&mut incoming) => {
                if read? == 0 {
                    return Ok(());
                }
                session.feed(&incoming);
                incoming.clear();
            }
        }
    }
}
