//! The two servers under comparison, driven in the same way.

use crate::frame::Frame;
use futures::task::noop_waker_ref;
use redlock_rt::embedded::{Engine, Session};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

pub(crate) type Command = Vec<Vec<u8>>;

/// The bytes of a request.
pub(crate) fn encode(command: &Command) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", command.len()).into_bytes();
    for argument in command {
        bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        bytes.extend_from_slice(argument);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// A connection to the real server.
pub(crate) struct Real {
    stream: TcpStream,
    unread: Vec<u8>,
}

impl Real {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        Self {
            stream,
            unread: Vec::new(),
        }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// The next reply; `None` if the server has closed the connection or sends nothing more.
    pub(crate) fn read(&mut self) -> Option<Frame> {
        let mut chunk = [0; 64 * 1024];
        loop {
            if let Some((frame, len)) = Frame::parse(&self.unread) {
                self.unread.drain(..len);
                return Some(frame);
            }
            match self.stream.read(&mut chunk) {
                Ok(n) if n > 0 => self.unread.extend_from_slice(&chunk[..n]),
                _ => return None,
            }
        }
    }

    /// Whether the server has closed the connection, and all replies are read.
    pub(crate) fn is_closed(&mut self) -> bool {
        matches!(self.stream.read(&mut [0; 1]), Ok(0) | Err(_))
    }
}

/// A connection to the engine.
pub(crate) struct Embedded {
    session: Session,
    unread: Vec<u8>,
}

impl Embedded {
    pub(crate) fn connect(engine: &Engine) -> Self {
        Self {
            session: engine.connect(),
            unread: Vec::new(),
        }
    }

    /// Sends; returns false if the connection is closed. The engine never blocks a writer here.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> bool {
        let mut cx = Context::from_waker(noop_waker_ref());
        matches!(
            Pin::new(&mut self.session).poll_write(&mut cx, bytes),
            Poll::Ready(Ok(_))
        )
    }

    /// All available replies.
    pub(crate) fn drain(&mut self) -> Vec<Frame> {
        let mut cx = Context::from_waker(noop_waker_ref());
        let mut chunk = vec![0; 64 * 1024];
        loop {
            let mut into = ReadBuf::new(&mut chunk);
            match Pin::new(&mut self.session).poll_read(&mut cx, &mut into) {
                Poll::Ready(Ok(())) if !into.filled().is_empty() => {
                    self.unread.extend_from_slice(into.filled());
                }
                _ => break,
            }
        }
        let mut frames = Vec::new();
        let mut at = 0;
        while let Some((frame, len)) = Frame::parse(&self.unread[at..]) {
            frames.push(frame.without_note());
            at += len;
        }
        self.unread.drain(..at);
        frames
    }

    pub(crate) fn is_closed(&mut self) -> bool {
        let mut cx = Context::from_waker(noop_waker_ref());
        let mut chunk = [0; 1];
        let mut into = ReadBuf::new(&mut chunk);
        let read = Pin::new(&mut self.session).poll_read(&mut cx, &mut into);
        matches!(read, Poll::Ready(Ok(()))) && into.filled().is_empty()
    }
}

/// The time between the runs of the same batches on the two servers.
///
/// Each batch gives bounds for that time. A TTL that is set in one batch and read in another differs
/// at most by the spread of these bounds, so a slow machine does not look like an error.
pub(crate) struct Skew {
    low: f64,
    high: f64,
}

impl Skew {
    pub(crate) fn new() -> Self {
        Self {
            low: f64::MAX,
            high: f64::MIN,
        }
    }

    fn add(&mut self, embedded: (Instant, Instant), real: (Instant, Instant)) {
        let distance = |a: Instant, b: Instant| {
            a.duration_since(b).as_secs_f64() - b.duration_since(a).as_secs_f64()
        };
        self.low = self.low.min(distance(embedded.0, real.1));
        self.high = self.high.max(distance(embedded.1, real.0));
    }

    /// Milliseconds by which times may differ: 20, plus the uncertainty of the measurement.
    pub(crate) fn tolerance(&self) -> f64 {
        let spread = (self.high - self.low)
            .max(self.high.abs())
            .max(self.low.abs());
        20.0 + 1000.0 * spread.max(0.0)
    }
}

/// The same connections to both servers.
pub(crate) struct Pair {
    pub(crate) real: Vec<Real>,
    pub(crate) embedded: Vec<Embedded>,
    pub(crate) skew: Skew,
}

/// The frames of one connection from both: the replies to each command, then the messages.
pub(crate) struct Replies {
    pub(crate) real: VecDeque<Option<Frame>>,
    /// The number of frames for each command.
    pub(crate) counts: Vec<usize>,
    pub(crate) embedded: Vec<Frame>,
}

impl Pair {
    pub(crate) fn connect(address: SocketAddr, engine: &Engine, connections: usize) -> Self {
        Self {
            real: (0..connections).map(|_| Real::connect(address)).collect(),
            embedded: (0..connections)
                .map(|_| Embedded::connect(engine))
                .collect(),
            skew: Skew::new(),
        }
    }

    /// Runs the commands on one connection of each; returns the frames of every connection.
    ///
    /// The engine answers at once, which shows how many replies of the real server to wait for.
    pub(crate) fn run(&mut self, connection: usize, commands: &[Command]) -> Vec<Replies> {
        let start = Instant::now();
        let mut counts = Vec::new();
        let mut own = Vec::new();
        for command in commands {
            self.embedded[connection].send(&encode(command));
            let frames = self.embedded[connection].drain();
            counts.push(frames.len());
            own.extend(frames);
        }
        let middle = Instant::now();
        self.real[connection].send(&commands.iter().flat_map(encode).collect::<Vec<u8>>());
        let real = own.iter().map(|_| self.real[connection].read()).collect();
        let end = Instant::now();
        self.skew.add((start, middle), (middle, end));
        let mut own = Some(Replies {
            real,
            counts,
            embedded: own,
        });
        let others = (0..self.real.len()).map(|other| {
            if other == connection {
                return own.take().unwrap();
            }
            let embedded = self.embedded[other].drain();
            let real = embedded.iter().map(|_| self.real[other].read()).collect();
            Replies {
                real,
                counts: Vec::new(),
                embedded,
            }
        });
        others.collect()
    }
}
