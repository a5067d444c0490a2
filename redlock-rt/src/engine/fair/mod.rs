//! Waiters with their own place in a queue in Redis.
//!
//! ```text
//! acquire ──FairTicket──▶ FairWaiters (one name) ──wakes──▶ the waiter's seat ──▶ acquire tries
//!                            ▲ ▲
//!          announcements ────┘ └──── beats (one call for many names)
//! ```
//!
//! A waiter queues by one call and then sleeps. The waiter is woken when its turn is announced, or
//! when a beat says that it is next and the lock is free. `FairWaiters` are all waiters of this
//! client for one name: one beat reports that the client is alive, whatever the number of its
//! waiters. While one of them is the head of the queue in Redis, the beat also checks the lock,
//! when the holder's lease is over and every poll interval. Beats of up to a hundred names go in
//! one call, as renewals do.
//!
//! Clients of this crate announce all turns of a client on one channel of that client. Redisson
//! announces turns on a channel of the waiter: the client subscribes to the channel of its waiter that is
//! the head, and if a Redisson client holds the lock or is queued, to those of its oldest waiters.
//!
//! # Lock order
//!
//! The subscription to the client's channel; the channels of a name; the map, or the queue of a name;
//! the schedule.

mod batch;
mod map;
mod queue;
mod task;
#[cfg(all(test, feature = "embedded", not(redlock_loom)))]
mod tests;
mod waiters;

pub(super) use self::map::FairMap;
pub(super) use self::task::run;
pub(super) use self::waiters::FairTicket;
