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

/// A port of 127.0.0.1 that no other test of this machine picks while this value lives.
#[derive(Debug)]
pub(crate) struct ReservedPort {
    port: u16,
    // One process at a time has the name of an abstract socket, and the kernel frees it with the
    // process; no file is left.
    #[cfg(target_os = "linux")]
    _reservation: UnixListener,
}

impl ReservedPort {
    /// Picks a port that is free at this moment.
    pub(crate) fn pick() -> Self {
        (0..TRIES)
            .find_map(|_| Self::try_pick())
            .expect("no free port on 127.0.0.1")
    }

    fn try_pick() -> Option<Self> {
        let port = RANGE.start + u16::try_from(random_u64() % RANGE.len() as u64).ok()?;
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

    pub(crate) fn number(&self) -> u16 {
        self.port
    }

    pub(crate) fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }
}
