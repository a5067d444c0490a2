//! Which channels are wanted, and which of them the server has confirmed. Pure state.
//!
//! ```text
//!          attach            last detach              linger over
//!   (none) ─────▶ Wanted ───────────────▶ Lingering ─────────────▶ Ending
//!                  ▲  ▲ ◀─────attach───────┘                        │  │ confirmed
//!                  │  └──────────── attach: subscribes anew ────────┘  ▼
//!                  └── disconnected (with listeners)                 (none)
//! ```
//! Wanted and Lingering are either still unconfirmed (Subscribing) or confirmed (Subscribed).
//!
//! # Invariants
//!
//! 1. A channel with listeners is Wanted, and a Wanted channel has listeners.
//! 2. A confirmation counts only for the last command sent for its channel: a listener that
//!    attaches in Ending subscribes again and waits for that confirmation.
//! 3. Listeners are notified whenever their channel is confirmed, because they missed earlier
//!    messages.

#[cfg(test)]
mod loom;
#[cfg(test)]
mod tests;

mod missing;

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use self::missing::{Ear, Missing};
use super::rivals::Rivals;

/// When a subscription without listeners ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum SubscriptionEnd {
    /// After a moment, since another waiter usually follows.
    #[default]
    Later,
    /// At once, since no other waiter follows.
    AtOnce,
}

/// A command for the task to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Effect {
    pub(super) channel: String,
    pub(super) subscribe: bool,
    /// The number of this command.
    pub(super) round: u64,
}

/// More lingering subscriptions than this are ended early, the oldest first.
const MOST_LINGERING: usize = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChannelPhase {
    Wanted,
    Lingering { until: Instant },
    Ending,
}

#[derive(Debug)]
struct ChannelState<L> {
    phase: ChannelPhase,
    /// Whether the server has confirmed the last SUBSCRIBE.
    confirmed: bool,
    /// The server has ended a subscription on its own since the last command was sent: an earlier
    /// subscription, or the one of this command.
    left: bool,
    /// The server has refused the last command.
    refused: bool,
    round: u64,
    listeners: Vec<(u64, L)>,
    ear: Ear,
    rivals: Rivals,
    /// Whether `Missing::owed` has an entry for it.
    timed: bool,
}

impl<L: Clone> ChannelState<L> {
    fn all_listeners(&self) -> Vec<L> {
        let listeners = self.listeners.iter();
        listeners.map(|(_, listener)| listener.clone()).collect()
    }
}

/// The channels of one subscribing connection.
#[derive(Debug)]
pub(super) struct Registry<L> {
    channels: HashMap<String, ChannelState<L>>,
    commands: Commands,
    /// Channels in the order in which they began to linger; entries may be outdated.
    lingering: VecDeque<(Instant, String)>,
    linger: Duration,
    missing: Missing,
    next_id: u64,
}

/// The commands to send.
#[derive(Debug, Default)]
struct Commands {
    connected: bool,
    queue: VecDeque<Effect>,
    /// The number of the last command. A channel that is attached again never reuses an old number.
    rounds: u64,
}

impl Commands {
    fn send<L>(&mut self, channel: &str, entry: &mut ChannelState<L>) {
        self.rounds += 1;
        entry.round = self.rounds;
        entry.confirmed = false;
        entry.left = false;
        entry.refused = false;
        entry.ear = Ear::default();
        // Without a connection nothing is sent now; `connected` sends it.
        if self.connected {
            self.queue.push_back(Effect {
                channel: channel.to_owned(),
                subscribe: entry.phase != ChannelPhase::Ending,
                round: entry.round,
            });
        }
    }
}

impl<L: Clone> Registry<L> {
    #[cfg(test)]
    pub(super) fn new(linger: Duration) -> Self {
        Self::numbered(linger, 0)
    }

    /// A registry whose listeners have numbers from `next_id` on.
    pub(super) fn numbered(linger: Duration, next_id: u64) -> Self {
        Self {
            channels: HashMap::new(),
            commands: Commands::default(),
            lingering: VecDeque::new(),
            linger,
            missing: Missing::default(),
            next_id,
        }
    }

    /// Adds a listener; returns its id and whether the channel is confirmed.
    pub(super) fn attach(&mut self, channel: &str, listener: L) -> (u64, bool) {
        let id = self.next_id;
        self.next_id += 1;
        (id, self.want(channel, [(id, listener)]))
    }

    /// Adds listeners that have listened at another server, with their ids. Returns those to notify,
    /// since the channel is confirmed.
    pub(super) fn adopt(&mut self, channel: &str, listeners: Vec<(u64, L)>) -> Vec<L> {
        let moved: Vec<L> = listeners.iter().map(|(_, moved)| moved.clone()).collect();
        match !moved.is_empty() && self.want(channel, listeners) {
            true => moved,
            false => vec![],
        }
    }

