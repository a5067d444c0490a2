use redlock_rt::{Error, distributed_lock};

struct Order {
    id: u64,
}

#[distributed_lock(key = "order:<order.ids>")]
async fn place(order: Order) -> Result<(), Error> {
    Ok(())
}

fn main() {}
