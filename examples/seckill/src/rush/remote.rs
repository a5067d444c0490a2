//! A rush on instances that run already, over HTTP.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::stream::{self, StreamExt, TryStreamExt};
use serde::Serialize;
use serde_json::{Value, json};

use super::crowd::{Crowd, Tally};
use super::problems::Problems;
use crate::cli::{FaultAt, RushArgs};
use crate::client::{HttpClient, Reply, base_url};
use crate::service::{LockKind, now};

/// How long an instance may take to say anything.
const PATIENCE: Duration = Duration::from_secs(20);

/// How many sessions are begun at a time.
const LOGINS: usize = 32;

/// The sale goes on for longer than any rush, in milliseconds.
const LASTS: i64 = 3_600_000;

/// How often the bar is drawn.
const DRAWN: Duration = Duration::from_millis(100);

/// How often what breaks something looks for the first answer.
const LOOKED: Duration = Duration::from_millis(5);

/// How a request may end where nothing is broken.
const EXPECTED: [&str; 4] = ["ordered", "already-ordered", "sold-out", "busy"];

/// The outcome. Its fields are the fields of `--json`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RemoteSummary {
    pub(crate) users: u64,
    pub(crate) stock: u64,
    pub(crate) requests_per_user: u32,
    pub(crate) concurrency: u32,
    pub(crate) lock: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fault: Option<String>,
    pub(crate) requests: u64,
    /// Requests by how they ended.
    pub(crate) ends: BTreeMap<String, u64>,
    /// Rows of the orders table.
    pub(crate) sold: u64,
    /// Rows beyond the first of each user.
    pub(crate) duplicates: u64,
    /// Rows beyond the stock at the start.
    pub(crate) oversold: u64,
    pub(crate) seconds: f64,
    pub(crate) requests_per_second: f64,
    pub(crate) latency_p50_us: u64,
    pub(crate) latency_p99_us: u64,
    #[serde(skip)]
    pub(crate) voucher_id: String,
}

/// Creates a sale on the first of the targets, sends all users there and reads the books.
///
/// # Errors
///
/// The sale could not be held: there is no instance, or it refuses what the rush needs.
pub(crate) async fn run(args: &RushArgs) -> Result<RemoteSummary, Box<dyn Error>> {
    let http = HttpClient::new(PATIENCE);
    let targets: Vec<String> = args
        .http
        .iter()
        .map(|url| base_url(url).map_err(|problem| format!("--http {url}: {problem}")))
        .collect::<Result<_, _>>()?;
    let shop = &targets[0];
    let begins_at = now();
    let asked = json!({
        "name": format!("Rush {}", uuid::Uuid::now_v7()),
        "price_cents": 1000,
        "sale": {
            "stock": args.stock,
            "begins_at": begins_at,
            "ends_at": begins_at + LASTS,
            "lock": args.lock.as_str(),
            "stall_one_in": args.stall_one_in,
        },
    });
    let made = http
        .post(&format!("{shop}/api/vouchers"), None, Some(&asked))
        .await;
    let made = made.map_err(|error| format!("--http {shop}: {error}"))?;
    let voucher_id = text(&made, "id").map_err(|error| format!("--http {shop}: {error}"))?;
    let crowd = Crowd {
        sessions: sessions(&http, &targets, args.users).await?,
        targets: targets.clone(),
        voucher_id: voucher_id.clone(),
        requests_per_user: args.requests_per_user as usize,
        concurrency: args.concurrency as usize,
    };

    let tally = Arc::new(Mutex::new(Tally::new()));
    let progress = super::progress(args.requests());
    let drawing = async {
        loop {
            tokio::time::sleep(DRAWN).await;
            let ended = tally.lock().unwrap_or_else(PoisonError::into_inner).ended();
            progress.set_position(ended);
        }
    };
    let striking = strike(&http, shop, args.fault.as_ref(), &tally);
    let started = Instant::now();
    let rushing = async {
        crowd.rush(&tally).await;
        started.elapsed()
    };
    let both = futures::future::join(rushing, striking);
    let (took, struck) = tokio::select! {
        done = both => done,
        never = drawing => never,
    };
    progress.finish_and_clear();
    struck?;

    let books = books(&http, shop, &voucher_id).await?;
    let count = |field: &str| books[field].as_u64().unwrap_or_default();
    let tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
    let seconds = took.as_secs_f64();
    Ok(RemoteSummary {
        users: u64::from(args.users),
        stock: u64::from(args.stock),
        requests_per_user: args.requests_per_user,
        concurrency: args.concurrency,
        lock: args.lock.as_str(),
        fault: args.fault.as_ref().map(ToString::to_string),
        requests: args.requests(),
        ends: tally.ends.clone(),
        sold: count("sold"),
        duplicates: count("duplicates"),
        oversold: count("sold").saturating_sub(u64::from(args.stock)),
        seconds,
        requests_per_second: args.requests() as f64 / seconds,
        latency_p50_us: tally.latencies.value_at_quantile(0.50),
        latency_p99_us: tally.latencies.value_at_quantile(0.99),
        voucher_id,
    })
}

