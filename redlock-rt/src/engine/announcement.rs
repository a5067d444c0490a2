//! The publications of this client's calls, and how its own waiters are notified.

use std::time::Instant;

use super::ClientEngine;
use crate::connection::{Delivery, Message, Right};
use crate::wire::keys::wake_channel;
use crate::wire::{Announcement, Recipe, Reply, TurnMessage};

/// The known state of the announcement of an end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum News {
    /// The hold ended without a call, or by a try whose reply was lost.
    #[default]
    Unknown,
    /// There was no waiter to wake: the lock still has holders, or no waiter is next.
    Nothing,
    /// A call that was sent at that time announced it.
    Announced(Announcement, Instant),
}

impl News {
    /// Separates a reply from the result of its announcement.
    pub(super) fn split(reply: Reply, delivery: &Delivery) -> (Reply, Self) {
        let (reply, announcement) = reply.split();
        let announcement = announcement.or_else(|| delivery.announcement());
        let news = match (announcement, delivery.sent) {
            (Some(announcement), Some(sent)) => Self::Announced(announcement, sent),
            // An earlier try may have run, and then that try has published.
            _ if delivery.open_since.is_some() => Self::Unknown,
            _ => Self::Nothing,
        };
        (reply, news)
    }
}

impl ClientEngine {
    /// A hold of this recipe's lock ended. Returns whether this client's listeners are notified.
    pub(super) fn ended(&self, recipe: &dyn Recipe, news: &News) -> bool {
        if recipe.queue().is_none() {
            return recipe
                .channel()
                .is_some_and(|channel| self.ended_on(channel, news));
        }
        let News::Announced(announcement, _) = news else {
            return false;
        };
        if announcement.is_granted {
            return true;
        }
        self.look_for_rights(announcement);
        let waiter = announcement.waiter.as_ref();
        // A waiter of another client has its own subscription.
        let Some(number) = waiter.and_then(|waiter| self.id.number_of(waiter)) else {
            return false;
        };
        let name = recipe.name().as_str();
        let message = || Message {
            channel: wake_channel(&self.id),
            payload: TurnMessage::encode_now(number, name),
        };
        self.tell(message, news)
    }

    /// A wait on this channel may end. Returns whether this client's listeners are notified.
    pub(super) fn ended_on(&self, channel: impl Into<String>, news: &News) -> bool {
        if let News::Announced(announcement, _) = news {
            self.look_for_rights(announcement);
        }
        let message = || Message {
            channel: channel.into(),
            payload: String::new(),
        };
        self.tell(message, news)
    }

    fn look_for_rights(&self, announcement: &Announcement) {
        if !announcement.is_made {
            self.nodes.current().journal.is_missing(Right::PUBLISH);
        }
    }

    fn tell(&self, message: impl FnOnce() -> Message, news: &News) -> bool {
        let sent = match news {
            News::Nothing => return true,
            News::Announced(announcement, sent) if announcement.is_made => Some(*sent),
            News::Announced(..) | News::Unknown => None,
        };
        self.hub.announced(message, sent)
    }
}
