//! Reserves free ports, also while the server on them is down.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
#[cfg(target_os = "linux")]
use std::os::{
    linux::net::SocketAddrExt,
    unix::net::{SocketAddr as UnixAddr, UnixListener},
};

use crate::random::random_u64;

/// Below the range that the kernel gives to outgoing connections and to binds of port 0, so that
/// neither can take the port of a server that is being restarted.
const RANGE: std::ops::Range<u16> = 10_000..32_000;
const TRIES: usize = 1000;
/// The distance of a cluster node's bus from its port; fixed before Redis 7.0.
const BUS: u16 = 10_000;

/// A port of 127.0.0.1 that no other test of this machine picks while this value lives.
#[derive(Debug)]
pub struct ReservedPort {
    port: u16,
    // One process at a time has the name of an abstract socket, and the kernel frees it with the
    // process; no file is left.
    #[cfg(target_os = "linux")]
    _reservation: UnixListener,
}

impl ReservedPort {
    /// Picks a port that is free at this moment.
    ///
    /// # Panics
    /// If there is none.
    pub fn pick() -> Self {
        (0..TRIES)
            .find_map(|_| Self::try_pick())
            .expect("no free port on 127.0.0.1")
    }

    /// Picks two free ports for a node of a cluster: for clients, and for the bus.
    pub(crate) fn pick_with_bus() -> (Self, Self) {
        let range = RANGE.start..RANGE.end - BUS;
        (0..TRIES)
            .find_map(|_| {
                let port = Self::try_in(&range)?;
                let bus = Self::try_at(port.port + BUS)?;
                Some((port, bus))
            })
            .expect("no two free ports on 127.0.0.1")
    }

    fn try_pick() -> Option<Self> {
        Self::try_in(&RANGE)
    }

    fn try_in(range: &std::ops::Range<u16>) -> Option<Self> {
        let within = random_u64() % range.len() as u64;
        Self::try_at(range.start + u16::try_from(within).ok()?)
    }

    fn try_at(port: u16) -> Option<Self> {
        #[cfg(target_os = "linux")]
        let name = UnixAddr::from_abstract_name(format!("redlock-rt-test-port-{port}")).ok()?;
        #[cfg(target_os = "linux")]
        let reservation = UnixListener::bind_addr(&name).ok()?;
        TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok()?;
        Some(Self {
            port,
            #[cfg(target_os = "linux")]
            _reservation: reservation,
        })
    }

    /// Its number.
    pub fn number(&self) -> u16 {
        self.port
    }

    pub(crate) fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }
}
