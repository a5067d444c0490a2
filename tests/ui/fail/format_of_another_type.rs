use redlock_rt::{Error, distributed_lock};

#[distributed_lock(key = "order:<user:e>")]
async fn place(user: &str) -> Result<(), Error> {
    Ok(())
}

fn main() {}
