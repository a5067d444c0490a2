//! Outside of a runtime. In a process of its own: a client with a thread of its own, anywhere in the
//! process, lets timers be made everywhere.

use std::time::Duration;

use redlock_rt::{Client, LockOptions};

#[test]
#[should_panic(expected = "ClientBuilder::dedicated_thread(true)")]
fn outside_of_a_runtime_the_panic_said_that_no_reactor_is_running() {
    let client = Client::embedded();
    // Bounded: without the panic it is for nothing, not for ever.
    let brief = LockOptions::new().wait(Duration::from_millis(10));
    let _ = tests::block_on(client.rlock("here").lock_with(brief));
}
