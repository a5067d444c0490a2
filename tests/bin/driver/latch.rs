//! The commands of count-down latches.

use std::time::Duration;

use super::{
    answer::{Failure, Outcome},
    clients::Connected,
    command::span,
};

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LatchCommand {
    name: String,
    of: Of,
}

#[derive(Debug, PartialEq, Eq)]
enum Of {
    Set(u64),
    Down,
    Await(Option<Duration>),
    Count,
    Delete,
}

impl LatchCommand {
    /// `None` for another command.
    pub(crate) fn parse(command: &str, args: &[&str]) -> Option<Result<Self, Failure>> {
        let verb = command.strip_prefix("latch.")?;
        let form = match verb {
            "set" => "NAME N",
            "await" => "NAME [waitMs]",
            "down" | "count" | "delete" => "NAME",
            _ => return None,
        };
        let usage = || Failure::usage(format!("{command} {form}"));
        let of = match (verb, args) {
            ("set", [_, count]) => match count.parse() {
                Ok(count) => Of::Set(count),
                Err(_) => return Some(Err(usage())),
            },
            ("await", [_]) => Of::Await(None),
            ("await", [_, wait]) => match span(wait) {
                Ok(wait) => Of::Await(Some(wait)),
                Err(failure) => return Some(Err(failure)),
            },
            ("down", [_]) => Of::Down,
            ("count", [_]) => Of::Count,
            ("delete", [_]) => Of::Delete,
            _ => return Some(Err(usage())),
        };
        let name = args[0].to_owned();
        Some(Ok(Self { name, of }))
    }

    pub(crate) async fn run(self, client: &Connected) -> Outcome {
        let latch = client.client.count_down_latch(self.name);
        Ok(match self.of {
            Of::Set(count) => latch.try_set_count(count).await?.to_string(),
            Of::Down => latch.count_down().await?.to_string(),
            Of::Await(wait) => match latch.wait_with(wait).await {
                Ok(()) => true.to_string(),
                Err(error) if error.is_timed_out() => false.to_string(),
                Err(error) => return Err(error.into()),
            },
            Of::Count => latch.count().await?.to_string(),
            Of::Delete => latch.delete().await?.to_string(),
        })
    }
}
