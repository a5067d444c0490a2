//! Finds the server. A new connection looks for the server to lock on, logs in and asks what kind of
//! server it is. All connections of a client are made to lead to one server process.

mod current;
mod gather;
mod greeting;
mod info;
mod journal;
mod reach;
mod replicated;
mod sentinel;
mod sentinel_events;

pub(crate) use self::current::CurrentServer;
pub(super) use self::current::{Listener, Tie};
pub(super) use self::gather::{all_failed, gather};
pub(super) use self::greeting::{Identity, ask};
pub(super) use self::info::{Info, NOT_A_NODE};
pub(crate) use self::journal::{Beside, Right};
pub(super) use self::reach::reach;
pub(crate) use self::sentinel_events::listen as listen_for_switches;
