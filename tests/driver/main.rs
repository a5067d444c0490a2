//! The line driver: the rules of its protocol, on real Redis and on the embedded engine.

mod barrier;
mod cluster;
mod composites;
mod fair;
mod latch;
mod locks;
mod others;
mod process;
mod rw;
mod semaphores;
mod servers;
mod service;

use tests::{DEADLINE, Driver, eventually, shared_server};

const PROGRAM: &str = env!("CARGO_BIN_EXE_driver");

async fn connected() -> Driver {
    let driver = Driver::start(PROGRAM);
    let url = shared_server().url();
    assert_eq!(driver.ok(&format!("connect {url}")).await, "ok");
    driver
}

async fn waits_for(driver: &Driver, count: usize) {
    eventually(DEADLINE, async || {
        let stats = driver.ok("stats").await;
        let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
        if stats["waiting"] == count {
            Ok(())
        } else {
            Err(stats)
        }
    })
    .await;
}
