//! The place in which the value of a body waits while the lock is released.
//!
//! A future that keeps a value across an await is `Send` only if the value is. Without the
//! attribute the function returns its value at its end, so it could be `Send` with any value.
//! Therefore a value that is known to be `Send` is kept until the release is over, and any other
//! value is returned at once, while the release is in progress. Method resolution makes the choice:
//! it prefers the trait that needs fewer references.

use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;

/// Stands for the value of a body that has not run.
pub struct Output<T>(PhantomData<fn() -> T>);

impl<T> Output<T> {
    /// For this body, which is moved: a borrowed body would stay in the enclosing future for the
    /// compiler, and exist once more in its box.
    pub fn of<F: Future<Output = T>>(body: F) -> (Self, Pin<Box<F>>) {
        (Self(PhantomData), Box::pin(body))
    }
}

impl<T> fmt::Debug for Output<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Output")
    }
}

/// Never called: carries the return type of a body.
pub fn never<T>() -> T {
    unreachable!("never called")
}

/// The first choice.
pub trait Sendable<T> {
    /// A place for the value.
    fn place(&self) -> Deferred<T>;
}

impl<T: Send> Sendable<T> for Output<T> {
    fn place(&self) -> Deferred<T> {
        Deferred(None)
    }
}

/// The second choice.
pub trait Unsendable {
    /// No place for the value.
    fn place(&self) -> Immediate;
}

impl<T> Unsendable for &Output<T> {
    fn place(&self) -> Immediate {
        Immediate
    }
}

/// Whether a value can wait.
pub trait Keep<T> {
    /// Returns the value if it cannot wait.
    fn put(&mut self, value: T) -> Option<T>;

    /// Takes the value that has waited.
    fn take(&mut self) -> Option<T>;
}

/// The place of a value that is returned after the release.
#[derive(Debug)]
pub struct Deferred<T>(Option<T>);

impl<T> Keep<T> for Deferred<T> {
    fn put(&mut self, value: T) -> Option<T> {
        self.0 = Some(value);
        None
    }

    fn take(&mut self) -> Option<T> {
        self.0.take()
    }
}

/// No place: the value is returned at once, with the release under way.
#[derive(Debug)]
pub struct Immediate;

impl<T> Keep<T> for Immediate {
    fn put(&mut self, value: T) -> Option<T> {
        Some(value)
    }

    fn take(&mut self) -> Option<T> {
        None
    }
}
