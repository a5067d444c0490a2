//! The machine of the figures.

use std::{
    fmt::{self, Display, Formatter},
    fs, thread,
};

use serde::{Deserialize, Serialize};
use tests::RedisServer;

/// The machine and the server.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) cores: usize,
    pub(crate) cpu: String,
    pub(crate) kernel: String,
    pub(crate) redis: String,
}

impl Display for Machine {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self {
            cores,
            cpu,
            kernel,
            redis,
        } = self;
        write!(
            f,
            "{cores} cores of {cpu}, Linux {kernel}, with redis-server {redis}"
        )
    }
}

pub(crate) async fn ask(server: &RedisServer) -> Machine {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let mut connection = server.connect().await.expect("the server answers");
    let info: String = redis::cmd("INFO")
        .arg("server")
        .query_async(&mut connection)
        .await
        .expect("the server answers");
    Machine {
        cores: thread::available_parallelism().map_or(0, Into::into),
        cpu: field(&cpu, "model name"),
        kernel: fs::read_to_string("/proc/sys/kernel/osrelease")
            .map_or_else(|_| unknown(), |release| version(&release)),
        redis: field(&info, "redis_version"),
    }
}

/// The number of runnable processes in the last minute. Above the number of cores, other processes
/// used part of the machine.
pub(crate) fn load() -> Option<f64> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

fn field(text: &str, name: &str) -> String {
    let value = |line: &str| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    };
    text.lines().find_map(value).unwrap_or_else(unknown)
}

/// Without the name of the build.
fn version(release: &str) -> String {
    let parts: Vec<&str> = release.trim().split('.').take(2).collect();
    parts.join(".")
}

fn unknown() -> String {
    "unknown".to_owned()
}
