//! A stream whose bytes are checked before the client library reads them.
//!
//! Replies that nobody asked for, or of a form or a size that no server gives, end the connection.
//! Otherwise the next command would get the wrong reply, or memory would fill up.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::dialer::BoxStream;
use super::frames::{Frames, Nonsense};

/// A listener that is this many bytes of messages behind gets no more for now.
const MOST_UNHEARD: usize = 256 * 1024;

/// How a reader of the client library gets to know.
#[derive(Debug, thiserror::Error)]
#[error("the server sent {0}")]
struct Garbled(#[source] Nonsense);

/// What a connection is for.
enum Use {
    /// Each command has one reply.
    Calls,
    /// Messages come by themselves.
    Messages(Arc<Unheard>),
    /// Whoever reads it checks it.
    Own,
}

/// A stream to a server.
pub(super) struct Checked {
    stream: BoxStream,
    used_for: Use,
    sent: Frames,
    received: Frames,
    /// The number of commands without a reply.
    open: usize,
    flaw: Flaw,
}

/// What was wrong with the replies of a connection, once something was.
#[derive(Debug, Clone, Default)]
pub(super) struct Flaw(Arc<OnceLock<Nonsense>>);

impl Flaw {
    pub(super) fn why(&self) -> Option<String> {
        self.0
            .get()
            .map(|nonsense| format!("the server sent {nonsense}"))
    }
}

/// The messages that were handed to the client library, which queues them without a limit, and that
/// the listener has not read.
#[derive(Debug, Default)]
pub(super) struct Unheard(Mutex<Backlog>);

#[derive(Debug, Default)]
struct Backlog {
    bytes: usize,
    reader: Option<Waker>,
}

impl Unheard {
    fn poll_room(&self, cx: &Context<'_>) -> Poll<()> {
        let mut backlog = self.backlog();
        if backlog.bytes < MOST_UNHEARD {
            return Poll::Ready(());
        }
        let before = backlog.reader.replace(cx.waker().clone());
        drop(backlog);
        drop(before);
        Poll::Pending
    }

    fn add(&self, bytes: usize) {
        self.backlog().bytes += bytes;
    }

    /// The listener has read all messages.
    pub(super) fn caught_up(&self) {
        let mut backlog = self.backlog();
        backlog.bytes = 0;
        let reader = backlog.reader.take();
        drop(backlog);
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    fn backlog(&self) -> std::sync::MutexGuard<'_, Backlog> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Checked {
    /// For calls.
    pub(super) fn new(stream: BoxStream) -> Self {
        Self {
            stream,
            used_for: Use::Calls,
            sent: Frames::unlimited(),
            received: Frames::limited(),
            open: 0,
            flaw: Flaw::default(),
        }
    }

    /// From now on messages come too.
    pub(super) fn listening(self, unheard: &Arc<Unheard>) -> Self {
        Self {
            used_for: Use::Messages(Arc::clone(unheard)),
            ..self
        }
    }

    /// From now on whoever reads it checks it.
    pub(super) fn unchecked(self) -> Self {
        Self {
            used_for: Use::Own,
            ..self
        }
    }

    pub(super) fn flaw(&self) -> Flaw {
        self.flaw.clone()
    }

    /// Checks what was received. On nonsense returns how many bytes before it are whole replies.
    fn check(&mut self, bytes: &[u8]) -> Result<(), (usize, Nonsense)> {
        if matches!(self.used_for, Use::Own) {
            return Ok(());
        }
        let (mut at, mut whole) = (0, 0);
        while at < bytes.len() {
            if self.open == 0 && self.received.is_between() && matches!(self.used_for, Use::Calls) {
                return Err((whole, Nonsense::Unasked));
            }
            let follow = self.received.follow(&bytes[at..]);
            let (used, ended) = follow.map_err(|nonsense| (whole, nonsense))?;
            at += used;
            if ended {
                self.frame_ended(at - whole)
                    .map_err(|nonsense| (whole, nonsense))?;
                whole = at;
            }
        }
        Ok(())
    }

    fn frame_ended(&mut self, bytes: usize) -> Result<(), Nonsense> {
        if let Use::Messages(unheard) = &self.used_for
            && self.received.word() == Some(b"message")
        {
            unheard.add(bytes);
            return Ok(());
        }
        self.open = self.open.checked_sub(1).ok_or(Nonsense::Unasked)?;
        Ok(())
    }

    fn refuse(&self, nonsense: Nonsense) -> io::Error {
        let _ = self.flaw.0.set(nonsense);
        io::Error::new(io::ErrorKind::InvalidData, Garbled(nonsense))
    }
}

/// Whether an error is that a stream had nonsense in it.
pub(super) fn is_nonsense(error: &(dyn std::error::Error + 'static)) -> bool {
    let sources = std::iter::successors(Some(error), |error| error.source());
    sources.into_iter().any(|error| error.is::<Nonsense>())
}

impl AsyncRead for Checked {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let Some(nonsense) = this.flaw.0.get() {
            return Poll::Ready(Err(this.refuse(*nonsense)));
        }
        if let Use::Messages(unheard) = &this.used_for {
            ready!(unheard.poll_room(cx));
        }
        let before = into.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, into))?;
        let Err((whole, nonsense)) = this.check(&into.filled()[before..]) else {
            return Poll::Ready(Ok(()));
        };
        let error = this.refuse(nonsense);
        into.set_filled(before + whole);
        // The replies before it count.
        Poll::Ready(match whole {
            0 => Err(error),
            _ => Ok(()),
        })
    }
}

