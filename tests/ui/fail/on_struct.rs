use redlock_rt::distributed_lock;

#[distributed_lock(key = "order")]
struct Order;

fn main() {}
