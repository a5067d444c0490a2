//! One timer for the calls of a connection.
//!
//! A timer of its own for each call would be set and taken back with every call, and go off with
//! none.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::time::{Instant, Sleep};

use crate::clock;

/// A timer that is set anew only when it has gone off, or for an earlier moment.
#[derive(Debug, Default)]
pub(super) struct Alarm {
    set: Option<(Pin<Box<Sleep>>, Instant)>,
}

impl Alarm {
    /// Ready once `due` has come. In a runtime, if there is such a moment.
    pub(super) fn poll(&mut self, due: Option<Instant>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(due) = due else {
            return Poll::Pending;
        };
        let (sleep, at) = self
            .set
            .get_or_insert_with(|| (Box::pin(clock::sleep_until_tokio(due)), due));
        if *at != due {
            sleep.as_mut().reset(due);
            *at = due;
        }
        sleep.as_mut().poll(cx)
    }
}
