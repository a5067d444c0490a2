//! One connection, as a byte stream that needs no task.

use super::outbox::Outbox;
use super::parser::Parser;
use super::serve::SharedServer;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection to an [`Engine`](super::Engine).
///
/// Commands run as they are written. Reads wait only while there is nothing to read.
pub struct Session {
    shared: Arc<SharedServer>,
    id: u64,
    parser: Parser,
    out: Arc<Outbox>,
    /// Commands may have been left in the parser, since too much was unread.
    pub(super) stalled: bool,
    /// Commands were left in the parser after a wrong password.
    pub(super) is_wrong: bool,
}

impl Session {
    pub(super) fn open(shared: Arc<SharedServer>) -> Self {
        let (id, out) = shared.register();
        Self {
            shared,
            id,
            parser: Parser::default(),
            out,
            stalled: false,
            is_wrong: false,
        }
    }

    /// Takes bytes in and runs the commands that they complete, unless too much is unread.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.parser.push(bytes);
        self.serve();
    }

    pub(super) fn serve(&mut self) {
        self.is_wrong = self.shared.serve((self.id, &self.out), &mut self.parser);
        self.stalled = self.out.is_full();
        if self.out.is_closed() {
            self.parser = Parser::default();
        }
    }

    /// How long the connection may be silent.
    pub(super) fn patience(&self) -> Duration {
        self.shared.patience(self.id)
    }

    /// Waits until the client was disconnected, or killed.
    pub(super) fn poll_cut(&self, cx: &Context<'_>) -> Poll<()> {
        self.out.poll_cut(cx)
    }

    fn disconnect(&self, discard: bool) {
        self.shared.disconnect((self.id, &self.out), discard);
    }
}

impl AsyncWrite for Session {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.out.poll_room(cx));
            if !self.stalled {
                break;
            }
            self.serve();
        }
        if self.out.is_closed() {
            self.parser = Parser::default();
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        self.feed(bytes);
        while self.is_wrong {
            self.serve();
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.disconnect(false);
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Session {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.stalled && !this.out.is_full() {
            this.serve();
        }
        this.out.poll_read(cx, into).map(Ok)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.disconnect(true);
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
