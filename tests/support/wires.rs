//! Streams that a test watches and disturbs, with a paused clock or over sockets.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, io,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::BytesMut;
use futures::{FutureExt, future::BoxFuture};
use redlock_rt::{Client, ClientBuilder, embedded::Engine};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

use crate::{
    lock,
    proxy::{CALL, Frame, Matcher, Which, take_frame, words},
    redisson::{RedissonStream, Surroundings},
};

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

type Connect = Box<dyn Fn() -> BoxFuture<'static, io::Result<Box<dyn Stream>>> + Send + Sync>;

/// All connections over one connector. It records their requests in one order, and can cut or refuse
/// connections.
///
/// Unlike the [`Proxy`](crate::Proxy) it has no thread and no clock: it works when the client under
/// test reads or writes.
#[derive(Clone)]
pub struct Wires {
    shared: Arc<Shared>,
}

struct Shared {
    connect: Connect,
    slow: AtomicBool,
    refusing: AtomicBool,
    mute: AtomicBool,
    moved: AtomicUsize,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    frames: Vec<Frame>,
    /// The command whose next frame will be lost.
    lose: Option<String>,
    /// The open connections, with their numbers.
    wires: Vec<(u64, Arc<Mutex<Line>>)>,
    last: u64,
    /// The connections that were read or written since the last question.
    polled: BTreeSet<u64>,
}

/// The two ends' common state of one connection.
struct Line {
    /// `None` once it is cut.
    stream: Option<Box<dyn Stream>>,
    /// The written bytes of an incomplete frame.
    written: BytesMut,
    subscribes: bool,
    scripts: bool,
    wakers: [Option<Waker>; 2],
}

impl Wires {
    /// Leads to an embedded engine.
    pub fn to_engine(engine: &Engine) -> Self {
        let engine = engine.clone();
        Self::new(Box::new(move || {
            let session = engine.connect();
            Box::pin(async move { Ok(Box::new(session) as Box<dyn Stream>) })
        }))
    }

    /// Clients of one embedded engine: over these wires, which are [slow](Self::slow), and beside them.
    pub fn slow_beside_fast() -> (Self, Client, Client) {
        let engine = Engine::new();
        let wires = Self::to_engine(&engine).slow();
        let settings = |builder: ClientBuilder| {
            // Longer than any test.
            let builder = builder.poll_interval(Duration::from_secs(600));
            let client = builder.linger(Duration::from_millis(5)).build();
            client.expect("the options are right")
        };
        let client = settings(wires.builder());
        (wires, client, settings(Client::builder().embedded(&engine)))
    }

    /// Leads to this address.
    pub fn to_address(address: SocketAddr) -> Self {
        Self::new(Box::new(move || {
            Box::pin(async move {
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                Ok(Box::new(stream) as Box<dyn Stream>)
            })
        }))
    }

