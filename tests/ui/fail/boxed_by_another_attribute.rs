use std::pin::Pin;

use redlock_rt::{Error, distributed_lock};

// As `#[async_trait]` leaves a pattern.
#[distributed_lock(key = "order:<id>")]
fn place(__arg0: (u64, u64)) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send>> {
    Box::pin(async move {
        let (_id, _) = __arg0;
        Ok(())
    })
}

fn main() {}
