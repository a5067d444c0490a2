//! What calls of this client published, and how its own waiters learn of that.

use std::time::Instant;

use super::Engine;
use crate::connection::{Delivery, Message, Right};
use crate::wire::keys::wake_channel;
use crate::wire::{Announcement, Recipe, Reply, Turn};

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
        if recipe.queue().is_none() {
            return recipe
                .channel()
                .is_some_and(|channel| self.ended_on(channel, news));
        }
        let News::Announced(announcement, _) = news else {
            return false;
        };
        self.look_for_rights(announcement);
        let waiter = announcement.waiter.as_ref();
        // One of another client listens for itself.
        let Some(number) = waiter.and_then(|waiter| self.id.number_of(waiter)) else {
            return false;
        };
        let name = recipe.name().as_str();
        let message = Message {
            channel: wake_channel(&self.id),
            payload: Turn { number, name }.encode(),
        };
        self.tell(&message, news)
    }

    /// As [`ended`](Self::ended), where it is waited for on this channel.
    pub(super) fn ended_on(&self, channel: &str, news: &News) -> bool {
        if let News::Announced(announcement, _) = news {
            self.look_for_rights(announcement);
        }
        let message = Message {
            channel: channel.to_owned(),
            payload: String::new(),
        };
        self.tell(&message, news)
    }

    fn look_for_rights(&self, announcement: &Announcement) {
        if !announcement.is_made {
            self.current.is_missing(Right::Publish);
        }
    }

    fn tell(&self, message: &Message, news: &News) -> bool {
        let sent = match news {
            News::Nothing => return true,
            News::Announced(announcement, sent) if announcement.is_made => Some(*sent),
            News::Announced(..) | News::Unknown => None,
        };
        self.hub.announced(message, sent)
    }
}
