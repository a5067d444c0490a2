//! The channels of a client, by the connection on which each is subscribed.
//!
//! A client of one server has one [`SubscribedServer`]. In a cluster each master has one, and a channel is at the
//! master of its slot; it moves when the slot does. A channel without a known server waits at
//! [`SubscribedServer::NOWHERE`], to which nothing ever connects.
//!
//! # Invariants
//!
//! 1. Listeners of a channel are at one place. At another place its subscription is only being ended.
//! 2. Listeners that have moved are told when their channel is confirmed at the new place, because they
//!    missed the messages meanwhile.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::registry::{Effect, Registry, SubscriptionEnd};
use super::rivals::Rivals;

/// One of the servers at which channels are subscribed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SubscribedServer(u64);

impl SubscribedServer {
    /// The only one outside a cluster.
    pub(crate) const ONLY: Self = Self(0);
    /// Where no server is known.
    pub(super) const NOWHERE: Self = Self(u64::MAX);

    /// The place of this number, which no other server of the client has.
    pub(crate) fn new(number: u64) -> Self {
        Self(number)
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Shards<L> {
    linger: Duration,
    registries: BTreeMap<SubscribedServer, Registry<L>>,
    /// How many registries were made, so that no two of them give a listener the same number.
    made: u64,
}

impl<L: Clone> Shards<L> {
    pub(super) fn new(linger: Duration) -> Self {
        Self {
            linger,
            registries: BTreeMap::new(),
            made: 0,
        }
    }

    /// The channels at this place.
    pub(super) fn at(&mut self, place: SubscribedServer) -> &mut Registry<L> {
        let (linger, made) = (self.linger, &mut self.made);
        self.registries.entry(place).or_insert_with(|| {
            let first = *made << 40;
            *made += 1;
            Registry::numbered(linger, first)
        })
    }

    /// Where a channel is subscribed, or will be. `place`: where to subscribe it, if it is not subscribed.
    pub(super) fn home(
        &mut self,
        channel: &str,
        place: impl FnOnce() -> Option<SubscribedServer>,
    ) -> &mut Registry<L> {
        let mut registries = self.registries.iter();
        let is_there = registries.find(|(_, registry)| registry.is_wanted(channel));
        let place = is_there.map(|(place, _)| *place).or_else(place);
        self.at(place.unwrap_or(SubscribedServer::NOWHERE))
    }

    /// Removes a listener and gives it back.
    pub(super) fn detach(
        &mut self,
        channel: &str,
        id: u64,
        end: SubscriptionEnd,
        now: Instant,
    ) -> Option<L> {
        let mut registries = self.registries.values_mut();
        registries.find_map(|registry| registry.detach(channel, id, end, now))
    }

    /// See [`Registry::rivals`].
    pub(super) fn rivals(&mut self, channel: &str) -> Option<&mut Rivals> {
        let mut registries = self.registries.values_mut();
        registries
            .find(|registry| registry.is_wanted(channel))?
            .rivals(channel)
    }

    /// See [`Registry::expect`].
    pub(super) fn expect(&mut self, channel: &str, sent: Instant, now: Instant) -> bool {
        let mut registries = self.registries.values_mut();
        registries.any(|registry| registry.expect(channel, sent, now))
    }

    /// The listeners of a channel, confirmed or not.
    pub(super) fn listeners(&self, channel: &str) -> Vec<L> {
        let registries = self.registries.values();
        registries
            .flat_map(|registry| registry.listeners(channel))
            .collect()
    }

    pub(super) fn is_confirmed(&self, channel: &str) -> bool {
        let mut registries = self.registries.values();
        registries.any(|registry| registry.is_confirmed(channel))
    }

    /// When to check for missing messages at some place.
    pub(super) fn overdue_at(&self) -> Option<Instant> {
        let registries = self.registries.values();
        registries.filter_map(Registry::overdue_at).min()
    }

    pub(super) fn has_effects(&self) -> bool {
        self.registries.values().any(Registry::has_effects)
    }

    /// The number of channels.
    pub(super) fn len(&self) -> usize {
        self.registries.values().map(Registry::len).sum()
    }

    /// Subscribes each channel at its present place, and ends it at the old one. A channel without a place stays.
    /// Returns the listeners of channels that are confirmed there already.
    pub(super) fn rearrange(
        &mut self,
        place_of: impl Fn(&str) -> Option<SubscribedServer>,
    ) -> Vec<L> {
        let mut moved = Vec::new();
        for (place, registry) in &mut self.registries {
            for channel in registry.wanted() {
                if let Some(to) = place_of(&channel).filter(|to| to != place) {
                    moved.push((to, registry.take(&channel), channel));
                }
            }
        }
        let moved = moved.into_iter();
        let told = moved.map(|(to, listeners, channel)| self.at(to).adopt(&channel, listeners));
        told.flatten().collect()
    }

    /// No connection is left.
    pub(super) fn disconnected(&mut self) {
        self.registries
            .values_mut()
            .for_each(Registry::disconnected);
    }

    /// The server at this place has confirmed a command. Returns the listeners to notify, and whether to begin
    /// the subscription again: it may have ended since.
    pub(super) fn confirmed(&mut self, place: SubscribedServer, effect: &Effect) -> (Vec<L>, bool) {
        let registry = self.at(place);
        let told = registry.confirmed(effect);
        let left = registry.was_left(&effect.channel);
        if left {
            self.left(place, &effect.channel);
        }
        (told, left)
    }

    /// The server at this place has ended a subscription, because the slot has moved away.
    pub(super) fn left(&mut self, place: SubscribedServer, channel: &str) {
        let listeners = self.at(place).left(channel);
        self.at(SubscribedServer::NOWHERE).adopt(channel, listeners);
    }

    /// The server at this place refused a SUBSCRIBE, because the slot of the channel is elsewhere.
    pub(super) fn turned_away(&mut self, place: SubscribedServer, effect: &Effect) {
        let listeners = self.at(place).turned_away(effect);
        self.at(SubscribedServer::NOWHERE)
            .adopt(&effect.channel, listeners);
    }

    /// There is no server at this place any more.
    pub(super) fn gone(&mut self, place: SubscribedServer) {
        let Some(mut registry) = self.registries.remove(&place) else {
            return;
        };
        registry.disconnected();
        for channel in registry.wanted() {
            let listeners = registry.take(&channel);
            self.at(SubscribedServer::NOWHERE)
                .adopt(&channel, listeners);
        }
    }

    /// The places with channels, except NOWHERE and served places, each with one of its channels.
    pub(super) fn places(
        &self,
        is_served: impl Fn(SubscribedServer) -> bool,
    ) -> Vec<(SubscribedServer, String)> {
        let registries = self.registries.iter();
        let is_new =
            |place: SubscribedServer| place != SubscribedServer::NOWHERE && !is_served(place);
        let new = registries.filter(|(place, _)| is_new(**place));
        new.filter_map(|(place, all)| Some((*place, all.wanted().into_iter().next()?)))
            .collect()
    }

    /// Whether some channel is at NOWHERE.
    pub(super) fn has_homeless(&self) -> bool {
        let nowhere = self.registries.get(&SubscribedServer::NOWHERE);
        nowhere.is_some_and(|registry| !registry.is_empty())
    }
}
