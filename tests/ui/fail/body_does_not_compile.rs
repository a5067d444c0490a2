use redlock_rt::{Error, distributed_lock};

#[distributed_lock(key = "order:<user_id>")]
async fn place(user_id: u64) -> Result<(), Error> {
    let receipt: &str = user_id;
    print(receipt);
    Ok(())
}

fn main() {}
