//! The report of a cluster node about the slot of a call, instead of running the call.

use std::fmt;

use super::address::Address;

/// The call did not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SlotNews {
    Redirect(Redirect),
    /// TRYAGAIN: some of the call's keys are being moved to another node.
    Split,
    /// CLUSTERDOWN: too many masters are away, or the slot has none.
    Down,
}

/// Another node has the slot, or the keys of the call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Redirect {
    /// For this call only: the slot is being moved there (ASK, not MOVED).
    pub(super) asks: bool,
    /// Empty: the host of the reporting node.
    pub(super) host: String,
    pub(super) port: u16,
    /// `None` until the reporting node is known.
    pub(super) to: Option<Address>,
}

impl fmt::Display for Redirect {
    /// A host may contain anything, and be of any length.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host: String = self.host.chars().take(255).collect();
        write!(f, "it was sent to {host:?}, port {}", self.port)
    }
}

impl SlotNews {
    /// Reads an error reply such as `MOVED 3999 127.0.0.1:6381`.
    pub(super) fn of(code: &str, detail: &str) -> Option<Self> {
        let asks = match code {
            "MOVED" => false,
            "ASK" => true,
            "TRYAGAIN" => return Some(Self::Split),
            "CLUSTERDOWN" => return Some(Self::Down),
            _ => return None,
        };
        let (_, address) = detail.split_once(' ')?;
        let (host, port) = address.trim().rsplit_once(':')?;
        Some(Self::Redirect(Redirect {
            asks,
            host: host.to_owned(),
            port: port.parse().ok()?,
            to: None,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redirect(asks: bool, host: &str, port: u16) -> Option<SlotNews> {
        let host = host.to_owned();
        Some(SlotNews::Redirect(Redirect {
            asks,
            host,
            port,
            to: None,
        }))
    }

    #[test]
    fn redirections_name_a_host_and_a_port() {
        let moved = SlotNews::of("MOVED", "3999 10.0.0.1:6381");
        assert_eq!(moved, redirect(false, "10.0.0.1", 6381));
        let asked = SlotNews::of("ASK", "3999 ::1:6381");
        assert_eq!(asked, redirect(true, "::1", 6381));
        assert_eq!(SlotNews::of("MOVED", "1 :7000"), redirect(false, "", 7000));
        assert_eq!(SlotNews::of("TRYAGAIN", "x"), Some(SlotNews::Split));
        assert_eq!(SlotNews::of("CLUSTERDOWN", "x"), Some(SlotNews::Down));
        for detail in ["", "1", "1 a", "1 a:b", "1 a:65536"] {
            assert_eq!(SlotNews::of("MOVED", detail), None, "{detail}");
        }
        assert_eq!(SlotNews::of("ERR", "1 a:1"), None);
    }
}
