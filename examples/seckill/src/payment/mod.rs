//! The payment service: slow, and not always right. [`client`] calls it; [`stub`]
//! stands in for it, as a real HTTP server in a process of its own.

mod client;
mod stub;

pub(crate) use self::client::{PaymentError, Payments};
pub(crate) use self::stub::{StubConfig, stub};
