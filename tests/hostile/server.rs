//! A server that answers as the embedded engine does, until it is told to attack.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard},
};

use futures::FutureExt;
use redlock_rt::{
    ClientBuilder,
    embedded::{Engine, Session},
};
use tests::client_over;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;

use crate::attack::{Attack, How};

/// A client that takes this much of one reply takes all.
const MOST_TAKEN: usize = 32 * 1024 * 1024;

/// The server; clones are the same.
#[derive(Clone)]
pub(crate) struct Hostile {
    pub(crate) engine: Engine,
    orders: Arc<Mutex<Orders>>,
    /// Whether connections that are not attacked get no replies.
    mute: Arc<watch::Sender<bool>>,
}

#[derive(Default)]
struct Orders {
    attack: Option<Attack>,
    /// Replies that are still right.
    skip: usize,
    /// Replies that are attacked after those.
    times: usize,
    attacked: usize,
    connections: usize,
}

impl Hostile {
    pub(crate) fn new(engine: &Engine) -> Self {
        Self {
            engine: engine.clone(),
            orders: Arc::default(),
            mute: Arc::new(watch::Sender::new(false)),
        }
    }

    /// After `skip` more replies, attacks so many.
    pub(crate) fn attack(&self, attack: &Attack, skip: usize, times: usize) {
        let mut orders = self.orders();
        orders.attack = Some(attack.clone());
        (orders.skip, orders.times) = (skip, times);
    }

    /// Whether connections that are not attacked get no replies.
    pub(crate) fn mute_others(&self, mute: bool) {
        self.mute.send_replace(mute);
    }

    /// Answers as it should again.
    pub(crate) fn behave(&self) {
        let mut orders = self.orders();
        orders.attack = None;
        drop(orders);
        self.mute_others(false);
    }

    pub(crate) fn attacked(&self) -> usize {
        self.orders().attacked
    }

    pub(crate) fn connections(&self) -> usize {
        self.orders().connections
    }

    /// A client over streams in this process.
    pub(crate) fn client(&self) -> ClientBuilder {
        let server = self.clone();
        client_over(move |theirs| server.clone().serve(theirs))
    }

    fn orders(&self) -> MutexGuard<'_, Orders> {
        self.orders.lock().unwrap()
    }

    fn next(&self) -> Option<Attack> {
        let mut orders = self.orders();
        orders.attack.as_ref()?;
        if orders.skip > 0 {
            orders.skip -= 1;
            return None;
        }
        orders.times = orders.times.checked_sub(1)?;
        orders.attacked += 1;
        orders.attack.clone()
    }

    /// Serves one connection.
    pub(crate) async fn serve(self, stream: impl AsyncRead + AsyncWrite + Unpin) {
        self.orders().connections += 1;
        let ended = self.carry(stream).await;
        // A client may close its connection at any moment.
        drop(ended);
    }

    async fn carry(&self, mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
        let mut session = self.engine.connect();
        let (mut commands, mut messages) = (Vec::new(), Vec::new());
        let mut muted = self.mute.subscribe();
        loop {
            tokio::select! {
                biased;
                read = session.read_buf(&mut messages) => {
                    if read? == 0 {
                        return Ok(());
                    }
                    stream.write_all(&messages).await?;
                    messages.clear();
                }
                read = stream.read_buf(&mut commands) => {
                    if read? == 0 {
                        return Ok(());
                    }
                }
            }
            while let Some(len) = command_len(&commands) {
                let command: Vec<u8> = commands.drain(..len).collect();
                session.write_all(&command).await?;
                let reply = readable(&mut session);
                match self.next() {
                    Some(attack) => send(&attack, &reply, &mut stream).await?,
                    None => {
                        // The connection that is attacked has ended before it could be mute.
                        let _ = muted.wait_for(|mute| !mute).await;
                        stream.write_all(&reply).await?;
                    }
                }
            }
        }
    }
}

async fn send(
    attack: &Attack,
    reply: &[u8],
    stream: &mut (impl AsyncWrite + Unpin),
) -> io::Result<()> {
    let silence = std::future::pending::<io::Result<()>>;
    match &attack.how {
        How::Instead(bytes) => stream.write_all(bytes).await,
        How::Before(bytes) => stream.write_all(&[bytes, reply].concat()).await,
        How::Behind(bytes) => stream.write_all(&[reply, bytes].concat()).await,
        How::Twice => stream.write_all(&[reply, reply].concat()).await,
        How::Nothing => Ok(()),
        How::Half(percent) => {
            stream
                .write_all(&reply[..reply.len() * percent / 100])
                .await?;
            silence().await
        }
        How::Cut(percent) => {
            stream
                .write_all(&reply[..reply.len() * percent / 100])
                .await?;
            Err(io::ErrorKind::ConnectionAborted.into())
        }
        How::Endless(begin, again) => {
            stream.write_all(begin).await?;
            for _ in 0..MOST_TAKEN / again.len() {
                stream.write_all(again).await?;
            }
            panic!("{} bytes of one reply were read", MOST_TAKEN);
        }
    }
}

/// The bytes that can be read without waiting.
fn readable(session: &mut Session) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        match session.read_buf(&mut bytes).now_or_never() {
            Some(Ok(1..)) => {}
            _ => return bytes,
        }
    }
}

/// The length of the command at the front, if it is complete.
fn command_len(bytes: &[u8]) -> Option<usize> {
    let (words, mut at) = header(bytes, 0)?;
    for _ in 0..words {
        let (len, content) = header(bytes, at)?;
        at = content + len + 2;
    }
    (at <= bytes.len()).then_some(at)
}

/// The number in a header, and where the header ends.
fn header(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    let rest = bytes.get(at..)?;
    let end = rest.iter().position(|byte| *byte == b'\n')?;
    let digits = std::str::from_utf8(&rest[1..end - 1]).unwrap();
    Some((digits.parse().unwrap(), at + end + 1))
}
