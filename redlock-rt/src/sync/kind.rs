//! The kinds of locks, as types.

/// A kind of lock. Implemented by this crate alone.
pub trait Kind: sealed::Sealed + 'static {}
impl<K: sealed::Sealed + 'static> Kind for K {}

pub(super) mod sealed {
    #[allow(unnameable_types, reason = "sealed: nobody else is to implement it")]
    pub trait Sealed {}
}

/// Of a handle to a lock of whatever kind, for what all kinds can be asked.
pub(super) struct AnyKind;

impl sealed::Sealed for AnyKind {}
