//! Connections to the masters behind a URL, for questions that the library does not ask.

mod dial;
mod place;

use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, FromRedisValue, RedisError};

use self::dial::Dialer;
use self::place::{Form, Place};
use crate::exit::{Code, Failure};
use crate::server::Server;

/// A master.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) address: String,
    redis: MultiplexedConnection,
}

impl Node {
    pub(crate) async fn ask<T: FromRedisValue>(&self, words: &[&str]) -> Result<T, RedisError> {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command.query_async(&mut self.redis.clone()).await
    }
}

impl From<RedisError> for Failure {
    fn from(error: RedisError) -> Self {
        let code = match error.code() {
            Some("NOAUTH" | "WRONGPASS" | "NOPERM") => Code::DENIED,
            // A key that another program replaced meanwhile.
            Some("WRONGTYPE") => Code::OTHER_DATA,
            _ if error.is_io_error() || error.is_timeout() => Code::UNAVAILABLE,
            _ if error.kind() == ErrorKind::AuthenticationFailed => Code::DENIED,
            _ => Code::SOFTWARE,
        };
        Self::new(code, error.to_string())
    }
}

/// The masters of the URL: one, or all of a cluster.
pub(crate) async fn masters(server: &Server) -> Result<Vec<Node>, Failure> {
    let place = Place::parse(&server.url).ok_or_else(|| Failure::usage("not a URL of Redis"))?;
    let dialer = Dialer::new(server, &place)?;
    match &place.form {
        Form::Socket(path) => Ok(vec![dialer.socket(path).await?]),
        Form::Servers => Ok(vec![master_of(&dialer, &place).await?]),
        Form::Sentinels { service } => {
            let (host, port) = named_by_sentinels(&dialer, &place, service).await?;
            Ok(vec![dialer.node(&host, port).await?])
        }
        Form::Cluster => masters_of_cluster(&dialer, &place).await,
    }
}

/// The first answer of these hosts; the error of the last one, if none answers.
async fn first<T>(
    place: &Place,
    ask: impl AsyncFn(&str, u16) -> Result<Option<T>, Failure>,
) -> Result<T, Failure> {
    let mut failure = Failure::new(Code::UNAVAILABLE, "no server has the role of a master");
    for (host, port) in &place.hosts {
        match ask(host, *port).await {
            Ok(Some(answer)) => return Ok(answer),
            Ok(None) => {}
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

async fn master_of(dialer: &Dialer, place: &Place) -> Result<Node, Failure> {
    first(place, async |host, port| {
        let node = dialer.node(host, port).await?;
        Ok(match node.ask::<String>(&["INFO", "replication"]).await {
            Ok(text) => text.contains("role:master").then_some(node),
            // Locks work without that right.
            Err(error) if error.code() == Some("NOPERM") => {
                let role = node.ask::<Vec<redis::Value>>(&["ROLE"]).await;
                let other = role.is_ok_and(|role| {
                    role.first() != Some(&redis::Value::BulkString(b"master".to_vec()))
                });
                (!other).then_some(node)
            }
            Err(error) => return Err(error.into()),
        })
    })
    .await
}

async fn named_by_sentinels(
    dialer: &Dialer,
    place: &Place,
    service: &str,
) -> Result<(String, u16), Failure> {
    first(place, async |host, port| {
        let sentinel = dialer.sentinel(host, port).await?;
        let words = ["SENTINEL", "get-master-addr-by-name", service];
        Ok(sentinel.ask::<Option<(String, u16)>>(&words).await?)
    })
    .await
}

async fn masters_of_cluster(dialer: &Dialer, place: &Place) -> Result<Vec<Node>, Failure> {
    let (asked, ranges) = first(place, async |host, port| {
        let node = dialer.node(host, port).await?;
        let ranges: Vec<Vec<redis::Value>> = node.ask(&["CLUSTER", "SLOTS"]).await?;
        Ok(Some((host.to_owned(), ranges)))
    })
    .await?;
    let mut places: Vec<(String, u16)> = Vec::new();
    for range in ranges {
        let Some(master) = range.into_iter().nth(2) else {
            continue;
        };
        let parts: Vec<redis::Value> = redis::from_redis_value(master).map_err(RedisError::from)?;
        let mut parts = parts.into_iter();
        let (Some(host), Some(port)) = (parts.next(), parts.next()) else {
            continue;
        };
        let host: Option<String> = redis::from_redis_value(host).map_err(RedisError::from)?;
        let port: u16 = redis::from_redis_value(port).map_err(RedisError::from)?;
        // A node without a host means its own.
        let host = host.filter(|host| !host.is_empty() && host != "?");
        let found = (host.unwrap_or_else(|| asked.clone()), port);
        if !places.contains(&found) {
            places.push(found);
        }
    }
    let mut nodes = Vec::new();
    for (host, port) in &places {
        nodes.push(dialer.node(host, *port).await?);
    }
    Ok(nodes)
}
