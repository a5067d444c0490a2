//! Calls outside a runtime. In a separate process, since a client with its own thread, anywhere in the
//! process, would allow timers everywhere.

use std::time::Duration;

use redlock_rt::{Client, LockOptions};

#[test]
#[should_panic(expected = "ClientBuilder::dedicated_thread(true)")]
fn outside_of_a_runtime_the_panic_said_that_no_reactor_is_running() {
    let client = Client::embedded();
    // Bounded, so that the test ends also without the panic.
    let brief = LockOptions::new().wait(Duration::from_millis(10));
    let _ = tests::block_on(client.rlock("here").lock_with(brief));
}
