//! One instance: the shop, its jobs, and the port on which it is served.

use std::io::{self, ErrorKind, Write};
use std::sync::Arc;
use std::time::Duration;

use cookie::Key;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::cli::{PaymentsArgs, ServeArgs};
use crate::client::base_url;
use crate::http::{self, App};
use crate::locks::Locks;
use crate::payment::{self, Payments, StubConfig};
use crate::rush::share;
use crate::service::{Shop, ShopConfig, ShopError};
use crate::store::{DatabaseUrl, Store};

/// Where the secret that signs sessions comes from: 64 bytes or more, the same for all instances.
pub(crate) const SECRET_VARIABLE: &str = "SECKILL_SECRET";

/// How long what is under way may take when the instance is to end.
const LAST_ANSWERS: Duration = Duration::from_secs(10);

/// How often this instance says that it is there, settles and prunes.
const BEAT: Duration = Duration::from_secs(1);

/// How often it looks whether there is a rush to take part in.
const LOOK: Duration = Duration::from_millis(100);

/// How long something of that may take: what hangs would keep its locks, which are renewed meanwhile.
const LONGEST_JOB: Duration = Duration::from_secs(10);

/// Serves until the process is told to end (Ctrl-C, SIGTERM).
///
/// # Errors
///
/// Why it cannot serve, in one line.
pub(crate) async fn run(args: &ServeArgs) -> Result<(), String> {
    let database = DatabaseUrl::argument(&args.database)?;
    let key = key()?;
    let listener = listen(&args.host, args.port).await?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    let locks = match &args.redis {
        Some(url) => Locks::connect(url, &args.namespace, 1).await,
        None => Locks::embedded(1, true).await,
    };
    let mut locks = locks.map_err(|error| error.to_string())?;
    let client = locks.clients.remove(0);
    let at_database = |error: &dyn std::fmt::Display| format!("--database: {error}");
    let store = Store::open(&database, args.database_timeout)
        .await
        .map_err(|error| at_database(&error))?;
    let payments = args.payments.as_deref().map(base_url).transpose();
    let payments = payments.map_err(|problem| format!("--payments: {problem}"))?;
    let config = ShopConfig {
        think: args.think,
        stall_one_in: args.stall_one_in,
        lock: args.lock,
        keep: args.keep,
        pace: args.pace,
    };
    let shop = Arc::new(Shop::new(
        client,
        locks.redis.clone(),
        store,
        payments.map(Payments::new),
        config,
    ));
    shop.migrate().await.map_err(|error| match error {
        ShopError::Store(error) => at_database(&error),
        other => other.to_string(),
    })?;

    let (close, closing) = watch::channel(false);
    // Another machine may have the same process and port.
    let (pid, port, random) = (std::process::id(), address.port(), fastrand::u32(..));
    let instance: Arc<str> = format!("{pid}-{port}-{random:08x}").into();
    let url = format!("http://{address}");
    let app = App {
        shop: Arc::clone(&shop),
        key: key.clone(),
        trust_user_header: args.trust_user_header,
        instance: Arc::clone(&instance),
        closing: closing.clone(),
    };
    // The row is written before the line below: the parent may look for the instance at once.
    shop.beat(&instance, &url)
        .await
        .map_err(|error| error.to_string())?;
    let jobs = jobs(&shop, &instance, &url, key);
    say(&format!("listening on {url}"));

    let until_stdin_ends = args.until_stdin_ends;
    let end = async move {
        end_of(until_stdin_ends).await;
        tracing::info!("closing");
        // An error means that nothing listens, because nothing is under way.
        let _ = close.send(true);
    };
    let mut closed = closing.clone();
    let serving = http::serve(listener, http::router(app), end);
    tokio::select! {
        () = serving => {}
        () = async {
            let _ = closed.wait_for(|closing| *closing).await;
            tokio::time::sleep(LAST_ANSWERS).await;
        } => {
            tracing::warn!("some answers are still under way and are given up");
        }
    }
    drop(jobs);
    if let Err(error) = shop.leave(&instance).await {
        tracing::debug!(%error, "the others will notice by themselves");
    }
    // A share may be on its way.
    let _ = tokio::time::timeout(LAST_ANSWERS, shop.close()).await;
    Ok(())
}

/// Stands in for the payment service until the process ends.
///
/// # Errors
///
/// Why it cannot, in one line.
pub(crate) async fn payment_stub(args: &PaymentsArgs) -> Result<(), String> {
    let listener = listen("127.0.0.1", args.port).await?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    say(&format!("listening on http://{address}"));
    let config = StubConfig {
        delay: args.delay,
        failures: args.failures,
    };
    tokio::select! {
        () = http::serve(listener, payment::stub(config), std::future::pending()) => {}
        () = end_of(args.until_stdin_ends) => {}
    }
    Ok(())
}

