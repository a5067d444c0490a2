//! Questions to a server that come past the network, and what its engine is told and says.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use redlock_rt::embedded::Session;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::server::Server;

impl Server {
    /// Has it forget something.
    pub(super) fn wipe(&mut self, command: &[&str]) {
        self.ask(command);
        self.changed = true;
    }

    /// Runs one command past the network; its reply as it is.
    pub(super) fn ask(&self, words: &[&str]) -> Bytes {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        self.ask_bytes(&words)
    }

    /// As [`ask`](Self::ask), where a word need not be text.
    pub(super) fn ask_bytes(&self, words: &[&[u8]]) -> Bytes {
        let mut past = self.past.borrow_mut();
        let session = past.get_or_insert_with(|| self.engine().connect());
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            request.extend(format!("${}\r\n", word.len()).into_bytes());
            request.extend([word, &b"\r\n"[..]].concat());
        }
        write(session, &request);
        read(session).unwrap_or_default()
    }

    /// As [`ask`](Self::ask), where a number is answered, or the text of one.
    pub(super) fn number(&self, words: &[&str]) -> Option<u64> {
        let reply = self.ask(words);
        let text = std::str::from_utf8(&reply).ok()?;
        match text.strip_prefix(':') {
            Some(number) => number.trim_end().parse().ok(),
            None => text.lines().nth(1)?.parse().ok(),
        }
    }

    /// As [`ask`](Self::ask), where a list of words is answered.
    pub(super) fn list(&self, words: &[&str]) -> Vec<String> {
        let reply = self.ask(words);
        let list = crate::proxy::words(&reply);
        list.iter()
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect()
    }
}

pub(super) fn write(session: &mut Session, bytes: &[u8]) {
    let mut cx = Context::from_waker(Waker::noop());
    // An engine takes all at once, or has ended; then there is nobody to tell.
    let _ = Pin::new(session).poll_write(&mut cx, bytes);
}

pub(super) fn read(session: &mut Session) -> Option<Bytes> {
    match poll_read(session) {
        Poll::Ready(bytes) if !bytes.is_empty() => Some(bytes),
        _ => None,
    }
}

pub(super) fn poll_read(session: &mut Session) -> Poll<Bytes> {
    let mut cx = Context::from_waker(Waker::noop());
    let mut all = BytesMut::new();
    let mut room = [0; 4096];
    loop {
        let mut into = ReadBuf::new(&mut room);
        match Pin::new(&mut *session).poll_read(&mut cx, &mut into) {
            Poll::Ready(Ok(())) if !into.filled().is_empty() => {
                all.extend_from_slice(into.filled())
            }
            Poll::Pending if all.is_empty() => return Poll::Pending,
            // The end of a stream is told when all before it was read.
            _ => return Poll::Ready(all.freeze()),
        }
    }
}
