//! The same without the feature: no data, no code.

use std::time::Duration;

use super::LockEvent;
use crate::error::Error;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Meter;

pub(crate) struct Acquiring;

#[derive(Debug)]
pub(crate) struct Held;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent;

impl Meter {
    pub(crate) const NONE: Self = Self;

    pub(crate) fn labelled(_: &str) -> Self {
        Self
    }

    pub(crate) fn kind(self, _: &'static str) -> Self {
        Self
    }

    pub(crate) fn acquiring(self) -> Acquiring {
        Acquiring
    }

    pub(crate) fn label(self, kind: &'static str) -> &'static str {
        kind
    }

    pub(crate) fn waits(self) {}

    pub(crate) fn renews(self, _: impl FnOnce() -> Option<Duration>) {}
}

impl Acquiring {
    pub(crate) fn ended<T>(self, _: &Result<T, Error>) {}
}

impl Held {
    pub(crate) fn new(_: Meter) -> Self {
        Self
    }

    pub(crate) fn meter(&self) -> Meter {
        Meter
    }

    pub(crate) fn hears(&mut self, _: &LockEvent, _: impl FnOnce() -> u32) {}
}

impl Sent {
    pub(crate) const fn never() -> Self {
        Self
    }

    pub(crate) fn again(&self, _: &'static str) {}
}

pub(crate) fn reconnected() {}

pub(crate) fn release_failed() {}

pub(crate) fn releases_pending(_: i32) {}

pub(crate) fn script_loaded() {}
