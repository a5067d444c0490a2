use redlock_rt::{Error, distributed_lock};

#[distributed_lock(key = "order", on_unavailable = call(busy))]
async fn place(_: u64) -> Result<(), Error> {
    Ok(())
}

fn main() {}
