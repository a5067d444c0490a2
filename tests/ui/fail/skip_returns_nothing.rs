use redlock_rt::distributed_lock;

#[distributed_lock(key = "order:<user_id>", on_timeout = skip)]
async fn place(user_id: u64) {}

fn main() {}
