use redlock_rt::{Error, distributed_lock};

#[distributed_lock(key = "account:<from>", keys = ["account:<to>"])]
async fn transfer(from: u64, to: u64) -> Result<(), Error> {
    Ok(())
}

fn main() {}
