use redlock_rt::{Error, distributed_lock};

#[distributed_lock(key = "order:<user_id>", guard = held)]
async fn guard_moved_out(user_id: u64) -> Result<(), Error> {
    held.unlock().await?;
    Ok(())
}

#[distributed_lock(key = "order:<user_id>", guard = held)]
async fn guard_outlives_the_body<'a>(user_id: u64) -> Result<&'a redlock_rt::RLockGuard, Error> {
    Ok(held)
}

#[distributed_lock(key = "order:<item.into_boxed_str()>")]
async fn key_takes_the_parameter(item: String) -> Result<String, Error> {
    Ok(item)
}

fn main() {}
