use std::pin::Pin;

use redlock_rt::{Error, distributed_lock};

#[distributed_lock(key = "order:<user_id>")]
fn place(user_id: u64) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send>> {
    Box::pin(inner(user_id))
}

async fn inner(_: u64) -> Result<(), Error> {
    Ok(())
}

fn main() {}
