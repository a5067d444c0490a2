//! The front: hands requests to the instances in turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::{CONNECTION, CONTENT_TYPE, HOST, HeaderMap, ORIGIN, TRANSFER_ENCODING};
use axum::http::uri::Authority;
use axum::http::{StatusCode, Uri};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures::StreamExt;
use http_body_util::{BodyExt, Full};

use super::chaos::{self, Chaos};
use super::instances::Places;
use crate::client::{CallError, HttpClient};
use crate::http::{Problem, is_json};

/// The largest body that is handed on; instances take less.
const LARGEST: usize = 64 * 1024;

/// How long an instance may take to be connected to.
const CONNECT: Duration = Duration::from_secs(1);

/// How long the body of a request may take.
const BODY: Duration = Duration::from_secs(10);

const SOON: Duration = Duration::from_secs(1);

/// What the front needs.
#[derive(Clone, Debug)]
pub(super) struct Front {
    places: Places,
    http: HttpClient,
    turn: Arc<AtomicUsize>,
}

/// The front's routes: everything goes to the instances but what breaks them.
pub(super) fn router(places: Places, chaos: Option<Arc<Chaos>>) -> Router {
    let front = Front {
        places,
        http: HttpClient::new(CONNECT),
        turn: Arc::default(),
    };
    let routes = Router::new().fallback(hand_on).with_state(front);
    let routes = match chaos {
        None => routes,
        Some(chaos) => routes.merge(
            Router::new()
                .route("/chaos", get(chaos::list))
                .route("/chaos/{fault}", post(chaos::strike))
                .method_not_allowed_fallback(async || Problem::no_such_method())
                .with_state(chaos),
        ),
    };
    routes.layer(middleware::from_fn(own_page))
}

/// Refuses what another page may have had a browser send: that has no JSON, or names another origin, or
/// has come by a name that leads here.
async fn own_page(request: Request, next: Next) -> Result<Response, Problem> {
    if !request.method().is_safe() {
        is_of_own_page(request.headers())?;
    }
    Ok(next.run(request).await)
}

fn is_of_own_page(headers: &HeaderMap) -> Result<(), Problem> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let host = text(HOST).unwrap_or_default();
    let local = ["127.0.0.1", "localhost", "[::1]"];
    let authority = host.parse::<Authority>();
    let is_local = authority.is_ok_and(|authority| local.contains(&authority.host()));
    let is_own = match headers.get(ORIGIN) {
        None => true,
        Some(_) => text(ORIGIN).and_then(|origin| origin.strip_prefix("http://")) == Some(host),
    };
    if !is_local || !is_own {
        let detail = "only the page of this shop, at its own address, may change something";
        return Err(Problem::new(StatusCode::FORBIDDEN, "foreign-page", detail));
    }
    is_json(headers)
}

/// Hands a request to the next instance. One that cannot be connected to has not seen it, so it may
/// go to another; one that was connected to may have done what it was asked for, unless that was to read.
async fn hand_on(State(front): State<Front>, request: Request) -> Result<Response, Problem> {
    let (mut parts, body) = request.into_parts();
    let body = tokio::time::timeout(BODY, to_bytes(body, LARGEST)).await;
    let late = |_| {
        Problem::new(
            StatusCode::REQUEST_TIMEOUT,
            "too-slow",
            "the body took too long",
        )
    };
    let body = body.map_err(late)?.map_err(|_| {
        Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "too-large",
            "the body is too large",
        )
    })?;
    leave_at_the_door(&mut parts.headers);
    parts.headers.remove(HOST);
    let path = parts
        .uri
        .path_and_query()
        .map_or("/", |path| path.as_str())
        .to_owned();

    let only_reads = parts.method.is_safe();
    let places = front.places.all();
    let first = front.turn.fetch_add(1, Ordering::Relaxed);
    for place in (0..places.len()).map(|step| places[(first + step) % places.len()]) {
        let uri = Uri::builder()
            .scheme("http")
            .authority(place.address.to_string())
            .path_and_query(path.as_str())
            .build()
            .map_err(|error| Problem::new(StatusCode::BAD_REQUEST, "no-uri", error.to_string()))?;
        let mut parts = parts.clone();
        parts.uri = uri;
        let request = Request::from_parts(parts, Full::new(body.clone()));
        match front.http.send(request).await {
            Ok(response) => return Ok(answered(response)),
            Err(CallError::Connect) => {}
            // A request that only reads may be made twice.
            Err(_) if only_reads => {}
            Err(error) => {
                let detail = format!("{error}; look whether it was done");
                return Err(Problem::new(StatusCode::BAD_GATEWAY, "cut-off", detail));
            }
        }
    }
    let detail = "no instance serves at this moment; nothing was done";
    Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "no-instance", detail).retry_after(SOON))
}

fn answered(response: Response<hyper::body::Incoming>) -> Response {
    let (mut parts, body) = response.into_parts();
    leave_at_the_door(&mut parts.headers);
    let streams = parts
        .headers
        .get(CONTENT_TYPE)
        .is_some_and(|kind| kind == "text/event-stream");
    let body = if streams {
        // A stream of an instance that dies just ends, so that the page opens another.
        let events = body.into_data_stream();
        Body::from_stream(events.take_while(|event| std::future::ready(event.is_ok())))
    } else {
        Body::new(body)
    };
    (parts, body).into_response()
}

/// Headers that are about one connection and not about the request.
fn leave_at_the_door(headers: &mut HeaderMap) {
    headers.remove(CONNECTION);
    headers.remove(TRANSFER_ENCODING);
    headers.remove("keep-alive");
}
