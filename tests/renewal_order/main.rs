//! No renewal is sent for a holder after its unlock began, or the drop of its last guard, unless another
//! task of the client goes on with the hold, which is its own from then on. So it is with locks that go
//! on without a call, and that the release gives to the next task.
//!
//! Random rounds on the embedded engine, with a clock that only the round advances, in a runtime that
//! runs one task between two checks of the test. So guards end between any two steps of the watchdog
//! and of its connection's driver.
//!
//! `REDLOCK_SEED=n` repeats one round a hundred times, since the library draws random intervals;
//! `REDLOCK_SOAK=1` runs many more rounds.

mod held;
mod round;
mod sentinel;

use std::{env, hash::BuildHasher, panic, thread, time::Instant};

use self::{round::Round, sentinel::Tally};

const ROUNDS: u64 = 300;
const SOAK: u64 = 30_000;
/// The number of repetitions of the round of a given seed.
const AGAIN: u64 = 100;

/// The seed of the first round, the distance of two seeds, and the number of rounds.
fn seeds() -> (u64, u64, u64) {
    if let Ok(text) = env::var("REDLOCK_SEED") {
        let seed = text.parse().expect("REDLOCK_SEED is a number");
        return (seed, 0, AGAIN);
    }
    let first = std::hash::RandomState::new().hash_one(0) >> 1;
    let soak = env::var_os("REDLOCK_SOAK").is_some_and(|value| value != "0");
    (first, 1, if soak { SOAK } else { ROUNDS })
}

fn run(seeds: impl Iterator<Item = u64>) -> Tally {
    let mut tally = Tally::default();
    for seed in seeds {
        match panic::catch_unwind(|| Round::run(seed)) {
            Ok(round) => tally += round,
            Err(panic) => {
                eprintln!("REDLOCK_SEED={seed}");
                panic::resume_unwind(panic);
            }
        }
    }
    tally
}

#[test]
fn no_renewal_is_sent_after_the_unlock_or_drop_began() {
    const THREADS: u64 = 2;
    let start = Instant::now();
    let (first, apart, rounds) = seeds();
    let mut tally = Tally::default();
    thread::scope(|scope| {
        let parts = (0..THREADS).map(|part| {
            let seeds = (part..rounds).step_by(THREADS as usize);
            scope.spawn(move || run(seeds.map(|round| first + round * apart)))
        });
        for part in parts.collect::<Vec<_>>() {
            match part.join() {
                Ok(part) => tally += part,
                Err(panic) => panic::resume_unwind(panic),
            }
        }
    });
    println!("{rounds} rounds in {:?}: {tally:?}", start.elapsed());
    if apart == 0 {
        return;
    }
    // The cases under test did occur.
    assert!(tally.renewals > rounds, "renewals");
    assert!(tally.ends > rounds, "ends");
    assert!(tally.exact > rounds, "ends with nothing on its way");
    assert!(
        tally.answering > rounds / 10,
        "ends while a renewal is under way"
    );
    assert!(tally.unknown > rounds / 10, "scripts that were flushed");
    assert!(tally.cut > rounds / 10, "connections that were cut");
    assert!(tally.handed > 0, "holds that were handed over");
    assert!(tally.grants > 0, "locks that were given");
    assert!(tally.followers > 0, "renewals of locks that were given");
}
