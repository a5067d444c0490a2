use redlock_rt::{Error, distributed_lock};

struct Order;

impl Order {
    fn number(&self) -> u64 {
        7
    }
}

#[distributed_lock(key = "order:<order.numbers()>")]
async fn place(order: Order) -> Result<(), Error> {
    Ok(())
}

fn main() {}
