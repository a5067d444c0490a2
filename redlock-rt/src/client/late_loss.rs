//! Bodies that completed under a lock that was lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::engine::LostReason;
use crate::limit::SharedLimit;

/// A body under the attribute that completed although its lock was lost by then.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LateLoss {
    /// The name of the function: its `name` option, or module path and name.
    pub function: &'static str,
    /// The name of the lock in Redis, with the namespace; all names if there are several locks.
    pub lock: Arc<str>,
    /// Why the lock was lost; `None` if the release found no lock and nothing else is known.
    pub reason: Option<LostReason>,
}

pub(super) type LateLossHook = Arc<dyn Fn(&LateLoss) + Send + Sync>;

/// Counts late losses, and reports them to the log and the hook.
pub(crate) struct LateLosses {
    count: AtomicU64,
    /// Limits the lines; the hook hears of each loss.
    limit: SharedLimit,
    hook: Option<LateLossHook>,
}

impl LateLosses {
    pub(super) fn new(hook: Option<LateLossHook>) -> Self {
        Self {
            count: AtomicU64::new(0),
            limit: SharedLimit::new(),
            hook,
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    pub(crate) fn report(
        &self,
        function: &'static str,
        lock: &Arc<str>,
        reason: Option<LostReason>,
    ) {
        if let Some(left_out) = self.limit.pass() {
            tracing::warn!(
                function,
                lock = &**lock,
                reason = reason.as_ref().map(ToString::to_string),
                left_out,
                "lock lost before its body completed"
            );
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        if let Some(hook) = &self.hook {
            hook(&LateLoss {
                function,
                lock: Arc::clone(lock),
                reason,
            });
        }
    }
}