    fn new(connect: Connect) -> Self {
        let shared = Shared {
            connect,
            slow: AtomicBool::new(false),
            refusing: AtomicBool::new(false),
            mute: AtomicBool::new(false),
            moved: AtomicUsize::new(0),
            seen: Mutex::default(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Makes every read and every write take two polls, of which the first is always pending, and
    /// moves a few bytes only: frames come and go in pieces.
    #[must_use]
    pub fn slow(self) -> Self {
        self.shared.slow.store(true, Ordering::Relaxed);
        self
    }

    /// The builder of a client whose connections all go over these wires.
    pub fn builder(&self) -> ClientBuilder {
        let wires = self.clone();
        Client::builder().connector(move || {
            let wires = wires.clone();
            async move { wires.connect().await }
        })
    }

    /// What a Redisson client has of this machine, if its connections all go over these wires.
    pub fn surroundings(&self) -> Surroundings {
        let wires = self.clone();
        Surroundings::dialing(move || {
            let wires = wires.clone();
            async move { Ok(Box::new(wires.connect().await?) as Box<dyn RedissonStream>) }.boxed()
        })
    }

    async fn connect(&self) -> io::Result<Wire> {
        self.accepts()?;
        let stream = (self.shared.connect)().await?;
        self.accepts()?;
        let line = Arc::new(Mutex::new(Line {
            stream: Some(stream),
            written: BytesMut::new(),
            subscribes: false,
            scripts: false,
            wakers: [None, None],
        }));
        let mut seen = lock(&self.shared.seen);
        seen.last += 1;
        let number = seen.last;
        seen.wires.push((number, line.clone()));
        drop(seen);
        Ok(Wire {
            number,
            line,
            shared: self.shared.clone(),
            polled: [false; 2],
        })
    }

    fn accepts(&self) -> io::Result<()> {
        if self.shared.refusing.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        Ok(())
    }

    /// Forgets all frames so far: later counts start at zero.
    pub fn mark(&self) {
        lock(&self.shared.seen).frames.clear();
    }

    /// The number of request frames since the last mark, on all connections.
    pub fn count(&self) -> usize {
        lock(&self.shared.seen).frames.len()
    }

    /// The number of request frames of each command since the last mark.
    pub fn counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for frame in self.frames(0) {
            *counts.entry(frame.command()).or_insert(0) += 1;
        }
        counts
    }

    /// The number of matching request frames since the last mark.
    pub fn matching(&self, matcher: impl Into<Matcher>) -> usize {
        let (matcher, seen) = (matcher.into(), lock(&self.shared.seen));
        let matching = seen.frames.iter().filter(|frame| matcher.matches(frame));
        matching.count()
    }

    /// The number of bytes so far, in both directions.
    pub fn moved(&self) -> usize {
        self.shared.moved.load(Ordering::Relaxed)
    }

    /// The request frames since the last mark, in the order in which they were written, without the first `skipped`.
    pub fn frames(&self, skipped: usize) -> Vec<Frame> {
        lock(&self.shared.seen).frames[skipped..].to_vec()
    }

    /// The number of open connections.
    pub fn open(&self) -> usize {
        lock(&self.shared.seen).wires.len()
    }

    /// The number of connections so far, which is also the number of the last one.
    pub fn opened(&self) -> u64 {
        lock(&self.shared.seen).last
    }

    /// The connections whose driver read or wrote, or tried to, since the last call.
    pub fn take_polled(&self) -> BTreeSet<u64> {
        std::mem::take(&mut lock(&self.shared.seen).polled)
    }

    /// Cuts these connections at once, and returns how many there were.
    pub fn cut(&self, which: Which) -> usize {
        let wires = lock(&self.shared.seen).wires.clone();
        let meant = wires.iter().filter(|(number, line)| {
            let line = lock(line);
            match which {
                Which::All => true,
                Which::Subscribers => line.subscribes,
                Which::Scripts => line.scripts,
                Which::Connection(other) => *number == other,
            }
        });
        meant.map(|(_, line)| Line::cut(line)).count()
    }

    /// Cuts the connection of the next request of this command before the server has it whole.
    pub fn lose_next(&self, command: &str) {
        lock(&self.shared.seen).lose = Some(command.to_ascii_uppercase());
    }

    /// Undoes [`lose_next`](Self::lose_next), if nothing is lost yet.
    pub fn lose_nothing(&self) {
        lock(&self.shared.seen).lose = None;
    }

    /// Refuses new connections; open ones stay.
    pub fn refuse(&self) {
        self.shared.refusing.store(true, Ordering::Relaxed);
    }

    /// Accepts connections again.
    pub fn accept(&self) {
        self.shared.refusing.store(false, Ordering::Relaxed);
    }

    /// Passes requests on, but no answers, like a server that hangs. The answers come when it
    /// [speaks](Self::speak) again.
    pub fn hang(&self) {
        self.shared.mute.store(true, Ordering::Relaxed);
    }

    /// Passes answers on again.
    pub fn speak(&self) {
        self.shared.mute.store(false, Ordering::Relaxed);
        let wires = lock(&self.shared.seen).wires.clone();
        let wakers = wires.iter().map(|(_, line)| lock(line).wakers[READ].take());
        let wakers: Vec<_> = wakers.collect();
        wakers.into_iter().flatten().for_each(Waker::wake);
    }
}

impl fmt::Debug for Wires {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wires")
            .field("count", &self.count())
            .field("open", &self.open())
            .finish_non_exhaustive()
    }
}

impl Line {
    fn cut(line: &Mutex<Self>) {
        let mut line = lock(line);
        let stream = line.stream.take();
        let wakers = std::mem::take(&mut line.wakers);
        drop(line);
        drop(stream);
        wakers.into_iter().flatten().for_each(Waker::wake);
    }

