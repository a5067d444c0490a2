//! The real library on a simulated network, in simulated time: one seed, one history.
//!
//! Each host is a process with a client of the library, on a runtime of its own whose clock is
//! paused; the server is the embedded engine. All run on one thread, a millisecond at a time: what a
//! host sends arrives later, so nothing depends on the order in which the hosts are run. A [`Plan`] says
//! what all do and what goes wrong; [`run`] brings it about, and [`history::check`](crate::history::check)
//! judges it.
//!
//! ```text
//! seed ─▶ Plan ─▶ run ─▶ hosts (library) ─▶ nodes: net ─▶ server (embedded engine)
//!                  │         └──▶ log ─▶ History ─▶ check ─▶ violations
//!                  └▶ faults
//! ```

mod act;
mod alone;
mod attribute;
mod barrier;
mod carry;
mod clients;
mod cluster;
mod convert;
mod copying;
mod failover;
mod faults;
mod flood;
mod generate;
mod guard;
mod java;
mod java_plan;
mod latch;
mod log;
mod machine;
mod net;
mod node;
mod plan;
mod questions;
mod quorum;
mod redlock;
mod replicas;
mod rest;
mod run;
mod sentinel;
mod server;
mod services;
mod shards;
mod shrink;
mod sights;
mod slots;
mod stream;
mod throng;
mod tickets;
mod troubles;
mod ttl;
mod turn;
mod wall;
mod watched;

pub use self::{
    plan::{
        Copies, Cut, Ending, Fault, Flood, Meanwhile, Place, Plan, Refusal, Servers, Shards, Step,
        Terms, Thing, Trouble, Turn, Watched,
    },
    run::{Report, run},
    shrink::shrink,
};