/// What an instance does by itself. When this is dropped it ends, but for a share that is taken.
fn jobs(shop: &Arc<Shop>, instance: &Arc<str>, own_url: &str, key: Key) -> JoinSet<()> {
    let mut jobs = JoinSet::new();
    let (beating, name, url) = (Arc::clone(shop), Arc::clone(instance), own_url.to_owned());
    jobs.spawn(every(BEAT, "beat", async move || {
        beating.beat(&name, &url).await
    }));
    let settling = Arc::clone(shop);
    jobs.spawn(every(BEAT, "settle", async move || {
        settling.settle().await.map(drop)
    }));
    let pruning = Arc::clone(shop);
    jobs.spawn(every(BEAT, "prune", async move || {
        pruning.prune().await.map(drop)
    }));
    let own: (Arc<str>, Arc<str>) = (Arc::clone(instance), own_url.into());
    let shop = Arc::clone(shop);
    jobs.spawn(every(LOOK, "rush", async move || {
        let (shop, own, key) = (Arc::clone(&shop), own.clone(), key.clone());
        // A task of its own: a share that is taken after the limit is driven too.
        let taking = tokio::spawn(async move {
            if let Some((share, rush)) = shop.take_share(&own.0).await? {
                tokio::spawn(share::drive(shop, own, key, share, rush));
            }
            Ok(())
        });
        taking.await.unwrap_or(Ok(()))
    }));
    jobs
}

/// Does something again and again. What fails is logged, and tried again at the next time.
async fn every(
    period: Duration,
    what: &'static str,
    mut job: impl AsyncFnMut() -> Result<(), ShopError>,
) {
    let mut ticks = tokio::time::interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut failing = false;
    loop {
        ticks.tick().await;
        let done = match tokio::time::timeout(LONGEST_JOB, job()).await {
            Ok(done) => done.map_err(|error| error.to_string()),
            Err(late) => Err(late.to_string()),
        };
        match done {
            Ok(()) => failing = false,
            // Once an outage.
            Err(error) if !failing => {
                tracing::warn!(%error, job = what, "failed");
                failing = true;
            }
            Err(error) => tracing::debug!(%error, job = what, "failed again"),
        }
    }
}

pub(crate) async fn listen(host: &str, port: u16) -> Result<TcpListener, String> {
    TcpListener::bind((host, port)).await.map_err(|error| {
        let flag = match error.kind() {
            ErrorKind::AddrInUse | ErrorKind::PermissionDenied => "--port",
            _ => "--host",
        };
        format!("{flag}: cannot listen on {host}:{port}: {}", plain(&error))
    })
}

/// The error of an operating system without its number.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error")
        .next()
        .unwrap_or_default()
        .to_lowercase()
}

fn key() -> Result<Key, String> {
    match std::env::var(SECRET_VARIABLE) {
        Ok(secret) => Key::try_from(secret.as_bytes())
            .map_err(|_| format!("{SECRET_VARIABLE}: expected 64 bytes or more")),
        Err(_) => {
            tracing::warn!("{SECRET_VARIABLE} is not set: sessions are of this instance alone");
            Ok(Key::generate())
        }
    }
}

/// Waits until this process is asked to end, or its parent has.
async fn end_of(until_stdin_ends: bool) {
    tokio::select! {
        () = asked_to_end() => {}
        () = stdin_ended(), if until_stdin_ends => {}
    }
}

/// Waits for Ctrl-C, or what `kill` sends.
pub(crate) async fn asked_to_end() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminated) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminated.recv() => {}
            }
            return;
        }
    }
    // No signal can be waited for: then none ends it gracefully.
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Waits for the end of standard input. Nothing else is expected of it.
async fn stdin_ended() {
    let (ended, end) = tokio::sync::oneshot::channel();
    // Reading it blocks, so a thread does; the process does not wait for that.
    std::thread::spawn(move || {
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        let _ = ended.send(());
    });
    let _ = end.await;
}

/// Writes a line to standard output, at once.
pub(crate) fn say(line: &str) {
    let mut out = io::stdout().lock();
    // The reader may have gone away. That is no reason to end.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It kept its locks for ever, and the other instances out.
    #[tokio::test(start_paused = true)]
    async fn a_job_that_hung_was_never_given_up() {
        let mut begun = 0;
        let hang = async || {
            begun += 1;
            std::future::pending().await
        };
        let end = tokio::time::timeout(3 * LONGEST_JOB, every(BEAT, "hang", hang));
        end.await.unwrap_err();
        assert!(begun > 1, "{begun}");
    }
}
