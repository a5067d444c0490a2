//! Seven processes whose clocks differ by up to ten minutes, which are killed at random. Time runs 1000 times
//! as fast: a fire every ten seconds is one every ten milliseconds, and five minutes are 300 ms.

use std::{collections::BTreeMap, fs, time::Duration};

use tests::{Contender, Random, RedisServer, ask, monotonic};

const OFFSETS: [i64; 7] = [0, -300, 300, -120, 120, -10, 30];
/// Between two kills.
const PAUSE: Duration = Duration::from_millis(250);
const SHORT: u64 = 500;
const LONG: u64 = 10_000;

#[derive(Default)]
struct Told {
    /// Begin and end of each body that has marked its fire, or was refused to.
    bodies: Vec<(Duration, Duration)>,
    begun: usize,
    marked: usize,
}

/// Lines: fire, `began` or `done` or `lost`, when the body began, when this was.
fn read(log: &str) -> BTreeMap<u64, Told> {
    let mut fires = BTreeMap::<u64, Told>::new();
    for line in log.lines() {
        let words: Vec<_> = line.split(' ').collect();
        let [fire, what, began, at] = words[..] else {
            panic!("{line}");
        };
        let told = fires.entry(fire.parse().unwrap()).or_default();
        let nanos = |text: &str| Duration::from_nanos(text.parse().unwrap());
        match what {
            "began" => told.begun += 1,
            "done" => told.marked += 1,
            "lost" => {}
            other => panic!("{other}"),
        }
        if what != "began" {
            told.bodies.push((nanos(began), nanos(at)));
        }
    }
    fires
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_fire_is_done_once_by_seven_processes_that_are_killed() {
    let soaks = std::env::var_os("REDLOCK_SOAK").is_some_and(|value| value != "0");
    let fires = if soaks { LONG } else { SHORT };
    let server = RedisServer::start();
    let log = tempfile::NamedTempFile::new().unwrap();
    let start = monotonic() + Duration::from_secs(3);
    let start_ms = u64::try_from(start.as_millis()).unwrap();
    let process = |at: usize| {
        let (url, path) = (server.url(), log.path().to_str().unwrap().to_owned());
        let words = [
            fires.to_string(),
            OFFSETS[at].to_string(),
            start_ms.to_string(),
        ];
        let [fires, offset, start] = words.each_ref().map(String::as_str);
        let arguments = ["once", &url, "job", &path, fires, offset, start];
        Contender::start(env!("CARGO_BIN_EXE_participant"), arguments)
    };
    let mut processes: Vec<_> = (0..OFFSETS.len()).map(process).collect();
    let seed = std::env::var("REDLOCK_SEED").ok();
    let seed = seed.map_or(fires, |seed| seed.parse().unwrap());
    println!("REDLOCK_SEED={seed}");
    let mut random = Random::new(seed);
    let end = start + Duration::from_millis(10 * fires + 300);
    let mut kills = 0;
    while monotonic() < end {
        tokio::time::sleep(PAUSE).await;
        // One instance lives: nothing is forgotten.
        let at = 1 + random.below(OFFSETS.len() - 1);
        processes[at].kill();
        processes[at] = process(at);
        kills += 1;
    }
    for process in processes {
        process.ends_by_itself();
    }

    let told = read(&fs::read_to_string(log.path()).unwrap());
    let redis = server.connect().await.unwrap();
    let mut again = 0;
    for fire in 0..fires {
        let mark = format!("redlock_once:{{once:job:{}}}", fire * 10_000);
        let done: Option<String> = ask(&redis, &["HGET", &mark, "done"]).await;
        assert!(done.is_some(), "fire {fire} was forgotten");
        let told = &told[&fire];
        assert!(
            told.marked <= 1,
            "fire {fire} was done {} times",
            told.marked
        );
        again += told.begun - 1;
        let mut bodies = told.bodies.clone();
        bodies.sort_unstable();
        for pair in bodies.windows(2) {
            assert!(pair[0].1 <= pair[1].0, "bodies of fire {fire} overlap");
        }
    }
    println!("{fires} fires, {kills} kills, {again} bodies began again");
}
