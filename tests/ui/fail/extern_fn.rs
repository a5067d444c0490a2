use redlock_rt::distributed_lock;

#[distributed_lock(key = "order:<user_id>")]
extern "C" fn place(user_id: u64) {}

fn main() {}
