//! What every test stands on: instances that are processes of their own, and calls of them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redlock_rt::Client;
use serde_json::{Value, json};
use tempfile::TempDir;
use tests::{ChildProcess, shared_postgres, shared_server, unique};

/// The same for all instances: 64 bytes.
const SECRET: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// What changes something is sent with this header.
pub(crate) const JSON: &str = "content-type: application/json\r\n";

/// How long anything may take on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// One process of the program, which said where it listens.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) process: ChildProcess,
    pub(crate) address: SocketAddr,
    log: Arc<Mutex<String>>,
}

/// What an instance answers.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) text: String,
}

/// A Redis namespace and a database, and the instances that share them.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) redis: String,
    pub(crate) database: String,
    namespace: String,
    _directory: TempDir,
}

/// Runs a future on a runtime of its own.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(future)
}

/// Milliseconds since 1970.
pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(since.as_millis()).unwrap()
}

/// A sale that is on, as a client asks for it.
pub(crate) fn on_sale(name: &str, stock: i64) -> Value {
    json!({
        "name": name,
        "price_cents": 500,
        "sale": { "stock": stock, "begins_at": now() - 1000, "ends_at": now() + 3_600_000 },
    })
}

impl World {
    /// Locks on the shared Redis, data in an SQLite file of its own.
    pub(crate) fn sqlite() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let database = directory.path().join("shop.db").display().to_string();
        Self::new(database, directory)
    }

    /// Locks on the shared Redis, data in a PostgreSQL database of its own.
    pub(crate) fn postgres() -> Self {
        Self::new(
            shared_postgres().create_database(),
            tempfile::tempdir().unwrap(),
        )
    }

    /// Whether a lock of this name is held.
    pub(crate) async fn lock_is_taken(&self, name: &str) -> bool {
        let mut connection = shared_server().connect().await.unwrap();
        redis::cmd("EXISTS")
            .arg(format!("{}:{name}", self.namespace))
            .query_async(&mut connection)
            .await
            .unwrap()
    }

    /// A lock client as an instance has one.
    pub(crate) async fn locks(&self) -> Client {
        let client = Client::builder()
            .url(&self.redis)
            .namespace(&*self.namespace)
            .dedicated_thread(true);
        client.connect().await.unwrap()
    }

    /// Whether somebody listens for the release of a lock.
    pub(crate) async fn waits_for(&self, name: &str) -> bool {
        let mut connection = shared_server().connect().await.unwrap();
        let channels: Vec<String> = redis::cmd("PUBSUB")
            .arg("CHANNELS")
            .arg(format!("*{}:{name}*", self.namespace))
            .query_async(&mut connection)
            .await
            .unwrap();
        !channels.is_empty()
    }

    /// Has Redis forget a lock, as one does that loses its data.
    pub(crate) async fn forget_lock(&self, name: &str) {
        let mut connection = shared_server().connect().await.unwrap();
        let forgotten: u64 = redis::cmd("DEL")
            .arg(format!("{}:{name}", self.namespace))
            .query_async(&mut connection)
            .await
            .unwrap();
        assert_eq!(forgotten, 1, "{name} is not taken");
    }

    /// The keys that are left in Redis of these instances, but for what keeps others out of a job.
    pub(crate) async fn keys(&self) -> Vec<String> {
        let mut connection = shared_server().connect().await.unwrap();
        let keys: Vec<String> = redis::cmd("KEYS")
            .arg(format!("*{}*", self.namespace))
            .query_async(&mut connection)
            .await
            .unwrap();
        let kept = |key: &String| !key.ends_with(":prune") && !key.contains("token");
        keys.into_iter().filter(kept).collect()
    }

    fn new(database: String, directory: TempDir) -> Self {
        Self {
            redis: shared_server().url(),
            database,
            namespace: unique("app"),
            _directory: directory,
        }
    }

    /// Starts an instance.
    pub(crate) fn serve(&self, flags: &[&str]) -> Instance {
        self.try_serve(flags)
            .unwrap_or_else(|said| panic!("no instance: {said}"))
    }

    /// Starts an instance, or returns what it said instead.
    pub(crate) fn try_serve(&self, flags: &[&str]) -> Result<Instance, String> {
        let own = [
            "serve",
            "--port",
            "0",
            "--trust-user-header",
            "--redis",
            &self.redis,
            "--database",
            &self.database,
            "--namespace",
            &self.namespace,
            // A machine with much else to do takes its time to connect.
            "--database-timeout",
            "30s",
        ];
        Instance::start(&[&own, flags].concat())
    }
}

