//! Callers concurrent with the future that drives the stream, in every interleaving. The server is a
//! part of the stream, and answers a command of one digit with that number.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, Wake};

use ::loom::future::block_on;
use ::loom::sync::atomic::AtomicUsize;
use ::loom::thread;
use futures::future::{AbortHandle, abortable};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::super::{encode, framed::Framed};
use super::driving::{Driving, TWO_GROUPS};
use super::*;
use crate::shim::model;

/// The length of a command of one digit, and where the digit is.
const COMMAND: usize = b"*1\r\n$1\r\n7\r\n".len();
const DIGIT: usize = b"*1\r\n$1\r\n".len();

/// Ends after this many replies.
struct Server {
    replies: Vec<u8>,
    left: usize,
}

impl AsyncRead for Server {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let replies = std::mem::take(&mut self.replies);
        if replies.is_empty() && self.left > 0 {
            // The next command wakes the future.
            return Poll::Pending;
        }
        into.put_slice(&replies);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Server {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        for command in bytes.chunks(COMMAND).take(self.left) {
            self.replies.extend([b':', command[DIGIT], b'\r', b'\n']);
            self.left -= 1;
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

fn server(replies: usize) -> (Arc<Multiplexer>, Driving<Server>) {
    Multiplexer::new(Framed::new(Server {
        replies: Vec::new(),
        left: replies,
    }))
}

impl Multiplexer {
    fn sent(self: &Arc<Self>, waker: Option<&Waker>, digit: u8) -> Result<Pending, Ended> {
        let caller = WakeUp {
            waker,
            ..WakeUp::default()
        };
        self.send(caller, |out| [encode::command(out, &[&[b'0' + digit]])])
    }

    /// Sends, and is polled again when the reply wakes it.
    fn asked(self: &Arc<Self>, digit: u8) -> Result<Value, Unanswered> {
        let mut sent = None::<Pending>;
        block_on(poll_fn(|cx| match &mut sent {
            Some(sent) => Pin::new(sent).poll(cx).map(last),
            None => match self.sent(Some(cx.waker()), digit) {
                Ok(pending) => {
                    sent = Some(pending);
                    Poll::Pending
                }
                Err(ended) => Poll::Ready(Err(Unanswered::Ended(ended))),
            },
        }))
    }

    fn spawn(self: &Arc<Self>, run: impl FnOnce(&Arc<Self>) + 'static) -> thread::JoinHandle<()> {
        let multiplexer = Arc::clone(self);
        thread::spawn(move || run(&multiplexer))
    }

    /// No state of any caller is left, and no caller waits any more.
    fn is_over(self: &Arc<Self>) {
        assert_eq!(self.in_progress(), 0);
        assert!(self.state().open.is_empty());
        assert!(self.sent(None, 0).is_err());
    }
}

/// Polls the future until it ends or, as the task of a link, is aborted.
fn driven(driving: Driving<Server>) -> (thread::JoinHandle<()>, AbortHandle) {
    let (driving, abort) = abortable(driving);
    let driven = thread::spawn(move || {
        let _ = block_on(driving);
    });
    (driven, abort)
}

fn is(answer: Result<Value, Unanswered>, digit: i64) {
    assert_eq!(answer.unwrap(), Value::Int(digit));
}

/// The future sleeps when it has written all commands. Each later caller wakes it.
#[test]
fn callers_that_come_beside_each_other_get_their_own_replies() {
    model(Some(2), || {
        let (multiplexer, driving) = server(2);
        let (driven, _) = driven(driving);
        let other = multiplexer.spawn(|multiplexer| is(multiplexer.asked(2), 2));
        is(multiplexer.asked(1), 1);
        other.join().unwrap();
        driven.join().unwrap();
        multiplexer.is_over();
    });
}

#[test]
fn a_reply_beside_a_caller_that_leaves_is_nobodys() {
    model(Some(2), || {
        let (multiplexer, driving) = server(2);
        let sent = multiplexer.sent(None, 1).unwrap();
        let (driven, _) = driven(driving);
        let leaves = thread::spawn(move || drop(sent));
        is(multiplexer.asked(2), 2);
        leaves.join().unwrap();
        driven.join().unwrap();
        multiplexer.is_over();
    });
}

/// The call was sent by a caller that has gone, as for a dropped guard.
#[test]
fn a_reply_beside_a_caller_that_takes_the_call_over_wakes_it() {
    model(Some(2), || {
        let (multiplexer, driving) = server(1);
        let sent = multiplexer.sent(Some(Waker::noop()), 1).unwrap();
        let (driven, _) = driven(driving);
        is(last(block_on(sent)), 1);
        driven.join().unwrap();
        multiplexer.is_over();
    });
}

/// The server ends the connection, or this client does.
#[test]
fn a_call_beside_the_end_of_the_connection_learns_of_it() {
    for replies in [0, 1] {
        model(Some(2), move || {
            let (multiplexer, driving) = server(replies);
            let (driven, task) = driven(driving);
            let waits = multiplexer.spawn(|multiplexer| drop(multiplexer.asked(1)));
            if replies > 0 {
                // As `Link::break_off`.
                multiplexer.close();
                task.abort();
            }
            waits.join().unwrap();
            driven.join().unwrap();
            multiplexer.is_over();
        });
    }
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

/// The second group has its replies. It is woken after the first group, or by the end.
#[test]
fn both_groups_of_callers_are_woken_beside_the_end_of_the_connection() {
    model(Some(2), || {
        let (multiplexer, driving) = server(TWO_GROUPS);
        let count = Arc::<Count>::default();
        let waker = Waker::from(Arc::clone(&count));
        let sent = (0..TWO_GROUPS).map(|_| multiplexer.sent(Some(&waker), 7).unwrap());
        let sent: Vec<_> = sent.collect();
        let (driven, task) = driven(driving);
        // As `Link::break_off`.
        multiplexer.close();
        task.abort();
        driven.join().unwrap();
        assert_eq!(count.0.load(Ordering::Acquire), TWO_GROUPS);
        drop(sent);
        multiplexer.is_over();
    });
}
