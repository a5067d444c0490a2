//! The connections of a port. A peer that sends nothing, or slowly, is not waited for.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// What connections may take.
struct Limits {
    /// How long the head of a request may take, also the next one of a connection that is kept.
    head: Duration,
    /// The connections that are served together; others wait to be accepted.
    connections: usize,
}

const LIMITS: Limits = Limits {
    head: Duration::from_secs(10),
    connections: 4096,
};

/// Serves until `end`, and then until what is under way is answered. A listener that fails is tried again.
pub(crate) async fn serve(listener: TcpListener, router: Router, end: impl Future<Output = ()>) {
    serve_within(&LIMITS, listener, router, end).await;
}

async fn serve_within(
    limits: &Limits,
    listener: TcpListener,
    router: Router,
    end: impl Future<Output = ()>,
) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(limits.head);
    let (room, under_way) = (
        Arc::new(Semaphore::new(limits.connections)),
        GracefulShutdown::new(),
    );
    let accept = async || {
        // The semaphore is never closed.
        let place = Arc::clone(&room).acquire_owned().await;
        (listener.accept().await, place)
    };
    let mut end = pin!(end);
    loop {
        let (accepted, place) = tokio::select! {
            accepted = accept() => accepted,
            () = &mut end => break,
        };
        let Ok((stream, _)) = accepted else {
            // Out of descriptors, most likely: some connections end meanwhile.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        let service = TowerToHyperService::new(router.clone());
        let served = under_way.watch(http.serve_connection(TokioIo::new(stream), service));
        tokio::spawn(async move {
            // An error is one of this connection alone.
            let _ = served.await;
            drop(place);
        });
    }
    drop(listener);
    under_way.shutdown().await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::get;
    use std::time::Instant;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    /// Half of a request kept its connection for ever, and there was no bound on connections.
    #[tokio::test]
    async fn half_open_connections_stayed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let head = Duration::from_millis(300);
        let limits = Limits {
            head,
            connections: 2,
        };
        let router = Router::new().route("/", get(async || "served"));
        let (close, closed) = tokio::sync::oneshot::channel::<()>();
        let serving = tokio::spawn(async move {
            let end = async { closed.await.unwrap() };
            serve_within(&limits, listener, router, end).await;
        });
        let open = async |text: &str| {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(text.as_bytes()).await.unwrap();
            stream
        };
        let mut half = Vec::new();
        for _ in 0..2 {
            half.push(open("GET / HTTP/1.1\r\nhost: a").await);
        }
        let mut third = open("GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await;
        let began = Instant::now();
        let mut answer = String::new();
        third.read_to_string(&mut answer).await.unwrap();
        // Two are served, and the third when they had no more time.
        let took = began.elapsed();
        assert!(took > head / 2 && took < head * 20, "{took:?}");
        assert!(answer.ends_with("served"), "{answer}");
        for mut half in half {
            let mut rest = Vec::new();
            half.read_to_end(&mut rest).await.unwrap();
        }
        close.send(()).unwrap();
        serving.await.unwrap();
    }
}
