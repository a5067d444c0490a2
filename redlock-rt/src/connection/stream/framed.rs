//! A stream of replies, each of them whole and within the limits of [`Frames`].

use std::error::Error;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use redis::Value;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};

use super::frames::{Frames, Nonsense};
use super::values::value;

/// The size of the buffers, which grow while what they hold is longer.
const USUAL: usize = 16 * 1024;

/// A stream to a server.
#[derive(Debug)]
pub(in crate::connection) struct Framed<S> {
    stream: S,
    frames: Frames,
    /// What was read is from `start` to `end`.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// The first bytes of what was read: so many were found to belong to a reply that is not whole.
    followed: usize,
    /// What is being written, and how much of it was.
    writing: Vec<u8>,
    at: usize,
    /// The number of bytes that [`poll_write`](Self::poll_write) ever wrote.
    written: u64,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Framed<S> {
    pub(in crate::connection) fn new(stream: S) -> Self {
        Self {
            stream,
            frames: Frames::new(),
            buffer: Vec::new(),
            start: 0,
            end: 0,
            followed: 0,
            writing: Vec::new(),
            at: 0,
            written: 0,
        }
    }

    /// For a server that is asked to speak RESP3.
    pub(in crate::connection) fn resp3(mut self) -> Self {
        self.frames.resp3 = true;
        self
    }

    /// The next whole reply among what was read. After an error the stream is of no use.
    pub(in crate::connection) fn next(&mut self) -> Result<Option<&[u8]>, Nonsense> {
        let rest = &self.buffer[self.start + self.followed..self.end];
        let (used, is_whole) = self.frames.follow(rest)?;
        self.followed += used;
        if !is_whole {
            return Ok(None);
        }
        let from = self.start;
        self.start += std::mem::take(&mut self.followed);
        Ok(Some(&self.buffer[from..self.start]))
    }

    /// Whether all that was read was returned by [`next`](Self::next).
    pub(super) fn is_between(&self) -> bool {
        self.start == self.end
    }

    /// Reads more. The end of the stream is an error.
    #[inline]
    pub(in crate::connection) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        self.make_room();
        let mut room = ReadBuf::new(&mut self.buffer[self.end..]);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut room))?;
        Poll::Ready(match room.filled().len() {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            read => {
                self.end += read;
                Ok(())
            }
        })
    }

    fn make_room(&mut self) {
        if self.is_between() {
            (self.start, self.end) = (0, 0);
            if self.buffer.len() != USUAL {
                self.buffer = vec![0; USUAL];
            }
        } else if self.end == self.buffer.len() {
            match self.start {
                0 => self.buffer.resize(2 * self.end, 0),
                start => {
                    self.buffer.copy_within(start..self.end, 0);
                    self.end -= start;
                    self.start = 0;
                }
            }
        }
    }

    /// The value of the next reply.
    pub(in crate::connection) async fn read(&mut self) -> io::Result<Value> {
        loop {
            if let Some(frame) = self.next().map_err(nonsense)? {
                return value(frame).map_err(nonsense);
            }
            poll_fn(|cx| self.poll_read(cx)).await?;
        }
    }

    pub(in crate::connection) async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await?;
        self.stream.flush().await
    }

    /// Writes all that there is, as far as the stream takes it. When the last bytes are written, `take`
    /// puts the next ones into the empty buffer; if there are none, it keeps the waker for when there
    /// are.
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

    pub(super) fn written(&self) -> u64 {
        self.written
    }
}

/// The error of a stream in which there is what no server sends.
pub(in crate::connection) fn nonsense(why: impl Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}
