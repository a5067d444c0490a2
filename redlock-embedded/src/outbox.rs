//! The unread bytes of a session, and the waker of its reader.

use super::limits::{Load, REPLY_LIMIT};
use super::resp::RespReply;
use bytes::{Buf, BytesMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use tokio::io::ReadBuf;

/// One session's outgoing bytes.
///
/// Its lock is the innermost one: nothing is called while it is held. It returns wakers, which
/// callers wake or drop without holding any lock.
#[derive(Debug)]
pub(super) struct Outbox {
    pending: Mutex<PendingOutput>,
    load: Arc<Load>,
}

#[derive(Debug, Default)]
struct PendingOutput {
    bytes: BytesMut,
    /// The size of the incomplete request of the session.
    incoming: usize,
    reader: Option<Waker>,
    writer: Option<Waker>,
    /// Waits until the session is disconnected.
    watcher: Option<Waker>,
    /// No more bytes will come; the rest may still be read.
    closed: bool,
    /// No byte of it may be read.
    cut: bool,
}

/// So much is unread that the session must be disconnected.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Flooded;

impl Outbox {
    pub(super) fn new(load: &Arc<Load>) -> Self {
        Self {
            pending: Mutex::default(),
            load: Arc::clone(load),
        }
    }

    fn lock(&self) -> MutexGuard<'_, PendingOutput> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a reply or a message, unless more than the limit is unread; returns the reader to wake.
    pub(super) fn append(&self, reply: &RespReply, limit: usize) -> Result<Option<Waker>, Flooded> {
        let mut pending = self.lock();
        if pending.closed {
            return Ok(None);
        }
        // A session that has read everything may get as much again.
        if pending.bytes.len() > limit || reply.size() > limit {
            return Err(Flooded);
        }
        let before = pending.bytes.len();
        reply.encode(&mut pending.bytes);
        self.load.add(pending.bytes.len() - before);
        Ok(pending.reader.take())
    }

    /// Sets the size of the incomplete request of the session.
    pub(super) fn receives(&self, bytes: usize) {
        let mut pending = self.lock();
        if !pending.closed {
            self.load.add(bytes);
            self.load
                .remove(std::mem::replace(&mut pending.incoming, bytes));
        }
    }

    /// The memory of the session.
    pub(super) fn size(&self) -> usize {
        let pending = self.lock();
        pending.bytes.len() + pending.incoming
    }

    /// Whether the session must read before its next command runs.
    pub(super) fn is_full(&self) -> bool {
        let pending = self.lock();
        !pending.closed && pending.bytes.len() >= REPLY_LIMIT
    }

    /// Ends the stream, at once or after the replies that it has.
    pub(super) fn close(&self, discard: bool) -> [Option<Waker>; 3] {
        let mut pending = self.lock();
        pending.closed = true;
        self.load.remove(std::mem::take(&mut pending.incoming));
        if discard {
            pending.cut = true;
            self.load.remove(pending.bytes.len());
            pending.bytes = BytesMut::new();
        }
        [
            pending.reader.take(),
            pending.writer.take(),
            pending.watcher.take(),
        ]
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Waits until the session was disconnected.
    pub(super) fn poll_cut(&self, cx: &Context<'_>) -> Poll<()> {
        let mut pending = self.lock();
        if pending.cut {
            return Poll::Ready(());
        }
        let replaced = pending.watcher.replace(cx.waker().clone());
        drop(pending);
        drop(replaced);
        Poll::Pending
    }

    /// Waits until enough has been read for the session to send again.
    pub(super) fn poll_room(&self, cx: &Context<'_>) -> Poll<()> {
        let mut pending = self.lock();
        if pending.closed || pending.bytes.len() < REPLY_LIMIT {
            return Poll::Ready(());
        }
        let replaced = pending.writer.replace(cx.waker().clone());
        drop(pending);
        drop(replaced);
        Poll::Pending
    }

    /// Moves bytes out. Ready with nothing means the end of the stream.
    pub(super) fn poll_read(&self, cx: &Context<'_>, into: &mut ReadBuf<'_>) -> Poll<()> {
        let mut pending = self.lock();
        if pending.bytes.is_empty() {
            if pending.closed {
                return Poll::Ready(());
            }
            let replaced = match &pending.reader {
                Some(reader) if reader.will_wake(cx.waker()) => None,
                _ => pending.reader.replace(cx.waker().clone()),
            };
            // Dropping a waker may drop a task, and with it another session.
            drop(pending);
            drop(replaced);
            return Poll::Pending;
        }
        let take = into.remaining().min(pending.bytes.len());
        into.put_slice(&pending.bytes[..take]);
        pending.bytes.advance(take);
        self.load.remove(take);
        let writer = if pending.bytes.len() < REPLY_LIMIT {
            pending.writer.take()
        } else {
            None
        };
        drop(pending);
        if let Some(writer) = writer {
            writer.wake();
        }
        Poll::Ready(())
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.load.remove(self.size());
    }
}
