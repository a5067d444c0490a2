use redlock_rt::{Error, distributed_lock};

#[distributed_lock(key = "order:<user_id>", replica_ack = { replicas })]
async fn place(user_id: u64, replicas: u32) -> Result<(), Error> {
    Ok(())
}

fn main() {}
