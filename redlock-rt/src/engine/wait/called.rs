//! A task waits here until it may try.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Poll, Waker};
use std::time::Instant;

use super::queue::Wake;
use crate::clock;

/// Why a waiting caller was woken.
#[derive(Debug)]
pub(crate) enum Called<T, O> {
    Wake(Wake<T, O>),
    /// The wait is over.
    TimedOut,
}

/// The place of a waiter.
pub(crate) trait Waits: Sync {
    /// What a try may find for all waiters.
    type Outcome;

    /// What a holder of this client may offer to the waiter.
    type Offer;

    /// Asks for news; the waker is woken when there are some.
    fn poll(&self, waker: &Waker) -> Poll<Wake<Self::Outcome, Self::Offer>>;

    /// The waiter is polled for its work as the head.
    fn runs(&self, waker: &Waker);

    /// When the waiter, which waits until `deadline`, must look again on its own.
    fn retry_at(&self, deadline: Option<Instant>) -> Option<Instant>;

    /// The time of `retry_at` has come.
    fn retry(&self);

    /// The waiter took a permit, and has no time left for a try.
    fn put_back(&self);

    /// Does the waiter's work as the head, which runs as long as this is polled.
    fn running<F: Future + Send>(
        &self,
        mut work: Pin<&mut F>,
    ) -> impl Future<Output = F::Output> + Send {
        poll_fn(move |cx| {
            self.runs(cx.waker());
            work.as_mut().poll(cx)
        })
    }

    /// Waits until the waiter is woken. No `async fn`: its future would store its arguments twice.
    fn called(
        &self,
        deadline: Option<Instant>,
    ) -> impl Future<Output = Called<Self::Outcome, Self::Offer>> + Send {
        async move {
            let mut waited = false;
            loop {
                let wake = poll_fn(|cx| {
                    let wake = self.poll(cx.waker());
                    waited |= wake.is_pending();
                    wake
                });
                let retry_at = self.retry_at(deadline);
                let Some(until) = retry_at.into_iter().chain(deadline).min() else {
                    return Called::Wake(wake.await);
                };
                let woken = clock::timeout_at(clock::to_tokio(until), wake).await.ok();
                let now = clock::now();
                let is_over = deadline.is_some_and(|deadline| now >= deadline);
                match woken {
                    // Woken by a head whose wait was over, as the wait of this one is: a try would end
                    // before its reply. The permit is for the next head.
                    Some(Wake::Try) if waited && is_over => {
                        self.put_back();
                        return Called::TimedOut;
                    }
                    Some(wake) => return Called::Wake(wake),
                    None if is_over => return Called::TimedOut,
                    None if retry_at.is_some_and(|at| now >= at) => self.retry(),
                    None => {}
                }
            }
        }
    }
}
