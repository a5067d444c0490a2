//! What can be broken, and how.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde_json::{Value, json};

use super::engine::EngineServer;
use super::instances::Places;
use crate::http::Problem;

/// How long Redis stands still.
const PAUSE: Duration = Duration::from_secs(3);

/// What can be broken.
#[derive(Debug)]
pub(super) struct Chaos {
    pub(super) places: Places,
    /// The engine, where it is ours.
    pub(super) engine: Option<Arc<EngineServer>>,
}

const KILL: (&str, &str) = ("kill", "Kill an instance");
const OF_REDIS: [(&str, &str); 3] = [
    ("pause", "Pause Redis for 3 s"),
    ("restart-with-data", "Restart Redis with its data"),
    ("restart-without-data", "Restart Redis without its data"),
];

/// The faults there are.
pub(super) async fn list(State(chaos): State<Arc<Chaos>>) -> Json<Value> {
    let mut faults = vec![KILL];
    if chaos.engine.is_some() {
        faults.extend(OF_REDIS);
    }
    let faults: Vec<_> = faults
        .into_iter()
        .map(|(name, title)| json!({ "name": name, "title": title }))
        .collect();
    Json(json!({ "faults": faults }))
}

/// Breaks something, and says what was done when that is over.
pub(super) async fn strike(
    State(chaos): State<Arc<Chaos>>,
    Path(fault): Path<String>,
) -> Result<Json<Value>, Problem> {
    let unknown = || Problem::new(StatusCode::NOT_FOUND, "not-found", "there is no such fault");
    if fault == KILL.0 {
        let Some(place) = chaos.places.kill_one() else {
            let detail = "no instance serves at this moment";
            return Err(Problem::new(StatusCode::CONFLICT, "no-instance", detail));
        };
        let done = format!(
            "Killed {}-{}; it is started again.",
            place.pid,
            place.address.port()
        );
        return Ok(Json(json!({ "done": done })));
    }
    let engine = chaos.engine.as_ref().ok_or_else(unknown)?;
    let done = match fault.as_str() {
        "pause" => {
            engine.pause(PAUSE).await;
            "Redis stood still for 3 s."
        }
        "restart-with-data" => {
            engine.restart(true).await;
            "Redis was restarted with its data."
        }
        "restart-without-data" => {
            engine.restart(false).await;
            "Redis was restarted and has lost everything, the locks that were held included."
        }
        _ => return Err(unknown()),
    };
    Ok(Json(json!({ "done": done })))
}
