//! Counts the requests of a client over in-process streams, where the clock may be paused.

use std::{
    collections::BTreeMap,
    io,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::proxy::{Frame, Matcher, take_frame, words};

/// The request frames of all wrapped streams.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    seen: Arc<Mutex<Seen>>,
}

#[derive(Debug, Default)]
struct Seen {
    frames: Vec<Frame>,
    streams: u64,
}

impl Recorder {
    /// Records what is written to this stream from now on.
    pub fn wrap<S>(&self, stream: S) -> Recorded<S> {
        let connection = self.with(|seen| {
            seen.streams += 1;
            seen.streams
        });
        Recorded {
            stream,
            recorder: self.clone(),
            connection,
            unparsed: BytesMut::new(),
        }
    }

    /// The frames since the last mark.
    pub fn frames(&self) -> Vec<Frame> {
        self.with(|seen| seen.frames.clone())
    }

    /// How many frames of each command since the last mark.
    pub fn counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for frame in self.frames() {
            *counts.entry(frame.command()).or_insert(0) += 1;
        }
        counts
    }

    /// How many matching frames since the last mark.
    pub fn count(&self, matcher: impl Into<Matcher>) -> usize {
        let matcher = matcher.into();
        let frames = self.frames();
        frames.iter().filter(|frame| matcher.matches(frame)).count()
    }

    /// Forgets all frames seen so far.
    pub fn mark(&self) {
        self.with(|seen| seen.frames.clear());
    }

    fn with<T>(&self, action: impl FnOnce(&mut Seen) -> T) -> T {
        action(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A stream whose requests are recorded.
#[derive(Debug)]
pub struct Recorded<S> {
    stream: S,
    recorder: Recorder,
    connection: u64,
    unparsed: BytesMut,
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Recorded<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let written = ready!(Pin::new(&mut this.stream).poll_write(cx, bytes))?;
        this.unparsed.extend_from_slice(&bytes[..written]);
        while let Some(frame) = take_frame(&mut this.unparsed).expect("clients send RESP") {
            let frame = Frame {
                connection: this.connection,
                args: words(&frame),
            };
            this.recorder.with(|seen| seen.frames.push(frame));
        }
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Recorded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}
