//! Spans for traces. None is made unless a subscriber listens to their target at INFO.

use std::fmt::Debug;

use tracing::field::Empty;
use tracing::{Instrument, Level, Span, enabled, info_span};

use super::{LockEvent, Meter, snake};
use crate::error::{Error, ErrorKind, LostReason};
use crate::name::LockName;

const TARGET: &str = "redlock_rt::span";

/// An optional span, in one word, since each call stores one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Spanned(Option<Box<Span>>);

/// The span of a call that ends without an outcome if this is dropped.
struct Cancelled(Span);

impl Drop for Cancelled {
    fn drop(&mut self) {
        self.0.record("outcome", "cancelled");
    }
}

impl Spanned {
    fn of(span: Span) -> Self {
        Self((!span.is_disabled()).then(|| Box::new(span)))
    }

    /// For a call that asks for a lock.
    pub(crate) fn acquire(meter: Meter, kind: &'static str, name: &LockName) -> Self {
        let span = info_span!(
            target: TARGET, "redlock.acquire",
            kind, lock = meter.label(kind), otel.kind = "client",
            name = Empty, contended = Empty, outcome = Empty, "error.type" = Empty
        );
        Self::of(named(span, name))
    }

    /// For a hold. Not within the span of the acquiring call, which would end only after this one.
    pub(crate) fn held(meter: Meter, kind: &'static str, name: &LockName) -> Self {
        let span = info_span!(
            target: TARGET, "redlock.held",
            kind, lock = meter.label(kind), name = Empty, lost = Empty
        );
        Self::of(named(span, name))
    }

    /// For a call to Redis, within the span of the caller. Calls in the background have no span.
    pub(crate) fn call(operation: &'static str, server: &str) -> Self {
        if !enabled!(target: TARGET, Level::INFO) || Span::current().is_none() {
            return Self::default();
        }
        let (address, port) = server.rsplit_once(':').unwrap_or((server, ""));
        Self::of(info_span!(
            target: TARGET, "redlock.call",
            otel.kind = "client", db.system.name = "redis", db.operation.name = operation,
            server.address = address, server.port = port.parse::<u16>().ok(), "error.type" = Empty
        ))
    }

    pub(crate) fn is_some(&self) -> bool {
        self.0.is_some()
    }

    /// Runs a call that asks for a lock in its span.
    pub(crate) async fn around<T>(
        self,
        acquires: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let span = self.0.map_or_else(Span::none, |span| *span);
        let mut cancelled = Cancelled(span.clone());
        let outcome = acquires.instrument(span.clone()).await;
        cancelled.0 = Span::none();
        let kind = outcome.as_ref().err().map(Error::kind);
        let told = kind.map_or_else(|| "acquired".to_owned(), |kind| snake(&kind));
        span.record("outcome", &*told);
        // Contention is not an error.
        if !matches!(
            kind,
            None | Some(ErrorKind::Contended | ErrorKind::TimedOut)
        ) {
            span.record("error.type", &*told);
        }
        outcome
    }

    /// The call of the current span needs more than one try.
    pub(crate) fn waits() {
        if enabled!(target: TARGET, Level::INFO) {
            Span::current().record("contended", true);
        }
    }

    /// The span of a call to Redis ends.
    pub(crate) fn answered(&mut self, error: Option<&dyn Debug>) {
        if let (Some(span), Some(error)) = (self.0.take(), error) {
            span.record("error.type", snake(error));
        }
    }

    /// Records an event of this span's hold. Returns the span if the event ends the hold.
    pub(crate) fn hears(&mut self, event: &LockEvent) -> Option<EndedSpan> {
        let lost = match event {
            LockEvent::Lost(reason) => Some(reason.clone()),
            LockEvent::Released => None,
            _ => return None,
        };
        let span = *self.0.take()?;
        Some(EndedSpan { span, lost })
    }
}

/// The span of a hold that is over. Ended with no mutex held, since subscribers run foreign code.
#[derive(Debug)]
pub(crate) struct EndedSpan {
    span: Span,
    lost: Option<LostReason>,
}

impl EndedSpan {
    pub(super) fn end(self) {
        if let Some(reason) = self.lost {
            self.span.record("lost", snake(&reason));
        }
    }
}

/// Only the level DEBUG records the name, which may contain values.
fn named(span: Span, name: &LockName) -> Span {
    if enabled!(target: TARGET, Level::DEBUG) {
        span.record("name", name.as_str());
    }
    span
}
