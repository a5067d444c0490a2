//! Messages of this client that do not arrive.
//!
//! A message that this client publishes on a confirmed channel must arrive within a time limit. If
//! it does not, the listeners of that channel ask Redis themselves, and the connection is in
//! *doubt*: a PING is sent, and no listener relies on it until the reply. A message would have come
//! before the reply. If none has, Redis does not publish for us (an ACL), and the channel is *mute*
//! until a message arrives on it. A connection that does not answer the PING is closed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use super::Registry;

/// A message of this client must arrive within this time after the reply to the call that published
/// it, or within some round trips.
pub(super) const NOTICED: Duration = Duration::from_millis(200);
pub(super) const ROUND_TRIPS: u32 = 3;
/// If the check for missing messages runs this late, its task was delayed, and may have messages to
/// read first.
pub(super) const LATE: Duration = Duration::from_millis(50);

/// The state of the messages on a confirmed channel.
#[derive(Debug, Default)]
pub(super) struct Ear {
    /// When the last message arrived.
    pub(super) heard: Option<Instant>,
    /// The time limit for a message of this client.
    owed: Option<Instant>,
    /// A message did not arrive in time, and the connection has not answered since.
    missed: bool,
    /// A message did not arrive although the connection answered.
    mute: bool,
}

/// The messages that are expected on a connection.
#[derive(Debug, Default)]
pub(super) struct Missing {
    /// The channels, by the moment to check, each once at most.
    pub(super) owed: BinaryHeap<Reverse<(Instant, String)>>,
    /// Whether a PING was sent because a message did not arrive.
    doubted: bool,
}

/// What to do about messages that did not arrive in time.
#[derive(Debug)]
pub(in crate::engine::hub) struct Overdue<L> {
    /// The listeners that must ask Redis themselves.
    pub(in crate::engine::hub) told: Vec<L>,
    /// Whether to send a PING.
    pub(in crate::engine::hub) doubt: bool,
}

impl<L: Clone> Registry<L> {
    /// A call sent at `sent`, which has been answered, has published on a channel. Returns whether
    /// its listeners will be notified: the message has arrived, or will arrive, or will be missed
    /// ([`overdue`](Self::overdue)).
    pub(in crate::engine::hub) fn expect(
        &mut self,
        channel: &str,
        sent: Instant,
        now: Instant,
    ) -> bool {
        let doubted = self.missing.doubted;
        let Some(entry) = self.channels.get_mut(channel) else {
            return false;
        };
        if !entry.confirmed || entry.listeners.is_empty() || entry.ear.mute || doubted {
            return false;
        }
        // Another client's message is enough: it arrived after earlier messages.
        if entry.ear.heard.is_some_and(|heard| heard >= sent) || entry.ear.owed.is_some() {
            return true;
        }
        let round_trip = now.saturating_duration_since(sent);
        let by = crate::clock::after(now, NOTICED.max(round_trip * ROUND_TRIPS));
        entry.ear.owed = Some(by);
        if !std::mem::replace(&mut entry.timed, true) {
            self.missing.owed.push(Reverse((by, channel.to_owned())));
        }
        true
    }

    /// When to check for missing messages.
    pub(in crate::engine::hub) fn overdue_at(&self) -> Option<Instant> {
        self.missing.owed.peek().map(|Reverse((at, ..))| *at)
    }

    /// Checks for messages that did not arrive in time. Call this only after reading all arrived
    /// messages.
    pub(in crate::engine::hub) fn overdue(&mut self, now: Instant) -> Overdue<L> {
        let mut told = vec![];
        let doubted = self.missing.doubted;
        while self.overdue_at().is_some_and(|at| at <= now) {
            let Some(Reverse((_, channel))) = self.missing.owed.pop() else {
                break;
            };
            let Some(entry) = self.channels.get_mut(&channel) else {
                continue;
            };
            entry.timed = false;
            let again = match entry.ear.owed {
                // A message has arrived since.
                None => continue,
                Some(by) if by > now => by,
                Some(by) if now.saturating_duration_since(by) > LATE => {
                    crate::clock::after(now, LATE)
                }
                Some(_) => {
                    entry.ear.owed = None;
                    entry.ear.missed = true;
                    told.extend(entry.all_listeners());
                    self.missing.doubted = true;
                    continue;
                }
            };
            entry.ear.owed = Some(again);
            entry.timed = true;
            self.missing.owed.push(Reverse((again, channel)));
        }
        Overdue {
            told,
            doubt: self.missing.doubted && !doubted,
        }
    }

    /// The connection answered a PING that was sent after the missing messages were published.
    /// Returns whether Redis does not publish for us on some channel.
    pub(in crate::engine::hub) fn answered(&mut self) -> bool {
        self.missing.doubted = false;
        let mut mute = false;
        for entry in self.channels.values_mut() {
            if std::mem::take(&mut entry.ear.missed) {
                entry.ear.mute = true;
                mute = true;
            }
        }
        mute
    }
}
