use redlock_rt::distributed_lock;

struct Order;

#[distributed_lock(key = "order")]
impl Order {}

fn main() {}
