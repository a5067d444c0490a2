//! A master that sentinels name: found on each connection, and followed when it changes.

mod failover;
mod fake;
mod found;
mod real;