    /// Adds listeners; returns whether the channel is confirmed.
    fn want(&mut self, channel: &str, listeners: impl IntoIterator<Item = (u64, L)>) -> bool {
        let entry = self.channels.entry(channel.to_owned());
        let entry = entry.or_insert_with(|| ChannelState {
            phase: ChannelPhase::Ending,
            confirmed: false,
            left: false,
            refused: false,
            round: 0,
            listeners: vec![],
            ear: Ear::default(),
            rivals: Rivals::default(),
            timed: false,
        });
        entry.listeners.extend(listeners);
        let ending = entry.phase == ChannelPhase::Ending;
        entry.phase = ChannelPhase::Wanted;
        if ending {
            self.commands.send(channel, entry);
        }
        entry.confirmed
    }

    /// Removes all listeners, which will listen at another server, and ends the subscription.
    pub(super) fn take(&mut self, channel: &str) -> Vec<(u64, L)> {
        let Some(entry) = self.channels.get_mut(channel) else {
            return vec![];
        };
        let listeners = std::mem::take(&mut entry.listeners);
        if entry.phase != ChannelPhase::Ending {
            self.end(channel);
        }
        listeners
    }

    /// The server has ended a subscription on its own. Removes and returns the listeners. If the
    /// subscription is not confirmed, the server may mean this one or an earlier one. Its
    /// [confirmation](Self::was_left) decides: messages are read before replies are passed on.
    pub(super) fn left(&mut self, channel: &str) -> Vec<(u64, L)> {
        match self.channels.get_mut(channel) {
            Some(entry) if !entry.confirmed => {
                entry.left = true;
                vec![]
            }
            _ => self.remove(channel),
        }
    }

    fn remove(&mut self, channel: &str) -> Vec<(u64, L)> {
        let entry = self.channels.remove(channel);
        entry.map_or_else(Vec::new, |entry| entry.listeners)
    }

    /// Whether a subscription that is confirmed now may have been ended by the server since.
    pub(super) fn was_left(&self, channel: &str) -> bool {
        let entry = self.channels.get(channel);
        entry.is_some_and(|entry| entry.confirmed && entry.left)
    }

    /// The server refused the SUBSCRIBE, because the slot is elsewhere. Removes and returns the
    /// listeners.
    pub(super) fn turned_away(&mut self, effect: &Effect) -> Vec<(u64, L)> {
        match self.of_round(effect) {
            Some(_) => self.remove(&effect.channel),
            None => vec![],
        }
    }

    /// The channels that are subscribed or will be, in order.
    pub(super) fn wanted(&self) -> Vec<String> {
        let all = self.channels.iter();
        let wanted = all.filter(|(_, entry)| entry.phase != ChannelPhase::Ending);
        let mut wanted: Vec<_> = wanted.map(|(channel, _)| channel.clone()).collect();
        wanted.sort_unstable();
        wanted
    }

    /// Whether the channel is subscribed or will be.
    pub(super) fn is_wanted(&self, channel: &str) -> bool {
        let entry = self.channels.get(channel);
        entry.is_some_and(|entry| entry.phase != ChannelPhase::Ending)
    }

    /// Removes a listener and gives it back.
    pub(super) fn detach(
        &mut self,
        channel: &str,
        id: u64,
        end: SubscriptionEnd,
        now: Instant,
    ) -> Option<L> {
        let entry = self.channels.get_mut(channel)?;
        let at = entry.listeners.iter().position(|(other, _)| *other == id)?;
        let (_, listener) = entry.listeners.swap_remove(at);
        if entry.listeners.is_empty() {
            if end == SubscriptionEnd::AtOnce || self.linger.is_zero() || !self.commands.connected {
                self.end(channel);
            } else {
                // An unconfirmed subscription lingers too, since its command is already sent.
                self.linger(channel, now);
            }
        }
        Some(listener)
    }

    fn linger(&mut self, channel: &str, now: Instant) {
        let until = crate::clock::after(now, self.linger);
        if let Some(entry) = self.channels.get_mut(channel) {
            entry.phase = ChannelPhase::Lingering { until };
            self.lingering.push_back((until, channel.to_owned()));
            while self.lingering.len() > MOST_LINGERING
                && let Some((until, channel)) = self.lingering.pop_front()
            {
                self.end_if_lingering(&channel, until);
            }
        }
    }

    /// The state of the other clients of a channel.
    pub(super) fn rivals(&mut self, channel: &str) -> Option<&mut Rivals> {
        let entry = self.channels.get_mut(channel);
        entry.map(|entry| &mut entry.rivals)
    }

    /// This many connections received a message that this client has published on a channel. If there are
    /// others, this client must know how often the lock is released. So it subscribes, and the subscription
    /// lingers. Returns whether it subscribed.
    pub(super) fn released(&mut self, channel: &str, receivers: u32, now: Instant) -> bool {
        let begins = receivers > 0 && !self.linger.is_zero() && !self.is_wanted(channel);
        if begins {
            self.want(channel, []);
            self.linger(channel, now);
        }
        let Some(entry) = self.channels.get_mut(channel) else {
            return false;
        };
        let own = u32::from(entry.confirmed);
        entry.rivals.released(receivers.saturating_sub(own));
        if !entry.confirmed {
            entry.rivals.heard(now, 1);
        }
        begins
    }

