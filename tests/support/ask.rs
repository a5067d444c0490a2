//! Commands to a server, past the client under test.

use redis::{FromRedisValue, aio::MultiplexedConnection};

/// Sends a command, and returns the reply.
pub async fn ask<T: FromRedisValue>(redis: &MultiplexedConnection, words: &[&str]) -> T {
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    let reply = command.query_async(&mut redis.clone()).await;
    reply.unwrap_or_else(|error| panic!("{words:?}: {error}"))
}
