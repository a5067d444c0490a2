//! The embedded engine as a server that can be broken: paused, and restarted with or without its data.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::BytesMut;
use redlock_rt::embedded::Engine;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use uuid::Uuid;

/// How long a server that restarts is away: shorter than a slow order takes, so that its lock is
/// given away while it is at work.
const AWAY: Duration = Duration::from_millis(100);

/// An engine on a port of 127.0.0.1, for as long as the process lives.
#[derive(Debug)]
pub(super) struct EngineServer {
    engine: Arc<Mutex<Engine>>,
    /// Other users of this machine can connect, too.
    password: String,
    state: watch::Sender<State>,
    address: SocketAddr,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct State {
    /// What comes is taken, and not answered before this is over.
    paused: bool,
    /// Nothing is taken.
    away: bool,
    /// Connections of an earlier start are cut.
    start: u64,
}

impl EngineServer {
    pub(super) async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let password = Uuid::new_v4().simple().to_string();
        let engine = Arc::new(Mutex::new(Engine::with_password(&password)));
        let (state, watched) = watch::channel(State::default());
        tokio::spawn(accept(listener, Arc::clone(&engine), watched));
        Ok(Self {
            engine,
            password,
            state,
            address,
        })
    }

    pub(super) fn url(&self) -> String {
        format!("redis://:{}@{}", self.password, self.address)
    }

    /// Stands still for so long, as a server does that is stopped or swaps.
    pub(super) async fn pause(&self, time: Duration) {
        self.state.send_modify(|state| state.paused = true);
        tokio::time::sleep(time).await;
        self.state.send_modify(|state| state.paused = false);
    }

    /// Cuts all connections and comes back after a while, with its data or without.
    pub(super) async fn restart(&self, keeps_data: bool) {
        self.state.send_modify(|state| {
            state.away = true;
            state.start += 1;
        });
        if !keeps_data {
            let engine = Engine::with_password(&self.password);
            *self.engine.lock().unwrap_or_else(PoisonError::into_inner) = engine;
        }
        tokio::time::sleep(AWAY).await;
        self.state.send_modify(|state| state.away = false);
    }
}

async fn accept(listener: TcpListener, engine: Arc<Mutex<Engine>>, state: watch::Receiver<State>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors, most likely: give some time for connections to end.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let now = *state.borrow();
        if now.away {
            continue;
        }
        let engine = engine
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let mut cut = state.clone();
        let carried = carry(stream, engine, state.clone());
        tokio::spawn(async move {
            tokio::select! {
                // An end of either side is an end like any other.
                _ = carried => {}
                _ = cut.wait_for(|state| state.start != now.start) => {}
            }
        });
    }
}

/// Carries bytes both ways until either side ends.
async fn carry(
    mut stream: TcpStream,
    engine: Engine,
    mut state: watch::Receiver<State>,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut session = engine.connect();
    let (mut incoming, mut outgoing) = (BytesMut::new(), BytesMut::new());
    loop {
        tokio::select! {
            // A client that does not read its answers is not served.
            biased;
            read = session.read_buf(&mut outgoing) => {
                if read? == 0 {
                    return Ok(());
                }
                going_on(&mut state).await;
                stream.write_all_buf(&mut outgoing).await?;
            }
            read = stream.read_buf(&mut incoming) => {
                if read? == 0 {
                    return Ok(());
                }
                going_on(&mut state).await;
                session.write_all_buf(&mut incoming).await?;
            }
        }
    }
}

async fn going_on(state: &mut watch::Receiver<State>) {
    // An error means that the sender is gone: then nothing is paused.
    let _ = state.wait_for(|state| !state.paused).await;
}
