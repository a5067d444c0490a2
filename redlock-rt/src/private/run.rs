//! A body under its lock, from the acquisition to the end of the release.
//!
//! What depends on the type of the body is a few lines; the rest depends on its output at most, and
//! is shared by all functions of a crate that return the same.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::output::Keep;
use super::session::{Progress, Session};
use crate::error::Error;

/// Runs a body as soon as its lock is held. Dropped before it is ready, it drops the body first,
/// then queues the release.
pub struct Run<F: Future, K, E> {
    course: Course,
    /// Boxed: one that is moved into the futures around it would make room for itself in each.
    body: Option<Pin<Box<F>>>,
    output: K,
    /// Makes the value of a call whose body has none.
    fail: Option<E>,
}

/// The way to a lock.
#[must_use]
pub struct Entering(Pin<Box<dyn Future<Output = Result<Session, Error>> + Send>>);

/// How far a call has come.
enum Course {
    Entering(Entering),
    Held(Session),
    Over,
}

impl Entering {
    pub(super) fn new(
        entering: impl Future<Output = Result<Session, Error>> + Send + 'static,
    ) -> Self {
        Self(Box::pin(entering))
    }

    /// Runs `body` once the lock is held; its value waits in `output`, if it can, until it is
    /// released. What else happens becomes a value by `fail`.
    pub fn run<F: Future, K: Keep<F::Output>, E: FnOnce(Error) -> F::Output>(
        self,
        output: K,
        fail: E,
        body: F,
    ) -> Run<F, K, E> {
        Run {
            course: Course::Entering(self),
            body: Some(Box::pin(body)),
            output,
            fail: Some(fail),
        }
    }
}

impl Future for Entering {
    type Output = Result<Session, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.get_mut().0.as_mut().poll(cx)
    }
}

impl Session {
    /// As [`Entering::run`], under what is held already.
    pub fn run<F: Future, K: Keep<F::Output>, E: FnOnce(Error) -> F::Output>(
        self,
        output: K,
        fail: E,
        body: F,
    ) -> Run<F, K, E> {
        Run {
            course: Course::Held(self),
            body: Some(Box::pin(body)),
            output,
            fail: Some(fail),
        }
    }
}

/// A body, of whatever type.
trait Body<T> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<T>;
    fn clear(&mut self);
    fn is_there(&self) -> bool;
}

impl<F: Future> Body<F::Output> for Option<Pin<Box<F>>> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<F::Output> {
        match self {
            Some(body) => body.as_mut().poll(cx),
            None => Poll::Pending,
        }
    }

    fn clear(&mut self) {
        *self = None;
    }

    fn is_there(&self) -> bool {
        self.is_some()
    }
}

impl Course {
    fn drive<T, K: Keep<T>>(
        &mut self,
        body: &mut dyn Body<T>,
        output: &mut K,
        cx: &mut Context<'_>,
    ) -> Poll<Result<T, Error>> {
        let session = match ready!(self.poll_session(cx)) {
            Ok(session) => session,
            Err(error) => {
                body.clear();
                return Poll::Ready(Err(error));
            }
        };
        if body.is_there() {
            let mut value = None;
            let progress = session.poll_body(cx, &mut |cx| match body.poll(cx) {
                Poll::Ready(ready) => {
                    value = Some(ready);
                    true
                }
                Poll::Pending => false,
            });
            if let Progress::Pending = progress {
                return Poll::Pending;
            }
            session.enter(&mut || body.clear());
            if let Progress::Lost(error) = progress {
                session.leave();
                return Poll::Ready(Err(error));
            }
            if let Some(value) = value.and_then(|value| output.put(value)) {
                return Poll::Ready(session.completed().map(|()| value));
            }
        }
        let released = ready!(session.poll_release(cx));
        match (released, output.take()) {
            (Ok(()), Some(value)) => Poll::Ready(Ok(value)),
            (Err(error), _) => Poll::Ready(Err(error)),
            (Ok(()), None) => unreachable!("polled after its end"),
        }
    }

    fn poll_session(&mut self, cx: &mut Context<'_>) -> Poll<Result<&mut Session, Error>> {
        if let Self::Entering(entering) = self {
            match ready!(entering.0.as_mut().poll(cx)) {
                Ok(session) => *self = Self::Held(session),
                Err(error) => {
                    *self = Self::Over;
                    return Poll::Ready(Err(error));
                }
            }
        }
        match self {
            Self::Held(session) => Poll::Ready(Ok(session)),
            Self::Entering(_) | Self::Over => unreachable!("polled after its end"),
        }
    }

    /// Drops a body that has not come to its end.
    fn abandon<T>(&mut self, body: &mut dyn Body<T>) {
        if let Self::Held(session) = self {
            session.enter(&mut || body.clear());
        }
    }
}

// The body is pinned in its box, and nothing else is ever pinned.
impl<F: Future, K, E> Unpin for Run<F, K, E> {}

impl<F: Future, K: Keep<F::Output>, E: FnOnce(Error) -> F::Output> Future for Run<F, K, E> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.get_mut();
        match this.course.drive(&mut this.body, &mut this.output, cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(value)) => Poll::Ready(value),
            Poll::Ready(Err(error)) => match this.fail.take() {
                Some(fail) => Poll::Ready(fail(error)),
                None => unreachable!("polled after its end"),
            },
        }
    }
}

impl<F: Future, K, E> Drop for Run<F, K, E> {
    fn drop(&mut self) {
        self.course.abandon(&mut self.body);
    }
}

impl<F: Future, K, E> fmt::Debug for Run<F, K, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").finish_non_exhaustive()
    }
}

impl fmt::Debug for Entering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Entering")
    }
}
