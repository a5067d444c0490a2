use redlock_rt::{Error, distributed_lock};

const EVERY: u64 = 30;

#[distributed_lock(key = "order:<user_id>", renew = EVERY)]
async fn place(user_id: u64) -> Result<(), Error> {
    Ok(())
}

fn main() {}
