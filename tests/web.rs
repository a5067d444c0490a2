//! HTTP requests under a lock, by `redlock-tower`.

use std::convert::Infallible;
use std::future::{pending, ready};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;
use http::header::RETRY_AFTER;
use http::{Request, Response, StatusCode};
use redlock_rt::{Client, Error, FencedLockGuard, LockOptions, RLockGuard, Shutdown};
use redlock_tower::LockLayer;
use tests::{
    CALL, DEADLINE, Proxy, RedisServer, eventually, lock_and_unlock, shared_server, unique, within,
};
use tokio::sync::{mpsc, oneshot};
use tower::{Layer, Service, ServiceExt, service_fn};

/// A request's body is the name of its lock; an empty one takes none.
fn name(request: &Request<String>) -> Option<String> {
    Some(request.body().clone()).filter(|name| !name.is_empty())
}

async fn client() -> Client {
    Client::connect(&shared_server().url()).await.unwrap()
}

/// A service whose requests end when they are told to.
struct Slow {
    begun: mpsc::UnboundedSender<oneshot::Sender<()>>,
    /// Whether it was asked if it is ready.
    ready: bool,
}

impl Clone for Slow {
    fn clone(&self) -> Self {
        Self {
            begun: self.begun.clone(),
            ready: false,
        }
    }
}

impl Slow {
    fn new() -> (Self, mpsc::UnboundedReceiver<oneshot::Sender<()>>) {
        let (begun, requests) = mpsc::unbounded_channel();
        let ready = false;
        (Self { begun, ready }, requests)
    }
}

impl Service<Request<String>> for Slow {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = futures::future::BoxFuture<'static, Result<Response<String>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<String>) -> Self::Future {
        assert!(
            std::mem::take(&mut self.ready),
            "called before it was ready"
        );
        let (end, ended) = oneshot::channel();
        self.begun.send(end).unwrap();
        Box::pin(async move {
            ended.await.unwrap();
            Ok(Response::new("done".to_owned()))
        })
    }
}

fn error_of(response: &Response<String>) -> &Error {
    response.extensions().get::<Arc<Error>>().unwrap()
}

fn retry_after(response: &Response<String>) -> Option<&str> {
    let value = response.headers().get(RETRY_AFTER)?;
    Some(value.to_str().unwrap())
}

#[tokio::test]
async fn the_longest_retry_after_panicked() {
    let (client, a) = (client().await, unique("web"));
    let _held = client.rlock(&a).lock().await.unwrap();
    let (slow, _begun) = Slow::new();
    let layer = LockLayer::new(&client, name).retry_after(Duration::MAX);
    let mut service = layer.layer(slow);
    let ready = service.ready().now_or_never().unwrap().unwrap();
    let answer = within(DEADLINE, ready.call(Request::new(a))).await.unwrap();
    let most = u64::MAX.to_string();
    assert_eq!(retry_after(&answer), Some(most.as_str()));
}

#[tokio::test]
async fn one_request_of_a_name_runs_at_a_time() {
    let (client, a) = (client().await, unique("web"));
    let (slow, mut begun) = Slow::new();
    let layer = LockLayer::new(&client, name).retry_after(Duration::from_millis(2001));
    let mut service = layer.layer(slow);
    let mut send = |name: &str| {
        let request = Request::new(name.to_owned());
        let ready = service.ready().now_or_never().unwrap().unwrap();
        tokio::spawn(ready.call(request))
    };
    let first = send(&a);
    let end = within(DEADLINE, begun.recv()).await.unwrap();
    let second = within(DEADLINE, send(&a)).await.unwrap().unwrap();
    assert_eq!(second.status(), StatusCode::LOCKED);
    assert_eq!(
        (retry_after(&second), second.body().as_str()),
        (Some("3"), "")
    );
    assert!(error_of(&second).is_contended());
    // Another name, and none.
    for other in [&unique("web"), ""] {
        let other = send(other);
        let end = within(DEADLINE, begun.recv()).await.unwrap();
        end.send(()).unwrap();
        assert_eq!(other.await.unwrap().unwrap().status(), StatusCode::OK);
    }
    end.send(()).unwrap();
    let first = within(DEADLINE, first).await.unwrap().unwrap();
    assert_eq!(first.body(), "done");
}

#[tokio::test]
async fn the_release_ends_before_the_answer_begins() {
    let (server, a) = (RedisServer::start(), unique("web"));
    let proxy = Proxy::to(&server);
    let client = Client::connect(&proxy.url()).await.unwrap();
    lock_and_unlock(&client.rlock(&a)).await;
    let (slow, mut begun) = Slow::new();
    let service = LockLayer::new(&client, name).layer(slow);
    let mut answer = tokio::spawn(service.oneshot(Request::new(a.clone())));
    let end = within(DEADLINE, begun.recv()).await.unwrap();
    let gate = proxy.hold_reply(CALL);
    end.send(()).unwrap();
    gate.reached().await;
    assert!((&mut answer).now_or_never().is_none());
    gate.open();
    let answer = within(DEADLINE, answer).await.unwrap().unwrap();
    assert_eq!(answer.body(), "done");
    assert!(!client.rlock(&a).is_locked().await.unwrap());
}

