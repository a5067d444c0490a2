//! A process whose tasks take turns at locks of all kinds, and write down what their guards say.

use std::{
    env,
    fs::File,
    io::{self, Write},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use redis::{AsyncCommands, aio::MultiplexedConnection};
use redlock_rt::{
    Client, ClientBuilder, Error, ErrorKind, FencedValue, Quorum, ReplicaAck, Shutdown,
};
use tests::{connection_to, stdin_is_closed};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{
    Failure,
    event::{self, Act, Journal, Stage, nanos, now},
    meet,
    row::Row,
    subject::{COUNTERS, Clients, Guard, Handle, IN_POSTGRES, KINDS},
};

/// The lease of all locks on these servers: where replicas are waited for, longer than a failover takes.
pub(crate) fn lease(servers: &str) -> Duration {
    Duration::from_secs(if servers.starts_with("ack") { 2 } else { 1 })
}

/// The variable with the URL of the database.
pub(crate) const POSTGRES: &str = "NEMESIS_POSTGRES";
/// Long, so that a lost wake-up is seen.
const POLL: Duration = Duration::from_secs(3);
/// How long a caller waits for a lock.
pub(crate) const WAIT: Duration = Duration::from_secs(5);
/// The error of a call that has outlived its wait by far.
pub(crate) const HUNG: &str = "hung";
/// Between two questions to a guard.
const LOOK: Duration = Duration::from_millis(5);

/// Ends with its stdin. `only`: a kind, or `all`. `servers`: a URL, or `red:`, `ack:` or `cluster:` and URLs with commas between.
pub(crate) fn run(
    only: &str,
    servers: &str,
    store: &str,
    start: &str,
    tasks: u32,
    log: &Path,
) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let log: &'static File = Box::leak(Box::new(event::open(log)?));
    let stopped = Arc::new(AtomicBool::new(false));
    runtime.block_on(async {
        let (clients, all) = connect(servers)?;
        let store_client = Client::connect(store).await?;
        let mut contenders = JoinSet::new();
        let kinds = KINDS.split(' ').chain(["redlock"]);
        let journal = |task: u32, subject: &str| Journal {
            file: log,
            task,
            subject: subject.to_owned(),
        };
        for (number, kind) in (0..).zip(kinds) {
            for task in (0..tasks).map(|task| number * tasks + task) {
                let handle = clients.handle(kind, start);
                let Some(handle) = handle.filter(|_| [kind, "all"].contains(&only)) else {
                    continue;
                };
                let (journal, stopped) = (journal(task, kind), Arc::clone(&stopped));
                contenders.spawn(contend(handle, lease(servers), journal, stopped));
            }
        }
        if let Some(client) = clients.one().filter(|_| only == "all") {
            for task in 500..500 + tasks {
                let barrier = client.cyclic_barrier(format!("{start}:barrier"), meet::PARTIES);
                let (at_barrier, ends) = (journal(task, "barrier"), Arc::clone(&stopped));
                contenders.spawn(meet::at_barrier(barrier, at_barrier, ends));
                let (client, start) = (client.clone(), start.to_owned());
                let (at_latches, ends) = (journal(task + 100, "latch"), Arc::clone(&stopped));
                contenders.spawn(meet::at_latches(client, start, at_latches, ends));
            }
        }
        let around = match &clients {
            Clients::One(_) => COUNTERS,
            Clients::Five(_) => &["off", "redlock"],
        };
        for (number, kind) in (1000..).zip(around) {
            let counter = Counter::of(kind, &clients, start, store, &store_client).await?;
            let Some(counter) = counter else { continue };
            let journal = journal(number, &format!("count:{kind}"));
            contenders.spawn(count(counter, journal, Arc::clone(&stopped)));
        }
        writeln!(io::stdout(), "ready")?;
        stdin_is_closed().await;
        stopped.store(true, Ordering::Relaxed);
        contenders.join_all().await;
        for client in all.iter().chain([&store_client]) {
            client.shutdown(Shutdown::ReleaseAll).await?;
        }
        Ok(())
    })
}

