//! The machinery that locks of every kind share.
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
//! The states are pure and synchronous (`wait::queue`, `hold::lease`, `watchdog::schedule`,
//! `fair::queue`, `hub::registry`, the queue in `release`): time comes in as an argument, and what is
//! to be done goes out as a return value. A few thin tasks a client perform it: hub, watchdog,
//! releases, beats of fair queues. There is no task per lock, and commands that a caller waits for are
//! sent by the caller itself.
//!
//! # Glossary
//!
//! * *request*: an owner number and what it asks for; *attempt*: a request with a call under way,
//!   which is withdrawn if its caller goes away.
//! * *hold*: one owner number in one lock, while Redis counts it. *Guard*: what a caller has of a
//!   hold. *Lease*: until when the hold is valid without a renewal.
//! * *waiters*: the tasks of this process that wait for one name; the *head* is the first, and asks
//!   Redis for all; a *permit* is its leave to ask.
//! * *cleanup*: what Redis must still be told for a hold, whoever runs it.
//! * *scope*: a body that runs under a guard, in which locks are re-entered.
//!
//! # Lock order
//!
//! A lock is taken only while locks above it in one of these lists are held; no two lists nest, but
//! where the last line of a list says so.
//!
//! 1. the `WeakMap` of a `WaiterMap` or `FairMap` · 2. a name's `Subscription` · 3. its `WaitQueue`,
//!    `FairWaitQueue` or `Holders` · 4. the hub's `Registry`.
//! 1. the watchdog's `Schedule` · 2. `Hold::lease`, the watchdog's homes and moment of doubt.
//! 1. the release queue.
//! 1. `Owner`'s slots.
//!
//! Wakers are woken, and holds and waiters dropped, with no lock held.

mod acquire;
mod calls;
#[allow(clippy::module_inception)]
mod engine;
mod fair;
mod guard;
mod handle;
mod hold;
mod hub;
mod news;
mod release;
mod signal;
mod tasks;
mod wait;
mod watchdog;

pub(crate) use self::acquire::{AcquireParams, CurrentHold, ReentryScope, TogetherOutcome};
pub use self::acquire::{Backoff, Owner};
pub(crate) use self::calls::Repeat;
pub(crate) use self::engine::{Config, Engine};
pub use self::guard::Unlocked;
pub(crate) use self::guard::{HoldGuard, run_until_lost};
pub(crate) use self::handle::Handle;
pub use self::hold::{GuardState, LostReason};
pub(crate) use self::hold::{Hold, Terms};
pub(crate) use self::release::OnceCall;
pub(crate) use self::signal::Signal;
pub(crate) use self::wait::{
    Called, Health, Key, Subject, WAIT_LATCH, WaiterGuard, WaiterMap, Waiters, Wake, wait_latch,
};
