//! The instances as processes: started, started again when they end, and ended with this one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::process::{Environment, Place, Running};

/// How long an instance that ended by itself is away.
const AGAIN: Duration = Duration::from_secs(1);

/// What every instance is started with.
#[derive(Clone, Debug)]
pub(super) struct Recipe {
    pub(super) arguments: Vec<String>,
    pub(super) environment: Environment,
}

impl Recipe {
    async fn launch(&self) -> Result<(Running, Place), String> {
        Running::launch(&self.arguments, &self.environment).await
    }
}

/// The instances, and where they can be reached.
#[derive(Debug)]
pub(super) struct Instances {
    places: Arc<Mutex<Vec<Option<Place>>>>,
    close: watch::Sender<bool>,
    keepers: JoinSet<()>,
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
            let (child, place) = recipe.launch().await?;
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
        // An error means that all have ended already.
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
        place.kill();
        Some(place)
    }
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
                () = running.ended() => false,
                _ = self.closing.wait_for(|closing| *closing) => true,
            };
            lock(&self.places)[self.number] = None;
            if closes {
                running.end().await;
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
                match self.recipe.launch().await {
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

fn lock(places: &Mutex<Vec<Option<Place>>>) -> MutexGuard<'_, Vec<Option<Place>>> {
    places.lock().unwrap_or_else(PoisonError::into_inner)
}
