//! The commands of barriers.

use std::time::Duration;

use super::{
    answer::{Failure, Outcome},
    clients::Connected,
    command::span,
};

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BarrierCommand {
    name: String,
    parties: u32,
    of: Of,
}

#[derive(Debug, PartialEq, Eq)]
enum Of {
    Await(Option<Duration>),
    Reset,
}

impl BarrierCommand {
    /// `None` for another command.
    pub(crate) fn parse(command: &str, args: &[&str]) -> Option<Result<Self, Failure>> {
        let verb = command.strip_prefix("barrier.")?;
        let form = match verb {
            "await" => "NAME PARTIES [waitMs]",
            "reset" => "NAME PARTIES",
            _ => return None,
        };
        let usage = || Failure::usage(format!("{command} {form}"));
        let [name, parties, rest @ ..] = args else {
            return Some(Err(usage()));
        };
        let Ok(parties) = parties.parse() else {
            return Some(Err(usage()));
        };
        let of = match (verb, rest) {
            ("await", []) => Of::Await(None),
            ("await", [wait]) => match span(wait) {
                Ok(wait) => Of::Await(Some(wait)),
                Err(failure) => return Some(Err(failure)),
            },
            ("reset", []) => Of::Reset,
            _ => return Some(Err(usage())),
        };
        Some(Ok(Self {
            name: (*name).to_owned(),
            parties,
            of,
        }))
    }

    pub(crate) async fn run(self, client: &Connected) -> Outcome {
        let barrier = client.client.cyclic_barrier(self.name, self.parties);
        Ok(match self.of {
            Of::Await(wait) => barrier.wait_with(wait).await?.generation.to_string(),
            Of::Reset => barrier.reset().await?.to_string(),
        })
    }
}
