//! The compile time of the attribute: a crate of 100 functions under it, beside the same crate with
//! plain `lock()` calls, with the work of the attribute written by hand, without locks, and with `lock()` calls
//! in methods as `async_trait` writes them, each of another type.
//!
//! ```text
//! cargo run --release -p benches --bin compile_cost [ROUNDS]
//! ```
//!
//! Each round builds every crate once, with compiled dependencies, one crate after the other. The
//! program prints medians over the rounds, and ratios to the crate of `lock()` calls. The goal is at
//! most 1.5.

#![allow(clippy::print_stdout, reason = "a report")]

use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const FUNCTIONS: usize = 100;
const ROUNDS: usize = 5;

/// Writes the function of this number.
type Function = fn(usize) -> String;

/// The way in which the functions of a crate acquire their locks.
const CRATES: [(&str, Function); 5] = [
    ("lock", by_lock),
    ("run", by_run),
    ("attribute", by_attribute),
    ("without", without),
    ("method", by_method),
];

fn body(n: usize) -> String {
    format!(
        "let order = load(user_id + {n}).await?;
        if order.total > limit {{
            return Err(Error::TooMuch(order.total));
        }}
        store(order, item).await"
    )
}

fn signature(n: usize) -> String {
    format!("pub async fn place_{n}(user_id: u64, item: &str, limit: u64) -> Result<String, Error>")
}

fn without(n: usize) -> String {
    format!("{} {{\n        {}\n}}\n", signature(n), body(n))
}

fn by_attribute(n: usize) -> String {
    format!(
        "#[distributed_lock(key = \"order_{n}:<user_id>\", wait = \"1s\")]\n{}",
        without(n)
    )
}

fn by_hand(n: usize, rest: &str) -> String {
    format!(
        "{} {{
    let client = redlock_rt::default_client().ok_or(Error::NoClient)?;
    let lock = client.rlock(format!(\"order_{n}:{{user_id}}\"));
    let guard = lock.lock_with(LockOptions::new().wait(Duration::from_secs(1))).await?;
    {rest}
    guard.unlock().await?;
    outcome
}}\n",
        signature(n),
    )
}

/// If the body fails, the release runs in the background.
fn by_lock(n: usize) -> String {
    let body = body(n);
    let (first, last) = body.rsplit_once('\n').unwrap_or_default();
    by_hand(n, &format!("{first}\n    let outcome = {last};"))
}

fn by_method(n: usize) -> String {
    let method = by_lock(n).replacen("pub async", "async", 1);
    format!(
        "mod shop_{n} {{
    use super::*;
    {method}
    struct Shop;
    impl Shop {{
        fn place<'a>(&'a self, user_id: u64, item: &'a str, limit: u64) -> Placed<'a>
        where
            Self: 'a,
        {{
            Box::pin(place_{n}(user_id, item, limit))
        }}
    }}
    pub async fn place(user_id: u64, item: &str, limit: u64) -> Result<String, Error> {{
        Shop.place(user_id, item, limit).await
    }}
}}
use shop_{n}::place as place_{n};
"
    )
}

fn by_run(n: usize) -> String {
    by_hand(
        n,
        &format!(
            "let outcome = guard.run(async move {{ {} }}).await?;",
            body(n)
        ),
    )
}

const HEAD: &str = "#![allow(unused_imports, dead_code)]
use std::time::Duration;
use redlock_rt::{LockOptions, distributed_lock};

#[derive(Debug)]
pub enum Error {
    NoClient,
    TooMuch(u64),
    Lock(redlock_rt::Error),
}

impl From<redlock_rt::Error> for Error {
    fn from(error: redlock_rt::Error) -> Self {
        Self::Lock(error)
    }
}

type Placed<'a> = std::pin::Pin<Box<dyn Future<Output = Result<String, Error>> + Send + 'a>>;

pub struct Order {
    pub id: u64,
    pub total: u64,
}

async fn load(id: u64) -> Result<Order, Error> {
    tokio::task::yield_now().await;
    Ok(Order { id, total: id * 3 })
}

async fn store(order: Order, item: &str) -> Result<String, Error> {
    tokio::task::yield_now().await;
    Ok(format!(\"{item} for {}\", order.id))
}

";

/// Calls everything, so that everything is compiled to the end.
fn main_function() -> String {
    let mut main = "#[tokio::main]\nasync fn main() -> Result<(), Error> {\n".to_owned();
    for n in 0..FUNCTIONS {
        let _ = writeln!(main, "    place_{n}(1, \"book\", 9).await?;");
    }
    main + "    Ok(())\n}\n"
}

fn write_crate(root: &Path, name: &str, function: Function) -> Result<(), Box<dyn Error>> {
    let library = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../redlock-rt")
        .canonicalize()?;
    let root = root.join(name);
    std::fs::create_dir_all(root.join("src"))?;
    std::fs::write(
        root.join("Cargo.toml"),
        format!(
            "[package]\nname = \"{name}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\
             [dependencies]\nredlock-rt = {{ path = {library:?} }}\n\
             tokio = {{ version = \"1\", features = [\"macros\", \"rt-multi-thread\"] }}\n"
        ),
    )?;
    let functions: String = (0..FUNCTIONS).map(function).collect();
    let source = format!("{HEAD}{functions}{}", main_function());
    std::fs::write(root.join("src/main.rs"), source)?;
    Ok(())
}

fn cargo(root: &Path, command: &str, members: &[&str]) -> Result<Duration, Box<dyn Error>> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.arg(command).arg("--quiet").current_dir(root);
    cargo
        .env("CARGO_INCREMENTAL", "0")
        .env("CARGO_TARGET_DIR", root.join("target"));
    for member in members {
        cargo.args(["-p", member]);
    }
    let started = Instant::now();
    let status = cargo.stdout(Stdio::null()).status()?;
    match status.success() {
        true => Ok(started.elapsed()),
        false => Err(format!("cargo {command} failed in {}", root.display()).into()),
    }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() -> Result<(), Box<dyn Error>> {
    let rounds = match std::env::args().nth(1) {
        Some(rounds) => rounds.parse()?,
        None => ROUNDS,
    };
    let root = tempfile::tempdir()?;
    let root = root.path();
    let names = CRATES.map(|(name, _)| name);
    for (name, function) in CRATES {
        write_crate(root, name, function)?;
    }
    let members = names.map(|name| format!("{name:?}")).join(", ");
    let workspace = format!("[workspace]\nresolver = \"3\"\nmembers = [{members}]\n");
    std::fs::write(root.join("Cargo.toml"), workspace)?;
    let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.lock");
    if lock.exists() {
        std::fs::copy(lock, root.join("Cargo.lock"))?;
    }
    for command in ["check", "build"] {
        cargo(root, command, &names)?;
        let mut times = names.map(|_| Vec::new());
        for _ in 0..rounds {
            for (name, times) in names.iter().zip(&mut times) {
                let source = root.join(name).join("src/main.rs");
                std::fs::File::open(&source)?.set_modified(std::time::SystemTime::now())?;
                times.push(cargo(root, command, &[name])?.as_secs_f64());
            }
        }
        let medians = times.map(median);
        for (name, time) in names.iter().zip(medians) {
            let ratio = time / medians[0];
            println!("{command:<6} {name:<10} {time:6.2} s  {ratio:5.2} of lock()");
        }
    }
    Ok(())
}
