//! Scripts by EVALSHA, which are loaded if the server does not know them.

use redis::{FromRedisValue, RedisResult, ToRedisArgs};

use super::RedissonClient;

/// A Lua script.
#[derive(Clone, Copy, Debug)]
pub(super) struct Script(pub(super) &'static str);

impl Script {
    /// Runs the script with these KEYS and ARGV.
    pub(super) async fn run<T: FromRedisValue>(
        self,
        client: &RedissonClient,
        keys: &[&str],
        args: &[&str],
    ) -> RedisResult<T> {
        self.run_raw(client, keys, args).await
    }

    /// As [`run`](Self::run), for binary arguments.
    pub(super) async fn run_raw<T: FromRedisValue>(
        self,
        client: &RedissonClient,
        keys: &[&str],
        args: &[impl ToRedisArgs],
    ) -> RedisResult<T> {
        let sha = sha1_smol::Sha1::from(self.0).digest().to_string();
        let mut evalsha = redis::cmd("EVALSHA");
        evalsha.arg(sha).arg(keys.len()).arg(keys).arg(args);
        loop {
            match client.query(&evalsha).await {
                // Another client may flush the scripts between the two calls. Redisson then fails, and
                // its caller would repeat the call.
                Err(error) if error.code() == Some("NOSCRIPT") => {
                    let _: String = client.command("SCRIPT", &["LOAD", self.0]).await?;
                }
                other => return other,
            }
        }
    }
}
