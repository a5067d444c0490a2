//! Several instances as processes, a front before them, and a Redis if none is given.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use self::chaos::{Chaos, Redis};
use self::engine::EngineServer;
use self::instances::{Instances, Recipe};
use self::process::{Environment, Running};
use crate::cli::UpArgs;
use crate::http;
use crate::serve::{self, SECRET_VARIABLE};
use crate::store::DatabaseUrl;

mod chaos;
mod engine;
mod front;
mod instances;
mod process;

/// All of it, running.
#[derive(Debug)]
pub(crate) struct Up {
    url: String,
    instances: Instances,
    /// What stands in for the payment service, if none was given.
    payments: Option<Running>,
    front: JoinHandle<()>,
    /// An engine of ours ends with this.
    _redis: Redis,
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
        let database = DatabaseUrl::argument(&args.database)?;
        let listener: TcpListener = serve::listen("127.0.0.1", args.port).await?;
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        let redis = match &args.redis {
            Some(url) => Redis::Foreign(url.clone()),
            None => {
                let started = EngineServer::start().await;
                let engine = started.map_err(|error| format!("no port for the engine: {error}"))?;
                Redis::Own(Arc::new(engine))
            }
        };
        let environment = Environment {
            secret: std::env::var(SECRET_VARIABLE).unwrap_or_else(|_| secret()),
            redis: redis.url(),
            database: database.as_argument().to_owned(),
            quiet: args.quiet,
        };
        let (payments, at) = match &args.payments {
            Some(url) => (None, url.clone()),
            None => {
                let (stub, place) = Running::launch(&of_the_stub(args), &environment).await?;
                (Some(stub), format!("http://{}", place.address))
            }
        };
        tracing::info!("payments go to {at}");
        let recipe = Recipe {
            arguments: of_an_instance(args, &at),
            environment,
        };
        let instances = Instances::start(&recipe, args.instances as usize).await?;
        let places = instances.places();
        let chaos = args.chaos.then(|| Chaos {
            places: places.clone(),
            redis: redis.clone(),
        });
        let routes = front::router(places, chaos.map(Arc::new));
        let front = tokio::spawn(http::serve(listener, routes, std::future::pending()));
        Ok(Self {
            url: format!("http://{address}"),
            instances,
            payments,
            front,
            _redis: redis,
        })
    }

    /// Where the front is.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Ends everything, the instances first: their streams end, and so the front has nothing to do.
    pub(crate) async fn close(self) {
        self.instances.close().await;
        if let Some(payments) = self.payments {
            payments.end().await;
        }
        self.front.abort();
    }
}

/// The command line of an instance. Everybody on the machine may read that, so URLs with passwords are in
/// the environment.
fn of_an_instance(args: &UpArgs, payments: &str) -> Vec<String> {
    command(
        "serve",
        &[
            ("--port", "0"),
            ("--payments", payments),
            ("--lock", args.lock.as_str()),
            ("--think", &time(args.think)),
            ("--stall-one-in", &args.stall_one_in.to_string()),
        ],
    )
}

/// The command line of what stands in for the payment service.
fn of_the_stub(args: &UpArgs) -> Vec<String> {
    command(
        "payments",
        &[
            ("--port", "0"),
            ("--delay", &time(args.payment_delay)),
            ("--failures", &args.payment_failures.to_string()),
        ],
    )
}

fn command(name: &str, options: &[(&str, &str)]) -> Vec<String> {
    let options = options.iter().flat_map(|(flag, value)| [*flag, *value]);
    [name, "--until-stdin-ends"]
        .into_iter()
        .chain(options)
        .map(str::to_owned)
        .collect()
}

/// A time as the command line takes it.
fn time(time: Duration) -> String {
    format!("{}us", time.as_micros())
}

/// A secret for this run alone.
fn secret() -> String {
    (0..4)
        .map(|_| uuid::Uuid::new_v4().simple().to_string())
        .collect()
}
