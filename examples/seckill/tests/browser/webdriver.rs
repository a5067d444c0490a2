//! Chromium by way of chromedriver: a browser of its own for each test, with an empty profile, gone
//! at the end.

use std::fmt;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Method, Request};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tempfile::TempDir;
use tests::{ChildProcess, is_alive};

use crate::LONG;

const MISSING: &str = "the browser tests run a real Chromium. Install it (Debian: `apt-get install \
     --no-install-recommends chromium chromium-driver`)";

/// With a pipe to its driver the browser ends when the driver does, however that ends.
const FLAGS: [&str; 10] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
];

/// The keys of the keyboard that are no characters, as WebDriver names them.
pub(crate) const TAB: char = '\u{E004}';
pub(crate) const ENTER: char = '\u{E007}';

/// A browser with one window.
pub(crate) struct Browser {
    session: String,
    pid: u32,
    http: Client<HttpConnector, Full<Bytes>>,
    driver: ChildProcess,
    _profile: TempDir,
}

impl Browser {
    /// Starts a browser.
    pub(crate) async fn start() -> Self {
        let profile = tempfile::tempdir().unwrap();
        let (driver, port) = start_driver(profile.path());
        let mut browser = Self {
            session: format!("http://127.0.0.1:{port}/session"),
            pid: 0,
            http: Client::builder(TokioExecutor::new()).build_http(),
            driver,
            _profile: profile,
        };
        let data = format!("--user-data-dir={}", browser._profile.path().display());
        let arguments: Vec<_> = FLAGS.into_iter().chain([&*data]).collect();
        let capabilities = json!({ "capabilities": { "alwaysMatch": {
            "goog:chromeOptions": { "args": arguments },
            "goog:loggingPrefs": { "browser": "ALL" },
        }}});
        let session = browser.call(Method::POST, "", &capabilities).await;
        let session = session.unwrap_or_else(|error| panic!("{error}\n{MISSING}"));
        let pid = session["capabilities"]["goog:processID"].as_u64();
        browser.pid = u32::try_from(pid.unwrap()).unwrap();
        browser.session += &format!("/{}", session["sessionId"].as_str().unwrap());
        browser
    }

    /// Ends the browser, and waits for that.
    pub(crate) async fn quit(self) {
        self.call(Method::DELETE, "", &Value::Null).await.unwrap();
        assert!(!is_alive(self.pid), "the browser goes on");
    }

    /// Opens a page, and waits until it is loaded.
    pub(crate) async fn open(&self, url: &str) {
        self.post("/url", &json!({ "url": url })).await;
    }

    /// What a script returns, the body of a function.
    pub(crate) async fn run(&self, script: &str, arguments: &[&str]) -> Value {
        self.post(
            "/execute/sync",
            &json!({ "script": script, "args": arguments }),
        )
        .await
    }

    /// The text that an element shows.
    pub(crate) async fn text(&self, id: &str) -> String {
        let script = "return document.getElementById(arguments[0])?.innerText ?? 'nothing there'";
        let text = self.run(script, &[id]).await;
        text.as_str().unwrap().to_owned()
    }

    /// Presses and releases keys, wherever the focus is.
    pub(crate) async fn press(&self, keys: impl IntoIterator<Item = char>) {
        let strokes = keys.into_iter().flat_map(|key| {
            ["keyDown", "keyUp"].map(|kind| json!({ "type": kind, "value": key.to_string() }))
        });
        let strokes: Vec<_> = strokes.collect();
        let keyboard = json!({ "type": "key", "id": "keyboard", "actions": strokes });
        self.post("/actions", &json!({ "actions": [keyboard] }))
            .await;
    }

    /// Clicks on an element, which nothing may cover.
    pub(crate) async fn click(&self, id: &str) {
        let element = self.element(id).await;
        self.post(&format!("/element/{element}/click"), &json!({}))
            .await;
    }

    /// Writes into a field in place of what is in it.
    pub(crate) async fn fill(&self, id: &str, text: &str) {
        let element = self.element(id).await;
        self.post(&format!("/element/{element}/clear"), &json!({}))
            .await;
        self.post(
            &format!("/element/{element}/value"),
            &json!({ "text": text }),
        )
        .await;
    }

