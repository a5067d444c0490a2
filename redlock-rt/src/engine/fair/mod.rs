//! Waiters with their own place in a queue in Redis.
//!
//! ```text
//! acquire ──FairTicket──▶ FairWaiters (one name) ──wakes──▶ the waiter's seat ──▶ acquire tries
//!                            ▲ ▲
//!          announcements ────┘ └──── beats (one call for many names)
//! ```
//!
//! A waiter queues by one call and then sleeps. The waiter is woken when its turn is announced, or when a
//! beat says that it is next and the lock is free. `FairWaiters` are all waiters of this client for one
//! name: one beat reports that the client is alive, whatever the number of its waiters. While one of them
//! is the head of the queue in Redis, the beat also checks the lock, when the holder's lease is over and
//! every poll interval. Up to a hundred names share one call, as renewals do.
//!
//! Clients of this crate announce all turns of a client on one channel of that client. Redisson announces
//! turns on a channel of the waiter. So the client subscribes to the channel of the waiter that is the
//! head. If a Redisson client holds the lock or is queued, it also subscribes to those of its oldest
//! waiters.
//!
//! # Lock order
//!
//! The subscription to the client's channel; the channels of a name; the map, or the queue of a name; the
//! schedule.
//!
//! # Channels
//!
//! * A client subscribes to its channel before a waiter queues: a waiter gets its ticket before its first
//!   call is sent. When the channel is confirmed, a beat is sent for every name that then has a ticket.
//! * Redisson announces a turn of ours only if it has the lock or is queued before us, or frees the lock by
//!   force. The first two are known when a waiter queues, because no one enters the queue before it later.
//!   A new subscription is followed by a beat.
//! * A waiter that becomes next is told when the holder's lease ends, if that is in less than 30 s, the
//!   longest time between two beats: the end of a lease is not announced. The message does not wake the
//!   waiter.
//!
//! # Beats
//!
//! * While a waiter of the client is the head of the queue, the next beat is due at the first of three
//!   times: after one to two poll intervals, at the end of the holder's lease, or after a third of the
//!   waiter time-out. If the client cannot subscribe, this is so for every name. If beats fail, the head
//!   tries on its own every poll interval.
//! * A call is sent when the first beat is due, and includes the beats that are due within half of the time
//!   since that name's last one. If one name causes a refusal, the batch is halved until that name is
//!   found, and its waiters learn the reason from their own tries. At most four calls are in progress.
//! * A client of ours is identified by its UUID, not by its note in Redis: if the notes are evicted, our
//!   waiters are not mistaken for foreign ones.
//!
//! # Left-over waiters
//!
//! Redis may still have a waiter that its client no longer has: its leave failed for good, or has not
//! arrived yet. Such a waiter would be next for ever, since its client is alive. A beat reports which
//! number is next. If that number has no ticket, and had none when the beat was sent, the client sends the
//! next beat at once, which removes the number. So a beat is sent with the first waiter of a name, however
//! short its wait. The removal affects only the queue; a hold stays.

mod batch;
mod map;
mod queue;
mod task;
#[cfg(all(test, feature = "embedded"))]
mod tests;
mod waiters;

pub(super) use self::map::FairMap;
pub(super) use self::task::run;
pub(super) use self::waiters::FairTicket;
