use redlock_rt::{Error, distributed_lock};

#[distributed_lock(keys = user_id)]
async fn place(user_id: u64) -> Result<(), Error> {
    Ok(())
}

fn main() {}
