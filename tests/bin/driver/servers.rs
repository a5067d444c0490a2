//! The servers of a client, and plain connections to them.

use redis::aio::MultiplexedConnection;
use redlock_rt::embedded::Engine;
use tests::{connection_over, connection_over_tls, connection_to};

use super::answer::Failure;

#[derive(Debug)]
pub(crate) enum Server {
    Url(String),
    /// Nodes of a cluster.
    Cluster(Vec<String>),
    /// A service and the URLs of its sentinels; the login in the first one is that of the master.
    Sentinels(String, Vec<String>),
    Embedded(Engine),
}

impl Server {
    pub(crate) async fn connect(
        &self,
        roots: Option<&str>,
    ) -> redis::RedisResult<MultiplexedConnection> {
        match self {
            Self::Url(url) => raw_to(roots, url).await,
            Self::Cluster(urls) => raw_to(roots, &urls[0]).await,
            Self::Sentinels(service, urls) => raw_to_master(roots, service, urls).await,
            Self::Embedded(engine) => connection_over(engine.connect()).await,
        }
    }
}

/// A plain connection; `roots`: the certificates that are trusted with TLS.
async fn raw_to(roots: Option<&str>, url: &str) -> redis::RedisResult<MultiplexedConnection> {
    match roots {
        Some(roots) if url.starts_with("rediss:") => connection_over_tls(url, roots).await,
        _ => connection_to(url).await,
    }
}

/// Asks the first sentinel for the master.
async fn raw_to_master(
    roots: Option<&str>,
    service: &str,
    urls: &[String],
) -> redis::RedisResult<MultiplexedConnection> {
    let (scheme, login, place) = parts(&urls[0]);
    let mut sentinel = raw_to(roots, &format!("{scheme}://{place}")).await?;
    let mut question = redis::cmd("SENTINEL");
    question.arg("GET-MASTER-ADDR-BY-NAME").arg(service);
    let (host, port): (String, u16) = question.query_async(&mut sentinel).await?;
    raw_to(roots, &format!("{scheme}://{login}{host}:{port}")).await
}

/// Publishes at the master of the channel's slot, to which another node leads.
pub(crate) async fn publish_in_shard(
    roots: Option<&str>,
    urls: &[String],
    channel: &str,
    message: &str,
) -> redis::RedisResult<usize> {
    let mut publish = redis::cmd("SPUBLISH");
    publish.arg(channel).arg(message);
    let mut connection = raw_to(roots, &urls[0]).await?;
    let published = publish.query_async(&mut connection).await;
    let moved = published
        .as_ref()
        .err()
        .and_then(|error| error.redirect_node());
    let Some((address, _)) = moved else {
        return published;
    };
    // With the credentials of the first.
    let (scheme, login, _) = parts(&urls[0]);
    let mut connection = raw_to(roots, &format!("{scheme}://{login}{address}")).await?;
    publish.query_async(&mut connection).await
}

/// Scheme, login with its @, and the rest of a URL.
fn parts(url: &str) -> (&str, String, &str) {
    let (scheme, rest) = url.split_once("://").unwrap_or(("redis", url));
    match rest.rsplit_once('@') {
        Some((login, place)) => (scheme, format!("{login}@"), place),
        None => (scheme, String::new(), rest),
    }
}

/// The URL of the library for the same.
pub(crate) fn sentinel_url(service: &str, urls: &[String]) -> Result<String, Failure> {
    let first = urls
        .first()
        .ok_or_else(|| Failure::usage("sentinel:NAME,URL,..."))?;
    let (scheme, login, _) = parts(first);
    let places: Vec<&str> = urls.iter().map(|url| parts(url).2).collect();
    let places = places.join(",");
    Ok(format!("{scheme}+sentinel://{login}{places}/{service}"))
}
