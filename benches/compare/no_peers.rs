//! In place of `peers.rs` without the feature `peers`: no other lock crates.

use crate::{held::Keepers, sides::Side};

pub(crate) struct Peers;

impl Peers {
    pub(crate) async fn connect(_: &str) -> Self {
        Self
    }

    pub(crate) async fn keepers(_: &str) -> Keepers {
        Keepers::new()
    }

    pub(crate) fn distinct(&self, _: u64) -> Vec<Box<dyn Side>> {
        Vec::new()
    }

    pub(crate) fn contended(&self, _: usize) -> Vec<Box<dyn Side>> {
        Vec::new()
    }
}
