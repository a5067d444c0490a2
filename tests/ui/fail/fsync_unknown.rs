use redlock_rt::{Error, distributed_lock};

#[distributed_lock(key = "order:<user_id>", fsync = master)]
async fn place(user_id: u64) -> Result<(), Error> {
    Ok(())
}

fn main() {}
