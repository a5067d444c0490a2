//! Why the shop did not do what it was asked for.

use crate::store::StoreError;

/// Why the shop did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ShopError {
    #[error("lock: {0}")]
    Lock(#[from] redlock_rt::Error),
    /// A lock of a step before the library, which knows fewer ways to fail.
    #[error("lock: {0}")]
    RawLock(#[from] redis::RedisError),
    #[error("lock: still taken after the wait")]
    RawLockTaken,
    #[error("database: {0}")]
    Store(#[from] StoreError),
    #[error("no voucher has this id")]
    NoSuchVoucher,
    #[error("this voucher is not on sale")]
    NotOnSale,
    #[error("no order of yours has this id")]
    NoSuchOrder,
    #[error("no rush has this id")]
    NoSuchRush,
    /// After an outage of the database none has said yet that it serves.
    #[error("no instance serves at the moment")]
    NoInstances,
    #[error("a voucher named {0:?} is there already")]
    NameTaken(String),
    #[error("the sale has not begun")]
    NotBegun { begins_at: i64 },
    #[error("the sale is over")]
    Over,
    #[error("no voucher is left")]
    SoldOut,
    #[error("you have one already")]
    AlreadyOrdered,
    #[error("somebody with a newer lock was faster; nothing was ordered")]
    Overtaken,
    #[error("this sale is entered through its waiting room")]
    NoPass,
    #[error("the order is paid already")]
    AlreadyPaid,
    #[error("the order with this id is not offered, or is yours, or one of the two is being paid")]
    NotOffered,
    #[error("one of you would have two orders of one voucher")]
    SwappedTwice,
    #[error("payments are not set up")]
    NoPayments,
    #[error("payment: {0}")]
    Payment(#[from] crate::payment::PaymentError),
    /// What the caller sent makes no sense: the field, and what is wrong with it.
    #[error("{field}: {problem}")]
    Invalid {
        field: &'static str,
        problem: String,
    },
}

impl ShopError {
    pub(crate) fn invalid(field: &'static str, problem: impl Into<String>) -> Self {
        Self::Invalid {
            field,
            problem: problem.into(),
        }
    }

    /// Whether the lock stayed taken for the whole wait.
    pub(crate) fn is_busy(&self) -> bool {
        match self {
            Self::Lock(error) => error.is_timed_out() || error.is_contended(),
            Self::RawLockTaken => true,
            _ => false,
        }
    }
}
