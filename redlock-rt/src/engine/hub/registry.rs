//! Which channels are wanted, and how far the server has confirmed it. Pure.
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
//! 2. A confirmation counts only if it answers the last command sent for its channel: who arrives
//!    in Ending subscribes anew and waits for that confirmation.
//! 3. Listeners are told whenever their channel is confirmed: what was published before was not
//!    heard.

#[cfg(all(test, redlock_loom))]
mod loom;

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

/// A command for the task to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Effect {
    pub(super) channel: String,
    pub(super) subscribe: bool,
    /// Names this command among those of its channel.
    pub(super) round: u64,
}

/// More lingering subscriptions than this are ended early, the oldest first.
const MOST_LINGERING: usize = 1024;

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
    next_id: u64,
}

impl<L: Clone> Registry<L> {
    pub(super) fn new(linger: Duration) -> Self {
        Self {
            channels: HashMap::new(),
            effects: VecDeque::new(),
            lingering: VecDeque::new(),
            linger,
            connected: false,
            next_id: 0,
        }
    }

    /// Adds a listener; answers its id and whether the channel is confirmed.
    pub(super) fn attach(&mut self, channel: &str, listener: L) -> (u64, bool) {
        let id = self.next_id;
        self.next_id += 1;
        if !self.channels.contains_key(channel) {
            let phase = Phase::Ending;
            let fresh = Channel {
                phase,
                confirmed: false,
                round: 0,
                listeners: vec![],
            };
            self.channels.insert(channel.to_owned(), fresh);
        }
        let Some(entry) = self.channels.get_mut(channel) else {
            return (id, false);
        };
        entry.listeners.push((id, listener));
        let ending = entry.phase == Phase::Ending;
        entry.phase = Phase::Wanted;
        if ending {
            Self::send(&mut self.effects, self.connected, channel, entry);
        }
        (id, entry.confirmed)
    }

    /// Removes a listener and gives it back.
    pub(super) fn detach(&mut self, channel: &str, id: u64, now: Instant) -> Option<L> {
        let entry = self.channels.get_mut(channel)?;
        let at = entry.listeners.iter().position(|(other, _)| *other == id)?;
        let (_, listener) = entry.listeners.swap_remove(at);
        if entry.listeners.is_empty() {
            if self.linger.is_zero() || !self.connected {
                self.end(channel);
            } else {
                // A subscription still to be confirmed lingers as well: it is on its way.
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

    fn send(effects: &mut VecDeque<Effect>, connected: bool, name: &str, entry: &mut Channel<L>) {
        entry.round += 1;
        entry.confirmed = false;
        // Without a connection nothing is sent now; `connected` sends it.
        if connected {
            let subscribe = entry.phase != Phase::Ending;
            effects.push_back(Effect {
                channel: name.to_owned(),
                subscribe,
                round: entry.round,
            });
        }
    }

    /// A command was confirmed; answers whom to tell.
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
                entry
                    .listeners
                    .iter()
                    .map(|(_, listener)| listener.clone())
                    .collect()
            }
            Phase::Ending => {
                self.channels.remove(&effect.channel);
                vec![]
            }
        }
    }

    /// The server refused to subscribe (an ACL): its listeners are left to look by themselves.
    pub(super) fn refused(&mut self, effect: &Effect) {
        if let Some(entry) = self.channels.get_mut(&effect.channel)
            && entry.round == effect.round
            && entry.listeners.is_empty()
        {
            self.channels.remove(&effect.channel);
        }
    }

    /// The connection is gone, and with it every subscription.
    pub(super) fn disconnected(&mut self) {
        self.connected = false;
        self.effects.clear();
        self.lingering.clear();
        self.channels.retain(|_, entry| {
            entry.confirmed = false;
            entry.phase = Phase::Wanted;
            !entry.listeners.is_empty()
        });
    }

    /// There is a new connection: subscribes to all that is wanted.
    pub(super) fn connected(&mut self) {
        self.connected = true;
        for (name, entry) in &mut self.channels {
            Self::send(&mut self.effects, true, name, entry);
        }
    }

    /// Whom to tell of a message.
    pub(super) fn listeners(&self, channel: &str) -> Vec<L> {
        let entry = self.channels.get(channel);
        entry.map_or_else(Vec::new, |entry| {
            entry
                .listeners
                .iter()
                .map(|(_, listener)| listener.clone())
                .collect()
        })
    }

    pub(super) fn is_confirmed(&self, channel: &str) -> bool {
        self.channels
            .get(channel)
            .is_some_and(|entry| entry.confirmed)
    }

    /// Ends what has lingered long enough; answers when to come again.
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
        // Without a connection the wish for one is the effect; lingering needs a timer.
        !self.effects.is_empty()
            || !self.lingering.is_empty()
            || (!self.connected && !self.channels.is_empty())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.channels.is_empty()
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
        assert_eq!(registry.listeners("c"), [1, 2, 3]);
    }

    #[test]
    fn who_arrives_in_ending_waits_for_the_new_confirmation() {
        let now = Instant::now();
        let mut registry = live();
        let (id, _) = registry.attach("c", 1);
        let first = registry.next_effect().unwrap();
        registry.confirmed(&first);
        registry.detach("c", id, now);
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
        registry.detach("c", id, now);
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
        registry.detach("gone", gone, Instant::now());
        registry.disconnected();
        assert!(!registry.is_confirmed("wanted"));
        registry.connected();
        let effect = registry.next_effect().unwrap();
        assert_eq!(
            (effect.channel.as_str(), effect.subscribe),
            ("wanted", true)
        );
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
            registry.detach(&channel, id, now);
        }
        let ended = registry.next_effect().unwrap();
        assert_eq!((ended.channel.as_str(), ended.subscribe), ("0", false));
        assert_eq!(registry.next_effect(), None);
    }

    #[test]
    fn an_unconfirmed_channel_that_lingers_is_not_taken_for_confirmed() {
        let mut registry = live();
        let (id, _) = registry.attach("c", 1);
        let effect = registry.next_effect().unwrap();
        registry.detach("c", id, Instant::now());
        assert!(!registry.attach("c", 2).1);
        assert_eq!(registry.confirmed(&effect), [2]);
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
                        prop_assert!(registry.detach(&channel, id, now).is_some());
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
