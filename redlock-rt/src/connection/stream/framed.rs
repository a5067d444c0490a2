//! A stream of replies, read by a [`Reader`].

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};

use super::resp::{Nonsense, Reader};
use crate::wire::Value;

/// The size of the buffers. The buffer for writing grows with longer contents.
const USUAL: usize = 16 * 1024;

/// A stream to a server.
#[derive(Debug)]
pub(in crate::connection) struct Framed<S> {
    stream: S,
    reader: Reader,
    /// Bytes that the reader has not taken yet are from `start` to `end`.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// The bytes being written, and how many of them were.
    writing: Vec<u8>,
    at: usize,
    /// The number of bytes that [`poll_write`](Self::poll_write) ever wrote.
    pub(super) written: u64,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Framed<S> {
    pub(in crate::connection) fn new(stream: S) -> Self {
        Self {
            stream,
            reader: Reader::default(),
            buffer: vec![0; USUAL],
            start: 0,
            end: 0,
            writing: Vec::new(),
            at: 0,
            written: 0,
        }
    }

    /// The next reply, if all of it was read. After an error the stream is useless.
    pub(in crate::connection) fn next(&mut self) -> Result<Option<Value>, Nonsense> {
        let mut rest = &self.buffer[self.start..self.end];
        let reply = self.reader.read(&mut rest)?;
        self.start = self.end - rest.len();
        Ok(reply)
    }

    /// Whether [`next`](Self::next) has returned all that was read.
    pub(super) fn is_between(&self) -> bool {
        self.start == self.end && self.reader.is_between()
    }

    /// Reads more, once [`next`](Self::next) has returned all replies that were read. The end of the stream is
    /// an error.
    #[inline]
    pub(in crate::connection) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let mut room = ReadBuf::new(&mut self.buffer);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut room))?;
        (self.start, self.end) = (0, room.filled().len());
        Poll::Ready(match self.end {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        })
    }

    /// The next reply.
    pub(in crate::connection) async fn read(&mut self) -> io::Result<Value> {
        loop {
            if let Some(reply) = self.next().map_err(nonsense)? {
                return Ok(reply);
            }
            poll_fn(|cx| self.poll_read(cx)).await?;
        }
    }

    pub(in crate::connection) async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await?;
        self.stream.flush().await
    }

    /// Writes all bytes, as far as the stream takes them. When the last bytes are written, `take` puts the
    /// next ones into the empty buffer. If there are none, it keeps the waker for later ones.
    pub(in crate::connection) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        mut take: impl FnMut(&Waker, &mut Vec<u8>),
    ) -> Poll<io::Result<()>> {
        loop {
            if self.at == self.writing.len() {
                self.at = 0;
                self.writing.clear();
                self.writing.shrink_to(USUAL);
                take(cx.waker(), &mut self.writing);
                if self.writing.is_empty() {
                    return Pin::new(&mut self.stream).poll_flush(cx);
                }
            }
            let rest = &self.writing[self.at..];
            match ready!(Pin::new(&mut self.stream).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => {
                    self.at += written;
                    self.written += written as u64;
                }
            }
        }
    }
}

/// The error of a stream with bytes that no server sends.
pub(in crate::connection) fn nonsense(why: Nonsense) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}
