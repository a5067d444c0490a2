//! A body under its lock, from the acquisition to the end of the release.
//!
//! Only a few lines depend on the type of the body. The rest depends at most on its output, and is
//! shared by all functions of a crate with the same return type.
//!
//! The acquisition is a boxed future of one type for all kinds, and the body is accessed through a vtable,
//! so code that does not depend on the body's type is compiled once. A crate of 100 functions under the
//! attribute builds in about 1.1 times the time of 100 plain `lock()` calls (medians of 7 interleaved
//! builds of each, `cargo run -p benches --bin compile_cost`); hand-written
//! `guard.run`, which does the same, takes 1.9.
//!
//! If a fallback may use the parameters, the body is created only when it is certain to run, because it
//! takes the parameters.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::output::Keep;
use super::session::{BodyProgress, LockedBody};
use crate::error::Error;

/// Runs a body as soon as its lock is held. If it is dropped before it is ready, it drops the body
/// first, and then queues the release.
pub struct Run<F: Future, K, E: FnOnce(Error) -> F::Output> {
    course: Course,
    own: Own<F, E>,
    output: K,
}

/// The parts with the function's own types.
struct Own<F, E> {
    /// Boxed: a body that is moved into the enclosing futures would add its size to each.
    body: Option<Pin<Box<F>>>,
    /// Creates the value of a call whose body returned none.
    fail: Option<E>,
}

/// The acquisition of a lock.
#[must_use]
pub struct Entering(Pin<Box<dyn Future<Output = Result<LockedBody, Error>> + Send>>);

/// The progress of a call.
enum Course {
    Entering(Entering),
    Running(LockedBody),
    Releasing(LockedBody),
    Over,
}

impl Entering {
    pub(super) fn new(
        entering: impl Future<Output = Result<LockedBody, Error>> + Send + 'static,
    ) -> Self {
        Self(Box::pin(entering))
    }

    /// Runs `body` once the lock is held. Its value waits in `output` for the release, if it can.
    /// `fail` converts errors to a value.
    pub fn run<F: Future, K: Keep<F::Output>, E: FnOnce(Error) -> F::Output>(
        self,
        output: K,
        fail: E,
        body: Pin<Box<F>>,
    ) -> Run<F, K, E> {
        Run::new(Course::Entering(self), output, fail, body)
    }
}

impl Future for Entering {
    type Output = Result<LockedBody, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.get_mut().0.as_mut().poll(cx)
    }
}

impl LockedBody {
    /// Runs the body under a lock that is held already.
    pub fn run<F: Future, K: Keep<F::Output>, E: FnOnce(Error) -> F::Output>(
        self,
        output: K,
        fail: E,
        body: Pin<Box<F>>,
    ) -> Run<F, K, E> {
        Run::new(Course::Running(self), output, fail, body)
    }
}

impl<F: Future, K, E: FnOnce(Error) -> F::Output> Run<F, K, E> {
    fn new(course: Course, output: K, fail: E, body: Pin<Box<F>>) -> Self {
        let own = Own {
            body: Some(body),
            fail: Some(fail),
        };
        Self {
            course,
            own,
            output,
        }
    }
}

/// A body of any type.
trait Body<T> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<T>;
    /// Takes the body, to be dropped.
    fn take(&mut self) -> Option<Pin<Box<dyn Future<Output = T> + '_>>>;
    fn fail(&mut self, error: Error) -> T;
}

impl<F: Future, E: FnOnce(Error) -> F::Output> Body<F::Output> for Own<F, E> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<F::Output> {
        match &mut self.body {
            Some(body) => body.as_mut().poll(cx),
            None => Poll::Pending,
        }
    }

    fn take(&mut self) -> Option<Pin<Box<dyn Future<Output = F::Output> + '_>>> {
        self.body.take().map(|body| body as _)
    }

    fn fail(&mut self, error: Error) -> F::Output {
        match self.fail.take() {
            Some(fail) => fail(error),
            None => unreachable!("polled after its end"),
        }
    }
}

impl Course {
    fn drive<T, K: Keep<T>>(
        &mut self,
        own: &mut dyn Body<T>,
        output: &mut K,
        cx: &mut Context<'_>,
    ) -> Poll<T> {
        if let Self::Entering(entering) = self {
            match ready!(entering.0.as_mut().poll(cx)) {
                Ok(session) => *self = Self::Running(session),
                Err(error) => {
                    *self = Self::Over;
                    drop(own.take());
                    return Poll::Ready(own.fail(error));
                }
            }
        }
        if let Self::Running(session) = self {
            let mut value = None;
            let progress = session.poll_body(cx, &mut |cx| match own.poll(cx) {
                Poll::Ready(ready) => {
                    value = Some(ready);
                    true
                }
                Poll::Pending => false,
            });
            if let BodyProgress::Pending = progress {
                return Poll::Pending;
            }
            session.drop_body(own.take());
            let Self::Running(session) = std::mem::replace(self, Self::Over) else {
                unreachable!("it was running");
            };
            if let BodyProgress::Lost(error) = progress {
                drop(session);
                return Poll::Ready(own.fail(error));
            }
            if let Some(value) = value.and_then(|value| output.put(value)) {
                let completed = session.completed();
                return Poll::Ready(completed.map_or_else(|error| own.fail(error), |()| value));
            }
            *self = Self::Releasing(session);
        }
        let Self::Releasing(session) = self else {
            unreachable!("polled after its end");
        };
        let released = ready!(session.poll_release(cx));
        *self = Self::Over;
        match (released, output.take()) {
            (Ok(()), Some(value)) => Poll::Ready(value),
            (Err(error), _) => Poll::Ready(own.fail(error)),
            (Ok(()), None) => unreachable!("a body that completed has a value"),
        }
    }

    /// Drops a body that has not completed.
    fn abandon<T>(&mut self, own: &mut dyn Body<T>) {
        if let Self::Running(session) = self {
            session.drop_body(own.take());
        }
    }
}

// The body is pinned in its box, and nothing else is ever pinned.
impl<F: Future, K, E: FnOnce(Error) -> F::Output> Unpin for Run<F, K, E> {}

impl<F: Future, K: Keep<F::Output>, E: FnOnce(Error) -> F::Output> Future for Run<F, K, E> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.get_mut();
        this.course.drive(&mut this.own, &mut this.output, cx)
    }
}

impl<F: Future, K, E: FnOnce(Error) -> F::Output> Drop for Run<F, K, E> {
    fn drop(&mut self) {
        self.course.abandon(&mut self.own);
    }
}

impl<F: Future, K, E: FnOnce(Error) -> F::Output> fmt::Debug for Run<F, K, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").finish_non_exhaustive()
    }
}

impl fmt::Debug for Entering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Entering")
    }
}
