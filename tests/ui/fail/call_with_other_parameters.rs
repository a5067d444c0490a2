use redlock_rt::{Error, distributed_lock};

#[distributed_lock(key = "order:<user_id>", on_timeout = call(busy))]
async fn place(user_id: u64, item: String) -> Result<u64, Error> {
    Ok(user_id)
}

async fn busy(user_id: u64, _: u32) -> Result<u64, Error> {
    Ok(user_id)
}

fn main() {}
