use redlock_rt::{Error, distributed_lock};

struct Order {
    id: u64,
}

#[distributed_lock(key = "order:<order.id>")]
async fn place(Order { id }: Order) -> Result<u64, Error> {
    Ok(id)
}

fn main() {}
