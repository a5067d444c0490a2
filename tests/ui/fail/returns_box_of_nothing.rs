use std::pin::Pin;

use redlock_rt::distributed_lock;

#[distributed_lock(key = "order:<user_id>")]
fn place(user_id: u64) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {})
}

fn main() {}
