use redlock_rt::{Error, distributed_lock};

const LIMIT: usize = 3;

#[distributed_lock(key = "order:<user_id>", kind = semaphore(limit = LIMIT))]
async fn place(user_id: u64) -> Result<(), Error> {
    Ok(())
}

fn main() {}
