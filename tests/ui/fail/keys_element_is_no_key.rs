use redlock_rt::{Error, distributed_lock};

#[distributed_lock(keys = ["account:<from>", 7])]
async fn transfer(from: u64, to: u64) -> Result<(), Error> {
    Ok(())
}

fn main() {}