    /// Takes written bytes; returns the complete frames.
    fn note(&mut self, connection: u64, bytes: &[u8]) -> Vec<Frame> {
        self.written.extend_from_slice(bytes);
        let mut frames = Vec::new();
        while let Some(bytes) = take_frame(&mut self.written).expect("clients write RESP") {
            let args = words(&bytes);
            let frame = Frame { connection, args };
            match &*frame.command() {
                "SUBSCRIBE" | "SSUBSCRIBE" => self.subscribes = true,
                _ => self.scripts |= frame.is_call(),
            }
            frames.push(frame);
        }
        frames
    }
}

/// One connection of [`Wires`].
struct Wire {
    number: u64,
    line: Arc<Mutex<Line>>,
    shared: Arc<Shared>,
    /// Whether the last read, or write, returned pending.
    polled: [bool; 2],
}

/// How many bytes a slow connection moves at once.
const PIECE: usize = 40;
const READ: usize = 0;
const WRITE: usize = 1;

impl Wire {
    fn note_poll(&self) {
        lock(&self.shared.seen).polled.insert(self.number);
    }

    fn is_held_up(&mut self, way: usize, cx: &Context<'_>) -> bool {
        if !self.shared.slow.load(Ordering::Relaxed) {
            return false;
        }
        self.polled[way] = !self.polled[way];
        if self.polled[way] {
            cx.waker().wake_by_ref();
        }
        self.polled[way]
    }

    /// Whether these bytes complete the frame that will be lost.
    fn is_to_lose(&self, bytes: &[u8]) -> bool {
        let Some(command) = lock(&self.shared.seen).lose.clone() else {
            return false;
        };
        let mut written = lock(&self.line).written.clone();
        written.extend_from_slice(bytes);
        let mut ends = false;
        while let Some(frame) = take_frame(&mut written).expect("clients write RESP") {
            let connection = self.number;
            let args = words(&frame);
            let frame = Frame { connection, args };
            ends |= frame.command() == command || command == CALL && frame.is_call();
        }
        if ends {
            lock(&self.shared.seen).lose = None;
        }
        ends
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        let mut seen = lock(&self.shared.seen);
        seen.wires.retain(|(number, _)| *number != self.number);
        drop(seen);
        Line::cut(&self.line);
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.note_poll();
        if self.is_held_up(READ, cx) {
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        let mut line = lock(&self.line);
        line.wakers[READ] = Some(cx.waker().clone());
        if self.shared.mute.load(Ordering::Relaxed) {
            return Poll::Pending;
        }
        let read = match &mut line.stream {
            Some(stream) if self.shared.slow.load(Ordering::Relaxed) => {
                let mut bytes = [0; PIECE];
                let room = buffer.remaining().min(PIECE);
                let mut piece = ReadBuf::new(&mut bytes[..room]);
                let read = Pin::new(stream).poll_read(cx, &mut piece);
                buffer.put_slice(piece.filled());
                read
            }
            Some(stream) => Pin::new(stream).poll_read(cx, buffer),
            None => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
        };
        let count = buffer.filled().len() - before;
        self.shared.moved.fetch_add(count, Ordering::Relaxed);
        read
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.note_poll();
        if self.is_held_up(WRITE, cx) {
            return Poll::Pending;
        }
        let bytes = match self.shared.slow.load(Ordering::Relaxed) {
            true => &bytes[..bytes.len().min(PIECE)],
            false => bytes,
        };
        let this = &*self;
        if this.is_to_lose(bytes) {
            Line::cut(&this.line);
        }
        let mut line = lock(&this.line);
        line.wakers[WRITE] = Some(cx.waker().clone());
        let Some(stream) = &mut line.stream else {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        };
        let written = Pin::new(stream).poll_write(cx, bytes);
        if let Poll::Ready(Ok(count)) = written {
            this.shared.moved.fetch_add(count, Ordering::Relaxed);
            let frames = line.note(this.number, &bytes[..count]);
            lock(&this.shared.seen).frames.extend(frames);
        }
        written
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut lock(&self.line).stream {
            Some(stream) => Pin::new(stream).poll_flush(cx),
            None => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut lock(&self.line).stream {
            Some(stream) => Pin::new(stream).poll_shutdown(cx),
            None => Poll::Ready(Ok(())),
        }
    }
}
