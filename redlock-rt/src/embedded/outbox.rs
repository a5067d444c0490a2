//! The unread bytes of a session, and the waker of its reader.

use super::resp::Reply;
use bytes::{Buf, BytesMut};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use tokio::io::ReadBuf;

/// A subscriber that leaves this much unread is cut off, as Redis does.
const PUSH_LIMIT: usize = 32 * 1024 * 1024;
/// A session that leaves this much unread may not send more commands for now.
const REPLY_LIMIT: usize = 64 * 1024 * 1024;

/// One session's outgoing bytes.
///
/// Its lock is the innermost one: nothing is called while it is held. Wakers come out of it and
/// are woken, or dropped, by callers that hold no lock at all.
#[derive(Debug, Default)]
pub(super) struct Outbox(Mutex<Pending>);

#[derive(Debug, Default)]
struct Pending {
    bytes: BytesMut,
    reader: Option<Waker>,
    writer: Option<Waker>,
    /// No more bytes will come; the rest may still be read.
    closed: bool,
}

impl Outbox {
    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a reply; returns the reader to wake.
    pub(super) fn reply(&self, reply: &Reply) -> Option<Waker> {
        let mut pending = self.lock();
        if pending.closed {
            return None;
        }
        reply.encode(&mut pending.bytes);
        pending.reader.take()
    }

    /// Appends a message. `Err` when so much is unread that the session must be cut off.
    pub(super) fn push(&self, message: &Reply) -> Result<Option<Waker>, ()> {
        if self.lock().bytes.len() > PUSH_LIMIT {
            return Err(());
        }
        Ok(self.reply(message))
    }

    /// Ends the stream, at once or after the replies that it has.
    pub(super) fn close(&self, discard: bool) -> [Option<Waker>; 2] {
        let mut pending = self.lock();
        pending.closed = true;
        if discard {
            pending.bytes.clear();
        }
        [pending.reader.take(), pending.writer.take()]
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().closed
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
