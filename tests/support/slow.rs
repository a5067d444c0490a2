//! A server that takes its time for each command.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::BytesMut;
use redlock_rt::{ClientBuilder, embedded::Engine};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, copy, split},
    sync::Mutex,
};

use crate::{over::client_over, proxy::take_frame};

/// An embedded engine that runs one command at a time, for a given time each, whichever connection it
/// came on. For a clock that stands still.
#[derive(Debug, Clone)]
pub struct SlowServer {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    engine: Engine,
    pace: std::sync::Mutex<Duration>,
    /// Held while a command runs.
    turn: Mutex<()>,
    connections: AtomicUsize,
    commands: AtomicUsize,
}

impl SlowServer {
    /// Each command takes `pace`, a whole number of milliseconds.
    pub fn new(pace: Duration) -> Self {
        Self {
            shared: Arc::new(Shared {
                engine: Engine::new(),
                pace: std::sync::Mutex::new(pace),
                turn: Mutex::default(),
                connections: AtomicUsize::new(0),
                commands: AtomicUsize::new(0),
            }),
        }
    }

    /// The builder of a client of this server.
    pub fn builder(&self) -> ClientBuilder {
        let shared = Arc::clone(&self.shared);
        client_over(move |stream| {
            let shared = Arc::clone(&shared);
            shared.connections.fetch_add(1, Ordering::Relaxed);
            // The end of either side ends the connection.
            async move { drop(shared.serve(stream).await) }
        })
    }

    /// From now on each command takes this long.
    pub fn set_pace(&self, pace: Duration) {
        *self.shared.pace.lock().expect("nothing panics under it") = pace;
    }

    /// The number of connections so far.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// The number of commands so far.
    pub fn commands(&self) -> usize {
        self.shared.commands.load(Ordering::Relaxed)
    }
}

impl Shared {
    async fn serve(&self, stream: DuplexStream) -> io::Result<()> {
        let (mut requests, mut replies) = split(stream);
        let (mut answers, mut commands) = split(self.engine.connect());
        let taken = async {
            let mut buffer = BytesMut::new();
            loop {
                while let Some(frame) = take_frame(&mut buffer).expect("clients write RESP") {
                    let _turn = self.turn.lock().await;
                    let pace = *self.pace.lock().expect("nothing panics under it");
                    tokio::time::sleep(pace).await;
                    self.commands.fetch_add(1, Ordering::Relaxed);
                    commands.write_all(&frame).await?;
                }
                if requests.read_buf(&mut buffer).await? == 0 {
                    return Ok(());
                }
            }
        };
        tokio::select! {
            ended = taken => ended,
            ended = copy(&mut answers, &mut replies) => ended.map(drop),
        }
    }
}
