use redlock_rt::{Error, distributed_lock};

#[distributed_lock(key = "order:<user_id>")]
async fn place(_: u64) -> Result<(), Error> {
    Ok(())
}

fn main() {}