#[tokio::test]
async fn a_request_waits_where_the_options_say_so() {
    let (client, a) = (client().await, unique("web"));
    let (slow, mut begun) = Slow::new();
    let layer = LockLayer::new(&client, name).options(LockOptions::new().wait(DEADLINE));
    let service = layer.layer(slow);
    let guard = client.rlock(&a).lock().await.unwrap();
    let answer = tokio::spawn(service.oneshot(Request::new(a)));
    eventually(DEADLINE, async || client.stats().waiting == 1).await;
    guard.unlock().await.unwrap();
    let end = within(DEADLINE, begun.recv()).await.unwrap();
    end.send(()).unwrap();
    assert_eq!(answer.await.unwrap().unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn a_request_whose_lock_is_lost_is_cancelled() {
    let (client, a) = (client().await, unique("web"));
    let (slow, mut begun) = Slow::new();
    let options = LockOptions::new().renew(Duration::from_millis(10));
    let layer = LockLayer::new(&client, name).options(options);
    let answer = tokio::spawn(layer.layer(slow).oneshot(Request::new(a.clone())));
    let mut end = within(DEADLINE, begun.recv()).await.unwrap();
    assert!(client.rlock(&a).force_unlock().await.unwrap());
    within(DEADLINE, end.closed()).await;
    let answer = within(DEADLINE, answer).await.unwrap().unwrap();
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(error_of(&answer).is_lost());
    // It may have had its effect.
    assert_eq!(retry_after(&answer), None);
}

#[tokio::test]
async fn a_handler_that_a_shut_down_cancelled_was_to_be_repeated() {
    let (client, a) = (client().await, unique("web"));
    let (slow, mut begun) = Slow::new();
    let layer = LockLayer::new(&client, name);
    let answer = tokio::spawn(layer.clone().layer(slow).oneshot(Request::new(a.clone())));
    let mut end = within(DEADLINE, begun.recv()).await.unwrap();
    client.shutdown(Shutdown::ReleaseAll).await.unwrap();
    within(DEADLINE, end.closed()).await;
    let answer = within(DEADLINE, answer).await.unwrap().unwrap();
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(error_of(&answer).is_shut_down());
    assert_eq!(retry_after(&answer), None);
    // This one did not begin.
    let late = layer.layer(Slow::new().0).oneshot(Request::new(a));
    let late = within(DEADLINE, late).await.unwrap();
    assert!(error_of(&late).is_shut_down() && retry_after(&late).is_some());
}

#[tokio::test]
async fn a_stale_token_was_a_mistake_in_the_service() {
    let value = Client::embedded().fenced_value("web");
    value.set("new", 2).await.unwrap();
    let error = value.set("old", 1).await.unwrap_err();
    assert_eq!(redlock_tower::status(&error), StatusCode::CONFLICT);
}

#[tokio::test]
async fn a_dropped_request_leaves_no_lock() {
    let (client, a) = (client().await, unique("web"));
    let (slow, mut begun) = Slow::new();
    let service = LockLayer::new(&client, name).layer(slow);
    let answer = tokio::spawn(service.oneshot(Request::new(a.clone())));
    let mut end = within(DEADLINE, begun.recv()).await.unwrap();
    answer.abort();
    within(DEADLINE, end.closed()).await;
    let lock = client.rlock(&a);
    eventually(DEADLINE, async || !lock.is_locked().await.unwrap()).await;
}

#[tokio::test]
async fn a_handler_has_the_guard_and_can_keep_it() {
    let (client, a) = (client().await, unique("web"));
    let (keep, mut kept) = mpsc::unbounded_channel();
    let handler = move |request: Request<String>| {
        let guard = request.extensions().get::<Arc<RLockGuard>>().unwrap();
        keep.send(Arc::clone(guard)).unwrap();
        ready(Ok::<_, Infallible>(Response::new(String::new())))
    };
    let service = LockLayer::new(&client, name).layer(service_fn(handler));
    let answer = service.oneshot(Request::new(a.clone())).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    let (lock, guard) = (client.rlock(&a), kept.recv().await.unwrap());
    assert!(guard.is_valid() && lock.is_locked().await.unwrap());
    drop(guard);
    eventually(DEADLINE, async || !lock.is_locked().await.unwrap()).await;

    let token = |request: Request<String>| {
        let guard = request.extensions().get::<Arc<FencedLockGuard>>().unwrap();
        ready(Ok::<_, Infallible>(Response::new(
            guard.token().to_string(),
        )))
    };
    let fenced = move |_: &Request<String>| Some(client.fenced_lock(&a));
    let service = LockLayer::of(fenced).layer(service_fn(token));
    let answer = service.oneshot(Request::new(String::new())).await.unwrap();
    assert!(answer.body().parse::<u64>().unwrap() > 0);
}

#[tokio::test]
async fn a_request_without_its_lock_is_told_why() {
    let never = |_: Request<String>| pending::<Result<Response<String>, Infallible>>();
    let client = client().await;
    let answer = async |client: &Client, name: fn(&Request<String>) -> Option<String>| {
        let service = LockLayer::new(client, name).layer(service_fn(never));
        within(DEADLINE, service.oneshot(Request::new("a".repeat(600))))
            .await
            .unwrap()
    };
    let long = answer(&client, name).await;
    assert_eq!(
        (long.status(), retry_after(&long)),
        (StatusCode::BAD_REQUEST, None)
    );

    let gone = Client::builder()
        .url("redis://127.0.0.1:1")
        .build()
        .unwrap();
    let gone = answer(&gone, |_| Some("a".to_owned())).await;
    let expected = (StatusCode::SERVICE_UNAVAILABLE, Some("1"));
    assert_eq!((gone.status(), retry_after(&gone)), expected);

    let name = unique("web");
    let counted = client.count_down_latch(&name);
    assert!(counted.try_set_count(1).await.unwrap());
    let service = LockLayer::new(&client, move |_| name.clone()).layer(service_fn(never));
    let taken = service.oneshot(Request::new(String::new())).await.unwrap();
    let expected = (StatusCode::INTERNAL_SERVER_ERROR, None);
    assert_eq!(
        (taken.status(), retry_after(&taken)),
        expected,
        "{}",
        error_of(&taken)
    );
    assert!(counted.delete().await.unwrap());
}
