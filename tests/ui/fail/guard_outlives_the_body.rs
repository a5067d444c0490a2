use redlock_rt::{Error, distributed_lock};

#[distributed_lock(key = "order:<user_id>", guard = held)]
async fn place<'a>(user_id: u64) -> Result<&'a redlock_rt::RLockGuard, Error> {
    Ok(held)
}

fn main() {}