impl AsyncWrite for Checked {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.stream).poll_write(cx, bytes))?;
        if matches!(this.used_for, Use::Own) {
            return Poll::Ready(Ok(written));
        }
        let mut rest = &bytes[..written];
        while !rest.is_empty() {
            let follow = this.sent.follow(rest);
            let (used, ended) = follow.map_err(|nonsense| io::Error::other(Garbled(nonsense)))?;
            this.open += usize::from(ended);
            rest = &rest[used..];
        }
        Poll::Ready(Ok(written))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
    use tokio_test::task;

    const KIB: usize = 1024;
    const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";

    /// A stream, and the server's end of it, which takes 16 KiB that are not read.
    fn stream() -> (Checked, DuplexStream) {
        let (ours, theirs) = tokio::io::duplex(16 * KIB);
        (Checked::new(Box::new(ours)), theirs)
    }

    /// A message of 1 KiB on the wire.
    fn message() -> Vec<u8> {
        let payload = "m".repeat(992);
        let message = format!("*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$992\r\n{payload}\r\n");
        assert_eq!(message.len(), KIB);
        message.into_bytes()
    }

    // Outside a runtime: Tokio would make a task that reads much pause, which looks the same.

    #[test]
    fn a_listener_that_is_behind_gets_no_more_until_it_has_caught_up() {
        let (stream, mut server) = stream();
        let unheard = Arc::<Unheard>::default();
        let mut stream = stream.listening(&unheard);
        let sent = message().repeat(1000);
        let mut write = task::spawn(async { server.write_all(&sent).await.unwrap() }.fuse());
        let mut heard = 0;
        for left in [744, 488, 232] {
            // Both ends go on until neither can.
            let mut chunk = vec![0; 8 * KIB];
            loop {
                let _ = write.poll();
                let mut read = task::spawn(stream.read(&mut chunk));
                match read.poll() {
                    Poll::Ready(len) => heard += len.unwrap(),
                    Poll::Pending => break,
                }
            }
            assert_eq!(heard, (1000 - left) * KIB, "256 KiB more");
            assert!(write.poll().is_pending(), "the server has to wait");
            let mut read = task::spawn(stream.read(&mut chunk));
            assert!(read.poll().is_pending());
            assert!(!read.is_woken());
            unheard.caught_up();
            assert!(read.is_woken(), "it goes on");
        }
        let mut rest = vec![0; 232 * KIB];
        let mut read = task::spawn(stream.read_exact(&mut rest));
        while read.poll().is_pending() {
            let _ = write.poll();
            assert!(read.is_woken(), "more has come");
        }
        drop(read);
        assert_eq!(rest, message().repeat(232));
    }

    /// Else a connection that asks much and hears little would stop.
    #[test]
    fn replies_do_not_put_a_listener_behind() {
        let (stream, mut server) = stream();
        let mut stream = stream.listening(&Arc::default());
        let reply = [b"$1024\r\n", &*vec![b'r'; KIB], b"\r\n"].concat();
        let mut read = vec![0; reply.len()];
        for _ in 0..300 {
            let written = stream.write_all(PING).now_or_never();
            written.unwrap().unwrap();
            let answered = server.write_all(&reply).now_or_never();
            answered.unwrap().unwrap();
            let whole = stream.read_exact(&mut read).now_or_never();
            whole.expect("it is read").unwrap();
            assert_eq!(read, reply);
        }
    }

    #[tokio::test]
    async fn a_reply_that_nobody_asked_for_ends_the_connection() {
        for listens in [false, true] {
            for asked in [0, 1, 2] {
                let (mut stream, mut server) = stream();
                if listens {
                    stream = stream.listening(&Arc::default());
                }
                stream.write_all(&PING.repeat(asked)).await.unwrap();
                let replies = b"+PONG\r\n".repeat(asked + 1);
                server.write_all(&replies).await.unwrap();
                drop(server);
                let mut read = Vec::new();
                let error = stream.read_to_end(&mut read).await.unwrap_err();
                assert!(is_nonsense(&error), "{error}");
                assert_eq!(
                    read,
                    b"+PONG\r\n".repeat(asked),
                    "those that were asked for"
                );
                let why = stream.flaw().why();
                assert_eq!(why.as_deref(), Some("the server sent a reply to nothing"));
            }
        }
    }

    #[tokio::test]
    async fn a_message_to_a_connection_for_calls_ends_it() {
        let (mut stream, mut server) = stream();
        server.write_all(&message()).await.unwrap();
        let error = stream.read(&mut [0; 9]).await.unwrap_err();
        assert!(is_nonsense(&error), "{error}");
    }
}
