//! Cases by their seeds, on all cores.

use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex, Once, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Instant, SystemTime},
};

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

/// Runs `case` with `always` seeds, or with `soak` of them, and names those that fail.
pub(crate) fn each(what: &str, always: u64, soak: u64, case: impl Fn(u64) + Sync) {
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
    let next = AtomicU64::new(0);
    let failed = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let failures = failed.lock().unwrap_or_else(PoisonError::into_inner).len();
                    if index >= cases || failures >= 3 {
                        return;
                    }
                    let seed = seed_of(index);
                    PANICS.set(Some(0));
                    let ended = catch_unwind(AssertUnwindSafe(|| case(seed)));
                    let panics = PANICS.replace(None).unwrap_or(0);
                    if ended.is_err() || panics > 0 {
                        failed
                            .lock()
                            .unwrap_or_else(PoisonError::into_inner)
                            .push(seed);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    eprintln!("{what}: {cases} cases in {:.1?}", began.elapsed());
    assert!(
        failed.is_empty(),
        "{what}: REDLOCK_SEED={} fails, of {failed:?}",
        failed[0]
    );
}