impl Instance {
    /// Starts the program, and waits until it says where it listens.
    pub(crate) fn start(arguments: &[&str]) -> Result<Self, String> {
        let mut process =
            ChildProcess::spawn(env!("CARGO_BIN_EXE_seckill"), arguments, |command| {
                command
                    .env("SECKILL_SECRET", SECRET)
                    .env("RUST_LOG", "info,seckill=debug")
                    .stdout(Stdio::piped())
                    .stderr(Stdio::piped());
            })
            .unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let errors = process.take_stderr().unwrap();
        let logged = Arc::clone(&log);
        let reader = thread::spawn(move || {
            for line in BufReader::new(errors).lines().map_while(Result::ok) {
                let mut log = logged.lock().unwrap();
                log.push_str(&line);
                log.push('\n');
            }
        });
        let mut lines = BufReader::new(process.take_stdout().unwrap()).lines();
        let address = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("listening on http://")?.parse().ok());
        let Some(address) = address else {
            reader.join().unwrap();
            let code = process.wait(LONG).and_then(|status| status.code());
            return Err(format!("{code:?} {}", log.lock().unwrap()));
        };
        Ok(Self {
            process,
            address,
            log,
        })
    }

    /// What it has logged so far.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Asks it to end, as `kill` does.
    pub(crate) fn terminate(&self) {
        let status = std::process::Command::new("kill")
            .args(["-TERM", &self.process.pid().to_string()])
            .status()
            .unwrap();
        assert!(status.success());
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.call("GET", path, "", "")
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.call("POST", path, "", &body.to_string())
    }

    /// A call of a user.
    pub(crate) fn as_user(&self, user: i64, method: &str, path: &str, body: &Value) -> Answer {
        let header = format!("x-user-id: {user}\r\n");
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        self.call(method, path, &header, &body)
    }

    pub(crate) fn order(&self, user: i64, voucher: &str) -> Answer {
        let path = format!("/api/voucher-orders/{voucher}/seckill");
        self.as_user(user, "POST", &path, &Value::Null)
    }

    /// The cookie of a new session of this user.
    pub(crate) fn session(&self, user: i64) -> String {
        let body = json!({ "user_id": user }).to_string();
        let request = format!(
            "POST /api/session HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n{JSON}content-length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        let mut text = String::new();
        // An answer has its head in lower case, and a signature is none without its case.
        self.open(request.as_bytes())
            .read_to_string(&mut text)
            .unwrap();
        let cookie = text
            .lines()
            .find_map(|line| line.strip_prefix("set-cookie: "));
        cookie.unwrap().split(';').next().unwrap().to_owned()
    }

    /// Makes a voucher and returns its id.
    pub(crate) fn voucher(&self, asked: &Value) -> String {
        let made = self.post("/api/vouchers", asked);
        assert_eq!(made.status, 201, "{made:?}");
        made.json()["id"].as_str().unwrap().to_owned()
    }

    /// Sends a request and reads the answer to its end.
    pub(crate) fn call(&self, method: &str, path: &str, headers: &str, body: &str) -> Answer {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n{headers}{JSON}\
             content-length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        self.raw(request.as_bytes())
    }

    /// Sends bytes and reads whatever comes back.
    pub(crate) fn raw(&self, request: &[u8]) -> Answer {
        let mut stream = self.open(request);
        let mut bytes = Vec::new();
        // What was refused in the middle may end with a reset, after the answer.
        let _ = stream.read_to_end(&mut bytes);
        Answer::parse(&String::from_utf8_lossy(&bytes))
    }

    /// Sends bytes and leaves the answer to be read.
    pub(crate) fn open(&self, request: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        let _ = stream.write_all(request);
        stream
    }
}

impl Answer {
    fn parse(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        let head = head.to_lowercase();
        let text = if head.contains("transfer-encoding: chunked") {
            unchunked(body)
        } else {
            body.to_owned()
        };
        Self {
            status: status.unwrap_or_default(),
            head,
            text,
        }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    /// Checks that it is a problem of this status and kind, with all that a problem has.
    #[track_caller]
    pub(crate) fn is_problem(&self, status: u16, kind: &str) {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(
            self.header("content-type"),
            Some("application/problem+json"),
            "{self:?}"
        );
        let problem = self.json();
        assert_eq!(problem["type"], format!("/problems/{kind}"), "{self:?}");
        assert_eq!(problem["status"], status, "{self:?}");
        for field in ["title", "detail"] {
            assert!(
                problem[field].as_str().is_some_and(|text| !text.is_empty()),
                "{self:?}"
            );
        }
    }
}

fn unchunked(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap_or(0);
        if size == 0 || rest.len() < size {
            break;
        }
        whole.push_str(&rest[..size]);
        body = rest[size..].trim_start_matches("\r\n");
    }
    whole
}
