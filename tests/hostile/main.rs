//! What a broken or hostile server sends to the library, and what a hostile client sends to the
//! embedded engine.
//!
//! Cases are generated from seeds: 20 000 always, and a million with `REDLOCK_SOAK=1`. A failure
//! names its seed; `REDLOCK_SEED=n` runs that one alone, on either side.

mod attack;
mod calls;
mod coordination;
mod liars;
mod listener;
mod replies;
mod requests;
mod scripts;
mod seeds;
mod server;
mod session;
mod tenant;
