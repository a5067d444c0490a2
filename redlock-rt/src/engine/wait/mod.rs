//! Waiting in this process: one queue for each name that tasks wait for, of any kind of primitive.
//!
//! ```text
//! WaiterMap ──▶ Waiters (one name) ──▶ WaitQueue (pure state)
//!                  ▲        └───────▶ Subscription ──▶ hub
//!                  └── WaiterGuard (one waiter, leaves when dropped)
//! ```
//!
//! A waiter whose place is in a queue in Redis has a [`Seat`] instead. Both [wait](Waits) in the same
//! way.

mod called;
#[cfg(test)]
mod count_waker;
mod health;
mod latch;
mod map;
mod queue;
mod seat;
mod weak_map;

/// Why a wait failed that was behind a future that is not polled.
pub(crate) const NOT_POLLED: &str =
    "timed out behind another caller of this client, whose future is not polled";

pub(crate) use self::called::{Called, Waits};
pub(crate) use self::health::Health;
pub(crate) use self::latch::{LatchWaiters, wait_latch};
pub(crate) use self::map::{Subject, WaitKey, WaiterGuard, WaiterMap, Waiters};
pub(crate) use self::queue::{Refusal, Wake};
pub(crate) use self::seat::Seat;
pub(crate) use self::weak_map::WeakMap;
