//! What can be broken, and how.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use redis::{AsyncConnectionConfig, RedisError};
use serde_json::{Value, json};

use super::engine::EngineServer;
use super::instances::Places;
use crate::http::Problem;

/// How long Redis stands still.
const PAUSE: Duration = Duration::from_secs(3);

/// How long a foreign Redis may take to accept the pause.
const PATIENCE: Duration = Duration::from_secs(2);

/// What can be broken.
#[derive(Debug)]
pub(super) struct Chaos {
    pub(super) places: Places,
    pub(super) redis: Redis,
}

/// The Redis that the instances share.
#[derive(Clone, Debug)]
pub(super) enum Redis {
    /// An engine that was started here and can be started again.
    Own(Arc<EngineServer>),
    /// A server at a URL. It can be paused, but only its owner can restart it.
    Foreign(String),
}

impl Redis {
    pub(super) fn url(&self) -> String {
        match self {
            Self::Own(engine) => engine.url(),
            Self::Foreign(url) => url.clone(),
        }
    }
}

const KILL: (&str, &str) = ("kill", "Kill an instance");
const STAND_STILL: (&str, &str) = ("pause", "Pause Redis for 3 s");
const RESTARTS: [(&str, &str); 2] = [
    ("restart-with-data", "Restart Redis with its data"),
    ("restart-without-data", "Restart Redis without its data"),
];

/// The answer to a restart of a foreign Redis.
const NOT_OURS: &str = "`up --redis` does not restart a Redis that it has not started: restart it \
     where it runs, in the middle of a rush";

/// The faults there are, and a remark where some are missing.
pub(super) async fn list(State(chaos): State<Arc<Chaos>>) -> Json<Value> {
    let mut faults = vec![KILL, STAND_STILL];
    let remark = match chaos.redis {
        Redis::Own(_) => {
            faults.extend(RESTARTS);
            ""
        }
        Redis::Foreign(_) => NOT_OURS,
    };
    let faults: Vec<_> = faults
        .into_iter()
        .map(|(name, title)| json!({ "name": name, "title": title }))
        .collect();
    Json(json!({ "faults": faults, "remark": remark }))
}

/// Breaks something, and says what was done when that is over.
pub(super) async fn strike(
    State(chaos): State<Arc<Chaos>>,
    fault: Result<Path<String>, PathRejection>,
) -> Result<Json<Value>, Problem> {
    // What is no text is no fault either.
    let fault = fault.map_or_else(|_| String::new(), |Path(fault)| fault);
    let done = match (fault.as_str(), &chaos.redis) {
        ("kill", _) => kill(&chaos.places)?,
        ("pause", redis) => {
            redis.pause().await?;
            "Redis stood still for 3 s.".to_owned()
        }
        ("restart-with-data", Redis::Own(engine)) => {
            engine.restart(true).await;
            "Redis was restarted with its data.".to_owned()
        }
        ("restart-without-data", Redis::Own(engine)) => {
            engine.restart(false).await;
            "Redis was restarted and has lost everything, the locks that were held included."
                .to_owned()
        }
        ("restart-with-data" | "restart-without-data", Redis::Foreign(_)) => {
            return Err(Problem::new(StatusCode::CONFLICT, "not-ours", NOT_OURS));
        }
        _ => {
            let detail = "there is no such fault";
            return Err(Problem::new(StatusCode::NOT_FOUND, "not-found", detail));
        }
    };
    Ok(Json(json!({ "done": done })))
}

fn kill(places: &Places) -> Result<String, Problem> {
    let place = places.kill_one().ok_or_else(|| {
        let detail = "no instance serves at this moment";
        Problem::new(StatusCode::CONFLICT, "no-instance", detail)
    })?;
    Ok(format!(
        "Killed {}-{}; it is started again.",
        place.pid,
        place.address.port()
    ))
}

impl Redis {
    /// Has it stand still for a while, and returns when that is over.
    async fn pause(&self) -> Result<(), Problem> {
        match self {
            Self::Own(engine) => engine.pause(PAUSE).await,
            Self::Foreign(url) => {
                client_pause(url).await.map_err(|error| {
                    let detail = format!("Redis does not pause: {error}");
                    Problem::new(StatusCode::BAD_GATEWAY, "redis-refused", detail)
                })?;
                tokio::time::sleep(PAUSE).await;
            }
        }
        Ok(())
    }
}

/// Pauses a server for all its clients: it takes commands and answers none of them for a while.
async fn client_pause(url: &str) -> Result<(), RedisError> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(PATIENCE))
        .set_response_timeout(Some(PATIENCE));
    let mut connection = redis::Client::open(url)?
        .get_multiplexed_async_connection_with_config(&config)
        .await?;
    let millis = u64::try_from(PAUSE.as_millis()).unwrap_or(u64::MAX);
    redis::cmd("CLIENT")
        .arg("PAUSE")
        .arg(millis)
        .arg("ALL")
        .exec_async(&mut connection)
        .await
}
