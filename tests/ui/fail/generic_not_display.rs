use redlock_rt::{Error, distributed_lock};

#[distributed_lock(key = "order:<user>")]
async fn place<T>(user: T) -> Result<(), Error> {
    Ok(())
}

fn main() {}
