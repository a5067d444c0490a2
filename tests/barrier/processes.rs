//! Five processes and this one pass generations together, until one of them is killed while it waits.

use std::collections::{BTreeMap, BTreeSet};
use std::{env, fmt::Write, fs};

use redlock_rt::ErrorKind;
use tests::{Contender, World, monotonic, shared_server, unique, within};

use crate::world::{DEADLINE, arrived, assert_clean, assert_kind};

const PROCESSES: usize = 5;
const LEASE: &str = "1000";

#[derive(Default)]
struct Passed {
    indexes: BTreeSet<u32>,
    last_arrived: u128,
    first_passed: Option<u128>,
}

/// Lines: generation, index, when its party arrived, when it passed.
fn assert_none_passed_early(log: &str) -> usize {
    let mut generations = BTreeMap::<u64, Passed>::new();
    for line in log.lines() {
        let numbers: Vec<u128> = line.split(' ').map(|word| word.parse().unwrap()).collect();
        let [generation, index, arrived, passed] = numbers[..] else {
            panic!("{line}");
        };
        let of = generations.entry(generation as u64).or_default();
        assert!(of.indexes.insert(index as u32), "two have {line}");
        of.last_arrived = of.last_arrived.max(arrived);
        of.first_passed = of
            .first_passed
            .map(|first| first.min(passed))
            .or(Some(passed));
    }
    for (generation, passed) in &generations {
        assert_eq!(passed.indexes.len(), PROCESSES + 1);
        let first = passed.first_passed.unwrap();
        assert!(
            passed.last_arrived <= first,
            "{generation} was passed early"
        );
    }
    generations.len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_five_processes_is_killed_and_the_others_are_told() {
    let kills = if env::var_os("REDLOCK_SOAK").is_some() {
        200
    } else {
        5
    };
    let name = unique("barrier-processes");
    let world = World::named(&shared_server(), &name).await;
    let log = tempfile::NamedTempFile::new().unwrap();
    // The sixth party is this one.
    let barrier = world.client().cyclic_barrier(&name, 6);
    let url = shared_server().url();
    let process = || {
        let path = log.path().to_str().unwrap();
        let arguments = ["barrier", &url, &name, "6", path, LEASE];
        Contender::start(env!("CARGO_BIN_EXE_participant"), arguments)
    };
    let mut own = String::new();
    for kill in 1..=kills {
        let mut processes: Vec<_> = (0..PROCESSES).map(|_| process()).collect();
        for _ in 0..20 {
            let called = monotonic().as_nanos();
            let arrival = within(DEADLINE, barrier.wait()).await.unwrap();
            let (of, index, passed) = (arrival.generation, arrival.index, monotonic().as_nanos());
            writeln!(own, "{of} {index} {called} {passed}").unwrap();
        }
        arrived(&world, PROCESSES).await;
        processes.remove(fastrand::usize(..PROCESSES)).kill();
        // Each is told that the barrier is broken.
        processes.into_iter().for_each(Contender::ends_by_itself);
        assert_kind(barrier.wait().await, ErrorKind::BarrierBroken);
        assert!(barrier.reset().await.unwrap(), "after {kill} kills");
    }
    let generations = assert_none_passed_early(&(own + &fs::read_to_string(log.path()).unwrap()));
    assert_eq!(generations, 20 * kills);
    assert_clean(&world).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_those_inside_is_killed_and_the_others_are_told() {
    let name = unique("barrier-inside");
    let world = World::named(&shared_server(), &name).await;
    let (barrier, url) = (
        world.client().double_barrier(&name, 3),
        shared_server().url(),
    );
    for _ in 0..3 {
        let arguments = ["inside", &url, &name, "3", LEASE];
        let [mut killed, other] =
            [(); 2].map(|()| Contender::start(env!("CARGO_BIN_EXE_participant"), arguments));
        let guard = within(DEADLINE, barrier.enter()).await.unwrap();
        assert!(guard.is_valid());
        killed.kill();
        other.ends_by_itself();
        let error = within(DEADLINE, guard.broken()).await;
        assert_eq!(error.kind(), ErrorKind::BarrierBroken, "{error}");
        assert_kind(guard.leave().await, ErrorKind::BarrierBroken);
        assert!(barrier.reset().await.unwrap());
    }
    assert_clean(&world).await;
}
