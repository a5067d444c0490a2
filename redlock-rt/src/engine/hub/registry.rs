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
//! 1. A channel with listeners is Wanted, and one that is Wanted has listeners.
//! 2. A confirmation counts only for the last command sent for its channel: a listener that
//!    attaches in Ending subscribes again and waits for that confirmation.
//! 3. Listeners are notified whenever their channel is confirmed, because they missed earlier
//!    messages.
//!
//! # Messages of our own
//!
//! A message that this client publishes on a confirmed channel must arrive within a time limit. If
//! it does not, the listeners of that channel ask Redis themselves, and the connection is in
//! *doubt*: it is sent a PING, and no listener relies on it until the reply. A message before the
//! reply would have arrived. If none has, Redis does not publish for us (an ACL), and the channel
//! is *mute* until a message arrives on it. A connection that does not answer the PING is closed.

#[cfg(all(test, redlock_loom))]
mod loom;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use crate::mutant;

/// When a subscription without listeners ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum End {
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
    /// The number of this command among those of its channel.
    pub(super) round: u64,
}

/// More lingering subscriptions than this are ended early, the oldest first.
const MOST_LINGERING: usize = 1024;

/// A message of our own must arrive within this time after the reply to the call that published it,
/// or within some round trips.
const NOTICED: Duration = Duration::from_millis(200);
const ROUND_TRIPS: u32 = 3;
/// A task that checks for missing messages this late was delayed itself, and may have messages to
/// read first.
const LATE: Duration = Duration::from_millis(50);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Wanted,
    Lingering { until: Instant },
    Ending,
}

#[derive(Debug)]
struct Channel<L> {
    phase: Phase,
    /// Whether the server has confirmed the last SUBSCRIBE.
    confirmed: bool,
    round: u64,
    listeners: Vec<(u64, L)>,
    ear: Ear,
    /// Whether `Registry::owed` has an entry for it.
    timed: bool,
}

/// The state of the messages on a confirmed channel.
#[derive(Debug, Default)]
struct Ear {
    /// When the last message arrived.
    heard: Option<Instant>,
    /// The time limit for a message of our own.
    owed: Option<Instant>,
    /// A message did not arrive in time, and the connection has not answered since.
    missed: bool,
    /// A message did not arrive although the connection answered.
    mute: bool,
}

impl<L: Clone> Channel<L> {
    fn told(&self) -> Vec<L> {
        let listeners = self.listeners.iter();
        listeners.map(|(_, listener)| listener.clone()).collect()
    }
}

/// The channels of one subscribing connection.
#[derive(Debug)]
pub(super) struct Registry<L> {
    channels: HashMap<String, Channel<L>>,
    effects: VecDeque<Effect>,
    /// Channels in the order in which they began to linger; entries may be outdated.
    lingering: VecDeque<(Instant, String)>,
    linger: Duration,
    connected: bool,
    /// Channels with an expected message of our own, by the moment to check, each once at most.
    owed: BinaryHeap<Reverse<(Instant, String)>>,
    /// Whether the connection is sent a PING because a message did not arrive.
    doubted: bool,
    next_id: u64,
}

/// What to do about messages that did not arrive in time.
#[derive(Debug)]
pub(super) struct Overdue<L> {
    /// The listeners that must ask Redis themselves.
    pub(super) told: Vec<L>,
    /// Whether to send a PING.
    pub(super) doubt: bool,
}

impl<L: Clone> Registry<L> {
    pub(super) fn new(linger: Duration) -> Self {
        Self {
            channels: HashMap::new(),
            effects: VecDeque::new(),
            lingering: VecDeque::new(),
            linger,
            connected: false,
            owed: BinaryHeap::new(),
            doubted: false,
            next_id: 0,
        }
    }

    /// Adds a listener; returns its id and whether the channel is confirmed.
    pub(super) fn attach(&mut self, channel: &str, listener: L) -> (u64, bool) {
        let id = self.next_id;
        self.next_id += 1;
        let entry = self.channels.entry(channel.to_owned());
        let entry = entry.or_insert_with(|| Channel {
            phase: Phase::Ending,
            confirmed: false,
            round: 0,
            listeners: vec![],
            ear: Ear::default(),
            timed: false,
        });
        entry.listeners.push((id, listener));
        let ending = entry.phase == Phase::Ending;
        entry.phase = Phase::Wanted;
        if ending {
            Self::send(&mut self.effects, self.connected, channel, entry);
        }
        (id, entry.confirmed)
    }