impl RemoteSummary {
    /// What went wrong: empty means that the sale came out right.
    pub(crate) fn problems(&self, lock: LockKind) -> Vec<String> {
        let mut problems = Problems::default();
        problems.accounted(self.ends.values().sum(), self.requests);
        let ordered = self.ends.get("ordered").copied().unwrap_or_default();
        problems.unless(self.sold >= ordered, || {
            format!(
                "{ordered} orders were answered and {} are in the table",
                self.sold
            )
        });
        // A Redis that forgets may give a plain lock twice: that is what the fault is there to show.
        let forgets = self
            .fault
            .as_ref()
            .is_some_and(|fault| fault.contains("without-data"));
        if lock == LockKind::Fenced || (lock == LockKind::Rlock && !forgets) {
            problems.duplicates(self.duplicates);
        }
        problems.oversold(self.oversold);
        if lock.is_sound() && self.fault.is_none() {
            for (end, count) in &self.ends {
                problems.unless(EXPECTED.contains(&end.as_str()), || {
                    format!("{count} requests ended as {end}")
                });
            }
            let busy = self.ends.get("busy").copied().unwrap_or_default();
            problems.busy(busy, self.requests);
            problems.sold(self.sold, self.stock.min(self.users));
        }
        problems.into()
    }
}

impl fmt::Display for RemoteSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} users × {} requests for {} vouchers over HTTP, {} requests in flight, lock {}{}",
            self.users,
            self.requests_per_user,
            self.stock,
            self.concurrency,
            self.lock,
            self.fault
                .as_ref()
                .map(|fault| format!(", fault {fault}"))
                .unwrap_or_default(),
        )?;
        writeln!(f)?;
        let mut row = |name: &str, count: u64| writeln!(f, "  {name:<24}{count:>8}");
        row("requests", self.requests)?;
        for (end, count) in &self.ends {
            row(&format!("  {end}"), *count)?;
        }
        row("sold", self.sold)?;
        row("duplicate orders", self.duplicates)?;
        row("oversold", self.oversold)?;
        writeln!(f)?;
        writeln!(
            f,
            "{:.2} s, {:.0} requests per second, latency p50 {:.1} ms, p99 {:.1} ms",
            self.seconds,
            self.requests_per_second,
            self.latency_p50_us as f64 / 1000.0,
            self.latency_p99_us as f64 / 1000.0,
        )
    }
}

/// Has every user ask once more, and returns how many were refused because somebody has their lock.
///
/// # Errors
///
/// The sessions cannot be begun.
pub(crate) async fn again(args: &RushArgs, voucher_id: &str) -> Result<u64, Box<dyn Error>> {
    let http = HttpClient::new(PATIENCE);
    let crowd = Crowd {
        sessions: sessions(&http, &args.http, args.users).await?,
        targets: args.http.clone(),
        voucher_id: voucher_id.to_owned(),
        requests_per_user: 1,
        concurrency: args.concurrency as usize,
    };
    let tally = Arc::new(Mutex::new(Tally::new()));
    crowd.rush(&tally).await;
    let tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(tally.ends.get("busy").copied().unwrap_or_default())
}

