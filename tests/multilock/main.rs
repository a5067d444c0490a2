//! Several locks as one: all or none, without deadlock, lost when one of them is lost.

mod addresses;
mod basics;
mod contention;
mod faults;
mod philosophers;
mod reentry;
mod script;
mod tokens;

use std::time::Duration;

use redlock_rt::{Client, ClientBuilder};
use tests::{DEADLINE, RedisServer, SharedServer, shared_server, unique};

/// A poll interval longer than any test.
const NEVER: Duration = Duration::from_secs(600);

fn settings(builder: ClientBuilder) -> Client {
    let builder = builder.linger(Duration::from_millis(20));
    builder.poll_interval(NEVER).build().unwrap()
}

fn client(server: &RedisServer) -> Client {
    settings(Client::builder().url(&server.url()))
}

/// Three names on the shared server, with one prefix.
fn names(what: &str) -> (SharedServer, String, [String; 3]) {
    let prefix = unique(what);
    let names = ["a", "b", "c"].map(|name| format!("{prefix}:{name}"));
    (shared_server(), prefix, names)
}
