//! A connection to an in-process engine that a test can close: a black hole without a socket.

use std::{
    future, io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use redlock_rt::{
    Client, ClientBuilder,
    embedded::{Engine, Session},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The fate of new connections while the valve is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dial {
    /// They never succeed.
    Hangs,
    /// They succeed, and are black holes too.
    Succeeds,
    /// They fail at once, and so do existing connections.
    Refused,
}

/// While the valve is closed, all written bytes are swallowed and nothing is answered, on old and new
/// connections. Old connections stay black holes when it opens again.
#[derive(Clone)]
pub(crate) struct Valve {
    engine: Engine,
    /// Odd while closed.
    turns: Arc<AtomicU64>,
}

impl Valve {
    pub(crate) fn open(engine: &Engine) -> Self {
        Self {
            engine: engine.clone(),
            turns: Arc::default(),
        }
    }

    pub(crate) fn turn(&self) {
        self.turns.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn client(&self, dial: Dial) -> ClientBuilder {
        let valve = self.clone();
        Client::builder().connector(move || {
            let born = valve.turns.load(Ordering::SeqCst);
            let way = Way {
                session: valve.engine.connect(),
                turns: Arc::clone(&valve.turns),
                born,
                refused: dial == Dial::Refused,
            };
            async move {
                match dial {
                    Dial::Hangs if born % 2 == 1 => future::pending().await,
                    Dial::Refused if born % 2 == 1 => Err(io::ErrorKind::ConnectionRefused.into()),
                    _ => Ok(way),
                }
            }
        })
    }
}

pub(crate) struct Way {
    session: Session,
    turns: Arc<AtomicU64>,
    born: u64,
    refused: bool,
}

impl Way {
    fn is_hole(&self) -> bool {
        self.born % 2 == 1 || self.turns.load(Ordering::SeqCst) != self.born
    }
}

impl AsyncRead for Way {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.is_hole() {
            // No byte will ever come, so no reader needs to be woken.
            return Poll::Pending;
        }
        Pin::new(&mut self.session).poll_read(cx, buf)
    }
}

impl AsyncWrite for Way {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.is_hole() && self.refused {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if self.is_hole() {
            return Poll::Ready(Ok(bytes.len()));
        }
        Pin::new(&mut self.session).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.session).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.session).poll_shutdown(cx)
    }
}
