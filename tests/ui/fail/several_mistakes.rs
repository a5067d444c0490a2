use redlock_rt::{Error, distributed_lock};

#[distributed_lock(key = "order:<user>:<>", wait = "1", lease = "0s", colour = "red")]
async fn place(user_id: u64) -> Result<(), Error> {
    Ok(())
}

// The function is still there, so that its callers are not mistakes too.
async fn caller() -> Result<(), Error> {
    place(1).await
}

fn main() {}