/// Begins a session for each user, before the rush.
async fn sessions(
    http: &HttpClient,
    targets: &[String],
    users: u32,
) -> Result<Vec<String>, String> {
    stream::iter(1..=users)
        .map(|user| async move {
            let target = &targets[user as usize % targets.len()];
            let url = format!("{target}/api/session");
            let begun = http
                .post(&url, None, Some(&json!({ "user_id": user })))
                .await;
            let cookie = begun
                .ok()
                .and_then(|reply| reply.set_cookie)
                .and_then(|cookie| Some(cookie.split(';').next()?.to_owned()));
            cookie.ok_or_else(|| format!("--http {target}: it begins no session"))
        })
        .buffered(LOGINS)
        .try_collect()
        .await
}

/// Breaks what is to be broken, when it is to be broken. On a busy machine the first answer may take
/// longer than that time.
async fn strike(
    http: &HttpClient,
    shop: &str,
    fault: Option<&FaultAt>,
    tally: &Mutex<Tally>,
) -> Result<(), String> {
    let Some(FaultAt { name, at }) = fault else {
        return Ok(());
    };
    while tally.lock().unwrap_or_else(PoisonError::into_inner).ended() == 0 {
        tokio::time::sleep(LOOKED).await;
    }
    tokio::time::sleep(*at).await;
    let struck = http.post(&format!("{shop}/chaos/{name}"), None, None).await;
    let reply = struck.map_err(|error| format!("--fault {name}: {error}"))?;
    match reply.status {
        200 => Ok(()),
        404 => Err(format!(
            "--fault {name}: nothing at {shop} knows it; is it `up --chaos`?"
        )),
        _ => Err(format!("--fault {name}: {}", detail(&reply))),
    }
}

/// The books, from an instance that may be about to come back.
async fn books(http: &HttpClient, shop: &str, voucher: &str) -> Result<Value, String> {
    let url = format!("{shop}/api/vouchers/{voucher}/books");
    let until = Instant::now() + PATIENCE;
    loop {
        match http.get(&url).await {
            Ok(reply) if reply.status == 200 => return Ok(reply.json()),
            _ if Instant::now() < until => tokio::time::sleep(DRAWN).await,
            Ok(reply) => return Err(format!("the books: status {}", reply.status)),
            Err(error) => return Err(format!("the books: {error}")),
        }
    }
}

fn text(reply: &Reply, field: &str) -> Result<String, String> {
    let said = reply.json();
    match said[field].as_str() {
        Some(text) => Ok(text.to_owned()),
        None => Err(detail(reply)),
    }
}

/// What is wrong, in the words of a shop.
fn detail(reply: &Reply) -> String {
    match reply.json()["detail"].as_str() {
        Some(detail) => detail.to_owned(),
        None => format!("it is no shop: status {}", reply.status),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(ends: &[(&str, u64)], sold: u64) -> RemoteSummary {
        RemoteSummary {
            users: 100,
            stock: 30,
            requests_per_user: 3,
            concurrency: 64,
            lock: "rlock",
            fault: None,
            requests: 300,
            ends: ends
                .iter()
                .map(|(end, count)| ((*end).to_owned(), *count))
                .collect(),
            sold,
            duplicates: 0,
            oversold: 0,
            seconds: 1.0,
            requests_per_second: 300.0,
            latency_p50_us: 1_000,
            latency_p99_us: 9_000,
            voucher_id: String::new(),
        }
    }

    #[test]
    fn a_sale_that_sold_nothing_came_out_right() {
        let good = ended(&[("ordered", 30), ("sold-out", 267), ("busy", 3)], 30);
        assert_eq!(good.problems(LockKind::Rlock), [""; 0]);
        let nothing = ended(&[("sold-out", 296), ("busy", 4)], 0);
        let problems = [
            "4 of 300 requests were refused as busy, over 1 %",
            "0 sold where 30 should have been",
        ];
        assert_eq!(nothing.problems(LockKind::Fenced), problems);
        // Where something is broken, and under a lock that is there to be seen failing.
        assert_eq!(nothing.problems(LockKind::Setnx), [""; 0]);
        let fault = Some("kill@1s".to_owned());
        let broken = RemoteSummary { fault, ..nothing };
        assert_eq!(broken.problems(LockKind::Rlock), [""; 0]);
    }
}
