use std::pin::Pin;

use redlock_rt::{Error, distributed_lock};

#[distributed_lock(key = "order:<user_id>")]
fn place(user_id: u64) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send>> {
    if user_id == 0 {
        return Box::pin(async { Ok(()) });
    }
    Box::pin(async move { Ok(()) })
}

fn main() {}
