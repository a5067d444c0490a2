#![deny(unused_variables, unused_mut, unused_must_use, unreachable_code)]

use redlock_rt::{Error, distributed_lock};

#[distributed_lock(key = "order:<user_id>")]
async fn place(user_id: u64, mut item: String, count: u64) -> Result<(), Error> {
    let receipt = item.len();
    Ok::<u64, Error>(2);
    return Ok(());
    unreachable!()
}

async fn caller() {
    place(1, String::new(), 1).await;
}

fn main() {}
