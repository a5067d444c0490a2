//! Runs that must not see what else runs in this process.
//!
//! A runtime that ends drops its tasks in an order that follows from their numbers, and Tokio counts
//! the tasks of a whole process. So a run in which a runtime ends, and its clients live on, is the only
//! one for as long as it takes, and begins with the same number as any other time.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use tokio::runtime::Builder;

use super::plan::{Plan, Trouble};

static RUNS: RwLock<()> = RwLock::new(());

/// By how many lists a runtime of one thread divides its tasks, by their numbers.
const LISTS: u64 = 4;

/// For as long as a run takes.
#[expect(dead_code, reason = "kept until the run is over")]
pub(super) enum Alone {
    Yes(RwLockWriteGuard<'static, ()>),
    No(RwLockReadGuard<'static, ()>),
}

impl Alone {
    pub(super) fn for_run_of(plan: &Plan) -> Self {
        let ends = |what| matches!(what, Trouble::EndRuntime { .. });
        if !plan.faults.iter().any(|fault| ends(fault.what)) {
            return Self::No(RUNS.read().unwrap_or_else(PoisonError::into_inner));
        }
        let alone = RUNS.write().unwrap_or_else(PoisonError::into_inner);
        let runtime = Builder::new_current_thread().build();
        let runtime = runtime.expect("a runtime without I/O");
        let number = || runtime.spawn(async {}).id().to_string().parse::<u64>();
        while number().expect("a task's number") % LISTS != 0 {}
        Self::Yes(alone)
    }
}
