//! One clock for all processes of the machine.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// `CLOCK_MONOTONIC`: the time since the machine started, the same for every process on it.
pub fn monotonic() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::try_from(now).expect("the monotonic clock is not negative")
}

/// The processor time of this thread, which does not depend on other processes.
pub fn processor_time() -> Duration {
    let spent = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(spent).expect("no thread has spent less than nothing")
}
