//! Many cases by their numbers, on all cores.

use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicU64, Ordering};

/// Calls `visit` with each number, until one call breaks.
pub fn each_seed(seeds: Range<u64>, visit: impl Fn(u64) -> ControlFlow<()> + Sync) {
    let next = AtomicU64::new(seeds.start);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    if visit(seed).is_break() {
                        next.store(seeds.end, Ordering::Relaxed);
                    }
                }
            });
        }
    });
}
