use redlock_rt::{Error, distributed_lock};

const LEASE: u64 = 30;

#[distributed_lock(key = "order:<user_id>", lease = 2 * LEASE)]
async fn place(user_id: u64) -> Result<(), Error> {
    Ok(())
}

fn main() {}
