use redlock_rt::{Error, distributed_lock};

#[distributed_lock(keys = ["account:<from>", "account:<to>"], kind = semaphore(limit = 3))]
async fn transfer(from: u64, to: u64) -> Result<(), Error> {
    Ok(())
}

fn main() {}
