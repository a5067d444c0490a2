use redlock_rt::{Error, distributed_lock};

#[distributed_lock(key = "order:<user_id>", on_timeout = call(busy))]
async fn place(user_id: u64) -> Result<u64, Error> {
    Ok(user_id)
}

fn main() {}
