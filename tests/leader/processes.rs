//! Five processes of which one leads, while they are killed, paused, cut off and started again.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    io::{BufRead, BufReader},
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use tests::{ChildProcess, Proxy, World, shared_server, unique};

const PROCESSES: usize = 5;
const LEASE: Duration = Duration::from_secs(1);
/// How late the next leader may be behind the lease of one that was killed.
const LATE: Duration = Duration::from_millis(250);
/// The processes of a busy machine wait for each other.
const BUSY: Duration = Duration::from_secs(2);

fn lasts() -> Duration {
    Duration::from_secs(match env::var_os("REDLOCK_SOAK") {
        Some(_) => 3600,
        None => 20,
    })
}

struct Candidates {
    world: World,
    log: tempfile::NamedTempFile,
    processes: Vec<ChildProcess>,
    /// Between each process and the server.
    links: Vec<Proxy>,
}

/// What becomes of a process, in turn.
#[derive(Clone, Copy)]
enum Strike {
    Kill,
    Pause,
    Cut,
    /// For longer than a lease, nothing arrives and nothing fails.
    Silence,
}

impl Candidates {
    fn start(&self, at: usize) -> ChildProcess {
        let lease = LEASE.as_millis().to_string();
        let url = self.links[at].url();
        let log = self.log.path().to_str().unwrap();
        let program = env!("CARGO_BIN_EXE_participant");
        let arguments = ["lead", &url, &self.world.name, &lease, log];
        let piped = |command: &mut std::process::Command| {
            command.stdout(Stdio::piped());
        };
        let mut process = ChildProcess::spawn(program, arguments, piped).unwrap();
        let mut line = String::new();
        let output = process.take_stdout().unwrap();
        BufReader::new(output).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        process
    }

    /// The last that has led, more often than another one.
    fn victim(&self) -> usize {
        let text = fs::read_to_string(self.log.path()).unwrap();
        let leader = text.lines().last().and_then(|line| line.rsplit(' ').next());
        let led = |process: &ChildProcess| Some(&*process.pid().to_string()) == leader;
        match self.processes.iter().position(led) {
            Some(at) if fastrand::u8(..4) > 0 => at,
            _ => fastrand::usize(..PROCESSES),
        }
    }
}

/// When a term began and was last seen, and whose it was.
#[derive(Clone, Copy)]
struct Term {
    began: u128,
    last: u128,
    pid: u32,
}

/// What the candidates recorded, without a contradiction.
fn terms(log: &Path) -> BTreeMap<u64, Term> {
    let mut terms = BTreeMap::<u64, Term>::new();
    let text = fs::read_to_string(log).unwrap();
    for line in text.lines() {
        let words: Vec<_> = line.split(' ').collect();
        let [term, at, pid] = words[..] else {
            panic!("{line}");
        };
        assert_ne!(at, "refused", "a leader was refused: {line}");
        let (at, pid) = (at.parse().unwrap(), pid.parse().unwrap());
        let known = terms.entry(term.parse().unwrap()).or_insert(Term {
            began: at,
            last: at,
            pid,
        });
        assert_eq!(known.pid, pid, "two leaders in term {term}");
        known.last = known.last.max(at);
    }
    terms
}

#[tokio::test]
async fn no_two_lead_at_once_and_one_that_is_killed_is_soon_succeeded() {
    let server = shared_server();
    let mut candidates = Candidates {
        world: World::named(&server, &unique("leaders")).await,
        log: tempfile::NamedTempFile::new().unwrap(),
        processes: Vec::new(),
        links: (0..PROCESSES).map(|_| Proxy::to(&server)).collect(),
    };
    let seed = fastrand::get_seed();
    println!("seed {seed}");
    candidates.processes = (0..PROCESSES).map(|at| candidates.start(at)).collect();
    let until = Instant::now() + lasts();
    let mut killed = BTreeSet::new();
    let strikes = [Strike::Kill, Strike::Cut, Strike::Pause, Strike::Silence];
    for strike in strikes.into_iter().cycle() {
        if Instant::now() > until {
            break;
        }
        let pause = fastrand::u64(500..1500);
        tokio::time::sleep(Duration::from_millis(pause)).await;
        let at = candidates.victim();
        match strike {
            Strike::Kill => {
                killed.insert(candidates.processes[at].pid());
                candidates.processes[at].kill();
                candidates.processes[at] = candidates.start(at);
            }
            Strike::Pause => {
                candidates.processes[at].pause();
                tokio::time::sleep(LEASE + LEASE / 2).await;
                candidates.processes[at].resume();
            }
            Strike::Cut => {
                candidates.links[at].cut_all();
            }
            Strike::Silence => {
                candidates.links[at].go_silent();
                tokio::time::sleep(LEASE + LEASE / 2).await;
                candidates.links[at].resume();
            }
        }
        candidates.links[at].mark();
    }
    candidates.processes.iter_mut().for_each(ChildProcess::kill);

    let terms = terms(candidates.log.path());
    let leaders: BTreeSet<u32> = terms.values().map(|term| term.pid).collect();
    assert!(leaders.len() > 2 && !killed.is_empty(), "{leaders:?}");
    let mut gaps = Vec::new();
    for ((term, before), (next, after)) in terms.iter().zip(terms.iter().skip(1)) {
        assert!(before.last < after.began, "{term} and {next} at once");
        let gap = Duration::from_nanos(u64::try_from(after.began - before.last).unwrap());
        assert!(
            gap < LEASE + LATE + BUSY,
            "{next} was {gap:?} behind {term}"
        );
        // The others had resigned.
        let led = gap > LEASE / 2 && killed.contains(&before.pid);
        let is_last = terms
            .range(next..)
            .all(|(_, later)| later.pid != before.pid);
        gaps.extend((led && is_last).then_some(gap));
    }
    gaps.sort_unstable();
    let (median, worst) = (gaps.get(gaps.len() / 2), gaps.last());
    println!(
        "{} terms; behind those that were killed {median:?}, at most {worst:?}",
        terms.len()
    );
    assert!(
        median.is_none_or(|median| *median < LEASE + LATE),
        "{gaps:?}"
    );

    let world = candidates.world;
    for key in [
        "redisson_lock_token:{NAME}",
        "redlock_fence:{NAME:value}",
        "NAME:value",
        "NAME",
    ] {
        let _: u8 = world
            .redis(&["DEL", &key.replace("NAME", &world.name)])
            .await;
    }
    world.assert_clean().await;
}
