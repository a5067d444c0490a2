//! Many processes that contend for permits, and are killed meanwhile.

use std::{collections::BTreeMap, fs, path::Path, time::Duration};

use redlock_rt::Client;
use tests::{Contender, LeakCheck, ask, eventually, monotonic, shared_server, unique};

use crate::stage::DEADLINE;

const PROCESSES: usize = 8;
const TASKS: usize = 50;
const PERMITS: u32 = 6;
const LEASE: Duration = Duration::from_millis(1500);
const CONTEST: Duration = Duration::from_secs(10);

/// `lease`: zero for a semaphore without leases.
fn start(url: &str, name: &str, log: &Path, tasks: usize, lease: Duration) -> Contender {
    let (tasks, lease) = (tasks.to_string(), lease.as_millis().to_string());
    let arguments = ["permits", url, name, &tasks, log.to_str().unwrap(), &lease];
    let mut contender = Contender::start(env!("CARGO_BIN_EXE_participant"), arguments);
    contender.go();
    contender
}

/// The most permits that were in use at once. A killed process has its permits until it is killed.
fn most_in_use(log: &str, killed: &BTreeMap<u32, Duration>) -> (i64, usize) {
    let mut events = Vec::new();
    let mut open: BTreeMap<(u32, usize), i64> = BTreeMap::new();
    for line in log.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [process, task, time, permits] = words[..] else {
            panic!("malformed line: {line:?}");
        };
        let holder = (process.parse().unwrap(), task.parse().unwrap());
        let permits: i64 = permits.parse().unwrap();
        events.push((Duration::from_nanos(time.parse().unwrap()), permits));
        *open.entry(holder).or_default() += permits;
    }
    let mut left_open = 0;
    for ((process, task), permits) in open {
        if permits > 0 {
            let end = killed.get(&process);
            let end = end.unwrap_or_else(|| panic!("{process} {task} never ended"));
            events.push((*end, -permits));
            left_open += 1;
        }
    }
    // At the same moment releases count first.
    events.sort_unstable();
    let running = events.iter().scan(0, |in_use, (_, permits)| {
        *in_use += permits;
        Some(*in_use)
    });
    (running.max().unwrap_or_default(), left_open)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_permits_are_in_use_than_there_are_whoever_is_killed() {
    let server = shared_server();
    let name = unique("killed");
    let leaks = LeakCheck::on(&server, &name).await;
    let log = tempfile::NamedTempFile::new().unwrap();
    let client = Client::connect(&server.url()).await.unwrap();
    let semaphore = client.permit_expirable_semaphore(&name);
    assert!(semaphore.try_set_permits(PERMITS).await.unwrap());
    let start = || start(&server.url(), &name, log.path(), TASKS, LEASE);
    let mut contenders: Vec<_> = (0..PROCESSES).map(|_| start()).collect();
    let begin = monotonic();
    let mut killed = BTreeMap::new();
    while monotonic() < begin + CONTEST {
        tokio::time::sleep(Duration::from_millis(fastrand::u64(50..700))).await;
        let mut victim = contenders.swap_remove(fastrand::usize(..contenders.len()));
        // Before the signal, since the process has its permits until then.
        killed.insert(victim.pid(), monotonic());
        victim.kill();
        contenders.push(start());
    }
    let turns = Contender::turns_of(contenders);
    let text = fs::read_to_string(log.path()).unwrap();
    let (most, open) = most_in_use(&text, &killed);
    println!(
        "{turns} turns of the living, {} killed in {open} turns, {most} permits at once",
        killed.len()
    );
    assert!(most <= i64::from(PERMITS), "{most} permits in use at once");
    // All permits were in use, some of them by killed processes.
    assert_eq!(most, i64::from(PERMITS));
    assert!(open > 0 && turns > 50, "{open} {turns}");

    eventually(LEASE + DEADLINE, async || {
        semaphore.available_permits().await.unwrap() == i64::from(PERMITS)
    })
    .await;
    assert_eq!(semaphore.acquired().await.unwrap(), 0);
    let redis = server.connect().await.unwrap();
    let pattern = format!("redlock_op:{{{name}}}:*");
    let notes: Vec<String> = ask(&redis, &["KEYS", &pattern]).await;
    for key in notes.iter().chain([&name]) {
        let _: () = ask(&redis, &["DEL", key]).await;
    }
    leaks.client(&client).assert_clean().await;
}

/// By the wire format, no client knows that a process is dead. The others continue with the remaining
/// permits, and the sum of taken, free and lost permits stays the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_processes_keep_permits_without_leases_and_the_rest_goes_on() {
    const LIVING: usize = 4;
    const KILLS: usize = 3;
    const EACH: usize = 10;
    // Each of the dead may have kept two permits a task.
    const PERMITS: usize = KILLS * EACH * 2 + 5;
    let permits = i64::try_from(PERMITS).unwrap();
    let server = shared_server();
    let name = unique("kept");
    let leaks = LeakCheck::on(&server, &name).await;
    let log = tempfile::NamedTempFile::new().unwrap();
    let client = Client::connect(&server.url()).await.unwrap();
    let semaphore = client.semaphore(&name);
    let number = u32::try_from(PERMITS).unwrap();
    assert!(semaphore.try_set_permits(number).await.unwrap());
    let none = Duration::ZERO;
    let start = || start(&server.url(), &name, log.path(), EACH, none);
    let mut contenders: Vec<_> = (0..LIVING).map(|_| start()).collect();
    let lines = || fs::read_to_string(log.path()).unwrap().lines().count();
    let more = async || {
        let before = lines();
        eventually(DEADLINE, async || lines() > before + 40 * EACH).await;
    };
    // No other process ever gets the permits of the dead.
    let never = monotonic() + 100 * CONTEST;
    let mut killed = BTreeMap::new();
    for _ in 0..KILLS {
        more().await;
        let mut victim = contenders.swap_remove(fastrand::usize(..contenders.len()));
        killed.insert(victim.pid(), never);
        victim.kill();
        contenders.push(start());
    }
    more().await;
    assert!(Contender::turns_of(contenders) > 0);

    let text = fs::read_to_string(log.path()).unwrap();
    let (most, open) = most_in_use(&text, &killed);
    assert!(most <= permits, "{most} permits in use at once");
    assert!(open > 0, "none of the dead had any");
    let redis = server.connect().await.unwrap();
    let holds = format!("redlock_sem:{{{name}}}");
    let kept: Vec<i64> = ask(&redis, &["HVALS", &holds]).await;
    // More than their notes say: some died between Redis and the note.
    assert!(kept.len() >= open, "{} {open}", kept.len());
    let kept: i64 = kept.iter().sum();
    assert_eq!(semaphore.available_permits().await.unwrap(), permits - kept);
    // A caller that knows that they are dead releases their permits.
    semaphore
        .release(u32::try_from(kept).unwrap())
        .await
        .unwrap();
    let all = semaphore.try_acquire_many(number).await.unwrap();
    all.unwrap().release().await.unwrap();
    let pattern = format!("redlock_op:{{{name}}}:*");
    let notes: Vec<String> = ask(&redis, &["KEYS", &pattern]).await;
    for key in notes.iter().chain([&name, &holds]) {
        let _: () = ask(&redis, &["DEL", key]).await;
    }
    leaks.client(&client).assert_clean().await;
}
