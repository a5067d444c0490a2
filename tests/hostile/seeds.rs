//! Cases by their seeds, on all cores.

use std::{
    cell::Cell,
    io::Write,
    ops::ControlFlow,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex, Once,
        atomic::{AtomicU64, Ordering},
    },
    time::{Instant, SystemTime},
};

use tests::{each_seed, lock};

thread_local! {
    /// Whether a case runs here, and whether anything in it has panicked: also a task of the
    /// library, whose panic nobody else would see.
    static PANICS: Cell<Option<usize>> = const { Cell::new(None) };
}

fn count_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICS.set(PANICS.get().map(|panics| panics + 1));
            before(panic);
        }));
    });
}

/// A kind of cases, and how many of them are run.
pub(crate) struct Cases {
    what: &'static str,
    always: u64,
    soak: u64,
}

pub(crate) const REPLIES: Cases = Cases {
    what: "hostile replies",
    always: 2_000,
    soak: 200_000,
};
pub(crate) const REPLIES_OVER_TCP: Cases = Cases {
    what: "hostile replies over TCP",
    always: 60,
    soak: 3_000,
};
pub(crate) const INPUT: Cases = Cases {
    what: "hostile input",
    always: 18_000,
    soak: 800_000,
};

// As main.rs and docs/testing.md say.
const _: () = {
    assert!(REPLIES.always + REPLIES_OVER_TCP.always + INPUT.always >= 20_000);
    assert!(REPLIES.soak + REPLIES_OVER_TCP.soak + INPUT.soak >= 1_000_000);
};

/// The number of cases that this process has run.
static RUN: AtomicU64 = AtomicU64::new(0);

/// Runs the cases, and names the seeds of those that fail.
pub(crate) fn each(cases: &Cases, case: impl Fn(u64) + Sync) {
    let Cases { what, always, soak } = *cases;
    count_panics();
    let number = |name| {
        std::env::var(name)
            .ok()
            .and_then(|text| text.parse::<u64>().ok())
    };
    let (first, cases) = match number("REDLOCK_SEED") {
        Some(seed) => (seed, 1),
        None => {
            let soaks = std::env::var_os("REDLOCK_SOAK").is_some_and(|value| value != "0");
            let cases = number("REDLOCK_CASES").unwrap_or(if soaks { soak } else { always });
            let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            // Half of them are the same every time.
            (since.unwrap().as_secs() << 20, cases)
        }
    };
    let seed_of = |index: u64| match (cases, index % 2) {
        (1, _) => first,
        (_, 0) => index,
        _ => first + index,
    };
    let began = Instant::now();
    let run = AtomicU64::new(0);
    let failed = Mutex::new(Vec::new());
    each_seed(0..cases, |index| {
        let seed = seed_of(index);
        run.fetch_add(1, Ordering::Relaxed);
        PANICS.set(Some(0));
        let ended = catch_unwind(AssertUnwindSafe(|| case(seed)));
        let panics = PANICS.replace(None).unwrap_or(0);
        let mut failed = lock(&failed);
        if ended.is_err() || panics > 0 {
            failed.push(seed);
        }
        match failed.len() {
            ..3 => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        }
    });
    let failed = failed.into_inner().unwrap();
    let run = run.into_inner();
    let all = RUN.fetch_add(run, Ordering::Relaxed) + run;
    // Past the test harness, which shows what is printed only if a test fails.
    let _ = writeln!(
        std::io::stderr(),
        "{what}: {run} cases in {:.1?}, {all} in all so far",
        began.elapsed()
    );
    assert!(
        failed.is_empty(),
        "{what}: REDLOCK_SEED={} fails, of {failed:?}",
        failed[0]
    );
}
