//! The kinds of locks, as types.

/// A kind of lock. Implemented by this crate alone.
pub trait Kind: sealed::Sealed + 'static {}
impl<K: sealed::Sealed + 'static> Kind for K {}

pub(super) mod sealed {
    #[allow(unnameable_types, reason = "sealed: nobody else is to implement it")]
    pub trait Sealed {}
}

/// The kind of a handle to a lock of any kind, for the questions that all kinds share.
pub(super) struct AnyKind;

impl sealed::Sealed for AnyKind {}
