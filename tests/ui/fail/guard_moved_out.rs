use redlock_rt::{Error, distributed_lock};

#[distributed_lock(key = "order:<user_id>", guard = held)]
async fn place(user_id: u64) -> Result<(), Error> {
    held.unlock().await?;
    Ok(())
}

fn main() {}