    /// Removes a listener and gives it back.
    pub(super) fn detach(&mut self, channel: &str, id: u64, end: End, now: Instant) -> Option<L> {
        let entry = self.channels.get_mut(channel)?;
        let at = entry.listeners.iter().position(|(other, _)| *other == id)?;
        let (_, listener) = entry.listeners.swap_remove(at);
        if entry.listeners.is_empty() {
            if end == End::AtOnce || self.linger.is_zero() || !self.connected {
                self.end(channel);
            } else {
                // An unconfirmed subscription lingers too, since the command is on its way.
                let until = crate::clock::after(now, self.linger);
                entry.phase = Phase::Lingering { until };
                self.lingering.push_back((until, channel.to_owned()));
                self.bound_lingering();
            }
        }
        Some(listener)
    }

    fn bound_lingering(&mut self) {
        while self.lingering.len() > MOST_LINGERING {
            let Some((until, channel)) = self.lingering.pop_front() else {
                return;
            };
            self.end_if_lingering(&channel, until);
        }
    }

    fn end_if_lingering(&mut self, channel: &str, until: Instant) {
        if mutant::on("a_subscription_lingers_for_ever") {
            return;
        }
        let phase = self.channels.get(channel).map(|entry| entry.phase);
        if phase == Some(Phase::Lingering { until }) {
            self.end(channel);
        }
    }

    fn end(&mut self, channel: &str) {
        if !self.connected {
            self.channels.remove(channel);
        } else if let Some(entry) = self.channels.get_mut(channel) {
            entry.phase = Phase::Ending;
            Self::send(&mut self.effects, true, channel, entry);
        }
    }

    fn send(
        effects: &mut VecDeque<Effect>,
        connected: bool,
        channel: &str,
        entry: &mut Channel<L>,
    ) {
        entry.round += 1;
        entry.confirmed = false;
        entry.ear = Ear::default();
        // Without a connection nothing is sent now; `connected` sends it.
        if connected {
            let subscribe = entry.phase != Phase::Ending;
            effects.push_back(Effect {
                channel: channel.to_owned(),
                subscribe,
                round: entry.round,
            });
        }
    }

    /// A command was confirmed; returns the listeners to notify.
    pub(super) fn confirmed(&mut self, effect: &Effect) -> Vec<L> {
        let Some(entry) = self.channels.get_mut(&effect.channel) else {
            return vec![];
        };
        if entry.round != effect.round {
            return vec![];
        }
        match entry.phase {
            Phase::Wanted | Phase::Lingering { .. } => {
                entry.confirmed = true;
                entry.told()
            }
            Phase::Ending => {
                self.channels.remove(&effect.channel);
                vec![]
            }
        }
    }

    /// The server refused the SUBSCRIBE (an ACL). Returns the listeners, which must ask Redis
    /// themselves.
    pub(super) fn refused(&mut self, effect: &Effect) -> Vec<L> {
        let entry = self.channels.get(&effect.channel);
        let Some(entry) = entry.filter(|entry| entry.round == effect.round) else {
            return vec![];
        };
        let told = entry.told();
        if told.is_empty() {
            self.channels.remove(&effect.channel);
        }
        told
    }

    /// The connection is gone, and with it every subscription.
    pub(super) fn disconnected(&mut self) {
        self.connected = false;
        self.effects.clear();
        self.lingering.clear();
        self.owed.clear();
        self.doubted = false;
        self.channels.retain(|_, entry| {
            entry.confirmed = false;
            entry.phase = Phase::Wanted;
            entry.ear = Ear::default();
            entry.timed = false;
            !entry.listeners.is_empty()
        });
    }

    /// There is a new connection: subscribes to all wanted channels.
    pub(super) fn connected(&mut self) {
        self.connected = true;
        let mut channels: Vec<_> = self.channels.iter_mut().collect();
        // In an order that a simulation repeats.
        channels.sort_unstable_by_key(|(channel, _)| *channel);
        for (channel, entry) in channels {
            Self::send(&mut self.effects, true, channel, entry);
        }
    }

