//! Listening: the connection that subscribes to channels, and what it hears.

mod listening;
mod subscriber;

pub(crate) use self::listening::{Heard, Message};
pub(crate) use self::subscriber::{Announcements, Subscriber};
