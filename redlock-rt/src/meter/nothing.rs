//! The same without the feature: no data, no code.

use std::time::Duration;

use crate::error::{Error, LostReason};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Meter;

pub(crate) struct Acquiring;

#[derive(Debug)]
pub(crate) struct Held;

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

    pub(crate) fn held(self) -> Held {
        Held
    }

    pub(crate) fn renews(self, _: impl FnOnce() -> Option<Duration>) {}
}

impl Acquiring {
    pub(crate) fn ended<T>(self, _: &Result<T, Error>) {}
}

impl Held {
    pub(crate) fn meter(&self) -> Meter {
        Meter
    }

    pub(crate) fn released(&mut self) {}

    pub(crate) fn lost(&mut self, _: LostReason) {}
}

pub(crate) fn reconnected() {}

pub(crate) fn release_failed() {}
