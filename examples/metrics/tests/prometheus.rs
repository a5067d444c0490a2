//! A real Prometheus scrapes the service, and is asked what the alerts and the dashboard ask.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc,
    thread,
};

use serde_json::Value;
use tempfile::TempDir;
use tests::{ChildProcess, DEADLINE, RedisServer, ReservedPort, eventually, within};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::block_in_place,
};

/// Nothing of these happens here.
const ABSENT: [&str; 1] = ["redlock_release_failures_total"];

fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

fn promtool(arguments: &[&str]) {
    let output = Command::new("promtool")
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("promtool is installed (Debian: the package prometheus)");
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn the_alerts_are_valid_and_fire_when_they_should() {
    promtool(&["check", "rules", "../../docs/alerts.yml"]);
    promtool(&["test", "rules", "tests/alerts.yml"]);
}

/// Sends a request; returns the status and the body.
async fn request(at: SocketAddr, method: &str, path: &str) -> std::io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(at).await?;
    // Version 1.0: the connection is closed behind the body, which is not chunked.
    let head = format!("{method} {path} HTTP/1.0\r\nHost: {at}\r\nContent-Length: 0\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await?;
    let status = reply
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    let body = reply.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    Ok((status.unwrap_or_default(), body.to_owned()))
}

async fn post(at: SocketAddr, path: &str) -> u16 {
    let answer = within(DEADLINE, request(at, "POST", path)).await;
    answer.expect("the service answers").0
}

/// The service, and what it prints of its events.
struct Service {
    at: SocketAddr,
    events: mpsc::Receiver<String>,
    _process: ChildProcess,
}

impl Service {
    fn start(redis: &RedisServer) -> Self {
        let program = env!("CARGO_BIN_EXE_orders");
        let mut process = ChildProcess::spawn(program, ["127.0.0.1:0"], |command| {
            command.env("REDIS_URL", redis.url()).stdout(Stdio::piped());
        })
        .expect("it starts");
        let lines = BufReader::new(process.take_stdout().expect("it is piped")).lines();
        let (told, events) = mpsc::channel();
        thread::spawn(move || {
            lines
                .map_while(Result::ok)
                .try_for_each(|line| told.send(line))
        });
        let find_address = || {
            let line = events
                .recv_timeout(DEADLINE)
                .expect("it says where it listens");
            line.strip_prefix("listening on ")?.parse().ok()
        };
        let at = std::iter::repeat_with(find_address).flatten().next();
        Self {
            at: at.expect("it is endless"),
            events,
            _process: process,
        }
    }

    /// Waits until it prints an event with this text.
    fn prints(&self, text: &str) {
        let next = || self.events.recv_timeout(DEADLINE).expect("it prints that");
        while !next().contains(text) {}
    }
}

struct Prometheus {
    at: SocketAddr,
    _port: ReservedPort,
    _directory: TempDir,
    _process: ChildProcess,
}

impl Prometheus {
    /// Starts one that scrapes this service and evaluates the alerts.
    async fn start(service: SocketAddr) -> Self {
        let directory = tempfile::tempdir().expect("there is room");
        let alerts = in_repository("docs/alerts.yml");
        let config = format!(
            "global: {{scrape_interval: 200ms, evaluation_interval: 200ms}}\n\
             rule_files: ['{}']\n\
             scrape_configs:\n\
             - {{job_name: orders, scrape_timeout: 200ms, static_configs: [{{targets: ['{service}']}}]}}\n",
            alerts.display()
        );
        let file = directory.path().join("prometheus.yml");
        fs::write(&file, config).expect("there is room");
        let port = ReservedPort::pick();
        let arguments = [
            format!("--config.file={}", file.display()),
            format!(
                "--storage.tsdb.path={}",
                directory.path().join("data").display()
            ),
            format!("--web.listen-address=127.0.0.1:{}", port.number()),
            "--log.level=warn".to_owned(),
        ];
        let process = ChildProcess::spawn("prometheus", arguments, |_| {}).expect("it starts");
        let at = SocketAddr::from(([127, 0, 0, 1], port.number()));
        eventually(DEADLINE, async || {
            match request(at, "GET", "/-/ready").await {
                Ok((200, _)) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
        Self {
            at,
            _port: port,
            _directory: directory,
            _process: process,
        }
    }

    /// What the API answers; panics if that is an error.
    async fn ask(&self, path: &str) -> Value {
        let (_, body) = request(self.at, "GET", path).await.expect("it answers");
        let answer: Value = serde_json::from_str(&body).expect("it answers in JSON");
        assert_eq!(answer["status"], "success", "{path}: {answer}");
        answer["data"].clone()
    }

    /// The series that a query returns now.
    async fn query(&self, query: &str) -> Vec<Value> {
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let data = self.ask(&format!("/api/v1/query?query={encoded}")).await;
        data["result"].as_array().cloned().unwrap_or_default()
    }
}

/// The queries of the dashboard, as Grafana sends them where all is selected.
fn of_dashboard() -> Vec<String> {
    let text = fs::read_to_string(in_repository("docs/grafana.json")).expect("it is there");
    let dashboard: Value = serde_json::from_str(&text).expect("it is JSON");
    let panels = dashboard["panels"].as_array().expect("it has panels");
    let targets = panels
        .iter()
        .filter_map(|panel| panel["targets"].as_array());
    let queries = targets
        .flatten()
        .filter_map(|target| target["expr"].as_str());
    let filled = queries.map(|query| {
        let query = query.replace("$__rate_interval", "1m");
        query.replace("$job", ".*").replace("$lock", ".*")
    });
    filled.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prometheus_has_what_the_alerts_and_the_dashboard_ask_for() {
    let redis = RedisServer::start();
    let service = block_in_place(|| Service::start(&redis));
    let at = service.at;
    let prometheus = Prometheus::start(at).await;
    eventually(DEADLINE, async || {
        prometheus.query(r#"up{job="orders"} == 1"#).await.len() == 1
    })
    .await;

    // One order is held until its lock is lost; another one for the same user waits in vain.
    let held = tokio::spawn(async move { post(at, "/orders/1/60000").await });
    let exists = async |key: &str| redis.ask::<u32>(&["EXISTS", key]).await == 1;
    eventually(DEADLINE, async || exists("order:1").await).await;
    assert_eq!(post(at, "/orders/1").await, 409);
    eventually(DEADLINE, async || {
        let held = r#"redlock_held{lock="orders", kind="rlock"} == 1"#;
        prometheus.query(held).await.len() == 1
    })
    .await;
    redis.ask::<u32>(&["DEL", "order:1"]).await;
    assert_eq!(held.await.unwrap(), 409);
    block_in_place(|| service.prints("Lost(Deleted)"));
    assert_eq!(post(at, "/reports").await, 204);
    redis
        .ask::<u32>(&["CLIENT", "KILL", "TYPE", "normal"])
        .await;

    let queries = of_dashboard();
    assert!(queries.len() > 10, "{queries:?}");
    for query in &queries {
        let is_absent = ABSENT.iter().any(|name| query.contains(name));
        eventually(DEADLINE, async || {
            post(at, "/orders/3").await;
            let found = prometheus.query(query).await;
            let complete = is_absent || !found.is_empty();
            complete
                .then_some(())
                .ok_or_else(|| format!("nothing for {query}"))
        })
        .await;
    }
    eventually(DEADLINE, async || {
        let data = prometheus.ask("/api/v1/alerts").await;
        let alerts = data["alerts"].as_array().cloned().unwrap_or_default();
        let firing = alerts.iter().any(|alert| {
            let labels = &alert["labels"];
            labels["alertname"] == "RedlockLocksLost" && labels["reason"] == "deleted"
        });
        firing.then_some(()).ok_or_else(|| format!("{alerts:?}"))
    })
    .await;
    // Each was evaluated, without an error.
    eventually(DEADLINE, async || {
        let data = prometheus.ask("/api/v1/rules").await;
        let rules = data["groups"][0]["rules"].as_array().cloned();
        let healthy = |rule: &Value| rule["health"] == "ok";
        rules.is_some_and(|rules| rules.len() == 7 && rules.iter().all(healthy))
    })
    .await;
}
