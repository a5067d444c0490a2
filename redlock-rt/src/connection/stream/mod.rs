//! Bytes and replies. Commands are encoded and replies read within limits. The calls of many callers share
//! one byte stream, driven by one future, and each call gets its own reply.

mod admission;
mod driver;
pub(super) mod encode;
mod framed;
#[cfg(any(fuzzing, test))]
pub(super) mod fuzz;
mod multiplexer;
mod resp;

pub(super) use self::admission::Share;
pub(super) use self::driver::{Driver, Task};
pub(super) use self::framed::{Framed, nonsense};
pub(crate) use self::multiplexer::Came;
pub(super) use self::multiplexer::{
    Answer, Answers, Due, Ended, InLine, Multiplexer, Pending, Unanswered, WakeUp, last,
};
pub(super) use self::resp::{Nonsense, reply};