fn connect(servers: &str) -> Result<(Clients, Vec<Client>), Failure> {
    let builder = || Client::builder().lease(lease(servers)).poll_interval(POLL);
    let one = |builder: ClientBuilder| {
        let client = builder.build()?;
        Ok::<_, Error>((Clients::One(client.clone()), vec![client]))
    };
    Ok(match servers.split_once(':') {
        Some(("red", urls)) => {
            let clients = urls.split(',').map(|url| builder().url(url).build());
            let clients = clients.collect::<Result<Vec<_>, _>>()?;
            (Clients::Five(Quorum::new(clients.clone())?), clients)
        }
        Some(("cluster", urls)) => one(builder().cluster(urls.split(',')))?,
        Some(("ack", url)) => one(builder().url(url).replica_ack(ReplicaAck::All))?,
        _ => one(builder().url(servers))?,
    })
}

/// One of ten waits is given up, at any point of its way.
pub(crate) fn patience() -> Duration {
    match fastrand::u8(..10) {
        0 => Duration::from_millis(fastrand::u64(..30)),
        _ => WAIT * 2,
    }
}

/// Behind a body, and behind a wait for others.
pub(crate) fn rest() -> Duration {
    Duration::from_millis(match fastrand::u8(..10) {
        // Long enough that who waits has to be woken.
        0 => fastrand::u64(300..1000),
        _ => fastrand::u64(..10),
    })
}

/// A call has not ended for so long: it is given up on purpose, or else it should have ended by itself.
pub(crate) fn given_up(journal: &Journal<'_>, act: Act, patience: Duration) {
    // Who campaigns waits for as long as it takes.
    let hung = patience > WAIT && journal.subject != "leader";
    let (stage, error) = match hung {
        true => (Stage::Fail, Some(HUNG.to_owned())),
        false => (Stage::Info, None),
    };
    journal.note_at(now(), act, stage, None, error);
}

/// An acquisition, written down.
async fn acquire(handle: &dyn Handle, journal: &Journal<'_>) -> Option<Box<dyn Guard>> {
    journal.note(Act::Lock, Stage::Invoke);
    let patience = patience();
    let Ok(acquired) = timeout(patience, handle.acquire(WAIT)).await else {
        given_up(journal, Act::Lock, patience);
        return None;
    };
    match acquired {
        Ok(guard) => {
            journal.note_at(now(), Act::Lock, Stage::Ok, guard.token(), None);
            Some(guard)
        }
        Err(error) => {
            journal.note_at(
                now(),
                Act::Lock,
                Stage::Fail,
                None,
                Some(format!("{:?}", error.kind())),
            );
            // As callers do, without a storm where errors come at once.
            sleep(Duration::from_millis(20)).await;
            None
        }
    }
}

/// The body: it looks at the guard, and goes on to its end whatever the guard says.
async fn body(guard: &dyn Guard, journal: &Journal<'_>, lasts: Duration) {
    let (mut valid, end) = (true, now() + nanos(lasts));
    while now() < end {
        // Taken before the question, so a pause between both makes nothing valid that was not.
        let at = now();
        if valid && !guard.is_valid() {
            valid = false;
            journal.note(Act::Lost, Stage::Ok);
        } else if valid {
            journal.note_at(at, Act::Valid, Stage::Ok, None, None);
        }
        sleep(LOOK).await;
    }
    let at = now();
    if valid && guard.is_valid() {
        journal.note_at(at, Act::Valid, Stage::Ok, None, None);
    }
}

async fn end(guard: Box<dyn Guard>, journal: &Journal<'_>) {
    journal.note(Act::End, Stage::Invoke);
    let (stage, error) = match guard.end().await {
        Ok(()) => (Stage::Ok, None),
        Err(error) => (Stage::Info, Some(format!("{:?}", error.kind()))),
    };
    journal.note_at(now(), Act::End, stage, None, error);
}

