use redlock_rt::{Error, distributed_lock};

#[distributed_lock(key = "order:<user_id>", kind = fenced, token = fence)]
async fn place(user_id: u64) -> Result<String, Error> {
    Ok(fence)
}

fn main() {}
