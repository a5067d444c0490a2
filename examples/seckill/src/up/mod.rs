//! Several instances as processes, a front before them, and a Redis if none is given.

use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use self::chaos::Chaos;
use self::engine::EngineServer;
use self::instances::{Instances, Recipe};
use crate::cli::UpArgs;
use crate::serve::{self, SECRET_VARIABLE};

mod chaos;
mod engine;
mod front;
mod instances;

/// All of it, running.
#[derive(Debug)]
pub(crate) struct Up {
    url: String,
    instances: Instances,
    front: JoinHandle<std::io::Result<()>>,
    close: watch::Sender<bool>,
    /// Ends with this.
    _engine: Option<Arc<EngineServer>>,
}

/// Runs until the process is told to end.
///
/// # Errors
///
/// Why it cannot run, in one line.
pub(crate) async fn run(args: &UpArgs) -> Result<(), String> {
    let up = Up::start(args).await?;
    serve::say(&format!("listening on {}", up.url));
    serve::asked_to_end().await;
    up.close().await;
    Ok(())
}

impl Up {
    /// Starts everything, and waits until it serves.
    ///
    /// # Errors
    ///
    /// Why it cannot run, in one line.
    pub(crate) async fn start(args: &UpArgs) -> Result<Self, String> {
        let listener: TcpListener = serve::listen("127.0.0.1", args.port).await?;
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        let (redis, engine) = match &args.redis {
            Some(url) => (url.clone(), None),
            None => {
                let started = EngineServer::start().await;
                let engine = started.map_err(|error| format!("no port for the engine: {error}"))?;
                (engine.url(), Some(Arc::new(engine)))
            }
        };
        let recipe = Recipe {
            arguments: arguments(args, &redis),
            secret: std::env::var(SECRET_VARIABLE).unwrap_or_else(|_| secret()),
        };
        let instances = Instances::start(&recipe, args.instances as usize).await?;
        let places = instances.places();
        let chaos = args.chaos.then(|| Chaos {
            places: places.clone(),
            engine: engine.clone(),
        });
        let (close, mut closing) = watch::channel(false);
        let front = tokio::spawn(async move {
            axum::serve(listener, front::router(places, chaos.map(Arc::new)))
                .with_graceful_shutdown(async move {
                    // A sender that is gone closes too.
                    let _ = closing.wait_for(|closing| *closing).await;
                })
                .await
        });
        Ok(Self {
            url: format!("http://{address}"),
            instances,
            front,
            close,
            _engine: engine,
        })
    }

    /// Where the front is.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Ends everything, the instances first: their streams end, and so the front has nothing to do.
    pub(crate) async fn close(self) {
        self.instances.close().await;
        // Nobody listens where the front has failed.
        let _ = self.close.send(true);
        self.front.abort();
    }
}

fn arguments(args: &UpArgs, redis: &str) -> Vec<String> {
    let think = format!("{}us", args.think.as_micros());
    let stall = args.stall_one_in.to_string();
    let options = [
        ("--port", "0"),
        ("--redis", redis),
        ("--database", args.database.as_argument()),
        ("--lock", args.lock.as_str()),
        ("--think", &think),
        ("--stall-one-in", &stall),
    ];
    let options = options
        .iter()
        .flat_map(|(flag, value)| [(*flag).to_owned(), (*value).to_owned()]);
    ["serve".to_owned(), "--until-stdin-ends".to_owned()]
        .into_iter()
        .chain(options)
        .collect()
}

/// A secret for this run alone.
fn secret() -> String {
    (0..4)
        .map(|_| uuid::Uuid::new_v4().simple().to_string())
        .collect()
}
