//! Re-entry of a held lock and its end: two round trips; the lock stays held.
//!
//! ```text
//! cargo bench -p benches --bench reentry
//! ```

#[path = "support/stage.rs"]
mod stage;

use self::stage::Stage;

fn main() {
    stage::run(|criterion| {
        let stage = Stage::set();
        let lock = stage.client.rlock("bench:reentry");
        let outer = stage.runtime.block_on(lock.lock());
        let outer = outer.expect("it is free");
        criterion.bench_function("reentry", |bencher| {
            bencher.to_async(&stage.runtime).iter(async || {
                let inner = outer.reenter().await.expect("it is held");
                inner.unlock().await.expect("the server answers");
            });
        });
    });
}
