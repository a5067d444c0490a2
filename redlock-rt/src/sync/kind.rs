//! The kinds of locks, as types.

/// A kind of lock. Implemented by this crate alone.
pub trait Kind: sealed::Sealed + 'static {}
impl<K: sealed::Sealed + 'static> Kind for K {}

/// A kind of lock whose hold can go to another process by a [`Ticket`](crate::Ticket): [`Reentrant`](crate::Reentrant)
/// and [`Fenced`](crate::Fenced). Implemented by this crate alone.
///
/// Not for a fair lock, whose next holder is a waiter in its queue; a read lock, which has other holders; a spin lock,
/// whose holds end before a ticket arrives; or several locks at once. A [permit](crate::PermitExpirableSemaphore) can
/// be released by its id from anywhere.
pub trait Adoptable: Kind + sealed::Adoptable {}
impl<K: Kind + sealed::Adoptable> Adoptable for K {}

#[allow(unnameable_types, reason = "sealed: nobody else is to implement it")]
pub(super) mod sealed {
    pub trait Sealed {}

    pub trait Adoptable {
        /// Whether its holds have tokens.
        const FENCED: bool = true;
    }
}

/// The kind of a handle to a lock of any kind, for the queries that all kinds share.
pub(super) struct AnyKind;

impl sealed::Sealed for AnyKind {}
