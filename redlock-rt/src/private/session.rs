//! A lock that is held for one body.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use super::ACTION;
use super::guard::{Guard, Held};
use crate::client::Client;
use crate::clock;
use crate::engine::{GuardState, LostReason, ReentryScope, Unlocked};
use crate::error::Error;
use crate::limit::SharedLimit;

/// The effect of a loss of the lock on a running body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnLost {
    /// It is dropped.
    Cancel,
    /// It goes on, and its value counts.
    Finish,
    /// It goes on, and the call fails.
    ErrorAfter,
}

type BoxedFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A lock that is held for one body, and the release of it. Dropping it queues the release.
pub struct LockedBody {
    terms: BodyTerms,
    /// The scope of the body, from its first poll on.
    scope: Option<ReentryScope>,
    /// Created when the body first waits: most bodies that do not wait need none.
    lost: Option<BoxedFuture<LostReason>>,
    release: Option<BoxedFuture<Result<(), Error>>>,
    /// `None` if there is no lock, or no longer one.
    guard: Option<Arc<Guard>>,
}

/// The options of the function.
#[derive(Clone)]
pub(super) struct BodyTerms {
    pub(super) label: &'static str,
    /// `None` without a lock.
    pub(super) client: Option<Client>,
    pub(super) on_lost: OnLost,
}

/// The progress of a body.
pub(super) enum BodyProgress {
    Pending,
    Completed,
    /// The lock was lost before the body began, or the body must be dropped.
    Lost(Error),
}

impl LockedBody {
    /// `guard`: `None` for a body that runs without a lock.
    pub(super) fn new(terms: BodyTerms, guard: Option<Guard>) -> Self {
        Self {
            terms,
            scope: None,
            lost: None,
            release: None,
            guard: guard.map(Arc::new),
        }
    }

    /// The guard for the body. A function that may run without a lock cannot ask for it.
    pub fn held(&self) -> Held {
        match &self.guard {
            Some(guard) => Held(Arc::clone(guard)),
            None => unreachable!("a guard is named where there is no lock"),
        }
    }

    /// Polls a body: first the body, then whether the lock is lost.
    pub(super) fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
        body: &mut dyn FnMut(&mut Context<'_>) -> bool,
    ) -> BodyProgress {
        let guard = self.guard.as_deref();
        if self.scope.is_none()
            && let Some(reason) = guard.and_then(lost_reason)
        {
            return BodyProgress::Lost(self.lost_error(reason, "the body was not run"));
        }
        let scope = || guard.map(Guard::scope).unwrap_or_default();
        let mut completed = false;
        let scope = self.scope.get_or_insert_with(scope);
        scope.enter(|| completed = body(cx));
        if completed {
            return BodyProgress::Completed;
        }
        let (OnLost::Cancel, Some(guard)) = (self.terms.on_lost, &self.guard) else {
            return BodyProgress::Pending;
        };
        let lost = self.lost.get_or_insert_with(|| {
            let guard = Arc::clone(guard);
            Box::pin(async move { guard.lost().await })
        });
        match lost.as_mut().poll(cx) {
            Poll::Pending => BodyProgress::Pending,
            Poll::Ready(reason) => {
                let what = "the body was dropped, its outcome is unknown";
                BodyProgress::Lost(self.lost_error(reason, what))
            }
        }
    }

    /// Drops the body in its scope.
    pub(super) fn drop_body<B>(&self, body: B) {
        if let Some(scope) = &self.scope {
            scope.drop_body(body);
        }
    }

    /// For a completed body whose value cannot wait: releases in the background.
    pub(super) fn completed(self) -> Result<(), Error> {
        let guard = self.guard.as_deref();
        match guard.and_then(lost_reason) {
            Some(reason) => self.terms.late(&name(guard), Some(reason)),
            None => Ok(()),
        }
    }

    fn lost_error(&self, reason: LostReason, what: &str) -> Error {
        lost_error(&name(self.guard.as_deref()), reason, what)
    }

    /// For a completed body: releases the lock, and waits for that while it may matter. After that,
    /// and after a failure, the release continues in the background.
    pub(super) fn poll_release(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        // The body shares the guard.
        self.lost = None;
        if let Some(guard) = self.guard.take().and_then(Arc::into_inner) {
            self.release = Some(Box::pin(self.terms.clone().release(guard)));
        }
        let Some(release) = &mut self.release else {
            return Poll::Ready(Ok(()));
        };
        let released = ready!(release.as_mut().poll(cx));
        self.release = None;
        Poll::Ready(released)
    }
}

impl BodyTerms {
    async fn release(self, guard: Guard) -> Result<(), Error> {
        static FAILED: SharedLimit = SharedLimit::new();
        static UNANSWERED: SharedLimit = SharedLimit::new();
        let name = name(Some(&guard));
        let late = |reason| self.late(&name, reason);
        let until = match guard.state() {
            GuardState::Lost(reason) => {
                drop(guard);
                return late(Some(reason));
            }
            GuardState::Released => return late(Some(LostReason::ShutDown)),
            GuardState::Held { until } | GuardState::Suspect { until } => until,
        };
        let rest = until.saturating_duration_since(clock::now());
        let patience = self.client.as_ref().map(Client::response_timeout);
        let limit = patience.unwrap_or_default().min(rest);
        let function = self.label;
        match clock::timeout(limit, guard.unlock()).await {
            Ok(Ok(Unlocked::AlreadyExpired)) => return late(None),
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                if let Some(left_out) = FAILED.pass() {
                    let error = error.with_sources();
                    tracing::warn!(function, error, left_out, "late release");
                }
            }
            Err(_) => {
                if let Some(left_out) = UNANSWERED.pass() {
                    let lock = &*name;
                    tracing::warn!(function, lock, left_out, "late release: no answer yet");
                }
            }
        }
        Ok(())
    }

    /// A body completed, and the lock was no longer held. `None`: the reason is unknown.
    fn late(&self, name: &Arc<str>, reason: Option<LostReason>) -> Result<(), Error> {
        if let Some(client) = &self.client {
            client
                .late_losses()
                .report(self.label, name, reason.clone());
        }
        match self.on_lost {
            OnLost::ErrorAfter => {
                // Without a known reason, the release found no lock.
                let reason = reason.unwrap_or(LostReason::Deleted);
                Err(lost_error(name, reason, "the body had completed"))
            }
            OnLost::Cancel | OnLost::Finish => Ok(()),
        }
    }
}

fn name(guard: Option<&Guard>) -> Arc<str> {
    guard.map_or("", Guard::name).into()
}

fn lost_reason(guard: &Guard) -> Option<LostReason> {
    match guard.state() {
        GuardState::Lost(reason) => Some(reason),
        GuardState::Released => Some(LostReason::ShutDown),
        GuardState::Held { .. } | GuardState::Suspect { .. } => None,
    }
}

fn lost_error(name: &Arc<str>, reason: LostReason, what: &str) -> Error {
    Error::lost(ACTION, reason).named(name).and(what)
}

impl fmt::Debug for LockedBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("function", &self.terms.label)
            .field("guard", &self.guard)
            .finish_non_exhaustive()
    }
}
