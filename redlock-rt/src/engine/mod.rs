//! The engine: the part that all kinds of locks share.
//!
//! ```text
//!   acquire (the one entry) ───▶ guard ──────▶ release (queue, task)
//!      │      │                    │              │
//!      │      └──▶ fair (queue     │              │
//!      │           in Redis)       ▼              ▼
//!      └──▶ wait (local queue) ◀── hold (lease, holders) ◀── watchdog (schedule, task)
//!             │
//!             ▼
//!           hub (pub/sub, task)          connection: main · renewals · subscriber
//! ```
//!
//! The states are pure and synchronous (`wait::queue`, `hold::lease`, `watchdog::schedule`, `fair::queue`,
//! `hub::registry`, the queue in `release`): they take the time as an argument, and return what to do. A few
//! tasks per client execute that: hub, watchdog, releases, and beats of fair queues. There is no task per lock,
//! and callers send their own commands.
//!
//! # Glossary
//!
//! Other words have the meaning that they have in Redis and Tokio.
//!
//! * *owner number*: identifies an owner in one client; with the client's UUID it is the id in Redis.
//! * *recipe*: which calls one kind of lock makes. *Profile*: what its kind allows.
//! * *terms*: the lease, the interval of renewals and the longest hold that a caller asks for.
//! * *request*: an owner number and its parameters. *Attempt*: a request that may be sent. It is withdrawn if
//!   its caller goes away. *Try*: one call of an attempt.
//! * *hold*: one owner number in one lock, while Redis counts it. *Guard*: a caller's share of a
//!   hold. *Lease*: how long the hold is valid without a renewal.
//! * *waiter*: a task of this process that waits for a name. The *head* is the first waiter, and asks Redis for
//!   all of them. A *permit* allows the head to ask. A *ticket* is a place in the queue. A waiter that is
//!   queued in Redis has a *seat* instead.
//! * *cleanup*: a call for a hold that Redis must still receive, from any runner. *Turn*: the permission to
//!   send a call that changes a hold.
//! * *scope*: a body that runs under a guard, in which locks are re-entered.
//! * *offer*: an ending hold that is left to the next local waiter. *Chain*: holds that follow each other so.
//! * *announcement*: the message of a release. *Rivals*: the other clients that receive it. To *yield*: to try
//!   after a pause, so that rivals try first.
//! * *beat*: the call by which a client keeps its waiters in the queues of fair locks. *Grant*: a release
//!   that gives a fair lock to its next waiter.
//! * *doubt*: an event after which the server may not have our holds any more.
//! * *lasting*: in Redis, and not ended by a lease. *Undelivered*: still to be sent, to end it.
//!
//! # Lock order
//!
//! While a mutex is held, only later mutexes of the same list are taken. Mutexes of different lists do not
//! nest, unless the last line of a list says so.
//!
//! 1. the `WeakMap` of a `WaiterMap` or `FairMap` · 2. a name's `Subscription` · 3. its `WaitQueue`,
//!    `FairWaitQueue` or `Holders` · 4. the hub's `Registry`.
//! 1. the watchdog's `Schedule` · 2. `Hold::lease`, the watchdog's holds in doubt, the hub's `Registry` · 3. the
//!    listeners of `News`.
//! 1. the release queue.
//! 1. `Owner`'s slots.
//!
//! Wakers are woken, and holds and waiters dropped, with no mutex held.

mod acks;
mod acquire;
mod announcement;
mod calls_without_hold;
mod checkup;
#[allow(clippy::module_inception)]
mod engine;
mod failover;
mod fair;
mod guard;
mod hand_over;
mod handle;
mod hold;
mod hub;
mod names;
mod opaque;
mod release;
mod signal;
mod spelling;
mod tasks;
mod timers;
mod wait;
mod watchdog;

pub use self::acks::{Fsync, ReplicaAck};
pub(crate) use self::acquire::{AcquireParams, CurrentHold, ReentryScope, Steal, TogetherOutcome};
pub use self::acquire::{Backoff, Owner};
pub(crate) use self::calls_without_hold::Repeat;
pub(crate) use self::engine::{ClientEngine, Config};
pub use self::guard::Unlocked;
pub(crate) use self::guard::{HoldGuard, run_until_lost};
pub(crate) use self::handle::Handle;
pub use self::hold::{GuardState, LostReason};
pub(crate) use self::hold::{Hold, Terms, margin};
pub(crate) use self::hub::{ChannelListener, Subscription};
pub(crate) use self::release::OnceCall;
pub(crate) use self::signal::{Signal, ensure};
pub(crate) use self::wait::{
    Called, Health, NOT_POLLED, Subject, WaitKey, WaiterGuard, WaiterMap, Waiters, Waits, Wake,
    wait_latch,
};
