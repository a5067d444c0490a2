//! The instances as processes: started, started again when they end, and ended with this one.

use std::io;
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How long an instance that ended by itself is away.
const AGAIN: Duration = Duration::from_secs(1);

/// How long an instance may take to end, before it is killed.
const LAST_ANSWERS: Duration = Duration::from_secs(15);

/// What every instance is started with.
#[derive(Clone, Debug)]
pub(super) struct Recipe {
    pub(super) arguments: Vec<String>,
    pub(super) secret: String,
}

/// The instances, and where they can be reached.
#[derive(Debug)]
pub(super) struct Instances {
    places: Arc<Mutex<Vec<Option<Place>>>>,
    close: watch::Sender<bool>,
    keepers: JoinSet<()>,
}

/// One instance that serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) address: SocketAddr,
    pub(super) pid: u32,
}

impl Instances {
    /// Starts that many, and waits until all of them serve.
    ///
    /// # Errors
    ///
    /// One of them ended instead; what was wrong it has said itself.
    pub(super) async fn start(recipe: &Recipe, count: usize) -> Result<Self, String> {
        let places = Arc::new(Mutex::new(vec![None; count]));
        let (close, closing) = watch::channel(false);
        let mut children = Vec::new();
        for number in 0..count {
            let (child, place) = launch(recipe).await?;
            lock(&places)[number] = Some(place);
            children.push(child);
        }
        let mut keepers = JoinSet::new();
        for (number, child) in children.into_iter().enumerate() {
            let keeper = Keeper {
                number,
                recipe: recipe.clone(),
                places: Arc::clone(&places),
                closing: closing.clone(),
            };
            keepers.spawn(keeper.keep(child));
        }
        Ok(Self {
            places,
            close,
            keepers,
        })
    }

    /// Those that serve at this moment.
    pub(super) fn places(&self) -> Places {
        Places(Arc::clone(&self.places))
    }

    /// Ends all of them, and waits for that.
    pub(super) async fn close(mut self) {
        // Nobody listens where all have ended.
        let _ = self.close.send(true);
        while self.keepers.join_next().await.is_some() {}
    }
}

/// Where instances can be reached at present.
#[derive(Clone, Debug)]
pub(super) struct Places(Arc<Mutex<Vec<Option<Place>>>>);

impl Places {
    pub(super) fn all(&self) -> Vec<Place> {
        lock(&self.0).iter().flatten().copied().collect()
    }

    /// Kills one of them in the middle of whatever it does.
    pub(super) fn kill_one(&self) -> Option<Place> {
        let all = self.all();
        let place = *all.get(fastrand::usize(0..all.len().max(1)))?;
        signal(place.pid, Signal::KILL);
        Some(place)
    }
}

/// The process of an instance.
#[derive(Debug)]
struct Running {
    child: Child,
    /// Its end tells the instance that nobody is left who would end it. Waiting for a child closes
    /// what it still has of this, so it is kept apart.
    _stdin: Option<ChildStdin>,
}

/// Keeps one instance running.
struct Keeper {
    number: usize,
    recipe: Recipe,
    places: Arc<Mutex<Vec<Option<Place>>>>,
    closing: watch::Receiver<bool>,
}

impl Keeper {
    async fn keep(mut self, mut running: Running) {
        loop {
            let closes = tokio::select! {
                _ = running.child.wait() => false,
                _ = self.closing.wait_for(|closing| *closing) => true,
            };
            lock(&self.places)[self.number] = None;
            if closes {
                end(running).await;
                return;
            }
            tracing::warn!(
                instance = self.number,
                "an instance has ended and is started again"
            );
            running = loop {
                tokio::select! {
                    () = tokio::time::sleep(AGAIN) => {}
                    _ = self.closing.wait_for(|closing| *closing) => return,
                }
                match launch(&self.recipe).await {
                    Ok((running, place)) => {
                        lock(&self.places)[self.number] = Some(place);
                        break running;
                    }
                    Err(error) => tracing::warn!(error, "it does not start"),
                }
            };
        }
    }
}

/// Starts one, and waits until it says where it serves.
async fn launch(recipe: &Recipe) -> Result<(Running, Place), String> {
    let io = |error: io::Error| format!("cannot start an instance: {error}");
    let mut child = Command::new(std::env::current_exe().map_err(io)?)
        .args(&recipe.arguments)
        .env(crate::serve::SECRET_VARIABLE, &recipe.secret)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(io)?;
    let pid = child.id().unwrap_or_default();
    let said = child.stdout.take().map(BufReader::new);
    let mut lines = said.ok_or("an instance without an output")?.lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let address = line.strip_prefix("listening on http://");
        if let Some(address) = address.and_then(|address| address.parse().ok()) {
            let _stdin = child.stdin.take();
            return Ok((Running { child, _stdin }, Place { address, pid }));
        }
    }
    Err("an instance did not start".to_owned())
}

async fn end(mut running: Running) {
    let child = &mut running.child;
    if let Some(pid) = child.id() {
        signal(pid, Signal::TERM);
    }
    if tokio::time::timeout(LAST_ANSWERS, child.wait())
        .await
        .is_err()
    {
        // It is killed when it is dropped.
        tracing::warn!("an instance does not end and is killed");
    }
}

fn signal(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    // It may have ended meanwhile, which is what was wanted.
    let _ = pid.map(|pid| kill_process(pid, signal));
}

fn lock(places: &Mutex<Vec<Option<Place>>>) -> MutexGuard<'_, Vec<Option<Place>>> {
    places.lock().unwrap_or_else(PoisonError::into_inner)
}
