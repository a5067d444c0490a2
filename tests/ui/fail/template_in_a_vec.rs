use redlock_rt::{Error, distributed_lock};

#[distributed_lock(keys = vec!["account:<from>", "vault"])]
async fn transfer(from: u64, to: u64) -> Result<(), Error> {
    Ok(())
}

fn main() {}
