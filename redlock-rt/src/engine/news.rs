//! What calls of this client published, and how its own waiters learn of that.

use std::time::Instant;

use super::Engine;
use super::hub::Topic;
use crate::connection::{Delivery, Right};
use crate::wire::{Announcement, Recipe, Reply};

/// What is known of the announcement of something that ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum News {
    /// It ended by itself, or by a try whose answer was lost.
    #[default]
    Unknown,
    /// There was nobody to wake: others still have it, or nobody is next.
    Nothing,
    /// By a call that was sent then.
    Announced(Announcement, Instant),
}

impl News {
    /// Takes out of an answer what became of the announcement.
    pub(super) fn split(reply: Reply, delivery: &Delivery) -> (Reply, Self) {
        let (reply, announcement) = reply.split();
        let news = match (announcement, delivery.sent) {
            (Some(announcement), Some(sent)) => Self::Announced(announcement, sent),
            // An earlier try may have done it, and then it was that which published.
            _ if delivery.open_since().is_some() => Self::Unknown,
            _ => Self::Nothing,
        };
        (reply, news)
    }
}

impl Engine {
    /// Something ended that is waited for as locks of this recipe are. Answers whether those of this
    /// client who listen are told of it.
    pub(super) fn ended(&self, recipe: &dyn Recipe, news: &News) -> bool {
        let Some(queue) = recipe.queue() else {
            return recipe
                .channel()
                .is_some_and(|channel| self.ended_on(channel, news));
        };
        let News::Announced(announcement, _) = news else {
            return false;
        };
        self.look_for_rights(announcement);
        match &announcement.waiter {
            // Of another client, which listens for itself.
            Some(waiter) if self.id.number_of(waiter).is_none() => false,
            None => false,
            Some(waiter) => {
                let pattern = queue.channels_of(&self.id);
                let channel = queue.channel_of(waiter);
                self.tell(Topic::Pattern(&pattern), &channel, news)
            }
        }
    }

    /// As [`ended`](Self::ended), where it is waited for on this channel.
    pub(super) fn ended_on(&self, channel: &str, news: &News) -> bool {
        if let News::Announced(announcement, _) = news {
            self.look_for_rights(announcement);
        }
        self.tell(Topic::Channel(channel), channel, news)
    }

    fn look_for_rights(&self, announcement: &Announcement) {
        if !announcement.is_made {
            self.current.is_missing(Right::Publish);
        }
    }

    fn tell(&self, topic: Topic<'_>, channel: &str, news: &News) -> bool {
        let sent = match news {
            News::Nothing => return true,
            News::Announced(announcement, sent) if announcement.is_made => Some(*sent),
            News::Announced(..) | News::Unknown => None,
        };
        self.hub.announced(topic, channel, sent)
    }
}
