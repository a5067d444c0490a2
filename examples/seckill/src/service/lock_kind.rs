//! What an order is placed under.

use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;
use serde::Deserialize;

/// What an order is placed under, from nothing to what holds whatever happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum LockKind {
    /// Nothing: two requests of one user both look, and both buy.
    Off,
    /// `SET key 1 NX`, `DEL key`: after a crash of its holder, the key stays for ever.
    Setnx,
    /// `SET key 1 NX PX 150`, `DEL key`: a slow holder deletes the key of the next one.
    SetnxTtl,
    /// The same with a token that is compared before the key is deleted: a slow holder is not alone.
    Token,
    /// `#[distributed_lock]`: renewed while it is held, and a body whose lock is lost is cancelled.
    #[value(alias = "on")]
    Rlock,
    /// The same with a fencing token, which the database compares.
    Fenced,
}

impl LockKind {
    /// The name, on the command line, in the database and on the page.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Setnx => "setnx",
            Self::SetnxTtl => "setnx-ttl",
            Self::Token => "token",
            Self::Rlock => "rlock",
            Self::Fenced => "fenced",
        }
    }

    /// Whether it talks to Redis by itself, and so needs a server at an address.
    pub(crate) fn is_raw(self) -> bool {
        matches!(self, Self::Setnx | Self::SetnxTtl | Self::Token)
    }

    /// Whether no user has two vouchers, as long as Redis loses no data.
    pub(crate) fn is_sound(self) -> bool {
        matches!(self, Self::Rlock | Self::Fenced)
    }
}

impl fmt::Display for LockKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for LockKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // Each order comes through here.
        let kinds = Self::value_variants();
        let found = kinds.iter().find(|kind| kind.as_str() == text);
        found.copied().ok_or_else(|| {
            let names: Vec<_> = kinds.iter().map(|kind| kind.as_str()).collect();
            format!("expected one of {}", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_command_line() {
        for kind in LockKind::value_variants() {
            assert_eq!(kind.as_str().parse(), Ok(*kind));
        }
        let refused = "maybe".parse::<LockKind>().unwrap_err();
        assert!(refused.contains("setnx-ttl"), "{refused}");
    }
}
