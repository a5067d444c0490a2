//! The way to a server: how it is found and reached, what it answers at first, and how often it is
//! asked again.

mod config;
mod credentials;
mod dialing;
mod error_codes;
mod hangs_up;
mod health;
mod identity;
mod idle;
mod misconfigured;
mod one_server;
mod reach;
mod redis_crate;
mod replicated;
mod retry;
mod scan;
mod standstill;
