//! Listening: the commands and messages of a connection that subscribes to channels.

mod listening;
mod subscriber;

pub(crate) use self::listening::{Heard, Message};
pub(crate) use self::subscriber::Subscriber;
