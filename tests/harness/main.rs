//! The harness's own tests.

mod cluster;
mod driver;
mod eventually;
mod frames;
mod history;
mod leak;
mod monitor;
mod proxy_count;
mod proxy_cut;
mod proxy_hold;
mod redisson;
mod server;

use std::time::Duration;

/// The limit for events that must happen.
/// Only a call that hangs takes this long.
const DEADLINE: Duration = Duration::from_secs(60);
/// The time that is given to events that must not happen.
const MOMENT: Duration = Duration::from_millis(100);
