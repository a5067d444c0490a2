//! Checks at the end of a test that it has left nothing behind.

use std::{fmt, sync::Arc, thread, time::Duration};

use redis::{RedisResult, Value, aio::MultiplexedConnection};
use redlock_rt::{Client, embedded::Engine};

use crate::{DEADLINE, RedisServer, connection_over, eventually::eventually};

/// Databases of a server with the default configuration.
const DATABASES: u8 = 16;

type Probe = Box<dyn Fn() -> Option<String> + Send + Sync>;

/// Looks for leftovers of a test: keys and channels with its prefix, and the results of further
/// probes.
///
/// Made at the start of a test with its [`unique`](crate::unique) prefix, and ended with
/// [`assert_clean`](Self::assert_clean). A test that forgets to do so fails.
#[must_use = "ends with assert_clean"]
pub struct LeakCheck {
    prefix: String,
    connection: Option<MultiplexedConnection>,
    probes: Vec<(String, Probe)>,
    deadline: Duration,
    finished: bool,
}

impl LeakCheck {
    /// Checks this server for keys and channels that contain `prefix`.
    pub async fn on(server: &RedisServer, prefix: &str) -> Self {
        Self::over(server.connect().await.expect("the server answers"), prefix)
    }

    /// Checks the server of this connection, which must not be used for anything else.
    pub fn over(connection: MultiplexedConnection, prefix: &str) -> Self {
        let mut check = Self::without_redis(prefix);
        check.connection = Some(connection);
        check
    }

    /// Checks only what [`also`](Self::also) adds.
    pub fn without_redis(prefix: &str) -> Self {
        let glob = |c: char| matches!(c, '*' | '?' | '[' | ']' | '\\');
        assert!(
            !prefix.is_empty() && !prefix.contains(glob),
            "no such prefix: {prefix:?}"
        );
        Self {
            prefix: prefix.to_owned(),
            connection: None,
            probes: Vec::new(),
            deadline: DEADLINE,
            finished: false,
        }
    }

    /// Adds a probe, which describes the leftovers of `what`; `None` if there are none.
    pub fn also(
        mut self,
        what: &str,
        left: impl Fn() -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.probes.push((what.to_owned(), Box::new(left)));
        self
    }

    /// Adds a client of redlock-rt: all of its counts must be zero, except background tasks.
    pub fn client(self, client: &Client) -> Self {
        let client = client.clone();
        let what = format!("client {}", client.uuid());
        self.also(&what, move || {
            let left = in_use(&client);
            (!left.is_empty()).then(|| left.join(", "))
        })
    }

    /// Sets how long leftovers may exist that end by themselves, such as lingering subscriptions.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Panics with a list if anything is left at the deadline.
    #[track_caller]
    pub fn assert_clean(mut self) -> impl Future<Output = ()> {
        self.finished = true;
        let this = Arc::new(self);
        eventually(this.deadline, move || {
            let this = this.clone();
            async move {
                let left = this.left().await;
                if left.is_empty() {
                    Ok(())
                } else {
                    Err(Leaked(left))
                }
            }
        })
    }

    /// All leftovers at this moment.
    pub async fn left(&self) -> Vec<String> {
        let mut left = Vec::new();
        if let Some(connection) = &self.connection {
            let there = there(&mut connection.clone(), &self.prefix).await;
            let unknown = |error| vec![format!("keys and channels are unknown: {error}")];
            left.extend(there.unwrap_or_else(unknown));
        }
        for (what, probe) in &self.probes {
            left.extend(probe().map(|rest| format!("{what}: {rest}")));
        }
        left
    }
}

impl Drop for LeakCheck {
    fn drop(&mut self) {
        assert!(
            self.finished || thread::panicking(),
            "the leak check of {} was not ended with assert_clean",
            self.prefix
        );
    }
}

/// Panics if anything with this prefix is left on the server, or anything in these clients.
pub async fn assert_clean<const N: usize>(
    server: &RedisServer,
    prefix: &str,
    clients: [&Client; N],
) {
    let check = LeakCheck::on(server, prefix).await;
    let check = clients.into_iter().fold(check, LeakCheck::client);
    check.assert_clean().await;
}

/// Likewise of an embedded engine.
pub async fn assert_clean_in<const N: usize>(engine: &Engine, prefix: &str, clients: [&Client; N]) {
    let connection = connection_over(engine.connect()).await;
    let check = LeakCheck::over(connection.expect("the engine answers"), prefix);
    let check = clients.into_iter().fold(check, LeakCheck::client);
    check.assert_clean().await;
}

/// What a client counts that is in use: all, but for its background tasks.
pub fn in_use(client: &Client) -> Vec<String> {
    let stats = client.stats();
    let counts = [
        ("held", stats.held),
        ("waiting", stats.waiting),
        ("subscriptions", stats.subscriptions),
        ("renewals", stats.renewals),
        ("releases", stats.releases),
        ("names", stats.names),
    ];
    let used = counts.into_iter().filter(|(_, count)| *count > 0);
    used.map(|(name, count)| format!("{count} {name}"))
        .collect()
}

impl fmt::Debug for LeakCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeakCheck")
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

struct Leaked(Vec<String>);

impl fmt::Display for Leaked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "left behind:\n  {}", self.0.join("\n  "))
    }
}

/// The keys of all databases, and the channels, that contain this prefix. One request, since each test repeats
/// it until nothing is left.
async fn there(connection: &mut MultiplexedConnection, prefix: &str) -> RedisResult<Vec<String>> {
    let pattern = format!("*{prefix}*");
    let mut request = redis::pipe();
    for db in 0..DATABASES {
        request.cmd("SELECT").arg(db);
        request.cmd("KEYS").arg(&pattern);
    }
    for which in ["CHANNELS", "SHARDCHANNELS"] {
        request.cmd("PUBSUB").arg(which).arg(&pattern);
    }
    request.ignore_errors();
    let replies: Vec<RedisResult<Value>> = request.query_async(connection).await?;
    let mut replies = replies.into_iter();
    let mut next = || replies.next().expect("each command has a reply");
    let mut there = Vec::new();
    for db in 0..DATABASES {
        let (selected, keys) = (next(), next());
        match selected {
            Ok(_) => {}
            // Fewer databases than usual.
            Err(_) if db > 0 => continue,
            Err(error) => return Err(error),
        }
        let keys: Vec<Vec<u8>> = redis::from_redis_value(keys?)?;
        let keys = keys.iter().map(|key| String::from_utf8_lossy(key));
        there.extend(keys.map(|key| format!("key {key} of db {db}")));
    }
    let (channels, sharded) = (next()?, next());
    let mut channels: Vec<String> = redis::from_redis_value(channels)?;
    // Servers below 7.0 have none.
    if let Ok(sharded) = sharded {
        channels.extend(redis::from_redis_value::<Vec<String>>(sharded)?);
    }
    there.extend(channels.iter().map(|name| format!("channel {name}")));
    Ok(there)
}
