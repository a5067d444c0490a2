//! The machine of the figures.

use std::{fs, thread};

use redis::aio::MultiplexedConnection;
use serde_json::{Value, json};

/// The machine and the server.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) cores: usize,
    pub(crate) cpu: String,
    pub(crate) kernel: String,
    pub(crate) redis: String,
}

impl Machine {
    pub(crate) async fn ask(connection: &mut MultiplexedConnection) -> Self {
        let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let info: String = redis::cmd("INFO")
            .arg("server")
            .query_async(connection)
            .await
            .expect("the server answers");
        Self {
            cores: thread::available_parallelism().map_or(0, Into::into),
            cpu: field(&cpu, "model name"),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")
                .map_or_else(|_| unknown(), |release| release.trim().to_owned()),
            redis: field(&info, "redis_version"),
        }
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "cores": self.cores,
            "cpu": self.cpu,
            "kernel": self.kernel,
            "redis": self.redis,
        })
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

fn unknown() -> String {
    "unknown".to_owned()
}
