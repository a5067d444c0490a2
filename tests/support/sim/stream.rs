//! A host's end of a connection, as the library sees it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::net::{Dialed, Item, Shared};

/// How long nobody answers before a dial asks again.
const AGAIN: Duration = Duration::from_millis(20);

/// Open until it is dropped.
pub(super) struct SimStream {
    net: Shared,
    id: u64,
}

impl SimStream {
    /// Connects as a host does: a message there and one back, or nothing for as long as nobody
    /// answers.
    pub(super) async fn connect(net: Shared, host: usize, process: u32) -> io::Result<Self> {
        let way = {
            let mut net = net.lock();
            net.way(host) + net.way(host)
        };
        tokio::time::sleep(Duration::from_millis(way)).await;
        loop {
            let dialed = net.lock().dial(host, process);
            match dialed {
                Dialed::Open(id) => return Ok(Self { net, id }),
                Dialed::Refused => return Err(io::ErrorKind::ConnectionRefused.into()),
                Dialed::Nothing => tokio::time::sleep(AGAIN).await,
            }
        }
    }
}

impl AsyncRead for SimStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self
            .net
            .lock()
            .receive(self.id, into.remaining(), cx.waker())
        {
            Some(Item::Data(bytes)) => {
                into.put_slice(&bytes);
                Poll::Ready(Ok(()))
            }
            Some(Item::End) => Poll::Ready(Ok(())),
            Some(Item::Reset) => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            None => Poll::Pending,
        }
    }
}

impl AsyncWrite for SimStream {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let item = Item::Data(Bytes::copy_from_slice(bytes));
        match self.net.lock().send(self.id, item) {
            true => Poll::Ready(Ok(bytes.len())),
            false => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.net.lock().send(self.id, Item::End);
        Poll::Ready(Ok(()))
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        self.net.lock().close(self.id);
    }
}
