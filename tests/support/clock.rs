//! One clock for all processes of the machine.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// `CLOCK_MONOTONIC`: the time since the machine started, the same for every process on it.
pub fn monotonic() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::try_from(now).expect("the monotonic clock is not negative")
}
