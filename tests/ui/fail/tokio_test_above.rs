use redlock_rt::{Error, distributed_lock};

#[tokio::main(flavor = "current_thread")]
#[distributed_lock(key = "everything")]
async fn main() -> Result<(), Error> {
    Ok(())
}