    fn end_if_lingering(&mut self, channel: &str, until: Instant) {
        let phase = self.channels.get(channel).map(|entry| entry.phase);
        if phase == Some(ChannelPhase::Lingering { until }) {
            self.end(channel);
        }
    }

    fn end(&mut self, channel: &str) {
        if !self.commands.connected {
            self.channels.remove(channel);
        } else if let Some(entry) = self.channels.get_mut(channel) {
            entry.phase = ChannelPhase::Ending;
            self.commands.send(channel, entry);
        }
    }

    /// The channel, if this was the last command for it.
    fn of_round(&mut self, effect: &Effect) -> Option<&mut ChannelState<L>> {
        let entry = self.channels.get_mut(&effect.channel);
        entry.filter(|entry| entry.round == effect.round)
    }

    /// A command was confirmed; returns the listeners to notify.
    pub(super) fn confirmed(&mut self, effect: &Effect) -> Vec<L> {
        let Some(entry) = self.of_round(effect) else {
            return vec![];
        };
        match entry.phase {
            ChannelPhase::Wanted | ChannelPhase::Lingering { .. } => {
                entry.confirmed = true;
                entry.all_listeners()
            }
            ChannelPhase::Ending => {
                self.channels.remove(&effect.channel);
                vec![]
            }
        }
    }

    /// The server refused the SUBSCRIBE (an ACL). Returns the listeners, which must ask Redis
    /// themselves.
    pub(super) fn refused(&mut self, effect: &Effect) -> Vec<L> {
        let Some(entry) = self.of_round(effect) else {
            return vec![];
        };
        entry.refused = true;
        let told = entry.all_listeners();
        if told.is_empty() {
            self.channels.remove(&effect.channel);
        }
        told
    }

    /// Subscribes again where it was refused: an operator may have given the right since.
    pub(super) fn repeat_refused(&mut self) {
        self.send_for(|entry| entry.refused);
    }

    /// The listeners of all channels.
    pub(super) fn all(&self) -> Vec<L> {
        self.channels
            .values()
            .flat_map(ChannelState::all_listeners)
            .collect()
    }

    /// The connection is gone, and with it every subscription.
    pub(super) fn disconnected(&mut self) {
        self.commands.connected = false;
        self.commands.queue.clear();
        self.lingering.clear();
        self.missing = Missing::default();
        self.channels.retain(|_, entry| {
            entry.confirmed = false;
            entry.phase = ChannelPhase::Wanted;
            entry.rivals = Rivals::default();
            entry.timed = false;
            !entry.listeners.is_empty()
        });
    }

    /// There is a new connection: subscribes to all wanted channels.
    pub(super) fn connected(&mut self) {
        self.commands.connected = true;
        self.send_for(|_| true);
    }

    fn send_for(&mut self, wanted: impl Fn(&ChannelState<L>) -> bool) {
        let channels = self.channels.iter_mut().filter(|(_, entry)| wanted(entry));
        let mut channels: Vec<_> = channels.collect();
        // In an order that makes a simulation repeatable.
        channels.sort_unstable_by_key(|(channel, _)| *channel);
        for (channel, entry) in channels {
            self.commands.send(channel, entry);
        }
    }

    /// A message arrived, which lets this many clients proceed. Returns the listeners to notify, and for how
    /// long they should let other clients try first.
    pub(super) fn heard(
        &mut self,
        channel: &str,
        free: u32,
        now: Instant,
    ) -> (Vec<L>, Option<Duration>) {
        let Some(entry) = self.channels.get_mut(channel) else {
            return (vec![], None);
        };
        entry.ear = Ear::default();
        entry.ear.heard = Some(now);
        (entry.all_listeners(), entry.rivals.heard(now, free))
    }

    /// The listeners of a channel, confirmed or not.
    pub(super) fn listeners(&self, channel: &str) -> Vec<L> {
        self.channels
            .get(channel)
            .map_or_else(Vec::new, ChannelState::all_listeners)
    }

    pub(super) fn is_confirmed(&self, channel: &str) -> bool {
        self.channels
            .get(channel)
            .is_some_and(|entry| entry.confirmed)
    }

    /// Ends subscriptions that have lingered long enough; returns when to call this again.
    pub(super) fn tick(&mut self, now: Instant) -> Option<Instant> {
        while let Some((until, _)) = self.lingering.front() {
            if *until > now {
                return Some(*until);
            }
            if let Some((until, channel)) = self.lingering.pop_front() {
                self.end_if_lingering(&channel, until);
            }
        }
        None
    }

    pub(super) fn next_effect(&mut self) -> Option<Effect> {
        self.commands.queue.pop_front()
    }

    pub(super) fn has_effects(&self) -> bool {
        // Without a connection, the request for one is the effect. Lingering needs a timer.
        !self.commands.queue.is_empty()
            || !self.lingering.is_empty()
            || (!self.commands.connected && !self.is_empty())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn len(&self) -> usize {
        self.channels.len()
    }
}
