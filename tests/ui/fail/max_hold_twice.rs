use redlock_rt::{Error, distributed_lock};

#[distributed_lock(key = "order:<user_id>", max_hold = "1m", wait = "1s", max_hold = "2m")]
async fn place(user_id: u64) -> Result<(), Error> {
    Ok(())
}

fn main() {}
