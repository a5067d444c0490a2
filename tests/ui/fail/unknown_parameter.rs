use redlock_rt::{Error, distributed_lock};

#[distributed_lock(key = "order:<user>:<usre_id>")]
async fn place(user_id: u64, item: &str) -> Result<(), Error> {
    Ok(())
}

fn main() {}