    /// A message arrived; returns the listeners to notify.
    pub(super) fn heard(&mut self, channel: &str, now: Instant) -> Vec<L> {
        let Some(entry) = self.channels.get_mut(channel) else {
            return vec![];
        };
        entry.ear = Ear {
            heard: Some(now),
            ..Ear::default()
        };
        entry.told()
    }

    /// A call sent at `sent`, which has been answered, has published on a channel. Returns whether
    /// its listeners will be notified: the message has arrived, or will arrive, or will be missed
    /// ([`overdue`](Self::overdue)).
    pub(super) fn expect(&mut self, channel: &str, sent: Instant, now: Instant) -> bool {
        let doubted = self.doubted;
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
            self.owed.push(Reverse((by, channel.to_owned())));
        }
        true
    }

    /// The listeners of a channel, confirmed or not.
    pub(super) fn listeners(&self, channel: &str) -> Vec<L> {
        self.channels
            .get(channel)
            .map_or_else(Vec::new, Channel::told)
    }

    /// When to check for missing messages.
    pub(super) fn overdue_at(&self) -> Option<Instant> {
        self.owed.peek().map(|Reverse((at, ..))| *at)
    }

    /// Checks for messages that did not arrive in time. Call this only after reading all that
    /// arrived.
    pub(super) fn overdue(&mut self, now: Instant) -> Overdue<L> {
        let mut told = vec![];
        let doubted = self.doubted;
        while self.overdue_at().is_some_and(|at| at <= now) {
            let Some(Reverse((_, channel))) = self.owed.pop() else {
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
                    told.extend(entry.told());
                    self.doubted = true;
                    continue;
                }
            };
            entry.ear.owed = Some(again);
            entry.timed = true;
            self.owed.push(Reverse((again, channel)));
        }
        Overdue {
            told,
            doubt: self.doubted && !doubted,
        }
    }

    /// The connection answered a PING that was sent after the missing messages were published.
    /// Returns whether Redis does not publish for us on some channel.
    pub(super) fn answered(&mut self) -> bool {
        self.doubted = false;
        let mut mute = false;
        for entry in self.channels.values_mut() {
            if std::mem::take(&mut entry.ear.missed) {
                entry.ear.mute = true;
                mute = true;
            }
        }
        mute
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
        self.effects.pop_front()
    }

    pub(super) fn has_effects(&self) -> bool {
        // Without a connection, the request for one is the effect; lingering needs a timer.
        !self.effects.is_empty()
            || !self.lingering.is_empty()
            || (!self.connected && !self.is_empty())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn len(&self) -> usize {
        self.channels.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const S: Duration = Duration::from_secs(1);

    fn live() -> Registry<u8> {
        let mut registry = Registry::new(S);
        registry.connected();
        registry
    }

    #[test]
    fn listeners_are_told_when_the_channel_is_confirmed() {
        let mut registry = live();
        assert!(!registry.attach("c", 1).1);
        let effect = registry.next_effect().unwrap();
        assert!(effect.subscribe);
        assert_eq!(registry.attach("c", 2), (1, false));
        assert_eq!(registry.confirmed(&effect), [1, 2]);
        assert_eq!(registry.attach("c", 3), (2, true));
        assert_eq!(registry.next_effect(), None);
        let now = Instant::now();
        assert_eq!(registry.heard("c", now), [1, 2, 3]);
    }

    #[test]
    fn a_listener_that_attaches_in_ending_waits_for_the_new_confirmation() {
        let now = Instant::now();
        let mut registry = live();
        let (id, _) = registry.attach("c", 1);
        let first = registry.next_effect().unwrap();
        registry.confirmed(&first);
        registry.detach("c", id, End::Later, now);
        assert_eq!(registry.tick(now), Some(now + S));
        assert_eq!(registry.tick(now + S), None);
        let end = registry.next_effect().unwrap();
        assert!(!end.subscribe);
        assert!(!registry.attach("c", 2).1);
        let again = registry.next_effect().unwrap();
        assert!(registry.confirmed(&end).is_empty());
        assert!(!registry.is_confirmed("c"));
        assert_eq!(registry.confirmed(&again), [2]);
    }

    #[test]
    fn a_lingering_channel_is_taken_up_again_without_a_command() {
        let now = Instant::now();
        let mut registry = live();
        let (id, _) = registry.attach("c", 1);
        let effect = registry.next_effect().unwrap();
        registry.confirmed(&effect);
        registry.detach("c", id, End::Later, now);
        assert!(registry.attach("c", 2).1);
        registry.tick(now + 2 * S);
        assert_eq!(registry.next_effect(), None);
        assert!(registry.is_confirmed("c"));
    }

    #[test]
    fn a_new_connection_subscribes_to_what_is_still_wanted() {
        let mut registry = live();
        let (gone, _) = registry.attach("gone", 1);
        registry.attach("wanted", 2);
        let effects = [
            registry.next_effect().unwrap(),
            registry.next_effect().unwrap(),
        ];
        effects
            .iter()
            .for_each(|effect| drop(registry.confirmed(effect)));
        registry.detach("gone", gone, End::Later, Instant::now());
        registry.disconnected();
        assert!(!registry.is_confirmed("wanted"));
        registry.connected();
        let effect = registry.next_effect().unwrap();
        assert_eq!((&*effect.channel, effect.subscribe), ("wanted", true));
        assert_eq!(registry.next_effect(), None);
        assert_eq!(registry.confirmed(&effect), [2]);
    }

    #[test]
    fn lingering_is_bounded_in_number() {
        let now = Instant::now();
        let mut registry = live();
        for channel in 0..=MOST_LINGERING {
            let channel = channel.to_string();
            let (id, _) = registry.attach(&channel, 1);
            let effect = registry.next_effect().unwrap();
            registry.confirmed(&effect);
            registry.detach(&channel, id, End::Later, now);
        }
        let ended = registry.next_effect().unwrap();
        assert_eq!((&*ended.channel, ended.subscribe), ("0", false));
        assert_eq!(registry.next_effect(), None);
    }

    #[test]
    fn an_unconfirmed_channel_that_lingers_is_not_taken_for_confirmed() {
        let mut registry = live();
        let (id, _) = registry.attach("c", 1);
        let effect = registry.next_effect().unwrap();
        registry.detach("c", id, End::Later, Instant::now());
        assert!(!registry.attach("c", 2).1);
        assert_eq!(registry.confirmed(&effect), [2]);
    }

    const C: &str = "c";

    /// With a confirmed channel that has one listener.
    fn listening() -> Registry<u8> {
        let mut registry = live();
        registry.attach(C, 1);
        let effect = registry.next_effect().unwrap();
        registry.confirmed(&effect);
        registry
    }

    #[test]
    fn a_message_of_our_own_that_is_not_heard_is_missed_in_time() {
        let now = Instant::now();
        let mut registry = listening();
        assert!(registry.expect(C, now, now));
        assert_eq!(registry.overdue_at(), Some(now + NOTICED));
        assert!(registry.overdue(now + NOTICED / 2).told.is_empty());
        let overdue = registry.overdue(now + NOTICED);
        assert_eq!((&*overdue.told, overdue.doubt), (&[1][..], true));
        // In doubt nobody relies on being told.
        assert!(!registry.expect(C, now, now));
        registry.disconnected();
        registry.connected();
        let effect = registry.next_effect().unwrap();
        assert_eq!(registry.confirmed(&effect), [1]);
        assert!(registry.expect(C, now, now));
    }

    #[test]
    fn a_message_before_the_reply_is_not_expected_again() {
        let now = Instant::now();
        let mut registry = listening();
        registry.heard(C, now);
        assert!(registry.expect(C, now, now));
        assert_eq!(registry.overdue_at(), None);
        // That one was of an earlier call.
        assert!(registry.expect(C, now + S, now + S));
        assert_eq!(registry.overdue_at(), Some(now + S + NOTICED));
        registry.heard(C, now + S);
        let overdue = registry.overdue(now + S + NOTICED);
        assert!(overdue.told.is_empty() && !overdue.doubt);
        assert_eq!(registry.overdue_at(), None);
    }

    #[test]
    fn a_channel_is_mute_where_the_connection_answers_and_until_something_is_heard() {
        let now = Instant::now();
        let mut registry = listening();
        assert!(registry.expect(C, now, now));
        assert!(registry.overdue(now + NOTICED).doubt);
        assert!(registry.answered());
        assert!(!registry.expect(C, now + S, now + S));
        assert_eq!(registry.overdue_at(), None);
        registry.heard(C, now + S);
        assert!(registry.expect(C, now + 2 * S, now + 2 * S));
        assert!(!registry.answered());
    }

    #[test]
    fn a_channel_that_is_busy_has_one_timer() {
        let mut now = Instant::now();
        let mut registry = listening();
        for _ in 0..100 {
            assert!(registry.expect(C, now, now));
            registry.heard(C, now);
            now += Duration::from_millis(1);
        }
        assert!(registry.expect(C, now, now));
        assert_eq!(registry.owed.len(), 1);
        // The timer is the first one's; the last one has its own time.
        let overdue = registry.overdue(registry.overdue_at().unwrap());
        assert!(overdue.told.is_empty());
        assert_eq!(registry.overdue_at(), Some(now + NOTICED));
    }

    /// A process that was stopped has not read what came meanwhile.
    #[test]
    fn a_late_check_is_repeated_once() {
        let now = Instant::now();
        let mut registry = listening();
        assert!(registry.expect(C, now, now));
        let late = now + S;
        assert!(registry.overdue(late).told.is_empty());
        assert_eq!(registry.overdue(late + LATE).told, [1]);
    }

    #[test]
    fn a_slow_server_has_some_round_trips() {
        let now = Instant::now();
        let mut registry = listening();
        assert!(registry.expect(C, now, now + S));
        assert_eq!(registry.overdue_at(), Some(now + S + S * ROUND_TRIPS));
    }

    proptest! {
        /// Whatever happens in whatever order: a channel that counts as confirmed is subscribed on
        /// the server; and when all is quiet, exactly the wanted channels are.
        #[test]
        fn confirmed_means_subscribed(steps in proptest::collection::vec((0..6u8, 0..3u8), 1..150)) {
            let mut now = Instant::now();
            let mut registry = live();
            // The server: what is on its way there, in order, and what it is subscribed to.
            let mut wire: VecDeque<Effect> = VecDeque::new();
            let mut subscribed = std::collections::BTreeSet::new();
            let mut up = true;
            let mut attached: Vec<(String, u64)> = vec![];
            let send = |registry: &mut Registry<u8>, wire: &mut VecDeque<Effect>| {
                wire.extend(std::iter::from_fn(|| registry.next_effect()));
            };
            for (step, at) in steps {
                let channel = format!("c{at}");
                match step {
                    0 | 1 => attached.push((channel.clone(), registry.attach(&channel, at).0)),
                    2 if !attached.is_empty() => {
                        let (channel, id) = attached.remove(usize::from(at) % attached.len());
                        prop_assert!(registry.detach(&channel, id, End::Later, now).is_some());
                    }
                    3 if up => {
                        if let Some(effect) = wire.pop_front() {
                            if effect.subscribe {
                                subscribed.insert(effect.channel.clone());
                            } else {
                                subscribed.remove(&effect.channel);
                            }
                            registry.confirmed(&effect);
                        }
                    }
                    4 => {
                        now += S;
                        registry.tick(now);
                    }
                    5 => {
                        if up {
                            registry.disconnected();
                            wire.clear();
                            subscribed.clear();
                        } else {
                            registry.connected();
                        }
                        up = !up;
                    }
                    _ => {}
                }
                if up {
                    send(&mut registry, &mut wire);
                }
                for channel in ["c0", "c1", "c2"] {
                    prop_assert!(!registry.is_confirmed(channel) || subscribed.contains(channel));
                }
            }
            if !up {
                registry.connected();
            }
            registry.tick(now + 2 * S);
            send(&mut registry, &mut wire);
            for effect in wire {
                if effect.subscribe {
                    subscribed.insert(effect.channel.clone());
                } else {
                    subscribed.remove(&effect.channel);
                }
                registry.confirmed(&effect);
            }
            let wanted: std::collections::BTreeSet<_> =
                attached.iter().map(|(channel, _)| channel.clone()).collect();
            prop_assert_eq!(&subscribed, &wanted);
            prop_assert_eq!(registry.len(), wanted.len());
            prop_assert!(wanted.iter().all(|channel| registry.is_confirmed(channel)));
        }
    }
}