async fn contend(
    handle: Box<dyn Handle>,
    lease: Duration,
    journal: Journal<'static>,
    stopped: Arc<AtomicBool>,
) {
    while !stopped.load(Ordering::Relaxed) {
        if let Some(guard) = acquire(&*handle, &journal).await {
            let lasts = match fastrand::u8(..100) {
                ..90 => fastrand::u64(1..12),
                90..98 => fastrand::u64(20..80),
                _ => fastrand::u64(1000..1500) * lease.as_secs(),
            };
            body(&*guard, &journal, Duration::from_millis(lasts)).await;
            end(guard, &journal).await;
        }
        sleep(rest()).await;
    }
}

struct Counter {
    /// `None`: no lock.
    handle: Option<Box<dyn Handle>>,
    store: Store,
}

impl Counter {
    /// `None`: its store is not there.
    async fn of(
        kind: &str,
        clients: &Clients,
        start: &str,
        url: &str,
        client: &Client,
    ) -> Result<Option<Self>, Failure> {
        let key = format!("{start}:counter:{kind}");
        let (mut lock, mut name) = (kind, format!("{start}:count"));
        let store = match (kind, env::var(POSTGRES)) {
            ("fenced", _) => Store::Redis(client.fenced_value(key)),
            (IN_POSTGRES, Ok(database)) => {
                (lock, name) = ("fenced", format!("{name}:{kind}"));
                Store::Postgres(Row::open(&database).await?)
            }
            (IN_POSTGRES, Err(_)) => return Ok(None),
            _ => Store::Plain(connection_to(url).await?, key),
        };
        let handle = clients.handle(lock, &name);
        Ok(Some(Self { handle, store }))
    }
}

enum Store {
    Plain(MultiplexedConnection, String),
    // These compare tokens.
    Redis(FencedValue),
    Postgres(Row),
}

impl Store {
    /// `None`: a newer token was seen.
    async fn read(&mut self, token: u64) -> Result<Option<u64>, Failure> {
        let value: Option<u64> = match self {
            Self::Plain(store, key) => store.get(&*key).await?,
            Self::Redis(value) => match value.get(token).await {
                Ok(value) => value.map(|value| value.parse()).transpose()?,
                Err(error) if error.kind() == ErrorKind::StaleToken => return Ok(None),
                Err(error) => return Err(error.into()),
            },
            Self::Postgres(row) => return row.read(token).await,
        };
        Ok(Some(value.unwrap_or(0)))
    }

    /// Whether it was written.
    async fn write(&mut self, value: u64, token: u64) -> Result<bool, Failure> {
        match self {
            Self::Plain(store, key) => {
                let () = store.set(&*key, value).await?;
                Ok(true)
            }
            Self::Redis(fenced) => match fenced.set(value.to_string(), token).await {
                Ok(()) => Ok(true),
                Err(error) if error.kind() == ErrorKind::StaleToken => Ok(false),
                Err(error) => Err(error.into()),
            },
            Self::Postgres(row) => row.write(value, token).await,
        }
    }
}

/// Reads, works, and writes what was read and one more, under the lock.
async fn count(mut counter: Counter, journal: Journal<'static>, stopped: Arc<AtomicBool>) {
    while !stopped.load(Ordering::Relaxed) {
        let guard = match &counter.handle {
            None => None,
            Some(handle) => match acquire(&**handle, &journal).await {
                None => continue,
                guard => guard,
            },
        };
        journal.note(Act::Count, Stage::Invoke);
        let counted = async {
            let token = guard.as_ref().and_then(|guard| guard.token());
            let token = token.unwrap_or_default();
            let Some(before) = counter.store.read(token).await? else {
                return Ok((false, None));
            };
            sleep(Duration::from_millis(fastrand::u64(5..40))).await;
            let written = counter.store.write(before + 1, token).await?;
            Ok::<_, Failure>((written, Some(before + 1)))
        };
        let (stage, value, error) = match counted.await {
            Ok((true, value)) => (Stage::Ok, value, None),
            Ok((false, value)) => (Stage::Fail, value, None),
            Err(error) => (Stage::Info, None, Some(error.to_string())),
        };
        journal.note_at(now(), Act::Count, stage, value, error);
        if let Some(guard) = guard {
            end(guard, &journal).await;
        }
        sleep(Duration::from_millis(fastrand::u64(..20))).await;
    }
}
