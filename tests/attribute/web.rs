//! Handlers of a web framework: patterns as parameters, errors as responses, futures that are
//! `Send`.

use axum::{
    Router,
    body::Body,
    extract::{FromRequestParts, Path, State},
    http::{Request, StatusCode, request::Parts},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use redlock_rt::{Client, Error, distributed_lock};
use tower::ServiceExt as _;

#[derive(Clone)]
struct App {
    locks: Client,
}

struct AppError(StatusCode);

impl From<Error> for AppError {
    fn from(error: Error) -> Self {
        Self(match error {
            error if error.is_contended() || error.is_timed_out() => StatusCode::CONFLICT,
            error if error.is_bad_input() => StatusCode::BAD_REQUEST,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        })
    }
}

impl IntoResponse for AppError {
    fn into_response(self) -> Response {
        self.0.into_response()
    }
}

/// An extractor of the application.
struct User(String);

impl<S: Sync> FromRequestParts<S> for User {
    type Rejection = StatusCode;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, StatusCode> {
        let user = parts
            .headers
            .get("user")
            .and_then(|user| user.to_str().ok());
        user.map(|user| Self(user.to_owned()))
            .ok_or(StatusCode::UNAUTHORIZED)
    }
}

#[distributed_lock(key = "order:<user>:<id>", wait = "0s", client = app.locks)]
async fn place(
    State(app): State<App>,
    Path(id): Path<u32>,
    User(user): User,
    body: String,
) -> Result<(StatusCode, String), AppError> {
    let lock = app.locks.rlock(format!("order:{user}:{id}"));
    if !lock.is_locked().await? {
        return Err(AppError(StatusCode::IM_A_TEAPOT));
    }
    Ok((StatusCode::CREATED, format!("{body} for {user}")))
}

#[distributed_lock(
    key = format_args!("report:{}", id.0),
    wait = "0s",
    on_timeout = call(cached),
    client = app.locks
)]
async fn report(app: State<App>, id: Path<String>) -> Result<impl IntoResponse, AppError> {
    Ok(format!("report {}", id.0))
}

async fn cached(app: State<App>, id: Path<String>) -> Result<String, AppError> {
    assert!(
        app.locks
            .rlock(format!("report:{}", *id))
            .is_locked()
            .await?
    );
    Ok(format!("old report {}", id.0))
}

async fn call(router: &Router, request: Request<Body>) -> (StatusCode, String) {
    let response = router.clone().oneshot(request).await.unwrap();
    let status = response.status();
    let bytes = axum::body::to_bytes(response.into_body(), 1000)
        .await
        .unwrap();
    (status, String::from_utf8(bytes.to_vec()).unwrap())
}

#[tokio::test]
async fn handlers_run_under_locks() {
    let locks = Client::embedded();
    let app = App {
        locks: locks.clone(),
    };
    let router = Router::new()
        .route("/orders/{id}", post(place))
        .route("/reports/{id}", get(report))
        .with_state(app);
    let order = |user: &str| {
        let request = Request::post("/orders/7").header("user", user);
        request.body(Body::from("book")).unwrap()
    };
    let report = || Request::get("/reports/9").body(Body::empty()).unwrap();

    let placed = call(&router, order("ada")).await;
    assert_eq!(placed, (StatusCode::CREATED, "book for ada".to_owned()));
    let refused = call(&router, order(" ")).await.0;
    assert_eq!(refused, StatusCode::BAD_REQUEST);
    let fresh = call(&router, report()).await;
    assert_eq!(fresh, (StatusCode::OK, "report 9".to_owned()));

    let held = locks
        .multi_lock(["order:ada:7", "report:9"])
        .lock()
        .await
        .unwrap();
    assert_eq!(call(&router, order("ada")).await.0, StatusCode::CONFLICT);
    assert_eq!(call(&router, order("eve")).await.0, StatusCode::CREATED);
    assert_eq!(call(&router, report()).await.1, "old report 9");
    held.unlock().await.unwrap();
}