    /// Gives the browser a screen of this size.
    pub(crate) async fn screen(&self, width: u32, height: u32) {
        let metrics = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600,
        });
        self.devtools("Emulation.setDeviceMetricsOverride", &metrics)
            .await;
    }

    /// Prefers `light` or `dark`.
    pub(crate) async fn scheme(&self, scheme: &str) {
        let feature = json!({ "name": "prefers-color-scheme", "value": scheme });
        self.devtools(
            "Emulation.setEmulatedMedia",
            &json!({ "features": [feature] }),
        )
        .await;
    }

    /// What was written on the console since this was asked last: source, level and text.
    pub(crate) async fn console(&self) -> Vec<(String, String)> {
        let entries = self.post("/se/log", &json!({ "type": "browser" })).await;
        let told = |entry: &Value| {
            let source = entry["source"].as_str().unwrap().to_owned();
            (source, format!("{}: {}", entry["level"], entry["message"]))
        };
        entries.as_array().unwrap().iter().map(told).collect()
    }

    /// What the screen shows, as a PNG file.
    pub(crate) async fn picture(&self) -> Vec<u8> {
        let picture = self
            .call(Method::GET, "/screenshot", &Value::Null)
            .await
            .unwrap();
        BASE64_STANDARD.decode(picture.as_str().unwrap()).unwrap()
    }

    async fn element(&self, id: &str) -> String {
        let by = json!({ "using": "css selector", "value": format!("#{id}") });
        let found = self.post("/element", &by).await;
        let reference = found.as_object().unwrap().values().next().unwrap();
        reference.as_str().unwrap().to_owned()
    }

    async fn devtools(&self, command: &str, parameters: &Value) {
        let command = json!({ "cmd": command, "params": parameters });
        self.post("/goog/cdp/execute", &command).await;
    }

    async fn post(&self, path: &str, body: &Value) -> Value {
        let answer = self.call(Method::POST, path, body).await;
        answer.unwrap_or_else(|error| panic!("{path} {body}: {error}"))
    }

    /// A command of the session.
    async fn call(&self, method: Method, path: &str, body: &Value) -> Result<Value, String> {
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.session))
            .body(Full::from(body))
            .unwrap();
        let answered = async {
            let answer = self.http.request(request).await.unwrap();
            let good = answer.status().is_success();
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            (
                good,
                serde_json::from_slice::<Value>(&body).unwrap()["value"].take(),
            )
        };
        let (good, mut value) = tests::within(LONG, answered).await;
        if good {
            Ok(value)
        } else {
            Err(value["message"].take().to_string())
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        self.driver.kill();
        // The profile can go when nobody writes into it.
        let end = Instant::now() + Duration::from_secs(5);
        while self.pid != 0 && is_alive(self.pid) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl fmt::Debug for Browser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Browser")
            .field("session", &self.session)
            .finish_non_exhaustive()
    }
}

/// Starts a driver, and returns the port that it has chosen. It chooses a port that is free for IPv4, and gives
/// up where another process has that one for IPv6: then it is to choose again.
fn start_driver(home: &Path) -> (ChildProcess, u16) {
    loop {
        let (driver, said) = try_driver(home);
        match said {
            Said::Port(port) => return (driver, port),
            Said::Taken => {}
            Said::Else => panic!("no `chromedriver` runs: {MISSING}"),
        }
    }
}

/// What a driver says when it starts.
enum Said {
    Port(u16),
    Taken,
    Else,
}

fn try_driver(home: &Path) -> (ChildProcess, Said) {
    let mut driver = ChildProcess::spawn("chromedriver", ["--port=0"], |command| {
        // What Chromium keeps beside its profile goes there too.
        command
            .env("XDG_CONFIG_HOME", home)
            .env("XDG_CACHE_HOME", home)
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
    })
    .unwrap();
    let said = BufReader::new(driver.take_stdout().unwrap())
        .lines()
        .map_while(Result::ok);
    let heard = said.filter_map(|line| {
        if line.contains("port not available") {
            return Some(Said::Taken);
        }
        let port = line.strip_suffix('.')?.rsplit_once("on port ")?.1;
        port.parse().ok().map(Said::Port)
    });
    let heard = { heard }.next().unwrap_or(Said::Else);
    (driver, heard)
}
