//! Connections without traffic.

use redlock_rt::Client;
use tests::{DEADLINE, RedisServer, eventually, trace_init, waits};

/// A gateway forgot the connection meanwhile, and the next call had no answer.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn an_idle_connection_gave_no_sign_of_life() {
    trace_init();
    let server = RedisServer::start();
    let client = || Client::builder().url(&server.url()).build().unwrap();
    let (holder, client) = (client(), client());
    let _guard = holder.rlock("a").lock().await.unwrap();
    let lock = client.rlock("a");
    let waiting = tokio::spawn(async move { lock.lock().await });
    waits(&client, 1).await;
    let remote = format!("0100007F:{:04X}", server.port());
    // Of each connection to the server: its timer, and when that ends, in hundredths of a second.
    let timers = || {
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let rows = table.lines().filter_map(|row| {
            let row: Vec<_> = row.split_whitespace().collect();
            let (timer, rest) = row[5].split_once(':')?;
            let rest = u64::from_str_radix(rest, 16).ok()?;
            (row[2] == remote && row[3] == "01").then(|| (timer.to_owned(), rest))
        });
        rows.collect::<Vec<_>>()
    };
    eventually(DEADLINE, async || {
        let timers = timers();
        let is_keepalive = |(timer, rest): &(String, u64)| timer == "02" && *rest <= 3000;
        let verdict = timers.len() >= 3 && timers.iter().all(is_keepalive);
        verdict.then_some(()).ok_or_else(|| format!("{timers:?}"))
    })
    .await;
    waiting.abort();
}
